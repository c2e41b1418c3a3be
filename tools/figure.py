"""Draws what bench_full.py measured: a panel for each width and batch, both axes logarithmic."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import LogLocator, NullLocator  # noqa: E402

# A colour a family; peers are dashed, in the colour of their family or a lighter one.
LINES = {
    "bmojo": ("B'MOJO", "#c1272d", "-"),
    "bmojo-f": ("B'MOJO-F", "#e08a1e", "-"),
    "hybrid": ("hybrid", "#2e8b57", "-"),
    "mamba": ("Mamba", "#0071bc", "-"),
    "transformer": ("Transformer", "#555555", "-"),
    "mistral": ("Mistral, HF", "#555555", "--"),
    "mistral-sliding": ("Mistral, HF, w 512", "#999999", "--"),
    "mambapy": ("mambapy", "#0071bc", "--"),
    "transformers-mamba": ("Mamba, HF", "#6bb1e0", "--"),
}
LABEL_POINTS = 8


def series(measured, model, width, batch, field, unit):
    points = [(cell.length, row[field] / unit) for cell, row in measured.items()
              if (cell.model, cell.width, cell.batch) == (model, width, batch)]
    return sorted(points)


def spread(ends, gap):
    """Label heights in order of the lines' ends, at least `gap` apart and centred on their ends."""
    order = sorted(range(len(ends)), key=lambda i: ends[i])
    groups = []  # (members from below, the centre of their labels)
    for i in order:
        groups.append([[i], ends[i]])
        while len(groups) > 1:
            (a, low), (b, high) = groups[-2], groups[-1]
            if high - low >= gap * (len(a) + len(b)) / 2:
                break
            members = a + b
            groups[-2:] = [[members, sum(ends[j] for j in members) / len(members)]]
    heights = [0.0] * len(ends)
    for members, centre in groups:
        for place, i in enumerate(members):
            heights[i] = centre + (place - (len(members) - 1) / 2) * gap
    return heights


def label(axes, model, point, offset, **how):
    name, colour, _ = LINES[model]
    axes.annotate(name, point, xytext=offset, textcoords="offset points", color=colour,
                  fontsize=LABEL_POINTS, annotation_clip=False, **how)


def label_ends(axes, drawn):
    """Names right of the panel, at the ends of the lines, each with a thin line to its end. A line
    that ends before the others has its name above its end."""
    last = max(points[-1][0] for _, points in drawn)
    for model, points in drawn:
        if points[-1][0] < last:
            label(axes, model, points[-1], (0, 5), ha="center", va="bottom")
    drawn = [(model, points[-1]) for model, points in drawn if points[-1][0] == last]
    pixels = [axes.transData.transform(end) for _, end in drawn]
    points_a_pixel = 72 / axes.figure.dpi
    heights = spread([y for _, y in pixels], 1.25 * LABEL_POINTS / points_a_pixel)
    for (model, end), (_, y), height in zip(drawn, pixels, heights):
        line = {"arrowstyle": "-", "color": LINES[model][1], "lw": 0.5, "shrinkA": 0, "shrinkB": 3,
                "relpos": (0, 0.5)}
        label(axes, model, end, (20, (height - y) * points_a_pixel), va="center", arrowprops=line)


def panel(axes, measured, width, batch, field, unit):
    drawn = []
    for model, (_, colour, dash) in LINES.items():
        points = series(measured, model, width, batch, field, unit)
        if points:
            axes.plot(*zip(*points), color=colour, linestyle=dash, marker="o", markersize=3, lw=1.4)
            drawn.append((model, points))
    axes.set_title(f"width {width}, batch {batch}", fontsize=9, loc="left")
    return drawn


def tick(value):
    return f"{value:g}" if value < 1024 else f"{value / 1024:g}k"


def prepare(axes, lengths):
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [tick(n) for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.margins(y=0.1)
    axes.grid(color="#e6e6e6", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def draw_one(done, field, unit, what, path):
    measured = {cell: row for cell, row in done.items() if row["status"] == "measured"}
    if not measured:
        return
    widths, batches = (sorted({getattr(cell, name) for cell in measured})
                       for name in ("width", "batch"))
    size = 0.5 + 4.0 * len(widths), 0.7 + 3.0 * len(batches)  # inches
    figure, grid = plt.subplots(len(batches), len(widths), sharex="col", sharey=True, squeeze=False,
                                figsize=size, dpi=140)
    drawn = {}
    for i, batch in enumerate(batches):
        for j, width in enumerate(widths):
            axes = grid[i][j]
            prepare(axes, sorted({cell.length for cell in measured if cell.width == width}))
            drawn[axes] = panel(axes, measured, width, batch, field, unit)
    for axes in grid[-1]:
        axes.set_xlabel("tokens a sequence", fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel(what, fontsize=8)
    figure.subplots_adjust(left=0.7 / size[0], right=1 - 1.45 / size[0], bottom=0.6 / size[1],
                           top=1 - 0.35 / size[1], wspace=0.6, hspace=0.2)
    figure.text(0.99, 0.01, "dashed: peers, HF: Hugging Face transformers; other lines: ours",
                ha="right", fontsize=7, color="#555555")
    figure.canvas.draw()  # only now are the places of the points final
    for axes, lines in drawn.items():
        if lines:
            label_ends(axes, lines)
    figure.savefig(path)
    plt.close(figure)


def draw(done, folder):
    draw_one(done, "seconds_per_step", 1, "seconds a training step", folder / "bench-time.png")
    draw_one(done, "peak_rss_bytes", 1e9, "peak memory, GB", folder / "bench-memory.png")
