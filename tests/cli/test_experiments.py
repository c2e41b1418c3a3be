"""The experiments of tools/ around their trainings: recipes, choices, what is kept and shown. The
trainings themselves are played by a small script."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import demo  # noqa: E402
import experiment  # noqa: E402
import shakespeare  # noqa: E402
from metrics import Mistake  # noqa: E402
from shakespeare import Job  # noqa: E402

# A program that takes the flags of bmojo and writes what a training would, a step every 10 ms.
PLAYER = f"""#!{sys.executable} -S
import json, os, signal, sys, time
flags = sys.argv[1:]
value = lambda name: flags[flags.index(name) + 1]
if flags[0] == "eval":
    right = {{"bmojo": 0.97, "hybrid": 0.03, "mamba": 0.04}}[value("--model").split("/")[-2]]
    print(json.dumps({{"accuracy": right, "answers": 80}}))
    sys.exit()
if flags[0] == "inspect":
    print(json.dumps({{"parameters": 81793, "memory_bytes": {{"window": 1, "total": 30848}}}}))
    sys.exit()
if flags[0] == "explain":
    print(json.dumps({{"told": flags}}) if "--json" in flags else "the table\\n\\nits picture")
    sys.exit()
stopped = []
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell has it in the background
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
out = value("--out")
if out.endswith("mamba-short") and "PLAYER_FAILS" in os.environ:
    print("bmojo: the disk is full", file=sys.stderr)
    sys.exit(1)
os.makedirs(out)
with open(out + "/flags.json", "w") as file:
    json.dump(flags, file)
with open(out + "/metrics.jsonl", "w") as file:
    for step in range(1, int(os.environ["PLAYER_STEPS"]) + 1):
        if stopped:
            open(out + "/saved", "w").close()
            sys.exit(130)
        row = {{"step": step, "loss": 5.0 / step, "seconds": 0.01 * step}}
        if step % 10 == 0:
            row["val_accuracy"] = 0.5
        file.write(json.dumps(row) + "\\n")
        file.flush()
        time.sleep(0.01)
