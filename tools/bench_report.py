"""The text of what bench.py measured: goals and whether they hold, steps, kernels."""

from measure import VOCABULARY, WIDTH, parameters, table

# What is measured, at least, goal; smaller is better but for the share.
GOALS = [
    ("time_2k", "time / fastest Mistral, 2,048", 1.0, 0.85),
    ("memory_2k", "memory / least memory of any Mistral, 2,048", None, 0.75),
    ("time_8k", "time / fastest Mistral, 8,192", 0.5, 0.4),
    ("mamba_time", "Mamba: time / fastest mambapy, 2,048", 0.1, 0.06),
    ("mamba_memory", "Mamba: memory / least memory of any mambapy, 2,048", 0.25, None),
    ("share", "share of sgemm in products, 2,048", 0.70, 0.85),
    ("growth", "growth of time, 2k to 16k", 8.4, 8.1),
    ("eidetic", "time, 64 eidetic tokens / none", 1.08, 1.04),
]
LARGER_IS_BETTER = {"share"}
NO_COST = {"eidetic": 1.0}  # where an interval around it leaves open whether there is a cost at all
# Pairs that a bar needs: ten, or five where one takes about a minute.
MIN_PAIRS = {"time_8k": 5, "mamba_time": 5, "mamba_memory": 5, "growth": 5}
MOST_PAIRS = 10
BOTH = "forward+backward"
PASSES = {"forward": "f", "backward": "b", BOTH: "f+b"}


def verdict(name, found, at_least, goal, larger_is_better=LARGER_IS_BETTER, pairs=None):
    """A bar holds if the unfavourable end of the interval does, of at least that many pairs. A bar
    inside the interval is decided by noise: another run may well say otherwise."""
    if found is None:
        return "not measured"
    if len(found["ratios"]) < (pairs or MIN_PAIRS.get(name, MOST_PAIRS)):
        return "not enough rounds"

    def holds(bar):
        if bar is None:
            return False
        return found["low"] >= bar if name in larger_is_better else found["high"] <= bar

    level = "goal" if holds(goal) else "at least" if holds(at_least) else "missed"
    bars = [bar for bar in (at_least, goal, NO_COST.get(name)) if bar is not None]
    open_bars = [f"{bar:g}" for bar in bars if found["low"] < bar < found["high"]]
    return level + (f" ({' and '.join(open_bars)}: decided by noise)" if open_bars else "")


def number(value, form):
    return "-" if value is None else format(value, form)


def peer_text(name):
    return name.replace("-default", ", default malloc")


def goal_rows(report):
    for name, text, at_least, goal in GOALS:
        found = report["goals"].get(name)
        row = [text, number(at_least, "g"), number(goal, "g")]
        if found:
            row += [f"{found['median']:.3f}", f"{found['low']:.3f} to {found['high']:.3f}",
                    len(found["ratios"]), f"{found['best']:.3f}", peer_text(found["peer"])]
        else:
            row += ["-"] * 5
        yield [*row, verdict(name, found, at_least, goal)]


def beside_rows(report):
    for row in report["beside_goals"]:
        ours, peer = row["ours"], peer_text(row["peer"])
        if row["length"] == row["peer_length"]:
            what = f"{ours} / {peer}, {row['length']:,}"
        else:
            what = f"{ours}, {row['length']:,} / {row['peer_length']:,}"
        yield [what, number(row["time"], ".3f"), number(row["memory"], ".3f")]
    if report["adamw_share"] is not None:
        yield ["AdamW, share of a step", number(report["adamw_share"], ".3f"), "-"]


def step_rows(report):
    for row in report["steps"]:
        yield [peer_text(row["model"]), f"{row['length']:,}", f"{row['parameters'] / 1e6:.1f} M",
               f"{row['seconds_per_step']:.3f}", f"{row['peak_rss_bytes'] / 1e9:.2f} GB",
               number(row["share"], ".0%"), row["timed_steps"]]


