"""Training steps and kernels, ours and torch's, side by side: `make bench`, at most 15 minutes.

One driver alternates ours and the peers in separate processes: a first round over all of them, then
the kernels, then a second round. A process makes two warm-up steps and times the next ones; the
minimum over both rounds counts (for growth the mean of all), and a goal is only declared on three
timed steps of each side.
Memory is the peak RSS less the RSS before the model was built. sgemm and read bandwidth are
measured in the same run. Writes results/bench.json and results/bench.md. What the time did not
allow is printed and written as left out.
"""

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from pathlib import Path

from measure import (EIDETIC, PEERS, ROOT, VOCABULARY, WIDTH, Failed, OutOfTime, commit,
                     end_with_children, machine, ours_command, parameters, peer_command, run,
                     run_json, step_flops, table)

# Timed steps in the first and second round, of each model and length. The order is that of the
# first round: what most goals need comes first. Slow ones have the fewest steps that are allowed,
# and those whose ratio is far from its bar, or has none, one round.
STEPS = {
    ("bmojo", 2048): (3, 3),
    ("mistral", 2048): (3, 3),
    ("bmojo-off", 2048): (3, 3),
    ("bmojo-recompute", 2048): (3, 0),
    ("mistral-sliding", 2048): (3, 2),
    ("mistral-compiled", 2048): (3, 2),
    ("mistral-default", 2048): (3, 0),
    ("bmojo", 8192): (2, 2),
    ("mistral", 8192): (2, 2),
    ("bmojo", 16384): (2, 1),
    ("bmojo-in-a-row", 2048): (8, 8),
    ("mamba", 2048): (3, 3),
    ("mambapy", 2048): (3, 0),
    ("bmojo-linears", 2048): (3, 0),
}
# Then, if time is left: each with the measured one that tells how long its step is.
AT_LAST = {
    ("mistral-sliding-compiled", 2048): ("mistral-sliding", 2048),
    ("mistral-compiled", 8192): ("mistral", 8192),
    ("mistral-default", 8192): ("mistral", 8192),
    ("mambapy-default", 2048): ("mambapy", 2048),
    ("bmojo-recompute", 8192): ("bmojo", 8192),
    ("transformers-mamba", 256): ("mambapy", 2048),
    ("mistral-sliding", 8192): ("mistral", 8192),
}
MIN_STEPS = 3
# Ours by name: family, changes to it, flags. bmojo-off: the same weights, no token is remembered.
# bmojo-in-a-row: eight steps have as many tokens as one of 16,384. A machine that slows down now and
# then finds a quiet moment for a short step, not for a long one, so growth is the ratio of means.
IN_A_ROW = "bmojo-in-a-row"
OURS = {"bmojo": ("bmojo", {}, []), "bmojo-off": ("bmojo", {"eidetic_tokens": 0}, []),
        IN_A_ROW: ("bmojo", {}, []),
        "bmojo-recompute": ("bmojo", {}, ["--recompute"]), "mamba": ("mamba", {}, [])}
WITH_OPTIMIZER = ("bmojo", 2048)  # in its second round, behind the steps without
MISTRALS = ["mistral", "mistral-compiled", "mistral-sliding", "mistral-sliding-compiled"]
DEFAULT = "-default"  # behind a peer's name: malloc as it comes, not set as our programs set it
PEER_TEXT = {"mambapy": "mambapy, tuned malloc", "mambapy-default": "mambapy, default malloc",
             "mistral-default": "mistral, default malloc"}

# What is measured, at least, goal; smaller is better but for the share.
GOALS = [
    ("time_2k", "time / fastest Mistral, 2,048", 1.0, 0.85),
    ("memory_2k", "memory / fastest Mistral, 2,048", None, 0.75),
    ("time_8k", "time / fastest Mistral, 8,192", 0.5, 0.4),
    ("mamba_time", "Mamba: time / mambapy, 2,048", 0.1, 0.06),
    ("mamba_memory", "Mamba: memory / mambapy, 2,048", 0.25, None),
    ("share", "share of sgemm in products, 2,048", 0.70, 0.85),
    ("growth", "growth of time, 2k to 16k", 8.4, 8.1),
    ("eidetic", "time, 64 eidetic tokens / none", 1.08, 1.04),
]
LARGER_IS_BETTER = {"share"}
BOTH = "forward+backward"
PASSES = {"forward": "f", "backward": "b", BOTH: "f+b"}
LOADING_SECONDS = 10.0  # of a peer: Python and its libraries
COMPILING_SECONDS = 20.0  # of Mistral, when most of it lies in torch's cache


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


