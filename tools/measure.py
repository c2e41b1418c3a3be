"""What bench.py and bench_full.py share: our models by family and width, the work of their training
step, how a program is run and measured, and how far a ratio can be trusted. Loads no torch."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / "peers.py"
VOCABULARY, WIDTH, HEAD, WINDOW, FADING, EIDETIC = 4096, 512, 64, 512, 16, 64
STATES, TAPS = 16, 4
RESAMPLES = 10_000

# Of each family at width 512: layers, kinds (cycled), inner width of the SSM in widths, MLP width.
# 17 M parameters each, but for Mamba's 15.7: 8 layers, as its peers have. All scales with width.
FAMILIES = {
    "bmojo": (4, ["bmojo"], 1, 1440),
    "bmojo-f": (4, ["bmojo"], 1, 1440),
    "hybrid": (4, ["ssm", "attention"], 2, 1648),
    "mamba": (8, ["ssm"], 2, 0),
    "transformer": (4, ["attention"], 0, 1984),
}


class Failed(Exception):
    """A program ended with an error, or did not end in time."""


class OutOfTime(Failed):
    def __init__(self, message, output=""):
        super().__init__(message)
        self.output = output  # in whole lines


def config(family, width=WIDTH):
    """The changes to the family's `tiny` preset, in the program's own names."""
    layers, kinds, expand, mlp = FAMILIES[family]
    fields = {"vocab_size": VOCABULARY, "hidden_size": width, "num_layers": layers,
              "mlp_size": mlp * width // WIDTH}
    if kinds != ["attention"]:
        fields |= {"ssm_inner_size": expand * width, "ssm_dt_rank": width // 16}
    if kinds != ["ssm"]:
        heads = width // HEAD
        fields |= {"num_heads": heads, "num_kv_heads": heads // 4, "head_size": HEAD}
    return fields


def linear_layers(family, width=WIDTH):
    """(inputs, outputs) of every map of a token but the head's."""
    c = config(family, width)
    E, R = c.get("ssm_inner_size", 0), c.get("ssm_dt_rank", 0)
    queries, keys = c.get("num_heads", 0) * HEAD, c.get("num_kv_heads", 0) * HEAD
    for kind in kinds_of(family):
        if kind != "attention":
            yield from [(width, 2 * E), (E, R + 2 * STATES), (R, E), (E, width)]
        if kind != "ssm":
            yield from [(width, queries), (width, keys), (width, keys), (queries, width)]
        if c["mlp_size"] > 0:
            yield from 2 * [(width, c["mlp_size"])] + [(c["mlp_size"], width)]


def kinds_of(family):
    layers, kinds, _, _ = FAMILIES[family]
    return [kinds[i % len(kinds)] for i in range(layers)]


def parameters(family, width=WIDTH):
    """(all, those that are factors of a matrix product). The embedding is counted once, as the
    head: its other use is a look-up."""
    c = config(family, width)
    D, E = width, c.get("ssm_inner_size", 0)
    products, rest = VOCABULARY * D + sum(i * o for i, o in linear_layers(family, width)), D
    for kind in kinds_of(family):
        rest += D
        if kind != "attention":
            rest += TAPS * E + E + E + STATES * E + E  # taps, their bias, dt bias, A, D
        if kind == "bmojo":
            rest += D + (family == "bmojo")  # norm of the fading tokens, weight of the innovation
        if c["mlp_size"] > 0:
            rest += D
    return products + rest, products


def visible_pairs(length, window, fading=0, eidetic=0):
    """(query, key) pairs of one head of one sequence. Which eidetic tokens have left the window is
    up to the data: those of a chunk that starts at s are taken as spread evenly over 0 … s - 1."""
    if window == 0:
        return length * (length + 1) / 2
    pairs = 0.0
    for t in range(length):
        start = t // window * window
        pairs += min(t + 1, window) + min(fading, start)
        if start > 0:
            pairs += min(eidetic, start) * (t - window + 1) / start
    return pairs


