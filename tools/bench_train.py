"""A whole `bmojo train`: what it does beside computing, and two workers against one. `make
bench-train`, about 5 minutes.

B'MOJO with 17 M parameters on text (this project's own), 16,384 tokens a step. One worker with two
threads and two workers with one thread each run by turns; the first step of a run is a warm-up.
Writes results/train.json and results/train.md.

Reading and logging are of every step. A checkpoint is taken as written every 10 minutes, as by
default: its share is its time over 10 minutes. Exits 1 where a limit is missed.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from measure import (ROOT, Failed, commit, config, end_with_children, machine, run, run_json, table)

STEPS, ROUNDS, TOKENS, LENGTH, AT_ONCE = 4, 2, 16384, 2048, 2
SAVE_EVERY = 600.0  # seconds
LIMIT_OVERHEAD, LIMIT_WORKERS = 0.03, 0.9


def write_text(folder):
    """Some 10 MB of what lies in the project, again and again."""
    files = sorted([*(ROOT / "src").rglob("*.cpp"), *(ROOT / "docs").glob("*.md")])
    text = b"\n".join(path.read_bytes() for path in files)
    folder.mkdir()
    for i in range(10_000_000 // len(text) + 1):
        (folder / f"{i}.txt").write_bytes(text)


def train(bmojo, tokens, out, workers):
    """{"tokens_per_s": […], "read": s, "log": s, "save": s} of one run; per step but for saving."""
    flags = [word for key, value in config("bmojo").items() for word in ("--set", f"{key}={value}")]
    words = [bmojo, "train", "--preset", "bmojo-tiny", *flags, "--data", tokens, "--steps", STEPS,
             "--batch-tokens", TOKENS, "--segment", LENGTH, "--micro-batch", AT_ONCE, "--workers",
             workers, "--threads", 2 // workers, "--out", out, "--json"]
    result = run_json(list(map(str, words)))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {"tokens_per_s": [row["tokens_per_s"] for row in rows[1:]],
            "parameters": run_json([str(bmojo), "inspect", str(out / "latest"), "--json"])["parameters"],
            "read": result["read_seconds"] / STEPS, "log": result["log_seconds"] / STEPS,
            "save": result["save_seconds"]}


def ratio(runs):
    """Speed of two workers over that of one: medians over all timed steps."""
    one, two = (median(x for each in runs[key] for x in each["tokens_per_s"]) for key in ("1", "2"))
    return two / one


def overheads(runs):
    """Shares of the time, of the run with the most of it: {"read": x, …, "total": x}."""
    def shares(each):
        step = TOKENS / max(each["tokens_per_s"])
        parts = {"read": each["read"] / step, "log": each["log"] / step,
                 "save": each["save"] / (SAVE_EVERY + each["save"])}
        return parts | {"total": sum(parts.values())}

    return max(map(shares, runs), key=lambda parts: parts["total"])


def missed(result):
    """What was asked for and is not reached, in words."""
    found, total, ratio = [], result["overheads"]["total"], result["ratio"]
    if total >= LIMIT_OVERHEAD:
        found.append(f"beside computing must be below {100 * LIMIT_OVERHEAD:g} % of the time, got "
                     f"{100 * total:.3f} %")
    if ratio < LIMIT_WORKERS:
        found.append(f"2 workers must have at least {LIMIT_WORKERS} of the speed of 1, got {ratio:.2f}")
    return found


def report(result):
    lines = [f"`make bench-train` at {result['commit']} on {result['machine']}:",
             f"B'MOJO, {result['runs']['1'][0]['parameters'] / 1e6:.1f} M parameters, "
             f"{TOKENS:,} tokens a step.", ""]
    rows = [[title, ", ".join(f"{x:,.0f}" for each in result["runs"][key]
                              for x in each["tokens_per_s"])]
            for key, title in (("1", "1 worker, 2 threads"), ("2", "2 workers, 1 thread each"))]
    lines += [table(["", "tokens/s of each step"], rows), "",
              f"Median of 2 workers / median of 1: {result['ratio']:.2f} (at least {LIMIT_WORKERS}).",
              ""]
    parts = result["overheads"]
    lines += [table(["beside computing, 1 worker", "share of the time"],
                    [[title, f"{100 * parts[key]:.3f} %"] for key, title in (
                        ("read", "making batches"), ("log", "metrics and progress"),
                        ("save", "a checkpoint every 10 minutes"), ("total", "together"))]), "",
              f"Together below {100 * LIMIT_OVERHEAD:g} % was asked."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the results")
    options = parser.parse_args()
    bmojo = Path(options.bin) / "bmojo"
    runs = {"1": [], "2": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_text(folder / "text")
        run([bmojo, "tokenize", "--tokenizer", "bytes", "--quiet", "--out", folder / "tokens",
             folder / "text"])
        for turn in range(ROUNDS):
            for workers in (1, 2):
                print(f"bench-train: {workers} worker(s), round {turn + 1} of {ROUNDS}",
                      file=sys.stderr)
                out = folder / f"run-{turn}-{workers}"
                runs[str(workers)].append(train(bmojo, folder / "tokens", out, workers))
    result = {"command": "make bench-train", "commit": commit(), "machine": machine(),
              "tokens_per_step": TOKENS, "runs": runs, "ratio": ratio(runs),
              "overheads": overheads(runs["1"])}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "train.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "train.md").write_text(report(result))
    print(report(result), end="")
    if faults := missed(result):
        raise Failed("; ".join(faults))


if __name__ == "__main__":
    end_with_children()
    try:
        main()
    except Failed as failure:
        sys.exit(f"bench-train: {failure}")
    except KeyboardInterrupt:
        sys.exit("bench-train: stopped")
