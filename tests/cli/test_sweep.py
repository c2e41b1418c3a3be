"""`bmojo sweep`: grids of small trainings, refused, stopped, killed and gone on with."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from math import sqrt

import pytest
from conftest import listing
from training import MODEL, TINY, but, metrics

TASK = "mqar:pairs=4,length=48,vocab=40,gap=8"
LONGER = "mqar:pairs=4,length=64,vocab=40,gap=8"
FAMILIES = f"""
[family.bmojo]
preset = "bmojo-tiny"
set = {json.dumps(MODEL.split())}
[family.mamba]
preset = "mamba-tiny"
set = ["hidden_size=16", "num_layers=2", "ssm_inner_size=12", "ssm_state_size=3", "ssm_dt_rank=2"]
"""


def write_sweep(folder, base="steps = 4", grid="seed = [1, 2]", more="[eval]\nsequences = 20"):
    path = folder / "sweep.toml"
    path.write_text(f'[base]\ntask = "{TASK}"\nbatch_tokens = 384\nlr = 0.01\nssm_lr = 0.01\n'
                    f"eval_tokens = 960\n{base}\n{FAMILIES}\n[grid]\n{grid}\n{more}\n")
    return path


def results(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def by_name(folder):
    return {(row["family"], *row["axes"].values()): row for row in results(folder)}


def untimed(row):
    """What two computations of a run must share."""
    return {key: value for key, value in row.items() if key != "seconds"}


def version(bmojo):
    out = subprocess.run([bmojo.folder / "bmojo-torch", "--version"], capture_output=True,
                         text=True)
    return re.search(r"\(commit (\w+)\)", out.stdout)[1]


# --- what is run and kept ------------------------------------------------------------------------


def test_a_grid_of_two_families(bmojo, tmp_path):
    more = f"""[eval]
