"""`make realization`: prints the claims of docs/realization.md with what was measured, and draws the
page's figures.

    tools/realization.py --bin build/release/bin [--out docs]
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import LogLocator, NullLocator  # noqa: E402

from measure import ROOT  # noqa: E402
from plot import COLOURS  # noqa: E402

BLUE, ORANGE, GREEN, PINK, *_ = COLOURS
GREY = "#777777"
DIGITS = -math.log10(2**-53)  # of a double


def tidy(axes, title, x, y):
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.grid(color="#e6e6e6", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def stems(axes, values, colour, label=None):
    # One broken line: a path for each stem would make the file three times as large.
    x = [place for i in range(len(values)) for place in (i, i, math.nan)]
    y = [height for value in values for height in (0, value, math.nan)]
    axes.plot(x, y, color=colour, lw=1, alpha=0.5)
    axes.plot(values, "o", color=colour, markersize=3, label=label)


def draw_impulses(found):
    """What each memory still holds of a one that entered at step 0."""
    figure, grid = plt.subplots(2, 2, figsize=(9, 5), sharex=True, layout="constrained")
    panels = [
        ("window of 16: deadbeat, exactly 0 from step 16 on", {"window": (BLUE, None)}),
        ("diagonal: fades, never 0", {"slow": (ORANGE, "pole 0.95"), "fast": (GREEN, "pole 0.8")}),
        ("oldest register sums: never forgets, never tells apart", {"sum": (PINK, None)}),
        ("oscillator: two registers, no real diagonal twin", {"oscillator": ("#000000", None)}),
    ]
    for axes, (title, lines) in zip(grid.flat, panels):
        tidy(axes, title, "", "")
        for name, (colour, label) in lines.items():
            stems(axes, found[name], colour, label)
        axes.axhline(0, color=GREY, lw=0.8)
        if len(lines) > 1:
            axes.legend(frameon=False, fontsize=9)
    for axes in grid[1]:
        axes.set_xlabel("steps since the input", fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("output", fontsize=9)
    return figure


def circle(axes):
    turn = [2 * math.pi * i / 400 for i in range(401)]
    axes.plot([math.cos(a) for a in turn], [math.sin(a) for a in turn], color=GREY, lw=0.8)
    axes.set_aspect("equal")


def draw_poles(found):
    """Where the poles lie, and what becomes of poles that are stored as coefficients."""
    figure, (whole, near, digits) = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
    given, stored = found["given"], list(zip(*found["stored"]))
    oscillator = list(zip(*found["oscillator"]))
    tidy(whole, "poles and the unit circle", "real part", "imaginary part")
    circle(whole)
    whole.plot(0, 0, "s", color=BLUE, label=f"window: {found['window']} times 0")
    whole.plot(given, [0] * len(given), "o", color=ORANGE, markersize=4, label="diagonal")
    whole.plot(*oscillator, "D", color="#000000", markersize=5, label="oscillator")
    whole.legend(frameon=False, fontsize=8, loc="lower left")

    tidy(near, "16 poles near 1, stored as coefficients", "real part", "")
    circle(near)
    near.plot(*stored, "x", color=PINK, markersize=6, label="roots of the coefficients")
    near.plot(given, [0] * len(given), "o", color=ORANGE, markersize=4, label="poles as given")
    height = 1.9 * max(map(abs, stored[1]))
    middle = (min(stored[0]) + max(stored[0])) / 2
    near.set_xlim(middle - height, middle + height)
    near.set_ylim(-height, height)
    near.legend(frameon=False, fontsize=8, loc="upper left")

    tidy(digits, "digits that are left of the output", "number of poles between 0.90 and 0.99", "digits")
    orders, errors = zip(*found["errors"])
    left = [min(DIGITS, max(0, -math.log10(error))) if error else DIGITS for error in errors]
    digits.bar(orders, left, color=PINK)
    digits.axhline(DIGITS, color=GREY, lw=0.8, ls="--")
    digits.text(orders[-1] + 0.5, DIGITS - 0.2, "double", fontsize=8, color=GREY, ha="right",
                va="top")
    digits.set_xticks(orders[1::2])
    return figure


def draw_bilinear(found):
    """The error of 1 + Δ A in place of exp(Δ A), and lines of slope 1 and 2 beside it."""
    figure, axes = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
    steps, one_step, horizon = zip(*found)
    tidy(axes, "error of the bilinear form", "length of a step", "largest error of a state")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for errors, slope, colour, label in ((horizon, 1, BLUE, "at a fixed horizon"),
                                         (one_step, 2, ORANGE, "after one step")):
        ideal = [errors[-1] * (step / steps[-1])**slope for step in steps]
        axes.plot(steps, ideal, color=GREY, lw=0.9, ls="--")
        axes.plot(steps, errors, "o-", color=colour, markersize=4, lw=1.3,
                  label=f"{label} (dashed: slope {slope})")
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


FIGURES = {"impulse_responses": ("impulse", draw_impulses), "poles": ("poles", draw_poles),
           "bilinear": ("bilinear", draw_bilinear)}


def draw(found, folder):
    """The same numbers give the same bytes: no date, and ids that do not change."""
    matplotlib.rcParams["svg.hashsalt"] = "bmojo"
    paths = []
    for key, (name, picture) in FIGURES.items():
        figure = picture(found[key])
        paths.append(folder / f"realization-{name}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
        plt.close(figure)
    return paths


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=Path, required=True, help="the folder of bmojo-realization")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="where figures go")
    options = parser.parse_args(words)
    program = options.bin / "bmojo-realization"
    code = subprocess.run([program]).returncode
    found = subprocess.run([program, "--json"], stdout=subprocess.PIPE, text=True).stdout
    paths = draw(json.loads(found), options.out)
    print("\nfigures: " + ", ".join(path.name for path in paths))
    return code


if __name__ == "__main__":
    sys.exit(main())
