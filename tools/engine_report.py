"""The text of what bench_engine.py measured: goals and whether they hold, each comparison, answers,
B'MOJO at every depth."""

from statistics import median

from bench_report import number, verdict
from engine_cases import ROUNDS
from measure import table

# What is measured, at least, goal.
GOALS = [
    ("smollm2-decode", "f32 decode, ours / llama.cpp, depth 0", 0.95, 1.1),
    ("smollm2-decode-2k", "f32 decode, ours / llama.cpp, depth 2,048", 0.95, 1.1),
    ("smollm2-prefill", "f32 prefill of 512, ours / llama.cpp", 0.9, 1.2),
    ("mamba-prefill", "Mamba f32 prefill of 512, ours / llama.cpp", 2, 3),
    ("mamba-decode", "Mamba f32 decode, ours / llama.cpp, depth 0", 1, 1.2),
    ("mamba-decode-2k", "Mamba f32 decode, ours / llama.cpp, depth 2,048", 1, 1.2),
    ("share-f32", "B'MOJO 130M decode: share of bandwidth, f32", 0.85, 0.92),
    ("share-bf16", "B'MOJO 130M decode: share of bandwidth, bf16", 0.75, 0.85),
    ("growth", "B'MOJO decode, time at depth 131,072 / 2,048", 1.05, 1.02),
    ("batch-bmojo-0", "B'MOJO f32, tokens of a batch of 8 / batch 1, depth 0", 4, 6),
    ("batch-bmojo-2048", "B'MOJO f32, tokens of a batch of 8 / batch 1, depth 2,048", 4, 6),
    ("start-packed", "generate: start to first token, 135 M, packed file, ms", 150, 60),
    ("start-plain", "generate: start to first token, 135 M, plain file, ms", None, None),
    ("start-bmojo-f32", "generate: start to first token, B'MOJO 130M, packed, f32, ms", None, None),
    ("start-bmojo-bf16", "generate: start to first token, B'MOJO 130M, packed, bf16, ms", None,
     None),
]
LARGER_IS_BETTER = {name for name, *_ in GOALS if name != "growth" and "start" not in name}
MODELS = {"smollm2": "SmolLM2-135M", "mamba": "Mamba 130M"}

NOTES = """\
Tokens a second, ours over the peer's: the median of the rounds' ratios and its 95 % interval. A bar
holds if the unfavourable end does, after at least ten rounds. Share of bandwidth: weights and memories read once, over the
time of a token, at depth 2,048 (bytes below), over the best read of 1 GiB in this run. Start-up is
a whole process that writes one token, from a warm cache. Its prompt is given as `--ids`, so no
tokenizer is loaded and no text is cut into tokens."""
PEER_NOTES = """\
Same weights, f32, last logits only, llama.cpp timed around its decode call. Every kind of it was
tried (built with and without BLAS, flash attention on and off, weights mapped or read into huge
pages), for a goal twice by turns, and the fastest for the row is shown; `f32` is the cache that
ours has too, `f16` its default. Speeds are medians. Ours runs from a folder that
`bmojo export --packed` wrote and maps it as it lies, as llama.cpp does where it says mapped; the
first look, at 8c382e9, was of plain folders, whose weights ours holds twice. Memory is the peak of
a process: all of it for ours, with the program itself; llama.cpp's less what Python took before the
model was loaded."""
DEPTH_NOTES = """\
Reading is of the 512 tokens before the depth, writing of those after it, over all depths by turns.
At depth 0: reading the first 512 tokens, writing after one token (the share counts memories that
are still empty). The goals come first: f32 at 2,048 and 131,072 in one process, bf16 at 2,048 in
another. The other depths have one more for each type. Peak memory is that of such a process, which
keeps a sequence at each of its depths; a process for each depth would read for minutes more."""


def goal_rows(report):
    for name, text, at_least, goal in GOALS:
        found = report["goals"].get(name)
        row = [text, number(at_least, "g"), number(goal, "g"), "-", "-", "-"]
        if found:
            row[3:] = [f"{found['median']:.3g}", f"{found['low']:.3g} to {found['high']:.3g}",
                       len(found["ratios"])]
        if at_least is None and goal is None:
            yield [*row, "no bar"]
        else:
            yield [*row, verdict(name, found, at_least, goal, LARGER_IS_BETTER, ROUNDS)]