sequences = 20
tasks = ["{TASK}", "{LONGER}"]
set = ["window=8 fading_tokens=2"]"""
    file, out = write_sweep(tmp_path, base="steps = 30", more=more), tmp_path / "out"
    told = bmojo.json("sweep", file, "--out", out, "--jobs", 2)
    assert told == {"runs": 4, "done": 4, "done_before": 0, "results": str(out / "results.jsonl")}
    names = [f"{family},seed={seed}" for family in ("bmojo", "mamba") for seed in (1, 2)]
    beside = [name + ending for name in names for ending in ("", ".log", ".toml")]
    assert listing(out) == sorted(["lock", "results.jsonl", *beside])
    rows = by_name(out)
    assert sorted(rows) == [("bmojo", 1), ("bmojo", 2), ("mamba", 1), ("mamba", 2)]
    for (family, seed), row in rows.items():
        assert row["commit"] == version(bmojo) and row["jobs"] == 2
        assert row["steps"] == 30 and row["tokens"] == 30 * 384 and row["seconds"] > 0
        assert row["stopped_early"] is False and isinstance(row["still_falling"], bool)
        steps = metrics(out / f"{family},seed={seed}")
        assert row["train_loss"] == pytest.approx(sum(m["loss"] for m in steps[-4:]) / 4)
        assert row["curve"] == [[m["step"], m["val_loss"], m["val_accuracy"]]
                                for m in steps if "val_loss" in m]
        assert row["recipe"]["seed"] == seed and row["recipe"]["threads"] == 1
        assert [(each["length"], each["set"]) for each in row["evals"]] == [
            (48, []), (48, ["window=8", "fading_tokens=2"]),
            (64, []), (64, ["window=8", "fading_tokens=2"])]
        for each in row["evals"]:
            assert each["answers"] == 80 and each["low"] <= each["accuracy"] <= each["high"]
    # The trained sizes, and smaller memories with the same weights.
    sizes = [each["memory_bytes"] for each in rows["bmojo", 1]["evals"]]
    assert sizes[0] == sizes[2] == rows["bmojo", 1]["memory_bytes"] > sizes[1] == sizes[3]
    config = bmojo.json("config", "--preset", "bmojo-tiny",
                        *(word for field in MODEL.split() + ["vocab_size=40"]
                          for word in ("--set", field)))
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = bmojo.json("train", "--config", tmp_path / "config.json", "--task", TASK, "--dry-run")
    assert rows["bmojo", 1]["parameters"] == plan["parameters"]
    # Nothing is left to do, and nothing is done.
    before = (out / "results.jsonl").read_bytes()
    told = bmojo.json("sweep", file, "--out", out)
    assert (told["done"], told["done_before"]) == (0, 4)
    assert (out / "results.jsonl").read_bytes() == before


def test_a_run_is_what_train_and_eval_say(bmojo, tmp_path):
    """The same numbers as by hand; --keep leaves the weights."""
    file = write_sweep(tmp_path, grid="seed = [3]\nset.eidetic_tokens = [6, 4]\n"
                                      'set = ["window=16", "window=12 mlp_size=24"]')
    file.write_text(file.read_text().replace("[family.mamba]", "[family.other]"))
    file.write_text(file.read_text().split("[family.other]")[0] + "[grid]"
                    + file.read_text().split("[grid]")[1])
    out = tmp_path / "out"
    bmojo("sweep", file, "--out", out, "--keep", "--quiet")
    name = "bmojo,seed=3,eidetic_tokens=4,window=12+mlp_size=24"
    row = by_name(out)["bmojo", 3, 4, "window=12 mlp_size=24"]
    bmojo("train", *but(TINY, "--set", "eidetic_tokens=4", "--set", "window=12", "--set",
                        "mlp_size=24"), "--task", TASK,
          "--batch-tokens", 384, "--lr", 0.01, "--ssm-lr", 0.01, "--steps", 4, "--seed", 3,
          "--threads", 1, "--quiet", "--out", tmp_path / "hand")
    loss = [each["loss"] for each in metrics(tmp_path / "hand")]
    assert [each["loss"] for each in metrics(out / name)] == loss
    asked = bmojo.json("eval", "--model", out / name, "--task", TASK, "--sequences", 20,
                       "--threads", 1)
    assert row["evals"][0]["accuracy"] == asked["accuracy"]
    assert row["evals"][0]["loss"] == asked["loss"]
    p, n, z = asked["accuracy"], 80, 1.96
    centre, reach = p + z * z / 2 / n, z * sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    # 1.96 for 1.959964: the fifth digit of the reach.
    assert row["evals"][0]["low"] == pytest.approx((centre - reach) / (1 + z * z / n), abs=1e-5)
    assert row["evals"][0]["high"] == pytest.approx((centre + reach) / (1 + z * z / n), abs=1e-5)
    assert len(results(out)) == 4


def test_a_sweep_goes_on_from_the_weights_of_another(bmojo, tmp_path):
    """Each run from those of its own family and seed."""
    first, out = write_sweep(tmp_path), tmp_path / "short"
    bmojo("sweep", first, "--out", out, "--keep", "--quiet")
    (tmp_path / "second").mkdir()
    second = write_sweep(tmp_path / "second", base='steps = 2\n'
                         f'init_from = "{tmp_path}/short/{{family}},seed={{seed}}"')
    text = second.read_text().replace("ssm_lr = 0.01", 'ssm_lr = "{lr}"')
    for family in ("bmojo", "mamba"):  # models come with the weights
        text = re.sub(rf"(\[family.{family}\])\npreset = .*\nset = .*", r"\1", text)
    second.write_text(text)
    bmojo("sweep", second, "--out", tmp_path / "long", "--keep", "--quiet")
    for (family, seed), row in by_name(tmp_path / "long").items():
        name = f"{family},seed={seed}"
        assert row["recipe"]["init_from"] == str(out / name)
        bmojo("train", "--init-from", out / name, "--task", TASK, "--batch-tokens", 384, "--lr",
              0.01, "--ssm-lr", 0.01, "--eval-tokens", 960, "--steps", 2, "--seed", seed,
              "--threads", 1, "--quiet", "--out", tmp_path / name)
        assert [each["loss"] for each in metrics(tmp_path / "long" / name)] == [
            each["loss"] for each in metrics(tmp_path / name)]


def test_another_recipe_runs_again_and_another_question_asks_again(bmojo, tmp_path):
    out = tmp_path / "out"
    bmojo("sweep", write_sweep(tmp_path, grid="seed = [1]"), "--out", out, "--quiet", "--keep")
    stamp = (out / "bmojo,seed=1/metrics.jsonl").stat().st_mtime_ns
    file = write_sweep(tmp_path, grid="seed = [1]", more="[eval]\nsequences = 30")
    bmojo("sweep", file, "--out", out, "--quiet", "--keep")
    assert [row["evals"][0]["answers"] for row in results(out)] == [80, 80, 120, 120]
    assert (out / "bmojo,seed=1/metrics.jsonl").stat().st_mtime_ns == stamp  # not trained again
    # Other fields under the same name: kept weights are not overwritten.
    file = write_sweep(tmp_path, base="steps = 5", grid="seed = [1]")
    assert "must be a run of the same fields" in bmojo("sweep", file, "--out", out, code=2)
    shutil.rmtree(out / "bmojo,seed=1")
    shutil.rmtree(out / "mamba,seed=1")
    bmojo("sweep", file, "--out", out, "--quiet")
    assert [row["steps"] for row in results(out)] == [4] * 4 + [5] * 2


def test_a_run_stops_when_it_is_good_enough(bmojo, tmp_path):
    """One right answer of a validation is enough."""
    file = write_sweep(tmp_path, base="steps = 40\neval_every = 5", grid="seed = [1]",
                       more="[stop]\naccuracy = 0.000001")
    out = tmp_path / "out"
    bmojo("sweep", file, "--out", out, "--quiet")
    for row in results(out):
        good = [step for step, _, accuracy in row["curve"] if accuracy > 0]
        assert row["steps"] == (good[0] if good else 40)
        assert row["stopped_early"] is (row["steps"] < 40)
    assert any(row["stopped_early"] for row in results(out))


def test_the_programs_are_a_copy(bmojo, tmp_path):
    """Taken away after the start, they are not missed."""
    shutil.copytree(bmojo.folder, tmp_path / "bin", ignore=shutil.ignore_patterns("*_test"))
    file, out = write_sweep(tmp_path), tmp_path / "out"
    process = subprocess.Popen([tmp_path / "bin/bmojo", "sweep", file, "--out", out, "--jobs", "1"],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert "4 runs" in process.stderr.readline()
    shutil.rmtree(tmp_path / "bin")
    assert process.wait() == 0, process.stderr.read()
    assert len(results(out)) == 4 and not (out / ".bmojo-sweep").exists()
    process.stderr.close()


# --- stopped -------------------------------------------------------------------------------------


def start(bmojo, file, out):
    return subprocess.Popen([bmojo.path, "sweep", file, "--out", out, "--jobs", "2", "--quiet"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for_steps(run, count):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        path = run / "metrics.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"{run}: no {count} steps in two minutes")


@pytest.fixture(scope="module")
def unbroken(bmojo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    bmojo("sweep", write_sweep(folder, base="steps = 200"), "--out", folder / "out", "--quiet",
          "--jobs", 2)
    return {key: untimed(row) for key, row in by_name(folder / "out").items()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_sweep_goes_on(bmojo, tmp_path, unbroken, number):
    file, out = write_sweep(tmp_path, base="steps = 200"), tmp_path / "out"
    process = start(bmojo, file, out)
    wait_for_steps(out / "bmojo,seed=1", 20)
    process.send_signal(number)
    code, said = process.wait(), process.stderr.read()
    process.stderr.close()
    if number == signal.SIGKILL:
        assert code == -number
    else:
        assert code == 130
        # The one beside it may have ended, and a third begun.
        assert re.fullmatch(
            r"bmojo: interrupted, [01] of 4 runs done; the same command goes on\n", said), said
        assert (out / "bmojo,seed=1/latest").exists() and not (out / ".bmojo-sweep").exists()
    bmojo("sweep", file, "--out", out, "--quiet", "--jobs", 2)
    assert {key: untimed(row) for key, row in by_name(out).items()} == unbroken
    assert len(results(out)) == 4
    assert "goes on from step" in (out / "bmojo,seed=1.log").read_text()


def test_a_torn_line_of_results_is_done_again(bmojo, tmp_path):
    file, out = write_sweep(tmp_path), tmp_path / "out"
    bmojo("sweep", file, "--out", out, "--quiet")
    whole = (out / "results.jsonl").read_bytes()
    (out / "results.jsonl").write_bytes(whole[:-30])
    bmojo("sweep", file, "--out", out, "--quiet")
    assert len(results(out)) == 4
    first = whole.splitlines(keepends=True)[:3]
    assert (out / "results.jsonl").read_bytes().startswith(b"".join(first))


def test_a_failed_run_does_not_end_the_others(bmojo, tmp_path):
    file, out = write_sweep(tmp_path), tmp_path / "out"
    bmojo("sweep", file, "--out", out, "--quiet", "--keep")
    (out / "results.jsonl").unlink()
    (out / "bmojo,seed=1/run.toml").unlink()  # no run to go on with any more
    err = bmojo("sweep", file, "--out", out, "--quiet", code=1)
    assert err.startswith("bmojo: sweep: 1 of 4 runs failed, the first: bmojo,seed=1: ")
    assert "run.toml" in err
    assert sorted(by_name(out)) == [("bmojo", 2), ("mamba", 1), ("mamba", 2)]


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change, message", [
    ({"base": "stepz = 4"},
     "sweep.toml:7: key 'stepz' is not known; bmojo train --help lists the fields"),
    ({"base": 'init_from = "short/{famly}"'},
     "sweep.toml:7: {…} in 'init_from' must name family, an axis or a field of the run, got 'famly'"),
    ({"base": 'init_from = "short/{seed"'},
     "sweep.toml:7: { in 'init_from' must be closed by }, got 'short/{seed'"),
    ({"grid": "lrr = [1, 2]"}, "key 'lrr' is not known"),
    ({"grid": "seed = []"}, "axis 'seed' must hold a value, got none"),
    ({"grid": "seed = 1"}, "axis 'seed' must be a list, got one value; write it in [base]"),
    ({"grid": "seed = [1, 2, 1]"}, "axis 'seed' must hold each value once, got '1' twice"),
    ({"grid": "seed = [1, -2]"}, "seed must be a whole number of at least 0, got '-2'"),
    ({"grid": "lr = [0.1, 0.10]"}, "a run must stand once, got bmojo,lr=0.1 and bmojo,lr=0.10"),
    ({"grid": "set.windov = [8]"}, "windov"),
    ({"grid": 'lr = ["fast"]'}, "--lr: must be a number, got 'fast'"),
    ({"grid": 'task = ["mqar:pairs=9,length=8"]'}, "mqar"),
    ({"more": "[family.bmojo]"}, "table 'family.bmojo' must stand once, got it again after"),
    ({"more": "[gird]\nseed = [1]"},
     "table must be base, family.NAME, grid, eval or stop, got 'gird'"),
    ({"more": "[grid"}, "table must be a name in [ ], got '[grid'"),
    ({"more": "[eval]\nsequence = 5"},
     "must be one of sequences, tasks, data, set, got 'sequence'"),
    ({"more": "[eval]\nsequences = 0"}, "key 'sequences' must be a whole number of at least 1"),
    ({"more": "[eval]\ntasks = []"}, "key 'tasks' must be a list with a value, got none"),
    ({"more": '[eval]\ntasks = ["mqar:pairs=4,length=48,vocab=80,gap=8"]'},
     "task must have the vocabulary trained on = 40, got 80"),
    ({"more": '[eval]\nset = ["hidden_size=8"]'}, "must be one of eidetic_tokens, fading_tokens"),
    ({"more": "[stop]\nloss = 1"}, "[stop] must hold accuracy = a number, got 'loss'"),
    ({"more": "[stop]\naccuracy = 2"}, "--stop-accuracy: must be from 0 to 1, got 2"),
])
def test_bad_files_are_refused_before_anything_starts(bmojo, tmp_path, change, message):
    file = write_sweep(tmp_path, **change)
    assert message in bmojo("sweep", file, "--out", tmp_path / "out", code=2)
    assert listing(tmp_path) == ["sweep.toml"]


def test_a_file_without_families_is_refused(bmojo, tmp_path):
    (tmp_path / "sweep.toml").write_text("[base]\nsteps = 1\n")
    assert "must hold a table [family.NAME], got none" in bmojo("sweep", tmp_path / "sweep.toml",
                                                                code=2)
    assert "none.toml: cannot be read" in bmojo("sweep", tmp_path / "none.toml", code=2)


def test_one_sweep_a_folder(bmojo, tmp_path):
    file, out = write_sweep(tmp_path, base="steps = 100000"), tmp_path / "out"
    process = start(bmojo, file, out)
    wait_for_steps(out / "bmojo,seed=1", 1)
    assert "must not be in use by another process" in bmojo("sweep", file, "--out", out, code=2)
    process.terminate()
    assert process.wait() == 130
    process.stderr.close()


def test_a_folder_that_is_no_run_is_not_touched(bmojo, tmp_path):
    file, out = write_sweep(tmp_path), tmp_path / "out"
    (out / "mamba,seed=2").mkdir(parents=True)
    (out / "mamba,seed=2/letter.txt").write_text("dear")
    assert "must be a run of this sweep, got a folder" in bmojo("sweep", file, "--out", out, code=2)
    assert (out / "mamba,seed=2/letter.txt").read_text() == "dear"


# --- shown ---------------------------------------------------------------------------------------


def test_a_dry_run_names_the_runs_and_writes_nothing(bmojo, tmp_path):
    file = write_sweep(tmp_path)
    done = subprocess.run([bmojo.path, "sweep", file, "--out", tmp_path / "out", "--dry-run",
                           "--jobs", "2"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["bmojo,seed=1", "mamba,seed=1", "bmojo,seed=2", "mamba,seed=2"]
    assert re.fullmatch(r"4 runs, 0 done before, 2 at a time for "
                        r"(about \d+:\d\d|a time that is not known)\n", done.stderr)
    assert listing(tmp_path) == ["sweep.toml"]


def test_a_table_moves_on_a_terminal(bmojo, tmp_path):
    file = write_sweep(tmp_path, base="steps = 150", grid="seed = [1]")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([bmojo.path, "sweep", file, "--out", tmp_path / "out"],
                               stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 65536):
            text += part
    except OSError:  # how a terminal ends
        pass
    os.close(ours)
    assert process.wait() == 0
    shown = text.decode()
    assert re.search(r"0 of 2 runs done, \d running", shown)
    assert re.search(r"step \d+/150 ", shown) and "\x1b[" in shown
    assert shown.count("done    ") == 2 and shown.count("% right") == 2