"""


@pytest.fixture
def player(tmp_path):
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "bmojo"
    path.write_text(PLAYER)
    path.chmod(0o755)
    return path


# --- recipes -------------------------------------------------------------------------------------


def size(bmojo, tmp_path, name):
    recipe = experiment.load_recipe(ROOT / f"configs/shakespeare-{name}.toml")
    words = [word for setting in recipe["set"] for word in ("--set", setting)]
    bmojo("init", "--preset", recipe["preset"], *words, "--out", tmp_path / name)
    found = bmojo.json("inspect", tmp_path / name)
    shutil.rmtree(tmp_path / name)
    return found


def test_families_have_equal_parameters_and_one_recipe(bmojo, tmp_path):
    sizes = [size(bmojo, tmp_path, name)["parameters_without_embeddings"]
             for name in shakespeare.FAMILIES]
    assert max(sizes) <= 1.001 * min(sizes) and 0.8e6 < min(sizes) < 0.83e6
    recipes = [experiment.load_recipe(ROOT / f"configs/shakespeare-{name}.toml")
               for name in shakespeare.FAMILIES]
    for recipe in recipes:
        del recipe["preset"], recipe["set"]
        assert recipe == recipes[0]
    assert recipes[0]["context"] == 512 and recipes[0]["batch_tokens"] == 8 * 512


def test_windows_and_positions_of_the_families(bmojo, tmp_path):
    configs = {name: size(bmojo, tmp_path, name)["config"] for name in shakespeare.FAMILIES}
    assert {name: config["window"] for name, config in configs.items() if name != "mamba"} == (
        dict.fromkeys(["bmojo", "bmojo-rotary", "bmojo-f", "transformer", "hybrid"], 64))
    rotary = {name for name, config in configs.items() if config["rope_theta"] == 10000}
    assert rotary == {"transformer", "bmojo-rotary"}
    assert all(configs[name]["rope_theta"] == 0 for name in configs.keys() - rotary)
    assert configs["bmojo"] | {"rope_theta": 10000} == configs["bmojo-rotary"]
    assert configs["bmojo"]["eidetic_tokens"] == 64 and configs["bmojo-f"]["eidetic_tokens"] == 0


def test_nanogpt_is_of_its_size(bmojo, tmp_path):
    found = size(bmojo, tmp_path, "nanogpt")
    assert found["parameters"] == 800000
    assert found["config"]["num_layers"] == 4 and found["config"]["hidden_size"] == 128
    recipe = experiment.load_recipe(ROOT / "configs/shakespeare-nanogpt.toml")
    wanted = {"steps": 2000, "context": 64, "batch_tokens": 12 * 64, "lr": 1e-3, "min_lr": 1e-4,
              "beta2": 0.99, "warmup": 100 / 2000}
    assert {key: recipe[key] for key in wanted} == wanted


def test_recipes_survive_being_written(tmp_path):
    recipe = experiment.load_recipe(ROOT / "configs/demo.toml")
    experiment.write_recipe(tmp_path / "a.toml", recipe)
    assert experiment.load_recipe(tmp_path / "a.toml") == recipe
    with pytest.raises(Mistake, match="none.toml: must be a run file"):
        experiment.load_recipe(tmp_path / "none.toml")


def test_the_memory_of_the_demo_is_tight():
    recipe = experiment.load_recipe(ROOT / "configs/demo.toml")
    demo.check_tight(recipe, "demo.toml")
    task = "mqar:pairs=8,length=192,span={},gap={}"
    for change, message in [
            ({"task": task.format(64, 105)}, "gap must be at least layers x window = 106, got 105"),
            ({"task": task.format(62, 112)}, "span must be at least 4 x eidetic_tokens = 64, got"),
            ({"set": [*recipe["set"], "eidetic_tokens=17"]}, "at most 2 x pairs = 16, got 17"),
            ({"task": "mqar:pairs=8,span=64"}, "demo.toml: must have steps, .*, got no gap")]:
        with pytest.raises(Mistake, match=message):
            demo.check_tight(recipe | change, "demo.toml")


def test_the_models_of_the_demo_have_equal_memory(bmojo, tmp_path):
    recipe = experiment.load_recipe(ROOT / "configs/demo.toml")
    keys, totals = demo.task_keys(recipe), []
    for name in demo.TITLES:
        model = demo.model_of(recipe, name) | {"vocab_size": keys["vocab"]}
        words = [word for pair in model.items() for word in ("--set", "=".join(pair))]
        bmojo("init", "--preset", recipe["preset"], *words, "--out", tmp_path / name)
        totals.append(bmojo.json("inspect", tmp_path / name)["memory_bytes"]["total"])
    assert all(abs(total / totals[0] - 1) <= 0.05 for total in totals), totals
    # Even if all of it were rows of one window, no pair would be within reach.
    row = 2 * int(model["num_kv_heads"]) * int(model["head_size"]) * 4
    assert int(keys["gap"]) >= max(totals) / row


# --- the demo, played ----------------------------------------------------------------------------


def write_recipe(tmp_path, steps):
    recipes = {}
    for name in ("demo-short", "demo"):
        recipes[name] = experiment.load_recipe(ROOT / f"configs/{name}.toml") | {"steps": steps}
        experiment.write_recipe(tmp_path / f"{name}.toml", recipes[name])
    return recipes


def run_demo(player, tmp_path, steps, *flags, **variables):
    command = [sys.executable, ROOT / "tools/demo.py", "--bin", player.parent, "--short",
               tmp_path / "demo-short.toml", "--recipe", tmp_path / "demo.toml", "--out",
               tmp_path / "out", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            cwd=tmp_path, env=os.environ | {"PLAYER_STEPS": str(steps)} | variables)


def test_the_demo_keeps_every_seed(player, tmp_path):
    recipes = write_recipe(tmp_path, 20)
    flags = ["--seeds", "2", "--json-out", "kept/demo.json"]
    process = run_demo(player, tmp_path, 20, *flags)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"\| 2 +\| 97.0 % +\| 3.0 % +\| 4.0 % +\|", out)
    assert re.search(r"\| memory, bytes +\| 30,848 +\| 30,848 +\| 30,848 +\|", out)
    assert "than each of the others, in\n2 of 2 seeds." in out
    assert "curves: out/demo.png" in out
    assert "the table\n\npicture: out/explain.png" in out and "its picture" not in out
    told = json.loads((tmp_path / "out/explain.json").read_text())["told"]
    assert told[told.index("--model") + 1].endswith("out/seed-1/bmojo/latest")
    with Image.open(tmp_path / "out/demo.png") as image:
        assert image.size == (1400, 500)
    rows = json.loads((tmp_path / "kept/demo.json").read_text())["runs"]
    assert [row["seed"] for row in rows] == [1, 2]
    for row in rows:
        assert row["bmojo"]["accuracy"] == 0.97 and row["hybrid"]["accuracy"] == 0.03
        assert row["mamba"]["memory_bytes"] == 30848 and row["mamba"]["parameters"] == 81793
        assert row["bmojo"]["steps"] == 40 and row["bmojo"]["seconds"] >= 0.4
        assert row["short"] == recipes["demo-short"] and row["recipe"] == recipes["demo"]
        assert row["commit"] and row["machine"]
    for name in demo.TITLES:
        short, long = (json.loads((tmp_path / f"out/seed-2/{run}/flags.json").read_text())
                       for run in (f"{name}-short", name))
        for given in (short, long):
            assert given[given.index("--seed") + 1] == "2"
            assert given[given.index("--threads") + 1] == "1"
        changes = [word for word in short if "=" in word]
        assert changes == demo.CHANGES[name] and (changes == []) == (name == "bmojo")
        assert "--init-from" not in short
        assert long[long.index("--init-from") + 1] == short[short.index("--out") + 1]

    # A third seed runs alone; another recipe runs all anew.
    out, _ = run_demo(player, tmp_path, 20, "--seeds", "3", *flags[2:]).communicate(timeout=60)
    assert "seed 2: already in kept/demo.json" in out and "--seed 3" in out
    assert "--seed 1" not in out and "3 of 3 seeds" in out
    write_recipe(tmp_path, 10)
    out, _ = run_demo(player, tmp_path, 10, *flags).communicate(timeout=60)
    assert "already" not in out
    rows = json.loads((tmp_path / "kept/demo.json").read_text())["runs"]
    assert [row["bmojo"]["steps"] for row in rows] == [20, 20]


def test_a_training_that_fails_ends_the_others(player, tmp_path):
    write_recipe(tmp_path, 10000)
    process = run_demo(player, tmp_path, 10000, PLAYER_FAILS="1")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err == "demo: Mamba: the disk is full\n"
    # The others had a moment to begin, or none.
    for other in (tmp_path / "out/seed-1/bmojo-short", tmp_path / "out/seed-1/hybrid-short"):
        assert not (other / "metrics.jsonl").exists() or (other / "saved").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all(player, tmp_path, number):
    write_recipe(tmp_path, 10000)
    process = run_demo(player, tmp_path, 10000)
    runs = [tmp_path / "out/seed-1" / f"{name}-short" for name in demo.TITLES]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not all((r / "metrics.jsonl").exists() for r in runs):
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert all((run / "saved").exists() for run in runs)
    assert "Traceback" not in err


def test_mistakes_of_the_demo(tmp_path):
    write_recipe(tmp_path, 10)
    nowhere = tmp_path / "nowhere" / "bmojo"
    for flags, message in [([], "--bin: must be the folder that holds bmojo, got"),
                           (["--seeds", "0"], "--seeds: must be at least 1, got 0")]:
        process = run_demo(nowhere, tmp_path, 10, *flags)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 2
        assert err.startswith(f"demo: {message}") and err.count("\n") == 1


# --- what is shown -------------------------------------------------------------------------------


def training(rows, steps):
    played = object.__new__(experiment.Training)
    played.rows, played.steps = rows, steps
    return played


def test_progress_fits_80_columns():
    row = {"step": 2000, "loss": 10.1234, "seconds": 1799.5, "val_accuracy": 1.0}
    for rows in ([], [row]):
        lines, plain = demo.progress({name: training(rows, 6000) for name in demo.TITLES})
        assert max(map(len, [*lines, plain])) <= 80
    assert "10.12  100.0 %" in lines[1] and lines[-1] == "59:59 left"
    assert plain == ("demo: step 2000|2000|2000 of 6000  right 100.0|100.0|100.0 %  59:59 left")


@pytest.mark.parametrize("kind, moves", [("xterm", True), ("dumb", False)])
def test_lines_move_where_the_terminal_can(monkeypatch, kind, moves):
    screen, terminal = os.openpty()
    with monkeypatch.context() as patch, os.fdopen(terminal, "w") as stderr:
        patch.setenv("TERM", kind)
        patch.setattr(sys, "stderr", stderr)
        board = experiment.Board(every=0)
        board.show(["first"], "plain")
        board.show(["second"], "plain")
        board.note("note")
        shown = ""
        while "note" not in shown:  # a read may end between two writes
            shown += os.read(screen, 4096).decode()
    os.close(screen)
    if moves:
        assert "\x1b[1A\rsecond\x1b[K" in shown and "plain" not in shown
    else:
        assert shown.splitlines() == ["plain", "plain", "note"]


def test_a_resumed_run_is_read_anew(tmp_path):
    played = training([], 10)
    played.out, played.read, played.end = tmp_path, 0, None
    played.process = SimpleNamespace(poll=lambda: None)
    path = tmp_path / "metrics.jsonl"
    assert played.look() and played.step() == 0 and played.seconds_left() is None
    path.write_text('{"step": 1, "seconds": 2}\n{"step": 2, "seconds": 4}\n{"ste')
    assert played.look() and played.step() == 2 and played.seconds_left() == 16
    with open(path, "a") as file:
        file.write('p": 3, "seconds": 6}\n')
    assert played.look() and [row["step"] for row in played.rows] == [1, 2, 3]
    path.write_text('{"step": 1, "seconds": 2}\n')
    assert played.look() and [row["step"] for row in played.rows] == [1]


def test_clock_and_commands():
    assert [experiment.clock(s) for s in (None, 0, 61, 3600)] == ["-:--", "0:00", "1:01", "1:00:00"]
    words = ["bmojo", "train", *["--set", "a b=1"] * 12]
    text = experiment.shown(words)
    assert max(map(len, text.splitlines())) <= 80 and text.count("\n") >= 2
    out = subprocess.run(["sh", "-c", "bmojo() { printf '%s|' \"$@\"; }\n" + text],
                         capture_output=True, text=True, check=True).stdout
    assert out.split("|")[:-1] == words[1:]


# --- which runs of shakespeare -------------------------------------------------------------------


def done_with(*losses):
    return {Job("bmojo", lr, 1): {"val_loss": loss} for lr, loss in zip(shakespeare.RATES, losses)}


def test_the_rate_is_chosen_on_the_first_seed():
    assert shakespeare.best_rate("bmojo", done_with(1.5, 1.4)) is None
    assert shakespeare.best_rate("bmojo", done_with(1.5, 1.4, 1.6)) == 2e-3
    more = done_with(1.5, 1.4, 1.6) | {Job("bmojo", 4e-3, 2): {"val_loss": 1.0}}
    assert shakespeare.best_rate("bmojo", more) == 2e-3
    jobs = shakespeare.all_jobs(["nanogpt", "bmojo"], {})
    assert len(jobs) == 6 and Job("bmojo", 2e-3, 2) not in jobs
    jobs = shakespeare.all_jobs(["nanogpt", "bmojo"], done_with(1.5, 1.4, 1.6))
    assert len(jobs) == shakespeare.count_jobs(["nanogpt", "bmojo"]) == 8
    assert {Job("bmojo", 2e-3, 2), Job("bmojo", 2e-3, 3)} < set(jobs)


def test_only_runs_of_the_present_recipes_count(tmp_path, capsys):
    rows = [{"config": "bmojo", "lr": 1e-3, "seed": seed, "recipe": {"steps": seed}}
            for seed in (1, 2)]
    experiment.store_runs(tmp_path / "a" / "s.json", "command", rows)
    done = shakespeare.load_done(tmp_path / "a" / "s.json", {"bmojo": {"steps": 2}})
    assert list(done) == [Job("bmojo", 1e-3, 2)]
    assert "1 runs of other recipes are left out" in capsys.readouterr().err
    assert shakespeare.load_done(tmp_path / "none.json", {}) == {}
    shakespeare.store_done(tmp_path / "a" / "s.json", "command", done, {"bmojo": {"steps": 2}})
    assert experiment.load_runs(tmp_path / "a" / "s.json") == rows  # nothing is lost
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(Mistake, match="bad.json: must be a results file with runs"):
        shakespeare.load_done(tmp_path / "bad.json", {})


def test_a_run_must_end_with_a_validation(tmp_path):
    rows = [{"step": 1, "loss": 2, "seconds": 1}, {"step": 2, "loss": 2, "val_loss": 2}]
    with pytest.raises(shakespeare.Failed, match="a validation at step 3, got 2"):
        shakespeare.row_of(Job("bmojo", 1e-3, 1), training(rows, 3), {"steps": 3}, "bmojo")


def test_data_that_is_absent(tmp_path):
    command = [sys.executable, ROOT / "tools/shakespeare.py", "--out", tmp_path, "--bin", "bin"]
    for folder, message in [("nowhere", "got nowhere"), ("odd", "must be ASCII")]:
        (tmp_path / "odd/tiny-shakespeare").mkdir(parents=True, exist_ok=True)
        (tmp_path / "odd/tiny-shakespeare/input.txt").write_text("ä")
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin/bmojo").touch(mode=0o755)
        result = subprocess.run(command, env=os.environ | {"BMOJO_DATA": folder}, text=True,
                                capture_output=True, cwd=tmp_path)
        assert result.returncode == 2 and result.stderr.startswith("shakespeare: ")
        assert message in result.stderr and result.stderr.count("\n") == 1


def test_the_picture_of_shakespeare(tmp_path):
    done = {}
    for i, config in enumerate(shakespeare.FAMILIES):
        for lr, seed in [(1e-3, 1), (2e-3, 1), (4e-3, 1), (2e-3, 2), (2e-3, 3)]:
            loss = 1.5 + 0.01 * i + 0.001 * seed + abs(lr - 2e-3)
            done[Job(config, lr, seed)] = {
                "val_loss": loss, "lr": lr, "seed": seed, "parameters_without_embeddings": 816256,
                "curve": [[step, loss + 9 / step] for step in (10, 20, 30)]}
    shakespeare.draw(done, tmp_path / "s.png")
    with Image.open(tmp_path / "s.png") as image:
        assert image.size == (1600, 560)
    text = shakespeare.summary(done)
    row = "| B'MOJO         | 816,256    | 0.002 | 1.5010 | 1.5020 | 1.5030 | 1.5020 |"
    assert row in text.splitlines()
    assert "below the sliding-window transformer in 3 of 3 seeds" in text
