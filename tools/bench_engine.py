"""The inference engine beside llama.cpp on the same weights, and B'MOJO alone: `make bench-engine`.

SmolLM2-135M and a Mamba of 130 M in f32, by our engine and by llama.cpp (PyPI's llama-cpp-python,
built here with and without BLAS). First logits and texts of both are compared. Then come all goals,
and then what is only reported. Every kind of the peer runs once, for a goal twice by turns, and the
fastest is chosen for each measurement. Then come rounds: ours and the peer one after the other,
each in a process of its own, with warm-ups, in every other round backwards. A round gives one
ratio; a goal has the median of all and its 95 % interval. llama.cpp is timed around its decode
call. Writes results/bench-engine.json and results/bench-engine.md.
"""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from statistics import median

import engine_peers
from bench import Budget
from engine_alone import bandwidth, batch_ratios, best_limits, goals, measure_bmojo, start_ups
from engine_cases import (CHECKS, LONG, ROUNDS, THREADS, Case, Engines, kinds, parts, rows_of,
                          speed)
from engine_report import markdown
from measure import ROOT, Failed, bootstrap, commit, end_with_children, machine, run

CHECKED = 256  # tokens whose logits are compared
WRITTEN = 64  # tokens that both write after these
CLOSE = 1e-3  # largest difference of a logit, over the largest logit
TEXT = ROOT / "docs/engine.md"


# Same weights, same answers

def agreement(ours, theirs):
    """Of two arrays of logits [n, V]: shares of equal argmax, and the largest difference over the
    largest logit."""
    same = (ours.argmax(1) == theirs.argmax(1)).mean()
    return {"tokens": len(ours), "argmax": float(same),
            "error": float(abs(ours - theirs).max() / abs(theirs).max())}


def compare_answers(engines, name, kind, left):
    """Logits of a text (a Mamba with fresh weights: of any ids), and what both write after it."""
    import numpy as np
    from safetensors.numpy import load_file

    checkpoint = str(engines.models[name][0])
    if name == "smollm2":
        asked = {"text": TEXT.read_text(), "count": CHECKED}
    else:
        asked = {"ids": [(7919 * i + 13) % 32000 for i in range(CHECKED)]}
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = f"{folder}/theirs.npy", f"{folder}/ours.safetensors"
        answer = json.loads(run(
            [*engines.llama("logits", name, kind), "--out", theirs, "--tokens", str(WRITTEN)], left,
            text=json.dumps(asked)))
        run([str(engines.program), "score", "--model", checkpoint, "--ids", "-", "--logits", ours,
             "--quiet"], left, text=json.dumps({"ids": answer["ids"]}))
        found = agreement(load_file(ours)["logits.0"], np.load(theirs))
    written = json.loads(run(
        [str(engines.program), "generate", "--model", checkpoint, "--ids",
         ",".join(map(str, answer["ids"])), "--max-tokens", str(WRITTEN), "--temperature", "0",
         "--ignore-eos", "--json", "--quiet"], left))
    same = [a == b for a, b in zip(written["ids"], answer["written"])]
    texts = json.loads(run(engines.llama("text", name, kind), left, text=json.dumps(
        [written["ids"], answer["written"]]))) if "text" in asked else []
    return {"model": name, "kind": kind, **found, "written": len(same),
            "same": same.index(False) if False in same else len(same), "texts": texts}


def wrong_answers(answers):
    for answer in answers:
        if answer["error"] > CLOSE:
            yield (f"{answer['model']}: logits must be within {CLOSE:g} of llama.cpp's, got "
                   f"{answer['error']:.2g}")


# Ours and the peer by turns

def try_kinds(engines, budget, part, best, tried):
    """Every kind of the peer as often as the part says, by turns: the fastest goes into best[case],
    all go into tried."""
    for name, case in part.cases.items():
        if case.tried_as in best:
            best[name] = best[case.tried_as]
            continue
        found = []
        for turn in range(part.tries):
            for kind in kinds(case)[::-1] if turn % 2 else kinds(case):
                rows = budget.spend(f"{name}, llama.cpp {' '.join(kind)}",
                                    lambda left: rows_of(engines.peer(case, kind), left))
                if rows:
                    found.append({"case": name, "kind": kind, "speed": speed(rows, case.phase)})
        if found:
            best[name] = max(found, key=lambda each: each["speed"])["kind"]
        tried += found


