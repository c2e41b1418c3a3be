"""What bench_engine.py measures of ours alone: B'MOJO at every depth, batches, start-up, and the
machine's bandwidth; and the goals, from that and from the rounds with the peer."""

import json
import subprocess
import sys
import time

from engine_cases import GOALS, LONG, SHORT, THREADS, Case, rows_of, speed
from measure import PEERS, Failed, bootstrap, environment, run, run_json

BMOJO = {"f32": "bmojo", "bf16": "bmojo-bf16"}  # the model by the type of its weights


def long_texts(engines, budget, model, lengths, turns):
    """Reading and writing at every depth, in one process: [rows of bmojo bench]. Reading is of the
    512 tokens before the depth; writing goes over the depths by turns."""
    depths = ",".join(str(length - 512) for length in lengths)
    command = [str(engines.program), "bench", "--model", str(engines.models[model][0]),
               "--prompt", "512", "--tokens", "32", "--depth", depths,
               "--repeat", str(turns), "--threads", str(THREADS), "--json", "--quiet"]
    return budget.spend(f"{model}, depths to {max(lengths):,}",
                        lambda left: rows_of(command, left)) or []


def by_depth(rows, lengths):
    """{length: {"prefill": speed, "decode": [speed of each turn]}}. The first turn is left out
    where there are more: it comes right after its own reading, not beside the other depths."""
    prefills = [row["tokens_per_second"] for row in rows if row["phase"] == "prefill"]
    decodes = [row["tokens_per_second"] for row in rows if row["phase"] == "decode"]
    n = len(lengths)
    turns = [decodes[i:i + n] for i in range(0, len(decodes) - len(decodes) % n, n)]
    turns = turns[1:] or turns
    return {length: {"prefill": prefills[i], "decode": [turn[i] for turn in turns]}
            for i, length in enumerate(lengths) if i < len(prefills) and turns}


def bytes_a_token(inspected, dtype):
    """Weights once (the embedding as the head), and every memory of a sequence, in f32."""
    return (inspected["parameters"] * {"f32": 4, "bf16": 2}[dtype]
            + inspected["memory_bytes"]["total"])


def shares(speeds, size, bandwidth):
    return [each * size / bandwidth for each in speeds]


def batch_ratios(engines, budget, part):
    """{depth: tokens a second of a batch of 8 over those of one, ours}"""
    found = {}
    for depth, cases in part.batches.items():
        ratios = found[depth] = []
        for number in range(part.rounds):
            speeds = {}
            for case in cases[::-1] if number % 2 else cases:
                rows = budget.spend(
                    f"bmojo, batch of {case.batch}, depth {depth}, round {number + 1}",
                    lambda left: rows_of(engines.ours(case), left))
                if rows:
                    speeds[case.batch] = speed(rows, "decode")
            if len(speeds) == 2:
                ratios.append(speeds[8] / speeds[1])
    return found


def start_up(program, folder, left):
    """Seconds of a whole process that writes one token."""
    start = time.perf_counter()
    done = subprocess.run([str(program), "generate", "--model", str(folder), "--ids", "1,2,3",
                           "--max-tokens", "1", "--threads", str(THREADS), "--quiet"],
                          capture_output=True, text=True, timeout=left, env=environment())
    if done.returncode != 0:
        raise Failed(done.stderr.strip()[-300:])
    return time.perf_counter() - start


def start_ups(engines, budget, part):
    """{name: [seconds]}; the first start warms the cache."""
    found = {}
    for name, model in part.starts.items():
        folder = engines.models[model][0]
        work = lambda left: [start_up(engines.program, folder, left)
                             for _ in range(part.rounds + 1)]
        found[name] = (budget.spend(f"start-up, {name}", work) or [])[1:]
    return found


def bandwidth(engines, budget):
    """Bytes a second: the best of our own reader and of torch's, over 1 GiB."""
    def read(left):
        line = next(line for line in run(
            [str(engines.reader), "--turns", "4", "-M", "32"], left).splitlines()
            if line.startswith("read "))
        return 1e9 * float(line.split()[1])
    found = [budget.spend("bandwidth", read)]
    limits = budget.spend("bandwidth and sgemm by torch", lambda left: run_json(
        [sys.executable, str(PEERS), "limits"], left))
    if limits:
        found.append(limits["bandwidth"])
    best = [each for each in found if each]
    return {"bandwidth": max(best) if best else None, "sgemm": limits and limits["sgemm"]}


def best_limits(samples):
    return {name: max((s[name] for s in samples if s[name]), default=None)
            for name in ("bandwidth", "sgemm")} | {"samples": samples}


def measure_bmojo(engines, budget, part, found):
    """Adds to what is known of each type of weights. Depth 0 has processes of its own: nothing is
    read before it."""
    for dtype, depths in part.depths.items():
        model, lengths = BMOJO[dtype], [depth for depth in depths if depth > 0]
        known = found.setdefault(dtype, {"depths": {}, "peak_rss_bytes": None})
        inspected = json.loads(run([str(engines.program), "inspect", str(engines.models[model][0]),
                                    "--json"]))
        known["bytes_a_token"] = bytes_a_token(inspected, dtype)
        rows = long_texts(engines, budget, model, lengths, part.rounds + 1) if lengths else []
        known["depths"] |= by_depth(rows, lengths)
        peaks = [row["peak_rss_bytes"] for row in rows]
        known["peak_rss_bytes"] = max([*peaks, known["peak_rss_bytes"] or 0]) or None
        for phase in ("prefill", "decode") if 0 in depths else ():
            start = budget.spend(f"{model}, {phase} at 0", lambda left: rows_of(
                engines.ours(Case(model, phase)), left))
            if start:
                one = speed(start, phase)
                known["depths"].setdefault(0, {})[phase] = one if phase == "prefill" else [one]


# Goals

def goals(rows, bmojo, batches, starts, limits):
    """{name: {ratios, median, low, high}} of what engine_report.GOALS names."""
    found = {row["case"]: row["ratios"] for row in rows if row["case"] in GOALS.cases}
    for dtype, part in bmojo.items():
        writing = part["depths"].get(SHORT)
        if writing and limits["bandwidth"]:
            found[f"share-{dtype}"] = shares(writing["decode"], part["bytes_a_token"],
                                             limits["bandwidth"])
        if writing and LONG in part["depths"] and dtype == "f32":
            pairs = zip(writing["decode"], part["depths"][LONG]["decode"])
            found["growth"] = [short / long for short, long in pairs]
    for depth, ratios in batches.items():
        found[f"batch-bmojo-{depth}"] = ratios
    for name, seconds in starts.items():
        found[f"start-{name}"] = [1e3 * s for s in seconds]
    return {name: {"ratios": ratios, **bootstrap(ratios)} for name, ratios in found.items()
            if ratios}
