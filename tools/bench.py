"""Training steps and kernels, ours and torch's, side by side: `make bench`, at most 30 minutes.

First every kind of a peer runs once, to find the fastest and the one with the least memory. Then
come rounds: ours and these peers one after the other, each in a process of its own, with warm-ups
and in every other round backwards. A round gives one ratio; a goal has the median of all and its
95 % interval. Memory is the peak RSS less the RSS before the model was built. sgemm and read
bandwidth are measured in the same run. Writes results/bench.json and results/bench.md. What the
time did not allow is printed and written as left out.
"""

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from pathlib import Path

from bench_report import BOTH, PASSES, markdown
from measure import (EIDETIC, PEERS, ROOT, Failed, OutOfTime, bootstrap, commit, end_with_children,
                     machine, ours_command, peer_command, run, run_json, step_flops)

# Ours by name: family, changes to it, flags. bmojo-off: the same weights, no token is remembered.
# bmojo-in-a-row: eight steps have as many tokens as one of 16,384. A machine that slows down now
# and then finds a quiet moment for a short step, not for a long one, so growth is of means.
IN_A_ROW = "bmojo-in-a-row"
BARE = ["--no-optimizer"]
OURS = {"bmojo": ("bmojo", {}, BARE), "bmojo-off": ("bmojo", {"eidetic_tokens": 0}, BARE),
        IN_A_ROW: ("bmojo", {}, BARE), "bmojo-adamw": ("bmojo", {}, []),
        "bmojo-recompute": ("bmojo", {}, [*BARE, "--recompute"]), "mamba": ("mamba", {}, BARE)}
MISTRALS = ["mistral", "mistral-compiled", "mistral-sliding", "mistral-sliding-compiled"]
MAMBAPYS = ["mambapy"]
DEFAULT = "-default"  # behind a peer's name: malloc as it comes, not set as our programs set it
TIME, MEAN, MEMORY = "seconds_per_step", "mean_seconds_per_step", "peak_rss_bytes"

# Of ours, with the peers of its goals: warm-ups and rounds. Ten rounds, but five where one takes
# about a minute: at 8,192 and 16,384, and for mambapy, with and without our malloc settings.
ROUNDS = {("bmojo", 2048): (2, 10), ("bmojo", 8192): (1, 5), ("mamba", 2048): (1, 5),
          ("bmojo", 16384): (1, 5)}
FIRST_ROUNDS = 5  # of all, before any has more
MUCH_SLOWER = 1.3  # at 2,048 than the fastest: not tried at 8,192
# At last, if time is left: each with the measured one that tells how long its step is.
AT_LAST = {
    ("bmojo-adamw", 2048): ("bmojo", 2048),
    ("bmojo-recompute", 2048): ("bmojo", 2048),
    ("bmojo-linears", 2048): ("bmojo", 2048),
    ("bmojo-recompute", 8192): ("bmojo", 8192),
    ("transformers-mamba", 256): ("mambapy", 2048),
}
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


def command_of(model, length, repeat, warm_ups, options):
    if options.smoke:
        length //= 64
    if model in OURS:
        family, changes, flags = OURS[model]
        return ours_command(options.bin, family, length, repeat, changes=changes, flags=flags,
                            warm_ups=warm_ups)
    return peer_command(model.removesuffix(DEFAULT), length, repeat, warm_ups=warm_ups)


def add(measured, key, result, repeat):
    """Joins a process's result to what is known: the minimum of times and of memory, and the mean
    over all timed steps."""
    fields = (TIME, MEMORY, "parameters", "seconds_per_step_with_optimizer", "optimizer_seconds")
    old = measured.get(key, {})
    measured[key] = {"timed_steps": repeat + old.get("timed_steps", 0)}
    for field in fields:
        known = [r[field] for r in (result, old) if r.get(field) is not None]
        if known:
            measured[key][field] = min(known)
    means = [(r[MEAN], steps) for r, steps in ((result, repeat), (old, old.get("timed_steps")))
             if MEAN in r]
    if means:
        measured[key][MEAN] = (
            sum(mean * steps for mean, steps in means) / sum(steps for _, steps in means))


def measure(key, measured, budget, options, repeat=1, warm_ups=1, what="", like=None):
    """One process: its result, or None. `like` is the one that tells how long a step is."""
    model, length = key
    expected, step = 0.0, measured.get(like or key)
    if step:
        compiling = COMPILING_SECONDS if "-compiled" in model and key not in measured else 0
        expected = LOADING_SECONDS + compiling + (warm_ups + repeat) * step[TIME]
    command = command_of(*key, repeat, warm_ups, options)
    tuned = not model.endswith(DEFAULT)
    result = budget.spend(f"{model} at {length}{what}",
                          lambda left: run_json(command, left, tuned), expected)
    if result:
        add(measured, key, result, repeat)
    return result


