"""Training steps and kernels, ours and torch's, side by side: `make bench`, at most 15 minutes.

One driver alternates ours and the peers in separate processes: a first round over all of them, then
the kernels, then a second round. A process makes two warm-up steps and times the next ones; the
minimum over both rounds counts, and at least three steps are timed of each. Memory is the peak RSS
less the RSS before the model was built. sgemm and read bandwidth are measured in the same run.
Writes results/bench.json and results/bench.md. What the time did not allow is printed and written
as left out.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

from measure import (EIDETIC, PEERS, ROOT, VOCABULARY, WIDTH, Failed, commit, end_with_children,
                     machine, ours_command, peer_command, run, run_json, step_flops, table)

# Timed steps in the first and second round, of each model and length. The order is that of the
# first round: what most goals need comes first. Slow ones have the fewest steps that are allowed.
STEPS = {
    ("bmojo", 2048): (3, 3),
    ("mistral", 2048): (3, 3),
    ("bmojo-off", 2048): (3, 3),
    ("mistral-sliding", 2048): (3, 2),
    ("mistral-compiled", 2048): (3, 2),
    ("bmojo", 8192): (2, 1),
    ("mistral", 8192): (2, 1),
    ("bmojo", 16384): (2, 1),
    ("mamba", 2048): (3, 3),
    ("mambapy", 2048): (2, 1),
}
AT_LAST = ("mistral-sliding-compiled", 2048)  # a minute of compiling, if time is left
# Ours by name: family, and changes to it. bmojo-off: the same weights, no token is remembered.
OURS = {"bmojo": ("bmojo", {}), "bmojo-off": ("bmojo", {"eidetic_tokens": 0}),
        "mamba": ("mamba", {})}
MISTRALS = ["mistral", "mistral-compiled", "mistral-sliding", "mistral-sliding-compiled"]

# What is measured, at least, goal; smaller is better but for the share.
GOALS = [
    ("time_2k", "time / fastest Mistral, 2,048", 1.0, 0.85),
    ("memory_2k", "memory / fastest Mistral, 2,048", None, 0.75),
    ("time_8k", "time / Mistral, 8,192", 0.5, 0.4),
    ("mamba_time", "Mamba: time / mambapy, 2,048", 0.1, 0.06),
    ("mamba_memory", "Mamba: memory / mambapy, 2,048", 0.25, None),
    ("share", "share of sgemm in products, 2,048", 0.70, 0.85),
    ("growth", "growth of time, 2k to 16k", 8.4, 8.1),
    ("eidetic", "time, 64 eidetic tokens / none", 1.08, 1.04),
]
LARGER_IS_BETTER = {"share"}
LOADING_SECONDS = 10.0  # of a peer: Python and its libraries


class Budget:
    """The time of the whole run, and what had no place in it."""

    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes
        self.left_out = []

    def left(self):
        return self.end - time.monotonic()

    def leave_out(self, what, why):
        self.left_out.append(f"{what}: {why}")
        print(f"bench: left out: {what}: {why}", file=sys.stderr)

    def spend(self, what, work, expected=0.0):
        """work(timeout), or None where it fails, or the time is over or would be."""
        if self.left() <= 0:
            return self.leave_out(what, "the time is over")
        if self.left() <= expected:
            return self.leave_out(what, f"needs {expected:.0f} s, {self.left():.0f} left")
        print(f"bench: {what} ({self.left():.0f} s left)", file=sys.stderr)
        try:
            return work(self.left())
        except Failed as failure:
            return self.leave_out(what, str(failure))


def command_of(model, length, repeat, options):
    if options.smoke:
        length, repeat = length // 64, 1
    if model in OURS:
        family, changes = OURS[model]
        return ours_command(options.bin, family, length, repeat, changes=changes)
    return peer_command(model, length, repeat)


def add(measured, key, result, repeat):
    """Joins a process's result to what is known: the minimum of times and of memory."""
    fields = ("seconds_per_step", "peak_rss_bytes", "parameters")
    old = measured.get(key)
    measured[key] = {field: min(result[field], old[field]) if old else result[field]
                     for field in fields}
    measured[key]["timed_steps"] = repeat + (old["timed_steps"] if old else 0)


def measure(key, repeat, measured, budget, options, expected=0.0):
    command = command_of(*key, repeat, options)
    what = f"{key[0]} at {key[1]}" + (", second round" if key in measured else "")
    result = budget.spend(what, lambda left: run_json(command, left), expected)
    if result:
        add(measured, key, result, repeat)