def command_of(model, length, repeat, options, optimizer=False):
    if options.smoke:
        length //= 64
    if model in OURS:
        family, changes, flags = OURS[model]
        flags = flags if optimizer else [*flags, "--no-optimizer"]
        return ours_command(options.bin, family, length, repeat, changes=changes, flags=flags)
    return peer_command(model.removesuffix(DEFAULT), length, repeat)


def add(measured, key, result, repeat):
    """Joins a process's result to what is known: the minimum of times and of memory, and the mean
    over all timed steps."""
    fields = ("seconds_per_step", "peak_rss_bytes", "parameters",
              "seconds_per_step_with_optimizer", "optimizer_seconds")
    old = measured.get(key, {})
    measured[key] = {"timed_steps": repeat + old.get("timed_steps", 0)}
    for field in fields:
        known = [r[field] for r in (result, old) if r.get(field) is not None]
        if known:
            measured[key][field] = min(known)
    means = [(r["mean_seconds_per_step"], steps) for r, steps in
             ((result, repeat), (old, old.get("timed_steps"))) if "mean_seconds_per_step" in r]
    if means:
        measured[key]["mean_seconds_per_step"] = (
            sum(mean * steps for mean, steps in means) / sum(steps for _, steps in means))


def measure(key, repeat, measured, budget, options, expected=0.0):
    repeat = 1 if options.smoke else repeat
    second = key in measured
    command = command_of(*key, repeat, options, optimizer=second and key == WITH_OPTIMIZER)
    what = f"{key[0]} at {key[1]}" + (", second round" if second else "")
    tuned = not key[0].endswith(DEFAULT)
    result = budget.spend(what, lambda left: run_json(command, left, tuned), expected)
    if result:
        add(measured, key, result, repeat)


def fastest_mistral(measured, length=2048):
    found = [(name, length) for name in MISTRALS if (name, length) in measured]
    return min(found, key=lambda key: measured[key]["seconds_per_step"], default=None)


def second_round(measured, budget, options):
    """Alternation averages nothing: it keeps a slow minute of the machine from deciding a ratio.
    A Mistral that was a fifth slower than the fastest has three steps already and is let be."""
    for key, (_, repeat) in STEPS.items():
        if key not in measured or repeat == 0:
            continue
        fastest = fastest_mistral(measured)
        if (key[0] in MISTRALS and key[1] == 2048 and measured[key]["seconds_per_step"] >
                1.2 * measured[fastest]["seconds_per_step"]):
            continue
        expected = LOADING_SECONDS + (2 + repeat) * measured[key]["seconds_per_step"]
        measure(key, repeat, measured, budget, options, expected)


def at_last(measured, budget, options):
    for key, like in AT_LAST.items():
        if like in measured:
            compiling = COMPILING_SECONDS if key[0].endswith("-compiled") else 0
            steps = (2 + MIN_STEPS) * measured[like]["seconds_per_step"]
            measure(key, MIN_STEPS, measured, budget, options, LOADING_SECONDS + compiling + steps)
        else:
            budget.leave_out(f"{key[0]} at {key[1]}", f"{like[0]} was not measured")


def sample_limits(samples, budget, options):
    small = ["--small"] if options.smoke else []
    found = budget.spend("limits", lambda left: run_json(
        [sys.executable, str(PEERS), "limits", *small], left))
    samples += [found] if found else []


def best_limits(samples):
    """What the machine could do at its best. Times are the best of rounds far apart, so one sample
    from a slow minute would flatter every share of it. All samples are kept."""
    best = {name: max(sample[name] for sample in samples) for name in ("sgemm", "bandwidth")}
    return samples[0] | best | {"samples": samples}


