"""The inference engine beside llama.cpp on the same weights, and B'MOJO alone: `make bench-engine`.

SmolLM2-135M and a Mamba of 130 M in f32, by our engine and by llama.cpp (PyPI's llama-cpp-python,
built here with and without BLAS). First logits and texts of both are compared. Then every kind of
the peer runs once, and the fastest is chosen for each measurement. Then come rounds: ours and the
peer one after the other, each in a process of its own, with warm-ups, in every other round
backwards. A round gives one ratio; a goal has the median of all and its 95 % interval. llama.cpp is
timed around its decode call. Writes results/bench-engine.json and results/bench-engine.md.
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
from engine_alone import (LONG, bandwidth, batch_ratios, best_limits, goals, measure_bmojo,
                          start_ups)
from engine_cases import CASES, ROUNDS, THREADS, Engines, kinds, rows_of, speed
from engine_report import is_of_a_goal, markdown
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
    return {"model": name, "kind": kind, **found, "written": len(same),
            "same": same.index(False) if False in same else len(same),
            "text": answer.get("text", "")}


def wrong_answers(answers):
    for answer in answers:
        if answer["error"] > CLOSE:
            yield (f"{answer['model']}: logits must be within {CLOSE:g} of llama.cpp's, got "
                   f"{answer['error']:.2g}")


# Ours and the peer by turns

def caches(model):
    """Of llama.cpp: as ours, and its default. A Mamba's memory is f32 by default."""
    return ("f32", "f16") if model == "smollm2" else ("f32",)


def try_kinds(engines, budget, cases, only=("f32", "f16")):
    """Every kind of the peer once: {(case, cache): the fastest}, and all that were tried."""
    best, tried = {}, []
    for name, case in cases.items():
        for cache in [cache for cache in caches(case.model) if cache in only]:
            if (case.tried_as, cache) in best:
                best[name, cache] = best[case.tried_as, cache]
                continue
            found = []
            for kind in kinds(case.model, cache):
                rows = budget.spend(f"{name}, llama.cpp {' '.join(kind)}",
                                    lambda left: rows_of(engines.peer(case, kind), left))
                if rows:
                    found.append({"case": name, "kind": kind, "speed": speed(rows, case.phase)})
            if found:
                best[name, cache] = max(found, key=lambda each: each["speed"])["kind"]
            tried += found
    return best, tried


def run_rounds(engines, budget, cases, best, rounds):
    """What every process measured, with its round. Every other round runs backwards."""
    runs = []
    for name, case in cases.items():
        sides = {"ours": engines.ours(case)}
        sides |= {cache: engines.peer(case, best[name, cache]) for cache in caches(case.model)
                  if (name, cache) in best}
        for number in range(min(rounds, case.rounds)):
            for side in list(sides)[::-1] if number % 2 else list(sides):
                rows = budget.spend(f"{name}, {side}, round {number + 1}",
                                    lambda left: rows_of(sides[side], left))
                if rows:
                    runs.append({"case": name, "side": side, "round": number,
                                 "speed": speed(rows, case.phase),
                                 "peak_rss_bytes": max(row["peak_rss_bytes"] for row in rows)})
    return runs


def compared(cases, runs, best):
    """A row for each case and cache of the peer: ours over the peer's, of the rounds with both."""
    rows = []
    for name, cache in best:
        by_round = [{r["round"]: r["speed"] for r in runs if (r["case"], r["side"]) == (name, side)}
                    for side in ("ours", cache)]
        both = [n for n in by_round[0] if n in by_round[1]]
        if both:
            case, ratios = cases[name], [by_round[0][n] / by_round[1][n] for n in both]
            ours, peer = (median(side[n] for n in both) for side in by_round)
            rows.append({"case": name, "model": case.model, "phase": case.phase,
                         "depth": case.depth, "batch": case.batch, "cache": cache,
                         "kind": best[name, cache], "ours": ours, "peer": peer, "ratios": ratios,
                         **bootstrap(ratios)})
    return rows


def measure_all(engines, budget, options):
    cases = {name: case for name, case in CASES.items()
             if (not options.only or any(name.startswith(only) for only in options.only))
             and (not options.goals or is_of_a_goal(case))}
    answers = [budget.spend(f"{name}: logits beside {' '.join(kind)}", lambda left: compare_answers(
        engines, name, kind, left)) for name in ("smollm2", "mamba")
        for kind in kinds(name, "f32") if "on" == kind[2]]  # where weights lie changes no answer
    answers = [answer for answer in answers if answer]
    for line in wrong_answers(answers):
        raise Failed(line)  # a speed would mean nothing
    samples = [bandwidth(engines, budget)]
    best, tried = try_kinds(engines, budget, cases,
                            ("f32",) if options.goals else ("f32", "f16"))
    runs = run_rounds(engines, budget, cases, best, options.rounds)
    samples.append(bandwidth(engines, budget))
    alone = not options.only or "bmojo" in options.only
    bmojo = measure_bmojo(engines, budget, options) if alone else {}
    batches = {("bmojo", depth): batch_ratios(engines, budget, "bmojo", depth, options.rounds)
               for depth in ((0, 2048) if alone else ())}
    starts = start_ups(engines, budget, options.rounds) if alone else {}
    samples.append(bandwidth(engines, budget))
    limits, rows = best_limits(samples), compared(cases, runs, best)
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
    engines, budget = Engines(options), Budget(options.budget)
    words = [f"--rounds {options.rounds}"] if options.rounds != ROUNDS else []
    words += ["--goals"] if options.goals else []
    words += [f"--only {' '.join(options.only)}"] if options.only else []
    report = {"command": " ".join(["bench_engine.py", *words]) if words else "make bench-engine",
              "commit": commit(), "machine": machine(), "python": platform.python_version(),
              "peer": engine_peers.LLAMA, **measure_all(engines, budget, options)}
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