def attention_flops(pairs, heads, head, layers):
    """Scores and mixing forward, 2 flops a product each; twice that backward, for the gradients of
    both factors. What is computed a second time in the backward pass is not counted."""
    return 3 * layers * pairs * 2 * 2 * head * heads


def step_flops(family, length, batch=1, width=WIDTH, eidetic=EIDETIC):
    """Weight products (2 flops forward, 4 backward a parameter and token) and attention products of
    a training step. Norms, scans, convolutions and the softmax itself count nothing."""
    kinds = kinds_of(family)
    if family == "transformer":
        pairs = visible_pairs(length, 0)
    elif family == "hybrid":
        pairs = visible_pairs(length, WINDOW)
    else:
        pairs = visible_pairs(length, WINDOW, FADING, eidetic if family == "bmojo" else 0)
    layers = sum(kind != "ssm" for kind in kinds)
    weights = 6 * parameters(family, width)[1] * length
    return batch * (weights + attention_flops(pairs, width // HEAD, HEAD, layers))


def ours_command(folder, family, length, repeat, batch=1, width=WIDTH, changes=(), warm_ups=2,
                 flags=("--no-optimizer",)):
    fields = {**config(family, width), **dict(changes)}
    sets = [word for key, value in fields.items() for word in ("--set", f"{key}={value}")]
    return [str(Path(folder) / "bmojo"), "bench", "--train", *flags, "--preset",
            f"{family}-tiny", *sets, "--length", str(length), "--batch", str(batch),
            "--repeat", str(repeat), "--warm-ups", str(warm_ups), "--json", "--quiet"]


def peer_command(name, length, repeat, batch=1, warm_ups=2):
    return [sys.executable, str(PEERS), "train", name, "--length", str(length), "--batch",
            str(batch), "--repeat", str(repeat), "--warm-ups", str(warm_ups)]


def bootstrap(ratios):
    """Their median and its 95 % interval: of the medians of samples drawn from them with
    replacement, the middle 95 in 100. The seed is fixed, so the same ratios give the same ends."""
    draw = random.Random(1)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    tail = RESAMPLES // 40
    return {"median": median(ratios), "low": medians[tail], "high": medians[-1 - tail]}


def environment(tuned=True):
    """Peers get what our programs give themselves: no AMX, which some machines list and fail on,
    and (tuned) freed memory is kept for the next step."""
    fixed = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "TOKENIZERS_PARALLELISM": "false",
             "HF_HUB_OFFLINE": "1"}
    if tuned:
        fixed |= {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
        return {**fixed, **os.environ}
    return {**fixed, **{k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}}


def end_with_children():
    """On SIGTERM the program being measured ends too, as on an interrupt."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def run(command, timeout=None, text=None, tuned=True):
    """The standard output of a program."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                                input=text, env=environment(tuned))
    except subprocess.TimeoutExpired as late:
        printed = late.stdout or b""  # bytes, whatever was asked for
        printed = printed if isinstance(printed, str) else printed.decode(errors="replace")
        raise OutOfTime(f"stopped after {late.timeout:.0f} s",
                        printed[:printed.rfind("\n") + 1]) from None
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise Failed(lines[-1][:300])
    return result.stdout


def run_json(command, timeout=None, tuned=True):
    return json.loads(run(command, timeout, tuned=tuned).splitlines()[-1])


def machine():
    """Its processor; by number too, since a virtual machine may hide the name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()

    def field(name):
        return next((line.split(":")[1].strip() for line in lines
                     if line.split(":")[0].strip() == name), "unknown")

    flags = field("flags").split()
    simd = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "neither AVX"
    return (f"{field('model name')} (family {field('cpu family')}, model {field('model')}, "
            f"stepping {field('stepping')}), {os.cpu_count()} cores, {simd}")


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True,
                              text=True).stdout.strip()
    # The results themselves change with every run.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!results")
    return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")


def table(head, rows):
    """Markdown whose columns also line up as text."""
    cells = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
             for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