def measure_kernels(budget, options):
    """bmojo-kernels, then torch's own ways over the same shapes."""
    program = [str(Path(options.bin) / "bmojo-kernels")]
    words = ["--repeat", "1" if options.smoke else "7"]
    if options.smoke:
        program += ["--case", "selective_scan/group"]
    lines = budget.spend("kernels", lambda left: run([*program, *words], left))
    if not lines:
        return []

    def by_torch(left):
        try:
            return run([sys.executable, str(PEERS), "kernels", *words], left, text=lines)
        except OutOfTime as late:
            budget.leave_out("kernels, by torch: the last ones", str(late))
            return late.output

    peers = budget.spend("kernels, by torch", by_torch) or ""
    by_case = {(p["kernel"], p["name"]): p["peers"] for p in map(json.loads, peers.splitlines())}
    cases = [json.loads(line) for line in lines.splitlines()]
    for case in cases:
        case["peers"] = by_case.get((case["kernel"], case["name"]), [])
        for peer in case["peers"]:
            if "error" in peer:
                print(f"bench: {case['kernel']}: {peer['label']}: {peer['error']}", file=sys.stderr)
    return cases


def compare(case, limits):
    """Gives each pass of a case, and both as one, its share of the roofline and torch's fastest."""
    fields = ("seconds", "reference_seconds", "flops", "bytes")
    if all(case.get(name) and case[name]["seconds"] is not None for name in PASSES if name != BOTH):
        case[BOTH] = {field: case["forward"][field] + case["backward"][field] for field in fields}
        for peer in case["peers"]:
            if "forward" in peer and "backward" in peer:
                peer[BOTH] = peer["forward"] + peer["backward"]
    for name in PASSES:
        work = case.get(name)
        if not work or work["seconds"] is None or max(work["flops"], work["bytes"]) == 0:
            continue  # a choice has no backward pass
        work["roofline"] = roofline_share(work, limits)
        offered = [p for p in case["peers"] if name in p]
        offered.append({"label": "ATen, our reference", name: work["reference_seconds"]})
        best = min(offered, key=lambda p: p[name])
        work |= {"torch_seconds": best[name], "torch": best["label"]}


def shown_passes(case):
    """Both as one where the forward pass makes the gradient: neither means anything alone."""
    names = [BOTH] if case.get("gradient_in_forward") else ["forward", "backward"]
    return [name for name in names if "roofline" in (case.get(name) or {})]


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
    family, changes, _ = OURS[model]
    flops = step_flops(family, length, eidetic=changes.get("eidetic_tokens", EIDETIC))
    return flops / (measured[key]["seconds_per_step"] * limits["sgemm"])


def goal_sides(measured):
    """Ours and the peer of each goal. With our allocator settings peers are faster than without,
    and larger: the stricter counts, and never the one without alone."""
    ours, mamba, mistral = ("bmojo", 2048), ("mamba", 2048), fastest_mistral(measured)

    def stricter(tuned, field):
        default = (tuned[0] + DEFAULT, tuned[1])
        known = [key for key in (tuned, default) if key in measured and tuned in measured]
        return min(known, key=lambda key: measured[key][field], default=tuned)

    mambapy, longer = ("mambapy", 2048), fastest_mistral(measured, 8192)

    return {
        "time_2k": (ours, mistral and stricter(mistral, "seconds_per_step")),
        "memory_2k": (ours, mistral and stricter(mistral, "peak_rss_bytes")),
        "time_8k": (("bmojo", 8192), longer and stricter(longer, "seconds_per_step")),
        "mamba_time": (mamba, stricter(mambapy, "seconds_per_step")),
        "mamba_memory": (mamba, stricter(mambapy, "peak_rss_bytes")),
        "share": (ours, ours),
        "growth": (("bmojo", 16384), (IN_A_ROW, 2048)),
        "eidetic": (ours, ("bmojo-off", 2048)),
    }


def goal_values(measured, limits):
    fields = {"memory_2k": "peak_rss_bytes", "mamba_memory": "peak_rss_bytes",
              "growth": "mean_seconds_per_step"}
    values = {name: ratio(measured, *sides, fields.get(name, "seconds_per_step"))
              for name, sides in goal_sides(measured).items()}
    return values | {"share": product_share(("bmojo", 2048), measured, limits)}


