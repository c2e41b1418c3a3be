"""Draws the results.jsonl of `bmojo sweep`: what was measured against one axis, a line a family."""

import json
from pathlib import Path

from metrics import Mistake, is_number, printable


def read_results(path):
    """The lines of a results file; of two lines of a run the last one counts."""
    rows = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            row = json.loads(line)
            rows[row["family"], json.dumps(row["axes"])] = row
            row["evals"][0], row["parameters"]
        except (ValueError, KeyError, TypeError, IndexError):
            raise Mistake(f"{path}:{number}: must be a result with family, axes and evals, got "
                          f"'{printable(line[:40])}'") from None
    if not rows:
        raise Mistake(f"{path}: must hold a result, got none")
    return list(rows.values())


def points_of(rows, axis, counts=lambda row, each: True):
    """{family: {x: [y, …]}} and what y is, of the evaluations that count. An axis is one of the
    grid's, a number of the run (parameters, memory_bytes, …) or one of its evaluations (length,
    memory_bytes)."""
    what = "accuracy" if all("accuracy" in row["evals"][0] for row in rows) else "loss"
    points = {}
    for row in rows:
        grid = row["axes"] | {key.removeprefix("set."): each for key, each in row["axes"].items()}
        if axis in grid:
            found = [(grid[axis], row["evals"][0])]
        else:
            found = [(each.get(axis, row.get(axis)), each) for each in row["evals"]
                     if axis in each] or [(row.get(axis), row["evals"][0])]
        for x, each in found:
            if not isinstance(x, (int, float, str)):
                known = sorted({*grid, "parameters", "memory_bytes", "length"})
                raise Mistake(f"--against: must be one of {', '.join(known)}, got {axis}")
            if is_number(each.get(what)) and counts(row, each):
                points.setdefault(row["family"], {}).setdefault(x, []).append(each[what])
    return points, what


def draw_results(rows, axis, path, colours, save, loose=None):
    """Lines through the means, bands from the least to the largest; a point is hollow if one of
    its evaluations is `loose`, asked with (row, evaluation). Returns (width, height)."""
    from matplotlib.figure import Figure

    points, what = points_of(rows, axis)
    hollow = points_of(rows, axis, loose)[0] if loose else {}
    every = {x for family in points.values() for x in family}
    numbers = all(is_number(x) for x in every)
    order = sorted(every) if numbers else sorted(map(str, every))
    figure = Figure(figsize=(9, 6), dpi=100)
    axes = figure.add_subplot()
    for (family, at), colour in zip(points.items(), colours):
        shown = sorted((x if numbers else order.index(str(x)), ys, x in hollow.get(family, {}))
                       for x, ys in at.items())
        xs, means = [x for x, _, _ in shown], [sum(ys) / len(ys) for _, ys, _ in shown]
        axes.fill_between(xs, [min(ys) for _, ys, _ in shown], [max(ys) for _, ys, _ in shown],
                          color=colour, alpha=0.2, lw=0)
        axes.plot(xs, means, color=colour, marker="o", lw=1.6, label=family)
        empty = [i for i, (_, _, is_hollow) in enumerate(shown) if is_hollow]
        axes.plot([xs[i] for i in empty], [means[i] for i in empty], "o", color=colour, mfc="white")
    if not numbers:
        axes.set_xticks(range(len(order)), [name[:30] for name in order])
    elif order[0] > 0 and order[-1] >= 10 * order[0]:
        axes.set_xscale("log")
    if what == "accuracy":
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_xlabel(axis)
    axes.set_ylabel("answers that are right" if what == "accuracy" else "loss, nats a token")
    note = ", hollow: memory not known to be tight" if hollow else ""
    axes.set_title("line: mean of the runs, band: from the worst to the best" + note, fontsize=10,
                   loc="left")
    axes.grid(color="#e6e6e6", lw=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, path)
    return 900, 600