def fastest_mistral(measured, length=2048):
    found = [(name, length) for name in MISTRALS if (name, length) in measured]
    return min(found, key=lambda key: measured[key]["seconds_per_step"], default=None)


def second_round(measured, budget, options):
    """Alternation averages nothing: it keeps a slow minute of the machine from deciding a ratio.
    A Mistral that was a fifth slower than the fastest has three steps already and is let be."""
    for key, (_, repeat) in STEPS.items():
        if key not in measured:
            continue
        fastest = fastest_mistral(measured)
        if (key[0] in MISTRALS and key[1] == 2048 and measured[key]["seconds_per_step"] >
                1.2 * measured[fastest]["seconds_per_step"]):
            continue
        expected = LOADING_SECONDS + (2 + repeat) * measured[key]["seconds_per_step"]
        measure(key, repeat, measured, budget, options, expected)


def measure_kernels(limits, budget, options):
    """bmojo-kernels, then torch's own ways over the same shapes."""
    program = [str(Path(options.bin) / "bmojo-kernels")]
    words = ["--repeat", "1" if options.smoke else "7"]
    if options.smoke:
        program += ["--case", "selective_scan/group"]
    lines = budget.spend("kernels", lambda left: run([*program, *words], left))
    if not lines:
        return []
    peers = budget.spend("kernels, by torch",
                         lambda left: run([sys.executable, str(PEERS), "kernels", *words], left,
                                          text=lines)) or ""
    by_case = {(p["kernel"], p["name"]): p["peers"] for p in map(json.loads, peers.splitlines())}
    cases = [json.loads(line) for line in lines.splitlines()]
    for case in cases:
        case["peers"] = by_case.get((case["kernel"], case["name"]), [])
        for name in ("forward", "backward"):
            case[name]["roofline"] = roofline_share(case[name], limits)
            offered = [p for p in case["peers"] if name in p]
            best = min(offered, key=lambda p: p[name], default=None)
            case[name] |= {"torch_seconds": best[name], "torch": best["label"]} if best else {}
        for peer in case["peers"]:
            if "error" in peer:
                print(f"bench: {case['kernel']}: {peer['label']}: {peer['error']}", file=sys.stderr)
    return cases


def roofline_share(work, limits):
    bound = max(work["flops"] / limits["sgemm"], work["bytes"] / limits["bandwidth"])
    return bound / work["seconds"]


def ratio(measured, ours, peer, field="seconds_per_step"):
    if ours in measured and peer in measured:
        return measured[ours][field] / measured[peer][field]
    return None


def product_share(key, measured, limits):
    """The part of a step that its weight and attention products would take at sgemm's speed."""
    model, length = key
    if key not in measured or model not in OURS:
        return None
    family, changes = OURS[model]
    flops = step_flops(family, length, eidetic=changes.get("eidetic_tokens", EIDETIC))
    return flops / (measured[key]["seconds_per_step"] * limits["sgemm"])


def goal_values(measured, limits):
    ours, memory, mistral = ("bmojo", 2048), "peak_rss_bytes", fastest_mistral(measured)
    return {
        "time_2k": ratio(measured, ours, mistral),
        "memory_2k": ratio(measured, ours, mistral, memory),
        "time_8k": ratio(measured, ("bmojo", 8192), ("mistral", 8192)),
        "mamba_time": ratio(measured, ("mamba", 2048), ("mambapy", 2048)),
        "mamba_memory": ratio(measured, ("mamba", 2048), ("mambapy", 2048), memory),
        "share": product_share(ours, measured, limits),
        "growth": ratio(measured, ("bmojo", 16384), ours),
        "eidetic": ratio(measured, ours, ("bmojo-off", 2048)),
    }


def verdict(name, value, at_least, goal):
    def holds(bound):
        if bound is None:
            return False
        return value >= bound if name in LARGER_IS_BETTER else value <= bound

    if value is None:
        return "not measured"
    return "goal" if holds(goal) else "at least" if holds(at_least) else "missed"


def check_parameters(measured):
    pairs = [("bmojo", "mistral"), ("mamba", "mambapy")]
    for ours, theirs in pairs:
        sizes = [measured[name, 2048]["parameters"] for name in (ours, theirs)
                 if (name, 2048) in measured]
        if sizes and max(sizes) > 1.01 * min(sizes):
            sys.exit(f"bench: {ours} and {theirs} must be within 1 % in parameters, got {sizes}")