def goal_peers(measured):
    """Of each goal, against whom it was measured, and the fewest timed steps of a side."""
    return {name: {"peer": "sgemm" if name == "share" else sides[1][0],
                   "timed_steps": min(measured[key]["timed_steps"] for key in sides)}
            for name, sides in goal_sides(measured).items()
            if all(key in measured for key in sides)}


def verdict(name, value, at_least, goal, timed_steps):
    def holds(bound):
        if bound is None:
            return False
        return value >= bound if name in LARGER_IS_BETTER else value <= bound

    if value is None:
        return "not measured"
    if timed_steps < MIN_STEPS:
        return "not enough steps"
    return "goal" if holds(goal) else "at least" if holds(at_least) else "missed"


def beside_goals(measured):
    """What has no bar of its own, as ratios of time and memory."""
    pairs = [("bmojo-recompute / bmojo, 2,048", ("bmojo-recompute", 2048), ("bmojo", 2048)),
             ("bmojo-recompute / bmojo, 8,192", ("bmojo-recompute", 8192), ("bmojo", 8192)),
             ("bmojo, 16,384 / 2,048, best of each", ("bmojo", 16384), ("bmojo", 2048)),
             ("mamba / mambapy, tuned malloc", ("mamba", 2048), ("mambapy", 2048)),
             ("mamba / mambapy, default malloc", ("mamba", 2048), ("mambapy-default", 2048)),
             ("bmojo / mistral, default malloc, 2,048", ("bmojo", 2048), ("mistral-default", 2048)),
             ("bmojo / mistral, default malloc, 8,192", ("bmojo", 8192), ("mistral-default", 8192))]
    rows = [{"what": what, "time": ratio(measured, ours, peer),
             "memory": ratio(measured, ours, peer, "peak_rss_bytes")}
            for what, ours, peer in pairs if ours in measured and peer in measured]
    step = measured.get(WITH_OPTIMIZER, {})
    if "optimizer_seconds" in step:
        share = step["optimizer_seconds"] / step["seconds_per_step_with_optimizer"]
        rows.append({"what": "AdamW, share of a step", "time": share, "memory": None})
    return rows


def unequal_parameters(measured):
    pairs = [("bmojo", "mistral"), ("mamba", "mambapy")]
    for ours, theirs in pairs:
        sizes = [measured[name, 2048]["parameters"] for name in (ours, theirs)
                 if (name, 2048) in measured]
        if sizes and max(sizes) > 1.01 * min(sizes):
            yield f"{ours} and {theirs} must be within 1 % in parameters, got {sizes}"


def number(value, form):
    return "-" if value is None else format(value, form)


def goal_rows(report):
    for name, text, at_least, goal in GOALS:
        value, against = report["goals"][name], report["goal_peers"].get(name, {})
        yield [text, number(at_least, "g"), number(goal, "g"), number(value, ".3f"),
               PEER_TEXT.get(against.get("peer"), against.get("peer", "-")),
               verdict(name, value, at_least, goal, against.get("timed_steps", 0))]


def beside_rows(report):
    for row in report["beside_goals"]:
        yield [row["what"], number(row["time"], ".3f"), number(row["memory"], ".3f")]


def step_rows(report):
    for row in report["steps"]:
        yield [row["model"], f"{row['length']:,}", f"{row['parameters'] / 1e6:.1f} M",
               f"{row['seconds_per_step']:.3f}", f"{row['peak_rss_bytes'] / 1e9:.2f} GB",
               number(row["share"], ".0%"), row["timed_steps"]]


