"""Draws what long_text.py measured: perplexity by position, memory and speed by depth, a line for
full attention and for each window."""

import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import LogLocator, NullLocator  # noqa: E402

from figure import tick  # noqa: E402

WHOLE, WINDOWS = "#555555", ["#0071bc", "#c1272d", "#2e8b57", "#e08a1e", "#6bb1e0"]


def perplexities(found):
    """{window: [(first position, perplexity)]}, without the row of the first positions: 0 has
    no place on the axis."""
    return {window: [(first, math.exp(min(nats / tokens, 700)))
                     for first, (nats, tokens) in sorted(positions.items()) if first and tokens]
            for window, positions in found.items()}


def depths(rows, field, unit):
    """{window: [(tokens before, value)]}; depth 0 has no place on the axis."""
    found = {}
    for cell, row in rows.items():
        if cell.kind == "speed" and "failed" not in row and cell.tokens:
            found.setdefault(cell.window, []).append((cell.tokens, row[field] / unit))
    return {window: sorted(points) for window, points in found.items()}


def panel(axes, lines, colours, title, x):
    for window in sorted(lines, key=lambda window: -(window or math.inf)):
        if lines[window]:
            axes.plot(*zip(*lines[window]), color=colours[window], marker="o", markersize=3, lw=1.4,
                      label=f"window {window:,}" if window else "full attention")
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(x, fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    places = sorted({x for points in lines.values() for x, _ in points})
    axes.set_xticks(places, [tick(place) for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.margins(y=0.1)
    axes.grid(color="#e6e6e6", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def draw(rows, found, path):
    windows = sorted({cell.window for cell in rows} - {0}, reverse=True)
    colours = {0: WHOLE} | {window: WINDOWS[i % len(WINDOWS)] for i, window in enumerate(windows)}
    figure, grid = plt.subplots(1, 4, figsize=(14, 3.4), dpi=140)
    before = "tokens before"
    panel(grid[0], perplexities(found), colours, "perplexity", "position in the text, from")
    panel(grid[1], depths(rows, "memory_bytes", 1e6), colours, "memory of a sequence, MB", before)
    panel(grid[2], depths(rows, "read_per_second", 1), colours, "tokens read a second", before)
    panel(grid[3], depths(rows, "written_per_second", 1), colours, "tokens written a second", before)
    handles, names = max((axes.get_legend_handles_labels() for axes in grid), key=lambda pair: len(pair[1]))
    if handles:
        figure.legend(handles, names, loc="lower center", ncols=len(names), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path)
    plt.close(figure)
