"""Reads the metrics.jsonl of training runs, with the standard library alone."""

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


class Mistake(Exception):
    """The caller's: one line, exit code 2."""


@dataclass
class Run:
    folder: Path
    name: str
    rows: list  # one dict a step

    def column(self, key):
        """Steps and values of the lines that have a number under the key."""
        points = [(row["step"], row[key]) for row in self.rows if is_number(row.get(key))]
        return [step for step, _ in points], [value for _, value in points]

    @cached_property
    def layers(self):
        """{layer: {what: (steps, values)}} of the eidetic memories."""
        found = {}
        for row in self.rows:
            for memory in row.get("memories", ()):
                for what, value in memory.items():
                    if what == "layer" or not is_number(value):
                        continue
                    steps, values = found.setdefault(memory["layer"], {}).setdefault(what, ([], []))
                    steps.append(row["step"])
                    values.append(value)
        return found


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value):
    """One that can be drawn: no NaN, no infinity, and no whole number beyond what a float holds."""
    return (is_whole(value) or isinstance(value, float)) and -1e300 < value < 1e300


def printable(text):
    """Safe for a one-line message."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def check_row(row, where):
    if not isinstance(row, dict):
        raise Mistake(f"{where} must be a JSON object, got {json.dumps(row)[:40]}")
    if not is_whole(row.get("step")) or "loss" not in row:
        keys = ", ".join(list(row)[:8]) or "nothing"
        raise Mistake(f"{where} must have step, a whole number, and loss, got {keys}")
    memories = row.get("memories", [])
    if not isinstance(memories, list) or not all(
            isinstance(memory, dict) and is_whole(memory.get("layer")) for memory in memories):
        raise Mistake(f"{where} must have a list with layer in memories, "
                      f"got {json.dumps(memories)[:40]}")


def parse_lines(text, path):
    lines = text.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                return  # no line end: a run that is being written, or was killed, tore it
            raise Mistake(f"{path}: line {number} must be JSON, got "
                          f"'{line[:40].decode(errors='replace')}'") from None
        check_row(row, f"{path}: line {number}")
        yield row


def read_metrics(folder):
    """The lines of a run's metrics.jsonl by step; of two lines of a step the last one counts."""
    path = Path(folder) / "metrics.jsonl"
    try:
        text = path.read_bytes()
    except OSError as failure:
        raise Mistake(f"{folder}: must be a folder with metrics.jsonl, got "
                      f"{failure.strerror.lower()}; bmojo train --out makes one") from None
    rows = {row["step"]: row for row in parse_lines(text, path)}
    if not rows:
        raise Mistake(f"{path}: must hold at least one step, got none; the run has only begun")
    return [rows[step] for step in sorted(rows)]


def names_of(folders):
    """Folder names, with as many parents as it takes to tell them apart."""
    parts = [Path(os.path.abspath(folder)).parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    twice = next(name for name in names if names.count(name) > 1)
    raise Mistake(f"{twice}: a run must be named once, got it twice")


def smooth(values, span):
    """Means over about `span` values, exponential to both sides: what falls is not drawn late."""
    keep = 1 - 1 / max(span, 1)

    def one_way(values):
        total = weight = 0.0
        for value in values:
            total, weight = keep * total + value, keep * weight + 1
            yield total, weight

    before, after = list(one_way(values)), list(one_way(values[::-1]))[::-1]
    return [(left + right - value) / (left_weight + right_weight - 1)  # itself counts once
            for value, (left, left_weight), (right, right_weight) in zip(values, before, after)]
