"""Draws what `bmojo explain --json` tells of one sequence: `explain.py --out F.png --layer N`, the
JSON on standard input; with `--realization` in place of a layer what `explain --realization` tells
(explain_realization.py).

Above, the innovation of every token, and which tokens the eidetic memory kept or let go. Below, a
row for every answer: where its attention went.
"""

import json
import sys
from pathlib import Path

import explain_realization
from metrics import Mistake, is_number
from plot import PIXELS_AN_INCH, Parser, check_out, run, save

MEMORIES = {"eidetic": "#d55e00", "fading": "#009e73", "window": "#0072b2"}
KEPT, LET_GO, PASSED = MEMORIES["eidetic"], "#e69f00", "#b8b8b8"
# Pixels: from above, beside each other, and of a letter.
WIDTH, TOP, INNOVATION, GAP, ROW, BOTTOM = 1200, 66, 220, 70, 30, 58
LEFT, BETWEEN, SHARES, RIGHT, LETTER = 80, 24, 150, 40, 9.5
MOST_ANSWERS = 32
LARGEST = 22  # pixels across a key that has all attention


def pick(answers, most=MOST_ANSWERS):
    """At most so many, the first and the last among them."""
    if len(answers) <= most:
        return answers
    last = len(answers) - 1
    return [answers[round(i * last / (most - 1))] for i in range(most)]


def at_layer(answer, layer):
    """What an answer tells of a layer, or None where the layer has no attention."""
    return next((each for each in answer["layers"] if each["layer"] == layer), None)


def name_of(answer):
    """Of an answer's row; right or wrong is said in a sign, not in a colour."""
    due, predicted = answer["due"], answer["predicted"]
    if due is None:
        return f"at {answer['position']}: next {predicted}"
    if due == predicted:
        return f"at {answer['position']}: {due} ✓"
    return f"at {answer['position']}: {due}, not {predicted} ✗"


def tidy(axes):
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=12)


def draw_innovation(axes, layer, sources, length):
    """A line a token: those kept in colour with a dot, those let go with a cross."""
    values = [value if is_number(value) else 0 for value in layer["innovation"]]
    kept, gone = set(layer["kept"]), {each["position"] for each in layer["dropped"]}
    passed = [p for p in range(length) if p not in kept | gone]
    thick = max(0.8, min(4, 400 / length))
    for places, colour, marker, order in ((passed, PASSED, None, 1), (sorted(gone), LET_GO, "X", 2),
                                          (sorted(kept), KEPT, "o", 3)):
        heights = [values[p] for p in places]
        axes.vlines(places, 0, heights, color=colour, lw=thick, zorder=order)
        if marker:
            axes.plot(places, heights, marker, color=colour, markersize=5, mec="white", mew=0.5,
                      zorder=order)
    top = max(values, default=0) or 1
    axes.set_ylim(-0.1 * top if sources else 0, 1.08 * top)
    axes.plot(sources, [-0.055 * top] * len(sources), "^", color="black", markersize=6)
    axes.set_ylabel("innovation ε", fontsize=12)
    tidy(axes)


def draw_answer(axes, y, answer, told, window):
    """One row: a disc for each of the largest keys, its area the weight."""
    t, source = answer["position"], answer["source"]
    first = max(0, t - window + 1) if window else 0
    axes.barh(y, t - first + 1, left=first - 0.5, height=0.8, color=MEMORIES["window"], alpha=0.1,
              zorder=1)
    axes.plot([t], [y], "|", color="black", markersize=13, mew=1.5, zorder=2)
    points = LARGEST * 72 / PIXELS_AN_INCH
    for key in told["keys"]:
        weight = key["weight"] if is_number(key["weight"]) else 0
        axes.scatter([key["position"]], [y], s=weight * points**2, color=MEMORIES[key["memory"]],
                     alpha=0.75, lw=0, zorder=3)
    if source is not None:
        how = {"markersize": 11, "mew": 1.4, "mec": "black", "zorder": 4}
        axes.plot([source], [y], "o" if told["held"] else "x", mfc="none", **how)