def run_rounds(engines, budget, part, best):
    """What every process measured, with its round. Every other round runs backwards."""
    runs = []
    for name, case in part.cases.items():
        sides = {"ours": engines.ours(case)}
        if name in best:
            sides["peer"] = engines.peer(case, best[name])
        for number in range(part.rounds):
            for side in list(sides)[::-1] if number % 2 else list(sides):
                rows = budget.spend(f"{name}, {side}, round {number + 1}",
                                    lambda left: rows_of(sides[side], left))
                if rows:
                    runs.append({"case": name, "side": side, "round": number,
                                 "speed": speed(rows, case.phase),
                                 "peak_rss_bytes": max(row["peak_rss_bytes"] for row in rows)})
    return runs


def compared(part, runs, best):
    """A row for each case: ours over the peer's, of the rounds with both."""
    rows = []
    for name, case in part.cases.items():
        ours, peer = ({r["round"]: r["speed"] for r in runs
                       if (r["case"], r["side"]) == (name, side)} for side in ("ours", "peer"))
        both = [n for n in ours if n in peer]
        if both:
            ratios = [ours[n] / peer[n] for n in both]
            rows.append({"case": name, "model": case.model, "phase": case.phase,
                         "depth": case.depth, "batch": case.batch, "cache": case.cache,
                         "kind": best[name], "ours": median(ours[n] for n in both),
                         "peer": median(peer[n] for n in both), "ratios": ratios,
                         **bootstrap(ratios)})
    return rows


def measure_all(engines, budget, planned):
    answers = [budget.spend(f"{name}: logits beside {' '.join(kind)}", lambda left: compare_answers(
        engines, name, kind, left)) for name in ("smollm2", "mamba")
        for kind in kinds(Case(name, "decode"))
        if "on" == kind[2]]  # where weights lie changes no answer
    answers = [answer for answer in answers if answer]
    for line in wrong_answers(answers):
        raise Failed(line)  # a speed would mean nothing
    samples = [bandwidth(engines, budget)]
    best, tried, runs, rows, bmojo, batches, starts = {}, [], [], [], {}, {}, {}
    for part in planned:
        try_kinds(engines, budget, part, best, tried)
        found = run_rounds(engines, budget, part, best)
        runs += found
        rows += compared(part, found, best)
        measure_bmojo(engines, budget, part, bmojo)
        batches |= batch_ratios(engines, budget, part)
        starts |= start_ups(engines, budget, part)
        samples.append(bandwidth(engines, budget))
    limits = best_limits(samples)
    return {"threads": THREADS, "limits": limits, "answers": answers,
            "goals": goals(rows, bmojo, batches, starts, limits), "compared": rows,
            "bmojo": bmojo, "tried": tried, "runs": runs, "left_out": budget.left_out}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=Path, default=ROOT / "results")
    parser.add_argument("--budget", type=float, default=120, metavar="MINUTES")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="fewer: a first look")
    parser.add_argument("--longest", type=int, default=LONG, help="depth of B'MOJO")
    parser.add_argument("--goals", action="store_true", help="only what the goals ask for")
    parser.add_argument("--only", nargs="*", default=[], metavar="CASE",
                        help="cases whose names begin so; bmojo: what has no peer")
    options = parser.parse_args()
    planned = list(parts(options))
    minutes = (CHECKS + sum(part.seconds() for part in planned)) / 60
    engine_peers.say(f"about {minutes:.0f} minutes, once all is built")
    engines, budget = Engines(options), Budget(options.budget)
    words = [f"--rounds {options.rounds}"] if options.rounds != ROUNDS else []
    words += ["--goals"] if options.goals else []
    words += [f"--only {' '.join(options.only)}"] if options.only else []
    report = {"command": " ".join(["bench_engine.py", *words]) if words else "make bench-engine",
              "commit": commit(), "machine": machine(), "python": platform.python_version(),
              "peer": engine_peers.LLAMA, **measure_all(engines, budget, planned)}
    report["minutes"] = round(options.budget - budget.left() / 60, 1)
    options.out.mkdir(exist_ok=True, parents=True)
    (options.out / "bench-engine.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.out / "bench-engine.md").write_text(markdown(report))
    print(markdown(report), end="")


if __name__ == "__main__":
    end_with_children()
    try:
        main()
    except Failed as failure:
        sys.exit(f"bench-engine: {failure}")
