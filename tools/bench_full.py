"""The paper's timing figure: time and peak memory of a training step against length, ours and
peers. `make bench-full` takes hours and may be stopped at any moment.

A cell is one model at one width, length and batch. Each is one line of results/bench-full.jsonl,
written as it comes; the next start goes on after the last one. What failed is run again; to measure
everything anew, remove the file. A cell whose smaller cells predict more than 120 s a step or 16 GB
is not run but recorded so. Cheap cells come first, so that every partial run is a figure already.
Draws results/bench-time.png and results/bench-memory.png.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import (FAMILIES, ROOT, VOCABULARY, Failed, OutOfTime, commit, end_with_children,
                     machine, ours_command, parameters, peer_command, run_json, table)
from metrics import Mistake

LENGTHS, BATCHES, WIDTHS = [2048, 4096, 8192, 16384], [1, 4], [256, 512, 768]
PEER_LENGTHS = {"mistral": LENGTHS, "mistral-sliding": LENGTHS, "mambapy": [2048],
                "transformers-mamba": [256, 512]}
PEER_WIDTH = 512
# Every query sees every key before it, or (SDPA with a mask) computes as if it did.
QUADRATIC = {"transformer", "mistral", "mistral-sliding"}
MAX_SECONDS, MAX_BYTES = 120.0, 16e9
# (from seconds on, timed steps, warm-ups), the last that fits counts; beside a peer two steps after a
# warm-up.
STEPS = [(0, 3, 2), (4, 2, 1), (10, 1, 1), (25, 1, 0)]
LOADING_SECONDS = 60.0
# Ends a cell's run for good; "failed" does not.
FINISHED = {"measured", "too slow"}


@dataclass(frozen=True)
class Cell:
    model: str
    width: int
    batch: int
    length: int

    def __str__(self):
        return f"{self.model}, width {self.width}, batch {self.batch}, length {self.length}"


def all_cells():
    """By cost: the number of weights a token passes, times tokens; peers after ours."""
    cells = [Cell(model, width, batch, length) for model in FAMILIES for width in WIDTHS
             for batch in BATCHES for length in LENGTHS]
    cells.sort(key=lambda c: (c.batch * c.length * parameters("bmojo", c.width)[0], c.batch))
    peers = [Cell(model, PEER_WIDTH, 1, length) for model, lengths in PEER_LENGTHS.items()
             for length in lengths]
    peers.sort(key=lambda c: c.length)
    # Beside ours of the same width: the first figure has both.
    middle = [c for c in cells if (c.width, c.batch) == (PEER_WIDTH, 1)]
    rest = [c for c in cells if (c.width, c.batch) != (PEER_WIDTH, 1)]
    return sorted(middle + peers, key=lambda c: c.length) + rest


def predict(cell, done):
    """(seconds, bytes) from the measured cells of the same model and width, or None.

    Per sequence, a step takes L (a + b L) with b = 0 but for QUADRATIC. The two longest lengths
    give a and b; one alone is scaled, its memory as if all of it were quadratic, since running out
    of memory is worse than leaving out a cell."""
    known = {}  # length -> (seconds, bytes) a sequence; a larger batch is nearer to the limit
    for other, row in sorted(done.items(), key=lambda item: item[0].batch):
        if (other.model, other.width) == (cell.model, cell.width) and row["status"] == "measured":
            known[other.length] = [row[field] / other.batch
                                   for field in ("seconds_per_step", "peak_rss_bytes")]
    if not known:
        return None
    if cell.length in known:
        return tuple(cell.batch * value for value in known[cell.length])
    lengths = sorted(known)[-2:]
    if cell.model not in QUADRATIC:
        powers = (1, 1)
    else:
        powers = (1, 2) if len(lengths) == 1 else None
    return tuple(cell.batch * extrapolate([(n, known[n][i]) for n in lengths], cell.length,
                                          powers and powers[i]) for i in (0, 1))


def extrapolate(points, length, power):
    """By a power of the last point, or (power None) by L (a + b L) through the last two."""
    longest, value = points[-1]
    if power is not None:
        return value * (length / longest) ** power
    shorter, before = points[-2]
    b = max(0.0, (value / longest - before / shorter) / (longest - shorter))
    return length * max(value / longest - b * longest + b * length, 0.0)


def load(path):
    """{cell: its last line}. A torn last line, of a run that was killed, is cut off the file."""
    if not path.exists():
        return {}
    text = path.read_bytes()
    whole = text[:text.rfind(b"\n") + 1]
    if whole != text:
        with open(path, "r+b") as file:
            file.truncate(len(whole))
            os.fsync(file.fileno())
    rows = [json.loads(line) for line in whole.splitlines() if line.strip()]
    return {Cell(*(row[name] for name in ("model", "width", "batch", "length"))): row
            for row in rows}


def check_machine(path, done):
    """A figure is of one machine: cells of another are never gone on with."""
    others = sorted({row["machine"] for row in done.values() if "machine" in row} - {machine()})
    if others:
        raise Mistake(f"{path}: must hold cells of this machine ({machine()}), got those of "
                      f"{' and '.join(others)}; remove it or name another --out")


def store(path, cell, row, done):
    row = {**asdict(cell), **row}
    if done.get(cell) == row:
        return
    done[cell] = row
    with open(path, "ab") as file:
        file.write(json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def too_large(prediction):
    """Why a cell is not run; None where it is."""
    if prediction is None:
        return None
    seconds, size = prediction
    if seconds > MAX_SECONDS:
        return f"not run: {seconds:.0f} s a step predicted"
    if size > MAX_BYTES:
        return f"not run: {size / 1e9:.0f} GB predicted"
    return None


def measure(cell, bin_folder, prediction):
    """The row of a cell that is run."""
    seconds = prediction[0] if prediction else 0
    repeat, warm_ups = [row[1:] for row in STEPS if seconds >= row[0]][-1]
    if (cell.width, cell.batch, warm_ups) == (PEER_WIDTH, 1, 1):
        repeat = 2
    if cell.model in FAMILIES:
        command = ours_command(bin_folder, cell.model, cell.length, repeat, cell.batch, cell.width,
                               warm_ups=warm_ups)
    else:
        command = peer_command(cell.model, cell.length, repeat, cell.batch, warm_ups)
    row = {"commit": commit(), "machine": machine()}
    timeout = (warm_ups + repeat) * MAX_SECONDS + LOADING_SECONDS
    try:
        result = run_json(command, timeout)
    except OutOfTime as late:
        return row | {"status": "too slow", "reason": str(late)}
    except Failed as failure:
        return row | {"status": "failed", "reason": str(failure)}
    fields = ("seconds_per_step", "peak_rss_bytes", "parameters", "threads")
    return row | {"status": "measured", "timed_steps": repeat, "warm_ups": warm_ups,
                  **{field: result[field] for field in fields}}


def run_cells(cells, path, options):
    done, start = load(path), time.monotonic()
    for i, cell in enumerate(cells):
        if done.get(cell, {}).get("status") in FINISHED:
            continue
        prediction = predict(cell, done)
        reason = too_large(prediction)
        if reason:
            print(f"bench-full: {cell}: {reason}", file=sys.stderr)
            store(path, cell, {"status": "not run", "reason": reason}, done)
            continue
        if options.budget and time.monotonic() - start > 60 * options.budget:
            print(f"bench-full: stopped after {options.budget:g} minutes, the next start goes "
                  f"on with cell {i + 1} of {len(cells)}", file=sys.stderr)
            break
        print(f"bench-full: {i + 1} of {len(cells)}: {cell}", file=sys.stderr)
        row = measure(cell, options.bin, prediction)
        store(path, cell, row, done)
        if row["status"] != "measured":
            print(f"bench-full: {cell}: {row['status']}: {row['reason']}", file=sys.stderr)
    return done


def commits_of(done):
    return sorted({row["commit"] for row in done.values() if "commit" in row})


def header(done):
    """Where the cells come from, and how they were timed."""
    def all_of(field):
        found = sorted({str(row[field]) for row in done.values() if field in row})
        return " or ".join(found) or "-"

    commits = commits_of(done)
    lines = [f"`make bench-full` at {', '.join(commits) or '-'} on {all_of('machine')},",
             f"{all_of('threads')} threads, fp32, vocabulary {VOCABULARY:,}; forward and backward. "
             "Memory: peak RSS less that before the model."]
    if len(commits) > 1:
        lines.append(f"\n**Warning: cells come from {len(commits)} commits; compare with care.**")
    lines.append("\ntimed: steps after warm-ups, the fastest counts. A single step in a slow minute of "
                 "the machine may be\noff by half; one without a warm-up also takes its memory from "
                 "the system, some per cent of its time.")
    return "\n".join(lines)


def summary(done):
    rows = []
    for cell in sorted(done, key=lambda c: (c.width, c.batch, c.model, c.length)):
        row = done[cell]
        shown = [row.get("reason", row["status"]), "", ""]
        if row["status"] == "measured":
            shown = [f"{row['seconds_per_step']:.3f}", f"{row['peak_rss_bytes'] / 1e9:.2f} GB",
                     f"{row.get('timed_steps', '?')} after {row.get('warm_ups', '?')}"]
        rows.append([cell.width, cell.batch, cell.model, f"{cell.length:,}", *shown])
    return header(done) + "\n\n" + table(
        ["width", "batch", "model", "length", "seconds", "memory", "timed"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the results")
    parser.add_argument("--only", choices=[*FAMILIES, *PEER_LENGTHS], metavar="FAMILY",
                        help="one model: " + ", ".join([*FAMILIES, *PEER_LENGTHS]))
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no cell after that")
    parser.add_argument("--draw", action="store_true", help="only table and figures")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True, parents=True)
    path = options.out / "bench-full.jsonl"
    cells = [c for c in all_cells() if options.only in (None, c.model)]
    if not options.draw:
        check_machine(path, load(path))
    done = load(path) if options.draw else run_cells(cells, path, options)
    commits = commits_of(done)
    if len(commits) > 1:
        print(f"bench-full: cells of {len(commits)} commits: {', '.join(commits)}", file=sys.stderr)
    (options.out / "bench-full.md").write_text(summary(done) + "\n")
    print(summary(done))
    from figure import draw  # matplotlib only now

    draw(done, options.out)


if __name__ == "__main__":
    end_with_children()
    try:
        main()
    except Mistake as mistake:
        print(f"bench-full: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit("bench-full: stopped; the next start goes on")
