"""`bmojo plot` and tools/plot.py, over metrics written by hand."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import listing
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import metrics  # noqa: E402
import plot  # noqa: E402
import sweep_figure  # noqa: E402

# Pixels: margins, the first row with loss and speed, the second with rates and norms; a layer each.
HEIGHT, LAYER = 62 + 380 + 270 + 52, 270


def line(step, layers=(), **more):
    row = {"step": step, "tokens": 64 * step, "loss": 5 - 0.01 * step, "lr": 1e-3, "ssm_lr": 2e-3,
           "grad_norm": 0.5 + 1 / step, "grad_norm_ssm": 0.1, "grad_norm_rest": 0.4,
           "tokens_per_s": 1000.0 + step % 7, "seconds": 0.5 * step, "skipped": 0}
    if step % 10 == 0:
        row["val_loss"] = 5.1 - 0.01 * step
    if layers:
        row["memories"] = [{"layer": layer, "held": 4.0 * min(step, 12), "age": 20.5 + layer,
                            "innovation": 0.5 + 0.1 * layer} for layer in layers]
    return row | more


def write_run(folder, rows, torn=""):
    folder.mkdir(parents=True)
    text = "".join(json.dumps(row) + "\n" for row in rows) + torn
    (folder / "metrics.jsonl").write_text(text)
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [line(step) for step in range(1, 41)])


def draw(*args):
    """In this process, where matplotlib is loaded once."""
    assert plot.main([str(arg) for arg in args]) == 0


def pixels(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def count(picture, colour):
    wanted = [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    return int((picture == wanted).all(-1).sum())


# --- pictures ------------------------------------------------------------------------------------


def test_a_picture_of_one_run(bmojo, run):
    text = bmojo("plot", run)
    assert text == f"{run}/metrics.png: 1 run, up to step 40\n"
    assert listing(run) == ["metrics.jsonl", "metrics.png"]
    picture = pixels(run / "metrics.png")
    assert picture.shape == (HEIGHT, 1600, 3)
    assert count(picture, plot.COLOURS[0]) > 1000 and count(picture, plot.COLOURS[1]) == 0


def test_json_names_what_was_drawn(bmojo, run, tmp_path):
    got = bmojo.json("plot", run, "--out", tmp_path / "a.png")
    runs = [{"run": str(run), "name": "run", "lines": 40, "last_step": 40}]
    size = {"width": 1600, "height": HEIGHT}
    assert got == {"out": str(tmp_path / "a.png"), "runs": runs} | size
    assert pixels(tmp_path / "a.png").shape == (HEIGHT, 1600, 3)


def test_several_runs_have_a_colour_each(bmojo, tmp_path):
    rows = [line(step) for step in range(1, 31)]
    runs = [write_run(tmp_path / name, rows) for name in ("a/run", "b/run", "_$\n")]
    higher = [row | {"loss": row["loss"] + 1, "lr": 5e-4, "val_loss": 3} for row in rows]
    (runs[1] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in higher))
    other = [row | {"loss": row["loss"] - 1, "lr": 2e-4, "skipped": 2} for row in rows]
    (runs[2] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in other))
    got = bmojo.json("plot", *runs, "--out", tmp_path / "all.png")
    folder = tmp_path.name
    assert [each["name"] for each in got["runs"]] == ["a/run", "b/run", f"{folder}/_$\n"]
    picture = pixels(tmp_path / "all.png")
    for i, colour in enumerate(plot.COLOURS[:6]):  # the seventh is that of the text
        assert (count(picture, colour) > 300) == (i < 3), colour


def test_more_runs_than_colours(tmp_path):
    rows = [line(step) for step in range(1, 4)]
    runs = [write_run(tmp_path / f"a run with a rather long name {i}", rows) for i in range(9)]
    draw(*runs, "--out", tmp_path / "all.png")
    # Nine names of 31 letters stand four to a line: three lines, two more than one run needs.
    assert pixels(tmp_path / "all.png").shape == (HEIGHT + 2 * 24, 1600, 3)
    assert len({tuple(colour) for colour in plot.colours_of(9)}) == 9


def test_memories_have_a_row_a_layer(tmp_path):
    rows = [line(step, layers=(0, 3) if step % 5 == 0 else ()) for step in range(1, 41)]
    run = write_run(tmp_path / "run", rows)
    draw(run, "--out", tmp_path / "a.png")
    assert pixels(tmp_path / "a.png").shape == (HEIGHT + 2 * LAYER, 1600, 3)
    found = metrics.Run(run, "run", metrics.read_metrics(run)).layers
    assert found[3]["held"] == (list(range(5, 41, 5)), [20.0, 40.0] + [48.0] * 6)
    assert found[3]["innovation"][1] == [0.8] * 8 and sorted(found) == [0, 3]


def test_memories_have_the_steps_of_the_run(tmp_path):
    from matplotlib.figure import Figure

    runs = [metrics.Run(tmp_path, "run", [line(step, layers=(0,) if step == 1 else ())
                                          for step in range(1, last + 1)]) for last in (11, 1)]
    for shown, limits in ((runs, (0.5, 11.5)), (runs[1:], (0.5, 1.5))):
        axes = Figure().add_subplot()
        plot.draw_memory(axes, 0, "held", shown, plot.COLOURS)
        assert axes.get_xlim() == pytest.approx(limits)


def test_of_many_layers_some_are_shown(tmp_path):
    run = metrics.Run(tmp_path, "run", [line(1, layers=range(24))])
    layers, everything = plot.shown_layers([run])
    assert everything == 24 and len(layers) == len(set(layers)) == 8
    assert (layers[0], layers[-1]) == (0, 23)


def test_panels_only_where_there_is_data(tmp_path):
    # Loss alone is one wide panel; accuracy and speed come beside and below.
    run = write_run(tmp_path / "a", [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}])
    draw(run, "--out", tmp_path / "a.png")
    assert pixels(tmp_path / "a.png").shape == (HEIGHT - 270, 1600, 3)
    run = write_run(tmp_path / "b", [{"step": 1, "loss": 2.5, "val_accuracy": 0.5, "lr": 1}])
    draw(run, "--out", tmp_path / "b.png")
    assert pixels(tmp_path / "b.png").shape == (HEIGHT, 1600, 3)


def test_places_of_panels():
    placed = plot.place([(2, "loss"), (1, "speed"), (1, "rates"), (1, "norms")])
    assert placed == [(0, 0, 2, "loss"), (0, 2, 1, "speed"), (1, 0, 1, "rates"), (1, 1, 2, "norms")]
    assert plot.place([(2, "loss")]) == [(0, 0, 3, "loss")]


def test_odd_numbers_are_left_out(tmp_path):
    rows = [line(1, loss=None), line(2, loss=float("nan"), grad_norm=0),
            line(3, loss=float("inf"), grad_norm=10**400), line(4, loss=3, lr="fast", skipped=3)]
    run = write_run(tmp_path / "run", rows)
    assert metrics.Run(run, "run", metrics.read_metrics(run)).column("loss") == ([4], [3])
    draw(run, "--out", tmp_path / "a.png")
    assert pixels(tmp_path / "a.png").shape == (HEIGHT, 1600, 3)


def test_wild_steps_do_not_flatten_the_rest(tmp_path):
    from matplotlib.figure import Figure

    rows = [line(step, loss=1e6 if step == 500 else 2.0) for step in range(1, 1001)]
    axes = Figure().subplots()
    plot.draw_loss(axes, [metrics.Run(tmp_path, "run", rows)], ["#000000"])
    smoothed = metrics.smooth([row["loss"] for row in rows], 20)
    assert axes.get_ylim()[1] < 1.1 * max(smoothed) < 1e5


def test_smoothing():
    assert metrics.smooth([], 5) == [] and metrics.smooth([3.0], 5) == [3.0]
    assert metrics.smooth([2.0] * 9, 4) == pytest.approx([2.0] * 9)
    assert metrics.smooth([1.0, 5.0, 2.0], 0.1) == [1.0, 5.0, 2.0]
    ramp = list(map(float, range(201)))
    assert metrics.smooth(ramp, 5)[100] == pytest.approx(100)  # neither early nor late
    # Span 2, weights 1/2 and 1/4 to either side: (4 / 4 + 2 / 2 + 0) / (1/4 + 1/2 + 1).
    assert metrics.smooth([4.0, 2.0, 0.0], 2)[2] == pytest.approx(2 / 1.75)


# --- reading -------------------------------------------------------------------------------------


def test_a_torn_line_is_left_out(tmp_path):
    rows = [line(step) for step in range(1, 21)]
    whole = write_run(tmp_path / "a" / "run", rows)
    torn = write_run(tmp_path / "b" / "run", rows, torn='{"step": 21, "loss": 4')
    for folder in (whole, torn):
        draw(folder, "--out", folder / "metrics.png")
    assert (pixels(whole / "metrics.png") == pixels(torn / "metrics.png")).all()


def test_a_last_line_without_its_end_counts_when_whole(tmp_path):
    run = write_run(tmp_path / "run", [line(1)], torn=json.dumps(line(2)))
    assert [row["step"] for row in metrics.read_metrics(run)] == [1, 2]


def test_the_last_line_of_a_step_counts(tmp_path):
    run = write_run(tmp_path / "run", [line(1), line(2, loss=9), line(3), line(2, loss=4)])
    assert [(row["step"], row["loss"]) for row in metrics.read_metrics(run)] == [
        (1, 4.99), (2, 4), (3, 4.97)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "metrics.jsonl: must hold at least one step, got none"),
        ('{"step": 1, "lo', "metrics.jsonl: must hold at least one step, got none"),
        ('{"step": 1, "loss": 2}\n{"st\n{"step": 3, "loss": 2}\n',
         "metrics.jsonl: line 2 must be JSON, got '{\"st'"),
        ('\x1b[31m\n', r"metrics.jsonl: line 1 must be JSON, got '\x1b[31m'"),
        ("[1, 2]\n", "metrics.jsonl: line 1 must be a JSON object, got [1, 2]"),
        ('{"step": 1, "loss": 2}\n{"step": 2, "lr": 1}\n',
         "line 2 must have step, a whole number, and loss, got step, lr"),
        ('{"loss": 2}\n', "line 1 must have step, a whole number, and loss, got loss"),
        ('{"step": 1.5, "loss": 2}\n', "line 1 must have step, a whole number, and loss"),
        ("{}\n", "and loss, got nothing"),
        ('{"step": 1, "loss": 2, "memories": [{"held": 3}]}\n',
         'line 1 must have a list with layer in memories, got [{"held": 3}]'),
        ('{"step": 1, "loss": 2, "memories": 7}\n', "a list with layer in memories, got 7"),
    ],
)
def test_malformed_metrics(bmojo, tmp_path, text, message):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text(text)
    assert message in bmojo("plot", tmp_path / "run", code=2)
    assert listing(tmp_path / "run") == ["metrics.jsonl"]


# --- mistakes ------------------------------------------------------------------------------------


def test_mistakes(bmojo, run, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    for args, message in [
        ([], "RUN is required; see bmojo plot --help"),
        ([tmp_path / "x"], "x must be a folder with metrics.jsonl, got none; bmojo train --out"),
        ([run, tmp_path / "file"], "file must be a folder with metrics.jsonl, got a file"),
        ([tmp_path / "empty"], "empty must be a folder with metrics.jsonl, got one without"),
        ([run, run], "run: a run must be named once, got it twice"),
        ([run, "--out", tmp_path / "a.jpg"], "a.jpg: must end in .png"),
        ([run, "--out", tmp_path / "x" / "a.png"], "a.png: its folder must exist, got none"),
        ([run, "--what"], "--what: unknown flag; see bmojo plot --help"),
    ]:
        assert message in bmojo("plot", *args, code=2)
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "b.png").mkdir()
    message = bmojo("plot", run, "--out", tmp_path / "b.png", code=2)
    assert "b.png: must be a file to write, got a folder" in message


def test_a_write_that_fails_leaves_nothing(bmojo, run):
    message = bmojo("plot", run, code=1, file_limit=4096)
    assert message == f"bmojo: plot: {run}/metrics.png: File too large"
    assert listing(run) == ["metrics.jsonl"]


# --- the program finds its Python ----------------------------------------------------------------


@pytest.fixture
def project(bmojo, tmp_path):
    """A project with a Python of our own making, and its bmojo."""
    bin_folder = tmp_path / "project" / "build" / "kind" / "bin"
    bin_folder.mkdir(parents=True)
    shutil.copy(bmojo.path, bin_folder / "bmojo")
    return tmp_path / "project", type(bmojo)(bin_folder)


def write_python(folder, text):
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text("#!/bin/sh\n" + text)
    python.chmod(0o755)
    return python


def write_script(folder):
    (folder / "tools").mkdir()
    (folder / "tools" / "plot.py").write_text("")


def test_script_and_python_must_be_there(project, run):
    folder, alone = project
    message = alone("plot", run, code=2)
    assert "plot: needs the project's Python and its tools/plot.py, got none above" in message
    write_script(folder)
    python = folder / ".venv" / "bin" / "python"
    wanted = f"plot: needs the project's Python, got none at {python}; run make setup"
    assert wanted in alone("plot", run, code=2)
    write_python(folder, "exit 0").chmod(0o644)
    assert wanted in alone("plot", run, code=2)


def test_arguments_reach_the_script_as_they_are(project, run, tmp_path):
    folder, alone = project
    write_script(folder)
    write_python(folder, 'printf "%s|" "$@"\n')
    odd = write_run(tmp_path / "-a b", [line(1)])
    script = folder / "tools" / "plot.py"
    got = alone("plot", "--out", "-c d.png", "--tensorboard", "e", "--json", run, odd)
    assert got == f"{script}|--out=-c d.png|--tensorboard=e|--json|--|{run}|{odd}|"
    assert alone("plot", run) == f"{script}|--out={run}/metrics.png|--|{run}|"


@pytest.mark.parametrize(
    "text, code, message",
    [
        ("echo 'plot: a: must be b' >&2; exit 2", 2, "bmojo: plot: a: must be b"),
        ("echo 'plot: disk full' >&2; exit 1", 1, "bmojo: plot: disk full"),
        ("printf 'Traceback\\n  at\\nValueError: x\\n\\n' >&2; exit 1", 1, "bmojo: ValueError: x"),
        ("exit 7", 1, "tools/plot.py ended with exit code 7"),
        ("kill -9 $$", 1, "tools/plot.py ended with signal 9"),
    ],
)
def test_endings_of_the_script(project, run, text, code, message):
    folder, alone = project
    write_script(folder)
    write_python(folder, text)
    assert message in alone("plot", run, code=code)


def test_the_script_ends_with_the_program(project, run, tmp_path):
    folder, alone = project
    write_script(folder)
    note = tmp_path / "pid"
    write_python(folder, f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 600\n")
    process = subprocess.Popen([alone.path, "plot", run])
    deadline = time.monotonic() + 20
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child = int(note.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 128 + signal.SIGTERM

    def lives():
        """A zombie that nobody has waited for yet does not."""
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    while lives() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not lives()


# --- event files ---------------------------------------------------------------------------------


def test_tensorboard_that_is_absent(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    out = tmp_path / "a.png"
    assert plot.main([str(run), "--out", str(out), "--tensorboard", str(tmp_path / "t")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("plot: --tensorboard: needs the Python package tensorboard, got no ")
    assert error.count("\n") == 1 and error.endswith("; run make setup\n")
    assert not out.exists() and not (tmp_path / "t").exists()


def events(folder):
    """{name: [(step, value)]}, in the order of the file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {name: [(event.step, event.value) for event in found.Scalars(name)]
            for name in found.Tags()["scalars"]}