GOAL_NOTES = """\
measured: the median over the rounds of ours / the peer, both run in the same round, each in a
process of its own. interval: its 95 % bootstrap interval. A bar holds if the unfavourable end of
the interval does, of ten rounds, or five where a round takes about a minute; one inside the
interval is decided by noise. best: the rule before this one, the best of all steps of each side
(growth: their means). Every kind of a peer was tried: full attention and a sliding window, compiled
and not, with our malloc settings and, of the best ones, with the defaults. Time is measured against
the fastest kind, memory against the kind with the least. What was left out is named at the end."""

BESIDE = "beside the goals: best single step of each side, no interval"

STEP_NOTES = """\
seconds and memory are the least of all runs. share: weight and attention products at sgemm's
speed, over the time. B'MOJO's weight products alone: {products:.2f} s at 2,048; bmojo-linears is
how long torch takes for them. growth: the mean of the steps at 16,384 over that of
bmojo-in-a-row, which takes eight steps at a time: as many tokens, and as much of the machine's
better and worse moments. Peers run with malloc set as in our programs (freed memory is kept)
unless default malloc is named."""

KERNEL_NOTES = """\
f forward, b backward, f+b both: there the forward pass makes the gradient. roof: the larger of
flops / sgemm and bytes / bandwidth, over the time; caches flushed between repeats and passes.
ATen: the reference, ms. torch: the fastest it offers, that or another, compiled or not, ms (*
some way of it failed or had no time). ratio: ours / torch, of the pass, and of both passes, each
by its fastest way."""


def shown_passes(case):
    """Both as one where the forward pass makes the gradient: neither means anything alone."""
    names = [BOTH] if case.get("gradient_in_forward") else ["forward", "backward"]
    return [name for name in names if "roofline" in (case.get(name) or {})]


def kernel_rows(report):
    for case in report["kernels"]:
        for name in shown_passes(case):
            work = case[name]
            # What torch does not offer is no gap; what failed or had no time is.
            errors = [peer.get("error", "no backward") for peer in case["peers"]]
            gap = not errors or any(not error.startswith("no backward") for error in errors)
            both = case.get(BOTH, work) if name != "forward" else None
            yield [f"{case['kernel']}, {case['name']}", PASSES[name],
                   f"{1e3 * work['seconds']:.2f}", f"{work['roofline']:.0%}",
                   f"{1e3 * work['reference_seconds']:.1f}",
                   f"{1e3 * work['torch_seconds']:.2f}{'*' if gap else ''}",
                   f"{work['seconds'] / work['torch_seconds']:.2f}",
                   f"{both['seconds'] / both['torch_seconds']:.2f}" if both else ""]


def notes(report):
    """By what torch was fastest, what it does not offer, and what had no time."""
    lines = set()
    for case in report["kernels"]:
        lines |= {f"{case['kernel']}, {case['name']}, {name} by torch: {case[name]['torch']}"
                  for name in shown_passes(case)}
        lines |= {f"{case['kernel']}: {peer['label']}: {peer['error']}"
                  for peer in case["peers"] if "error" in peer}
    return "\n".join(f"- {line}" for line in sorted(lines) +
                     [f"left out: {line}" for line in report["left_out"]] +
                     [f"wrong: {line}" for line in report["wrong"]])


def markdown(report):
    limits = report["limits"]
    products = 6 * parameters("bmojo")[1] * 2048 / limits["sgemm"]
    parts = [
        f"`{report['command']}` at {report['commit']} on {report['machine']},\n"
        f"{limits['threads']} threads, fp32, width {WIDTH}, vocabulary {VOCABULARY:,}, batch 1. "
        f"sgemm {limits['sgemm'] / 1e9:.0f} GFLOP/s, read {limits['bandwidth'] / 1e9:.1f} GB/s.",
        table(["goal of B'MOJO in training", "at least", "goal", "measured", "interval", "rounds",
               "best", "against", "holds"], goal_rows(report)),
        GOAL_NOTES,
        table([BESIDE, "time", "memory"], beside_rows(report)),
        table(["training step", "length", "parameters", "seconds", "memory", "share", "timed"],
              step_rows(report)),
        STEP_NOTES.format(products=products),
        table(["kernel", "", "ms", "roof", "ATen", "torch", "ratio", "both"],
              kernel_rows(report)),
        KERNEL_NOTES,
        notes(report),
    ]
    return "\n\n".join(parts).rstrip() + "\n"