def draw_rows(axes, shares, answers, layer, window):
    """All of them from above, and beside each the shares of the memories."""
    for y, answer in enumerate(answers):
        told = at_layer(answer, layer)
        draw_answer(axes, y, answer, told, window)
        left = 0
        for memory, colour in MEMORIES.items():
            share = told["attention"][memory] or 0
            shares.barh(y, share, left=left, height=0.6, color=colour)
            left += share
    for each in (axes, shares):
        each.set_ylim(len(answers) - 0.4, -0.6)
        tidy(each)
    axes.grid(axis="x", color="#e6e6e6", lw=0.8)
    axes.set_yticks(range(len(answers)), [name_of(answer) for answer in answers])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("position", fontsize=12)
    shares.set_yticks([])
    shares.set_xlim(0, 1)
    shares.set_xticks([0, 0.5, 1], ["0", "50", "100 %"])
    shares.set_xlabel("attention", fontsize=12)


def add_legend(figure, marks, top, height):
    """One line that begins so many pixels from above. A mark: (marker, colour, name)."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], ls="", marker=marker, color=colour, label=name, markersize=8,
                      mfc="none" if name == "answer, held" else colour, mew=1.4)
               for marker, colour, name in marks]
    figure.legend(handles=handles, loc="upper left", ncols=len(handles), frameon=False, fontsize=12,
                  bbox_to_anchor=(8 / WIDTH, 1 - top / height), borderpad=0.1, borderaxespad=0,
                  handlelength=1, handletextpad=0.4, columnspacing=1.6)


def token_marks(sources):
    marks = [("o", KEPT, "kept"), ("X", LET_GO, "held, then let go"), ("s", PASSED, "not held")]
    return marks + [("^", "black", "holds an answer")] * bool(sources)


def key_marks(sources):
    marks = [("o", colour, memory) for memory, colour in MEMORIES.items()]
    marks.append(("|", "black", "asked here"))
    where = [("o", "black", "answer, held"), ("x", "black", "answer, not held")]
    return marks + where * bool(sources)


def draw(told, number, path):
    """One PNG of a layer."""
    from matplotlib.figure import Figure

    layer, length = told["layers"][number], len(told["ids"])
    answers = [each for each in told["answers"] if at_layer(each, number)]
    shown, above = pick(answers), bool(layer["innovation"])
    if not shown and not above:
        raise Mistake(f"layer {number}: must have attention to be drawn, got {layer['kind']}; "
                      "--layer names another")
    sources = sorted({each["source"] for each in answers if each["source"] is not None})
    rows_top = TOP + (INNOVATION + GAP if above else 0)
    rows = ROW * len(shown) + 10
    height = (rows_top + rows if shown else TOP + INNOVATION) + BOTTOM
    names = [len(name_of(each)) for each in shown]
    left = max(LEFT, 14 + LETTER * max(names, default=0))
    wide = WIDTH - left - BETWEEN - SHARES - RIGHT
    figure = Figure(figsize=(WIDTH / PIXELS_AN_INCH, height / PIXELS_AN_INCH), dpi=PIXELS_AN_INCH)

    def panel(x, top, width, size):
        return figure.add_axes((x / WIDTH, 1 - (top + size) / height, width / WIDTH,
                                size / height), xlim=(-1, length))

    if above:
        draw_innovation(panel(left, TOP, wide, INNOVATION), layer, sources, length)
        add_legend(figure, token_marks(sources), 34, height)
    if shown:
        axes = panel(left, rows_top, wide, rows)
        shares = panel(left + wide + BETWEEN, rows_top, SHARES, rows)
        draw_rows(axes, shares, shown, number, told["memory"]["window"])
        add_legend(figure, key_marks(sources), rows_top - 32, height)
    note = "" if len(shown) == len(answers) else f"; {len(shown)} of {len(answers)} answers"
    title = f"{told['task'] or f'{length} tokens'}, layer {number}{note}"
    figure.text(8 / WIDTH, 1 - 6 / height, title, ha="left", va="top", fontsize=13)
    save(figure, path)


def explain(arguments):
    parser = Parser(prog="explain", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="F.png", help="picture to write")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--layer", type=int, metavar="N", help="layer to draw")
    what.add_argument("--realization", action="store_true", help="draw poles, memories, innovations")
    options = parser.parse_args(arguments)
    check_out(options.out)
    told = json.load(sys.stdin)
    if options.realization:
        explain_realization.draw(told, options.out, MEMORIES)
    else:
        draw(told, options.layer, options.out)


def main(arguments=None):
    return run("explain", lambda: explain(arguments))


if __name__ == "__main__":
    sys.exit(main())