def kind_text(kind):
    build, flash, mmap, _ = kind
    return (f"{'with' if build == 'blas' else 'no'} BLAS, flash {flash}, "
            f"{'mapped' if mmap == 'on' else 'huge pages'}")


def memory_of(report, case, side):
    peaks = [run["peak_rss_bytes"] for run in report["runs"]
             if (run["case"], run["side"]) == (case, side)]
    return f"{max(peaks) / 1e6:,.0f} MB" if peaks else "-"


def compared_rows(report):
    for row in report["compared"]:
        yield [MODELS[row["model"]], row["phase"], f"{row['depth']:,}", row["batch"], row["cache"],
               kind_text(row["kind"]), f"{row['ours']:,.1f}", f"{row['peer']:,.1f}",
               f"{row['median']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}",
               len(row["ratios"]), memory_of(report, row["case"], "ours"),
               memory_of(report, row["case"], "peer")]


def answer_rows(report):
    for answer in report["answers"]:
        yield [MODELS[answer["model"]], kind_text(answer["kind"]), answer["tokens"],
               f"{answer['argmax']:.1%}", f"{answer['error']:.1e}",
               f"{answer['same']} of {answer['written']}"]


def depth_rows(report):
    bandwidth = report["limits"]["bandwidth"]
    for dtype, part in report["bmojo"].items():
        for depth, found in sorted(part["depths"].items()):
            reading, writing = found.get("prefill"), found.get("decode") and median(found["decode"])
            share = bandwidth and writing and writing * part["bytes_a_token"] / bandwidth
            yield [dtype, f"{depth:,}", number(reading, ",.0f"), number(writing, ".1f"),
                   number(writing and 1e3 / writing, ".2f"), number(share, ".0%")]


def alone_notes(report):
    for dtype, part in report["bmojo"].items():
        peak = part["peak_rss_bytes"]
        yield (f"- {dtype}: {part['bytes_a_token'] / 1e6:.1f} MB a token (weights and memories); "
               f"peak memory of the process {number(peak and peak / 1e6, ',.0f')} MB")


def tried_rows(report):
    speeds = {}
    for each in report["tried"]:
        speeds.setdefault((each["case"], *each["kind"]), []).append(f"{each['speed']:,.1f}")
    for (case, *kind), found in speeds.items():
        yield [case, kind_text(kind), kind[-1], " and ".join(found)]


def text_note(report):
    """Of the first answer with a text: its ids as llama.cpp's tokenizer spells them."""
    for answer in report["answers"]:
        if answer["texts"]:
            ours, theirs = answer["texts"]
            return f"- ours writes {ours!r}\n- llama.cpp writes {theirs!r}"
    return ""


def markdown(report):
    limits = report["limits"]
    sgemm, read = (number(limits[name] and limits[name] / 1e9, ".1f")
                   for name in ("sgemm", "bandwidth"))
    parts = [
        f"`{report['command']}` at {report['commit']} on {report['machine']},\n"
        f"{report['threads']} threads, beside {report['peer']}. Read {read} GB/s, sgemm {sgemm} "
        "GFLOP/s.",
        table(["goal of the engine", "at least", "goal", "measured", "interval", "rounds", "holds"],
              goal_rows(report)),
        NOTES,
        table(["model", "phase", "depth", "batch", "cache", "llama.cpp", "ours", "peer", "ratio",
               "interval", "rounds", "memory, ours", "peer's"], compared_rows(report)),
        PEER_NOTES,
        table(["model", "llama.cpp", "tokens", "same argmax", "largest error", "same text"],
              answer_rows(report)),
        "Largest error: of a logit, over the largest logit. Same text: greedy tokens until the "
        "first that differs.",
        text_note(report),
        table(["B'MOJO 130M", "depth", "reading", "writing", "ms a token", "share of bandwidth"],
              depth_rows(report)),
        DEPTH_NOTES,
        "\n".join(alone_notes(report)),
        table(["each kind", "llama.cpp", "cache", "tokens a second"], tried_rows(report)),
        "\n".join(f"- left out: {line}" for line in report["left_out"]),
    ]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"