needs_tensorboard = pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None,
                                       reason="needs the package tensorboard: make setup")


@needs_tensorboard
def test_event_files_that_cannot_be_written(bmojo, run, tmp_path):
    """Not one of them is left, nor a folder for them; those of an earlier call stay."""
    target = tmp_path / "new" / "events"
    flags = [run, "--tensorboard", target, "--out", tmp_path / "a.png"]
    message = bmojo("plot", *flags, code=1, file_limit=4096)
    assert re.fullmatch(
        rf"bmojo: plot: {re.escape(str(target))}/run/events\.out\.tfevents\.\d+\.\d+\.bmojo: "
        "File too large", message)
    assert listing(tmp_path) == ["run"]
    bmojo("plot", *flags)
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert len(before) == 1
    bmojo("plot", *flags, code=1, file_limit=4096)
    assert before == {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert listing(tmp_path) == ["a.png", "new", "run"] and listing(tmp_path / "new") == ["events"]
    (tmp_path / "file").write_text("")
    flags[2] = tmp_path / "file"
    assert bmojo("plot", *flags, code=2) == f"bmojo: plot: {tmp_path}/file/run: Not a directory"


def test_where_nobody_reads_the_picture_is_drawn(bmojo, run):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run([bmojo.path, "plot", run], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, b"")
    assert listing(run) == ["metrics.jsonl", "metrics.png"]


@needs_tensorboard
def test_event_files_hold_every_scalar(bmojo, tmp_path):
    rows = [line(step, layers=(1,) if step % 2 == 0 else ()) for step in range(1, 11)]
    runs = [write_run(tmp_path / name, rows) for name in ("a", "b")]
    target = tmp_path / "events"
    for _ in range(2):  # the second call replaces what the first wrote
        text = bmojo("plot", *runs, "--tensorboard", target, "--out", tmp_path / "a.png")
        assert f"{target}: event files of 2 runs" in text
    assert sorted(os.listdir(target)) == ["a", "b"]
    for name in ("a", "b"):
        assert len(os.listdir(target / name)) == 1
        found = events(target / name)
        keys = set(rows[0]) - {"step"}
        memory = {f"memories/layer_1/{what}" for what in ("held", "age", "innovation")}
        assert set(found) == keys | memory | {"val_loss"}
        for key in keys:
            assert [step for step, _ in found[key]] == list(range(1, 11))
            assert [value for _, value in found[key]] == pytest.approx([r[key] for r in rows])
        assert found["val_loss"] == [(10, pytest.approx(5.0))]
        assert found["memories/layer_1/age"] == [(step, 21.5) for step in (2, 4, 6, 8, 10)]


# --- sweeps --------------------------------------------------------------------------------------


def result(family, lr, seed, accuracy, longer=0.1):
    evals = [{"length": 48, "accuracy": accuracy}, {"length": 96, "accuracy": longer}]
    return {"family": family, "axes": {"set.window": 8, "lr": lr, "seed": seed}, "parameters": 5,
            "evals": evals}


def write_results(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_sweep_is_drawn_against_an_axis(bmojo, tmp_path):
    rows = [result(family, lr, seed, 0.2 + 0.1 * seed + 200 * lr)
            for family in ("a", "b") for lr in (0.001, 0.003) for seed in (0, 1)]
    file = write_results(tmp_path / "results.jsonl", rows)
    told = bmojo.json("plot", file, "--against", "lr")
    assert told == {"out": str(tmp_path / "results.png"), "width": 900, "height": 600, "results": 8,
                    "families": ["a", "b"]}
    picture = pixels(tmp_path / "results.png")
    # Both families have the same numbers: the second line lies over the first.
    assert count(picture, plot.COLOURS[1]) > 300


def test_points_of_a_sweep(tmp_path):
    rows = [result("a", 0.001, 1, 0.5), result("a", 0.001, 2, 0.7), result("b", 0.003, 1, 0.9),
            result("a", 0.001, 1, 0.6)]  # the same run again: the last one counts
    rows = sweep_figure.read_results(write_results(tmp_path / "results.jsonl", rows))
    assert sweep_figure.points_of(rows, "lr") == (
        {"a": {0.001: [0.6, 0.7]}, "b": {0.003: [0.9]}}, "accuracy")
    assert sweep_figure.points_of(rows, "length")[0]["b"] == {48: [0.9], 96: [0.1]}
    assert sweep_figure.points_of(rows, "window")[0]["b"] == {8: [0.9]}
    assert sweep_figure.points_of(rows, "parameters")[0]["b"] == {5: [0.9]}


def test_bad_results_of_a_sweep_are_refused(bmojo, tmp_path):
    file = write_results(tmp_path / "results.jsonl", [result("a", 0.001, 1, 0.5)])
    message = bmojo("plot", file, "--against", "rate", code=2)
    assert "--against: must be one of length, lr, memory_bytes, parameters, seed" in message
    file.write_text("{}\n")
    assert "must be a result with family, axes and evals" in bmojo("plot", file, "--against", "lr",
                                                                   code=2)
    assert "needs one results.jsonl of bmojo sweep" in bmojo("plot", tmp_path, "--against", "lr",
                                                             code=2)
    assert listing(tmp_path) == ["results.jsonl"]