def best_kind(names, length, field, measured):
    """Of all kinds of a peer that were measured, with our allocator settings and without."""
    kinds = [(name + malloc, length) for name in names for malloc in ("", DEFAULT)]
    return min((key for key in kinds if key in measured), key=lambda key: measured[key][field],
               default=None)


def try_kinds(names, length, measured, budget, options):
    """Each kind once; the fastest and the smallest again with the allocator's defaults."""
    fastest, repeat = best_kind(names, 2048, TIME, measured), 2 if length == 2048 else 1
    for name in names:
        slower = (measured[name, 2048][TIME] / measured[fastest][TIME]
                  if (name, 2048) in measured else 1)
        if slower > MUCH_SLOWER:
            budget.leave_out(f"{name} at {length}", f"took {slower:.2f} x the fastest at 2048")
        else:
            measure((name, length), measured, budget, options, repeat)
    for field in (TIME, MEMORY):
        best = best_kind(names, length, field, measured)
        if best and not best[0].endswith(DEFAULT) and (best[0] + DEFAULT, length) not in measured:
            measure((best[0] + DEFAULT, length), measured, budget, options, repeat, like=best)


def choose_sides(measured):
    """Of each goal: ours, the peer it is measured against, in what."""
    ours, mamba, longest = ("bmojo", 2048), ("mamba", 2048), ("bmojo", 16384)
    return {
        "time_2k": (ours, best_kind(MISTRALS, 2048, TIME, measured), TIME),
        "memory_2k": (ours, best_kind(MISTRALS, 2048, MEMORY, measured), MEMORY),
        "time_8k": (("bmojo", 8192), best_kind(MISTRALS, 8192, TIME, measured), TIME),
        "mamba_time": (mamba, best_kind(MAMBAPYS, 2048, TIME, measured), TIME),
        "mamba_memory": (mamba, best_kind(MAMBAPYS, 2048, MEMORY, measured), MEMORY),
        "growth": (longest, (IN_A_ROW, 2048), MEAN),
        "eidetic": (ours, ("bmojo-off", 2048), TIME),
    }


def run_rounds(rounds, sides, runs, measured, budget, options):
    """runs[key][round] is a process's result. Every other round runs backwards, so that a machine
    that slows down steadily favours neither side."""
    for ours, (warm_ups, count) in ROUNDS.items():
        peers = [peer for mine, peer, _ in sides.values() if mine == ours and peer]
        members = list(dict.fromkeys([ours, *peers]))
        for number in range(rounds.start, min(rounds.stop, count)):
            for key in members[::-1] if number % 2 else members:
                result = measure(key, measured, budget, options, 8 if key[0] == IN_A_ROW else 1,
                                 warm_ups, f", round {number + 1}")
                if result:
                    runs.setdefault(key, {})[number] = result


def at_last(measured, budget, options):
    for key, like in AT_LAST.items():
        if like in measured:
            measure(key, measured, budget, options, 3, 2, like=like)
        else:
            budget.leave_out(f"{key[0]} at {key[1]}", f"{like[0]} was not measured")


def sample_limits(samples, budget, options):
    small = ["--small"] if options.smoke else []
    found = budget.spend("limits", lambda left: run_json(
        [sys.executable, str(PEERS), "limits", *small], left))
    samples += [found] if found else []


def best_limits(samples):
    """What the machine could do at its best: one sample from a slow minute would flatter every
    share of it. All samples are kept."""
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


def roofline_share(work, limits):
    bound = max(work["flops"] / limits["sgemm"], work["bytes"] / limits["bandwidth"])
    return bound / work["seconds"]


def product_share(key, seconds, limits):
    """The part of a step that its weight and attention products would take at sgemm's speed."""
    model, length = key
    if model not in OURS:
        return None
    family, changes, _ = OURS[model]
    flops = step_flops(family, length, eidetic=changes.get("eidetic_tokens", EIDETIC))
    return flops / (seconds * limits["sgemm"])