def step_notes(report):
    known = {(row["model"], row["length"]) for row in report["steps"]}
    flops = 6 * parameters("bmojo")[1] * 2048
    lines = ["share: weight and attention products at sgemm's speed, over the time. B'MOJO's weight "
             f"products alone:\n{flops / report['limits']['sgemm']:.2f} s at 2,048; bmojo-linears "
             "is how long torch takes for them.",
             "growth: the mean of all steps at 16,384 over that of bmojo-in-a-row, which takes "
             "eight steps at a\ntime: as many tokens, and as much of the machine's better and worse "
             "moments.",
             "Peers run with malloc tuned as in our programs (freed memory is kept), -default "
             "without."]
    if ("mistral-compiled", 8192) not in known:
        lines.append("Compiled, Mistral was tried at 2,048 only: 8,192 is left out, below.")
    if ("mistral-default", 8192) not in known:
        lines.append("With default malloc, Mistral at 8,192 is left out, below.")
    return "\n".join(lines)


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


def versions():
    def version(name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None
    return {name: version(name) for name in ("torch", "transformers", "mambapy")}


def markdown(report):
    limits = report["limits"]
    parts = [
        f"`{report['command']}` at {report['commit']} on {report['machine']},\n"
        f"{limits['threads']} threads, fp32, width {WIDTH}, vocabulary {VOCABULARY:,}, batch 1. "
        f"sgemm {limits['sgemm'] / 1e9:.0f} GFLOP/s, read {limits['bandwidth'] / 1e9:.1f} GB/s.",
        table(["goal of B'MOJO in training", "at least", "goal", "measured", "against", "holds"],
              goal_rows(report)),
        f"The fastest Mistral is {report['fastest_mistral'] or '-'}. Of tuned and default malloc "
        "of a peer the\nstricter counts; both are below.",
        table(["beside the goals", "time", "memory"], beside_rows(report)),
        table(["training step", "length", "parameters", "seconds", "memory", "share", "timed"],
              step_rows(report)),
        step_notes(report),
        table(["kernel", "", "ms", "roof", "ATen", "torch", "ratio", "both"],
              kernel_rows(report)),
        "f forward, b backward, f+b both: there the forward pass makes the gradient. roof: the\n"
        "larger of flops / sgemm and bytes / bandwidth, over the time; caches flushed between\n"
        "repeats and passes. ATen: the reference, ms. torch: the fastest it offers, that or\n"
        "another, compiled or not, ms (* some way of it failed or had no time). ratio: ours / torch,\n"
        "of the pass, and of both passes, each by its fastest way.",
        notes(report),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def write(report, folder):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
    (folder / "bench.md").write_text(markdown(report))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=Path, help="folder of the results (default: results/)")
    parser.add_argument("--budget", type=float, default=14.7, metavar="MINUTES")
    parser.add_argument("--smoke", action="store_true",
                        help="tiny sizes: whether the driver works; no measurement")
    options = parser.parse_args()

    budget, measured, samples = Budget(options.budget), {}, []
    sample_limits(samples, budget, options)
    for key, (repeat, _) in STEPS.items():
        measure(key, repeat, measured, budget, options)
    sample_limits(samples, budget, options)
    kernels = measure_kernels(budget, options)
    second_round(measured, budget, options)
    sample_limits(samples, budget, options)
    at_last(measured, budget, options)
    if not samples:
        raise Failed("limits: must be measured at least once, got none")
    limits = best_limits(samples)
    for case in kernels:
        compare(case, limits)

    fastest = fastest_mistral(measured)
    command = "bench.py --smoke, no measurement" if options.smoke else "make bench"
    report = {"command": command, "commit": commit(), "machine": machine(),
              "minutes": round(options.budget - budget.left() / 60, 1),
              "python": platform.python_version(), "versions": versions(), "limits": limits,
              "goals": goal_values(measured, limits), "goal_peers": goal_peers(measured),
              "beside_goals": beside_goals(measured), "fastest_mistral": fastest and fastest[0],
              "steps": [{"model": model, "length": length, **row,
                         "share": product_share((model, length), measured, limits)}
                        for (model, length), row in measured.items()],
              "kernels": kernels, "left_out": budget.left_out,
              "wrong": list(unequal_parameters(measured))}
    print(markdown(report), end="")
    if options.out or not options.smoke:
        write(report, options.out or ROOT / "results")
    if report["wrong"]:
        sys.exit("bench: " + "; ".join(report["wrong"]))


if __name__ == "__main__":
    end_with_children()
    try:
        main()
    except Failed as failure:
        sys.exit(f"bench: {failure}")
