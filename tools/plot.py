"""Draws the metrics of training runs: `plot.py RUN… --out F.png [--tensorboard DIR]`, RUN a folder
that `bmojo train --out` wrote.

A panel for each quantity, the runs over one another in their own colours; for every eidetic layer
what its memory holds.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from metrics import Mistake, Run, is_number, names_of, printable, read_metrics, smooth
from sweep_figure import draw_results, read_results

# Okabe and Ito's colours, which every eye tells apart, without their yellow, which white swallows.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
PIXELS_AN_INCH = 100
WIDTH, FIRST_ROW, ROW, TOP, BOTTOM, LEGEND_LINE = 1600, 380, 270, 62, 52, 24  # pixels
COLUMNS = 3
MOST_LAYERS = 8
MEMORIES = {"held": "tokens held", "age": "mean age, tokens", "innovation": "mean innovation"}


def tidy(axes, title=""):
    """The looks of a panel: a pale grid, no frame, steps as 1.5k."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_title(title, fontsize=11, loc="left")
    axes.grid(color="#e6e6e6", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def draw_line(axes, steps, values, colour, style="-", **how):
    """A lone point would be invisible as a line."""
    lone = {"marker": "o", "markersize": 4} if len(steps) == 1 else {}
    axes.plot(steps, values, color=colour, linestyle=style, lw=1.6, **{**lone, **how})


def draw_lines(axes, runs, colours, keys, styles, **how):
    for run, colour in zip(runs, colours):
        for key, style in zip(keys, styles):
            draw_line(axes, *run.column(key), colour, style, **how)


def draw_noisy(axes, run, colour, key, style="-"):
    """What is measured is faint, its smoothed course is drawn; returns (values, course)."""
    steps, values = run.column(key)
    course = smooth(values, len(values) / 50)
    axes.plot(steps, values, color=colour, lw=0.8, alpha=0.25)
    draw_line(axes, steps, course, colour, style)
    return values, course


def in_sight(axes, shown):
    """Limits by these values alone."""
    if shown:
        low, high = min(shown), max(shown)
        room = 0.04 * (high - low) or 0.1
        axes.set_ylim(low - room, high + room)


def draw_loss(axes, runs, colours):
    tidy(axes, "loss (line: smoothed, faint: each step, dots: validation)")
    shown = []
    for run, colour in zip(runs, colours):
        values, course = draw_noisy(axes, run, colour, "loss")
        steps, measured = run.column("val_loss")
        axes.plot(steps, measured, "o", color=colour, markersize=6, mec="white", mew=1, zorder=3)
        rank, wild = sorted(values), len(values) // 100  # a few wild steps may leave the panel
        shown += course + measured + rank[wild:len(rank) - wild]
    in_sight(axes, shown)


def draw_accuracy(axes, runs, colours):
    tidy(axes, "validation: share of answers that are right")
    draw_lines(axes, runs, colours, ["val_accuracy"], ["-"], marker=".")
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")


def draw_speed(axes, runs, colours):
    from matplotlib.ticker import EngFormatter

    tidy(axes, "tokens a second")
    for run, colour in zip(runs, colours):
        draw_noisy(axes, run, colour, "tokens_per_s")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def draw_rates(axes, runs, colours):
    tidy(axes, "learning rate (dashed: SSM)")
    draw_lines(axes, runs, colours, ["lr", "ssm_lr"], ["-", "--"])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def draw_norms(axes, runs, colours):
    tidy(axes, "gradient norm (dashed: SSM, dotted: the rest)")
    for run, colour in zip(runs, colours):
        for key, style in (("grad_norm", "-"), ("grad_norm_ssm", "--"), ("grad_norm_rest", ":")):
            draw_noisy(axes, run, colour, key, style)
    log_axis(axes)


def log_axis(axes):
    """Labels such as 0.05: the powers of ten alone where there are enough of them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if not any((line.get_ydata(orig=False) > 0).any() for line in axes.get_lines()):
        return  # all of them are 0
    axes.set_yscale("log", nonpositive="mask")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1,) if high > 500 * low else (1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_memory(axes, layer, what, runs, colours):
    from matplotlib.ticker import EngFormatter

    tidy(axes, f"layer {layer}: {MEMORIES[what]}")
    for run, colour in zip(runs, colours):
        steps, values = run.layers.get(layer, {}).get(what, ([], []))
        draw_line(axes, steps, values, colour)
    # Memories are looked into now and then, in a short run once: the steps are those of the run.
    first, last = (pick(row["step"] for run in runs for row in run.rows) for pick in (min, max))
    room = 0.05 * (last - first) or 0.5
    axes.set_xlim(first - room, last + room)
    axes.set_ylim(bottom=0)
    if what != "innovation":
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


# Of each panel: the keys it shows, the columns it takes, and what draws it.
PANELS = [
    (["loss"], 2, draw_loss),
    (["tokens_per_s"], 1, draw_speed),
    (["val_accuracy"], 1, draw_accuracy),
    (["lr", "ssm_lr"], 1, draw_rates),
    (["grad_norm", "grad_norm_ssm", "grad_norm_rest"], 1, draw_norms),
]


def place(panels):
    """[(row, column, columns taken, draw)]: in order; the last of a row takes what is left."""
    rows, used = [[]], 0
    for columns, draw in panels:
        if used + columns > COLUMNS:
            rows.append([])
            used = 0
        rows[-1].append((used, columns, draw))
        used += columns
    placed = []
    for number, row in enumerate(rows):
        for column, columns, draw in row:
            wide = COLUMNS - column if (column, columns, draw) == row[-1] else columns
            placed.append((number, column, wide, draw))
    return placed


def shown_layers(runs):
    """At most MOST_LAYERS of the eidetic layers, the first and the last among them."""
    layers = sorted(set().union(*(run.layers for run in runs)))
    if len(layers) <= MOST_LAYERS:
        return layers, len(layers)
    last = len(layers) - 1
    chosen = [layers[round(i * last / (MOST_LAYERS - 1))] for i in range(MOST_LAYERS)]
    return chosen, len(layers)


def colours_of(count):
    if count <= len(COLOURS):
        return COLOURS[:count]
    from matplotlib import colormaps

    # Even steps of one map whose lightness rises; its last part is too pale for lines.
    return [colormaps["viridis"](0.9 * i / (count - 1)) for i in range(count)]


def shown_name(run):
    name = printable(run.name)
    name = name if len(name) <= 60 else "…" + name[-59:]
    skipped = run.rows[-1].get("skipped", 0)
    name += f" ({skipped} steps skipped)" if is_number(skipped) and skipped > 0 else ""
    return name.replace("$", r"\$")


def add_legend(figure, names, colours, columns):
    from matplotlib.lines import Line2D

    # Names are set afterwards: the legend would leave out those that begin with _.
    handles = [Line2D([], [], color=colour, lw=4) for colour in colours]
    legend = figure.legend(handles, ["x"] * len(names), loc="upper left", ncols=columns,
                           frameon=False, fontsize=11, borderaxespad=0.3, handlelength=1.5,
                           bbox_to_anchor=(0.03, 1), borderpad=0.2, labelspacing=0.4)
    for text, name in zip(legend.get_texts(), names):
        text.set_text(name)


def draw(runs, path):
    """One PNG; returns its (width, height) in pixels."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["agg.path.chunksize"] = 10000
    placed = place([(columns, panel) for keys, columns, panel in PANELS
                    if any(run.column(key)[0] for run in runs for key in keys)])
    layers, all_layers = shown_layers(runs)
    above = placed[-1][0] + 1 if placed else 0
    names, colours = [shown_name(run) for run in runs], colours_of(len(runs))
    columns = max(1, min(len(runs), 160 // (max(map(len, names)) + 8)))
    top = TOP + LEGEND_LINE * (math.ceil(len(runs) / columns) - 1)
    rows = [FIRST_ROW] + [ROW] * (above + len(layers) - 1)
    height = top + sum(rows) + BOTTOM
    figure = Figure(figsize=(WIDTH / PIXELS_AN_INCH, height / PIXELS_AN_INCH), dpi=PIXELS_AN_INCH)
    grid = figure.add_gridspec(len(rows), COLUMNS, height_ratios=rows, left=0.045, right=0.985,
                               wspace=0.17, hspace=0.3, bottom=BOTTOM / height,
                               top=1 - top / height)
    for row, column, wide, panel in placed:
        panel(figure.add_subplot(grid[row, column:column + wide]), runs, colours)
    for row, layer in enumerate(layers, above):
        for column, what in enumerate(MEMORIES):
            draw_memory(figure.add_subplot(grid[row, column]), layer, what, runs, colours)
    add_legend(figure, names, colours, columns)
    note = "step" if len(layers) == all_layers else f"step; {len(layers)} of {all_layers} layers"
    figure.text(0.5, 8 / height, note, ha="center", fontsize=11)
    save(figure, path)
    return WIDTH, height


@contextlib.contextmanager
def naming(path):
    """Errors name this file where they name none, as those of a full disk do: the system names a
    file that it opens, not one that it writes to."""
    try:
        yield
    except OSError as error:
        if error.filename:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def save(figure, path):
    """Whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with naming(path):
            figure.savefig(part, format="png")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


# --- event files ---------------------------------------------------------------------------------


def scalars(row):
    """(name, value) of every number of a line but its step."""
    for key, value in row.items():
        if key != "step" and is_number(value):
            yield key, value
    for memory in row.get("memories", ()):
        for key, value in memory.items():
            if key != "layer" and is_number(value):
                yield f"memories/layer_{memory['layer']}/{key}", value


def write_event_file(run, path):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    # Wall times as they were: the file was last written at the run's last step.
    end = (run.folder / "metrics.jsonl").stat().st_mtime
    last = run.rows[-1].get("seconds")
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=end, file_version="brain.Event:2").SerializeToString())
        for row in run.rows:
            known = is_number(last) and is_number(row.get("seconds"))
            wall = end - last + row["seconds"] if known else end
            values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars(row)]
            event = Event(wall_time=wall, step=row["step"], summary=Summary(value=values))
            writer.write(event.SerializeToString())


def write_events(runs, folder):
    """A sub-folder a run. Event files that an earlier call wrote there are replaced, when all new
    ones are whole."""
    suffix = ".bmojo"
    name = f"events.out.tfevents.{int(time.time()):010}.{os.getpid()}{suffix}"
    beside = next(parent for parent in folder.absolute().parents if parent.is_dir())
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=beside))
    try:
        for number, run in enumerate(runs):
            with naming(folder / run.name / name):
                write_event_file(run, part / str(number))
        for number, run in enumerate(runs):
            target = folder / run.name
            target.mkdir(parents=True, exist_ok=True)
            before = list(target.glob(f"events.out.tfevents.*{suffix}"))
            os.replace(part / str(number), target / name)
            for path in before:
                path.unlink()
    except ImportError as missing:
        raise Mistake("--tensorboard: needs the Python package tensorboard, got no "
                      f"{missing.name or 'usable one'}; run make setup") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


# --- the command ---------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def check_out(path):
    if path.suffix.lower() != ".png":
        raise Mistake(f"{path}: must end in .png")
    if path.is_dir():
        raise Mistake(f"{path}: must be a file to write, got a folder")
    if not path.parent.is_dir():
        raise Mistake(f"{path}: its folder must exist, got none")


def report(options, runs, size):
    if options.json:
        found = {"out": str(options.out), "width": size[0], "height": size[1],
                 "runs": [{"run": str(run.folder), "name": run.name, "lines": len(run.rows),
                           "last_step": run.rows[-1]["step"]} for run in runs]}
        if options.tensorboard:
            found["tensorboard"] = str(options.tensorboard)
        print(json.dumps(found))
        return
    last = max(run.rows[-1]["step"] for run in runs)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    print(f"{options.out}: {count}, up to step {last:,}")
    if options.tensorboard:
        print(f"{options.tensorboard}: event files of {count}; tensorboard --logdir shows them")


def plot_sweep(rows, options, loose=None):
    families = list(dict.fromkeys(row["family"] for row in rows))
    colours = colours_of(len(families))
    width, height = draw_results(rows, options.against, options.out, colours, save, loose)
    if options.json:
        print(json.dumps({"out": str(options.out), "width": width, "height": height,
                          "results": len(rows), "families": families}))
    else:
        print(f"{options.out}: {len(rows)} results, {len(families)} families against "
              f"{options.against}")


def plot(arguments):
    parser = Parser(prog="plot", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a training")
    parser.add_argument("--out", type=Path, required=True, metavar="F.png", help="picture to write")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="write event files there")
    parser.add_argument("--against", metavar="AXIS", help="draw a sweep's results over an axis")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args(arguments)
    check_out(options.out)
    if options.against:
        return plot_sweep(read_results(options.runs[0]), options)  # one, a sweep's results
    runs = [Run(folder, name, read_metrics(folder))
            for folder, name in zip(options.runs, names_of(options.runs))]
    if options.tensorboard:
        write_events(runs, options.tensorboard)
    report(options, runs, draw(runs, options.out))


def in_words(error):
    """Without the number that the system gives it."""
    if not getattr(error, "strerror", None):
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def run(name, work):
    """Does a drawing; what goes wrong is one line and an exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.stdout.reconfigure(errors="backslashreplace")  # a path need not be text
    try:
        work()
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads what is said: as SIGPIPE would end it. Python would try once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (Mistake, FileNotFoundError, FileExistsError, NotADirectoryError,
            PermissionError) as mistake:
        message, code = in_words(mistake), 2
    except ImportError as missing:
        message, code = f"needs the Python package {missing.name}; run make setup", 2
    except OSError as failure:
        message, code = in_words(failure), 1
    except KeyboardInterrupt:
        message, code = "interrupted; nothing partly written is left", 130
    else:
        return 0
    print(f"{name}: {printable(message)}", file=sys.stderr)
    return code


def main(arguments=None):
    return run("plot", lambda: plot(arguments))


if __name__ == "__main__":
    sys.exit(main())