def number(value, form):
    return "-" if value is None else format(value, form)


def goal_rows(report):
    for name, text, at_least, goal in GOALS:
        value = report["goals"][name]
        yield [text, number(at_least, "g"), number(goal, "g"), number(value, ".3f"),
               verdict(name, value, at_least, goal)]


def step_rows(report):
    for row in report["steps"]:
        yield [row["model"], f"{row['length']:,}", f"{row['parameters'] / 1e6:.1f} M",
               f"{row['seconds_per_step']:.3f}", f"{row['peak_rss_bytes'] / 1e9:.2f} GB",
               number(row["share"], ".0%"), row["timed_steps"]]


def kernel_rows(report):
    for case in report["kernels"]:
        for name in ("forward", "backward"):
            work = case[name]
            peer = work.get("torch_seconds")
            yield [f"{case['kernel']}, {case['name']}", name[0], f"{1e3 * work['seconds']:.2f}",
                   f"{work['roofline']:.0%}", f"{1e3 * work['reference_seconds']:.1f}",
                   number(peer and 1e3 * peer, ".2f"),
                   number(peer and work["seconds"] / peer, ".2f")]


def notes(report):
    """By what torch was fastest, what it does not offer, and what had no time."""
    lines = set()
    for case in report["kernels"]:
        lines |= {f"{case['kernel']} {name} by torch: {case[name]['torch']}"
                  for name in ("forward", "backward") if "torch" in case[name]}
        lines |= {f"{case['kernel']}: {peer['label']}: {peer['error']}"
                  for peer in case["peers"] if "error" in peer}
    return "\n".join(f"- {line}" for line in
                     sorted(lines) + [f"left out: {line}" for line in report["left_out"]])


def markdown(report):
    limits = report["limits"]
    parts = [
        f"`{report['command']}` at {report['commit']} on {report['machine']},\n"
        f"{limits['threads']} threads, fp32, width {WIDTH}, vocabulary {VOCABULARY:,}, batch 1. "
        f"sgemm {limits['sgemm'] / 1e9:.0f} GFLOP/s, read {limits['bandwidth'] / 1e9:.1f} GB/s.",
        table(["goal of B'MOJO in training", "at least", "goal", "measured", "holds"],
              goal_rows(report)),
        f"The fastest Mistral is {report['fastest_mistral'] or '-'}.",
        table(["training step", "length", "parameters", "seconds", "memory", "share", "timed"],
              step_rows(report)),
        "share: weight and attention products at sgemm's speed, over the time.",
        table(["kernel", "", "ms", "roof", "ATen", "torch", "ratio"], kernel_rows(report)),
        "f forward, b backward. roof: the larger of flops / sgemm and bytes / bandwidth, over the\n"
        "time. ATen: the reference, ms. torch: the fastest it offers, ms. ratio: ours / torch.",
        notes(report),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=Path, help="folder of the results (default: results/)")
    parser.add_argument("--budget", type=float, default=14.5, metavar="MINUTES")
    parser.add_argument("--smoke", action="store_true",
                        help="tiny sizes: whether the driver works; no measurement")
    options = parser.parse_args()

    budget, measured = Budget(options.budget), {}
    small = ["--small"] if options.smoke else []
    limits = run_json([sys.executable, str(PEERS), "limits", *small], budget.left())
    for key, (repeat, _) in STEPS.items():
        measure(key, repeat, measured, budget, options)
    kernels = measure_kernels(limits, budget, options)
    second_round(measured, budget, options)
    measure(AT_LAST, 3, measured, budget, options)
    check_parameters(measured)

    fastest = fastest_mistral(measured)
    command = "bench.py --smoke, no measurement" if options.smoke else "make bench"
    report = {"command": command, "commit": commit(), "machine": machine(),
              "python": platform.python_version(), "limits": limits,
              "goals": goal_values(measured, limits), "fastest_mistral": fastest and fastest[0],
              "steps": [{"model": model, "length": length, **row,
                         "share": product_share((model, length), measured, limits)}
                        for (model, length), row in measured.items()],
              "kernels": kernels, "left_out": budget.left_out}
    print(markdown(report), end="")
    if options.out or not options.smoke:
        out = options.out or ROOT / "results"
        out.mkdir(exist_ok=True, parents=True)
        (out / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
        (out / "bench.md").write_text(markdown(report))


if __name__ == "__main__":
    end_with_children()
    try:
        main()
    except Failed as failure:
        sys.exit(f"bench: {failure}")