def goals(sides, runs, measured, limits):
    """Of each goal the ratio of every round, their median and interval. `best` is the rule before
    this one: the best of all steps of each side (growth: their means)."""
    found = {}
    for name, (ours, peer, field) in sides.items():
        both = [number for number in runs.get(ours, {}) if number in runs.get(peer, {})]
        if both:
            ratios = [runs[ours][n][field] / runs[peer][n][field] for n in both]
            found[name] = {"peer": peer[0], "ratios": ratios, **bootstrap(ratios),
                           "best": measured[ours][field] / measured[peer][field]}
    ours = ("bmojo", 2048)
    if ours in runs:
        shares = [product_share(ours, run[TIME], limits) for run in runs[ours].values()]
        found["share"] = {"peer": "sgemm", "ratios": shares, **bootstrap(shares),
                          "best": product_share(ours, measured[ours][TIME], limits)}
    return found


def beside_goals(measured):
    """What has no bar of its own: the best of each side, in time and memory."""
    pairs = [(("bmojo-recompute", length), ("bmojo", length)) for length in (2048, 8192)]
    pairs.append((("bmojo", 16384), ("bmojo", 2048)))
    for ours, names in ((("bmojo", 2048), MISTRALS), (("bmojo", 8192), MISTRALS),
                        (("mamba", 2048), MAMBAPYS)):
        pairs += [(ours, (name + malloc, ours[1])) for name in names for malloc in ("", DEFAULT)]
    return [{"ours": ours[0], "length": ours[1], "peer": peer[0], "peer_length": peer[1],
             "time": measured[ours][TIME] / measured[peer][TIME],
             "memory": measured[ours][MEMORY] / measured[peer][MEMORY]}
            for ours, peer in pairs if ours in measured and peer in measured]


def adamw_share(measured):
    """Of a step, or None."""
    step = measured.get(("bmojo-adamw", 2048))
    return step and step["optimizer_seconds"] / step["seconds_per_step_with_optimizer"]


def unequal_parameters(measured):
    for ours, names in (("bmojo", MISTRALS), ("mamba", MAMBAPYS)):
        for theirs in names:
            sizes = [measured[name, 2048]["parameters"] for name in (ours, theirs)
                     if (name, 2048) in measured]
            if sizes and max(sizes) > 1.01 * min(sizes):
                yield f"{ours} and {theirs} must be within 1 % in parameters, got {sizes}"


def versions():
    def version(name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None
    return {name: version(name) for name in ("torch", "transformers", "mambapy")}


def measure_all(budget, options):
    measured, runs, samples = {}, {}, []
    common = measured, budget, options
    sample_limits(samples, budget, options)
    for names, length in ((MISTRALS, 2048), (MAMBAPYS, 2048), (MISTRALS, 8192)):
        try_kinds(names, length, *common)
    sides = choose_sides(measured)
    run_rounds(range(1 if options.smoke else FIRST_ROUNDS), sides, runs, *common)
    sample_limits(samples, budget, options)
    kernels = measure_kernels(budget, options)
    if not options.smoke:
        run_rounds(range(FIRST_ROUNDS, 10), sides, runs, *common)
    sample_limits(samples, budget, options)
    at_last(*common)
    if not samples:
        raise Failed("limits: must be measured at least once, got none")
    limits = best_limits(samples)
    for case in kernels:
        compare(case, limits)
    return {"limits": limits, "goals": goals(sides, runs, measured, limits),
            "beside_goals": beside_goals(measured), "adamw_share": adamw_share(measured),
            "steps": [{"model": model, "length": length, **row,
                       "share": product_share((model, length), row[TIME], limits)}
                      for (model, length), row in measured.items()],
            "kernels": kernels, "left_out": budget.left_out,
            "wrong": list(unequal_parameters(measured))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=Path, help="folder of the results (default: results/)")
    parser.add_argument("--budget", type=float, default=29.5, metavar="MINUTES")
    parser.add_argument("--smoke", action="store_true",
                        help="tiny sizes: whether the driver works; no measurement")
    options = parser.parse_args()
    budget = Budget(options.budget)
    report = {"command": "bench.py --smoke, no measurement" if options.smoke else "make bench",
              "commit": commit(), "machine": machine(), "python": platform.python_version(),
              "versions": versions(), **measure_all(budget, options)}
    report["minutes"] = round(options.budget - budget.left() / 60, 1)
    print(markdown(report), end="")
    if options.out or not options.smoke:
        folder = options.out or ROOT / "results"
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
        (folder / "bench.md").write_text(markdown(report))
    if report["wrong"]:
        sys.exit("bench: " + "; ".join(report["wrong"]))


if __name__ == "__main__":
    end_with_children()
    try:
        main()
    except Failed as failure:
        sys.exit(f"bench: {failure}")
