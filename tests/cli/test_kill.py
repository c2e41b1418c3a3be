"""kill -9 at any moment: the last complete checkpoint loads, and the run ends as if never broken.

Kills come at every call that changes the file system during saves (BMOJO_KILL_AT=N), and at random
moments."""

import os
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_train import losses, metrics, streams, text, weights  # noqa: F401

STEPS = 2  # the first saved by --save-every, the second as the best and the last
MOST_CALLS = 1000


def start(bmojo, flags, **environment):
    return subprocess.Popen([bmojo.path, "train", *map(str, flags)], stderr=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, env={**os.environ, **environment})


@pytest.fixture
def recipe(text):  # noqa: F811
    """Small, with memories that are carried: everything a checkpoint can hold."""
    return [*streams(text), "--set", "num_layers=1", "--threads", 1, "--steps", STEPS,
            "--save-every", 1, "--eval-every", 2, "--keep", 1]


def check_same(run, whole):
    """Losses, validation, weights, and what the links point to."""
    kept = ("step", "loss", "val_loss", "lr", "grad_norm")
    assert [[row.get(key) for key in kept] for row in metrics(run)] == [
        [row.get(key) for key in kept] for row in metrics(whole)]
    assert weights(run) == weights(whole)
    for link in ("latest", "best"):
        assert (run / link).resolve().name == (whole / link).resolve().name
    assert not [path.name for path in run.iterdir()
                if ".tmp-" in path.name or path.name.endswith(".partial")]


def test_a_kill_at_every_call_of_a_save(bmojo, tmp_path, recipe):
    whole = tmp_path / "whole"
    bmojo("train", *recipe, "--out", whole)

    def kill_at(call):
        """Whether the run came so far as to be killed."""
        run = tmp_path / f"kill-{call}"
        process = start(bmojo, [*recipe, "--out", run], BMOJO_KILL_AT=str(call))
        error = process.communicate(timeout=120)[1]
        if process.returncode == 0:
            return False
        assert process.returncode == -signal.SIGKILL, error
        # Killed before there was a run, the user starts again.
        resume = ["--resume"] if (run / "run.toml").exists() else recipe
        bmojo("train", *resume, "--out", run, "--quiet")
        check_same(run, whole)
        shutil.rmtree(run)
        return True

    kills, pairs = 0, range(1, MOST_CALLS, 2)
    with ThreadPoolExecutor(2) as pool:
        for first in pairs:
            killed = list(pool.map(kill_at, (first, first + 1)))
            kills += sum(killed)
            if not all(killed):
                break
    print(f"{kills} kills, one at each call")
    assert 60 < kills < MOST_CALLS - 2


def test_kills_at_random_moments(bmojo, tmp_path, recipe):
    whole = tmp_path / "whole"
    recipe[recipe.index("--steps") + 1] = 24
    bmojo("train", *recipe, "--out", whole)
    chance = random.Random(1)
    kills = inside = 0
    run = tmp_path / "run-0"
    number = 0
    while kills < 50 or inside < 20:
        assert kills < 400, f"only {inside} of {kills} kills fell into a save"
        started = (run / "run.toml").exists()
        process = start(bmojo, ["--resume", "--out", run, "--quiet"] if started
                        else [*recipe, "--out", run])
        lines = len(losses(run)) if (run / "metrics.jsonl").exists() else 0
        while process.poll() is None and not (
                (run / "metrics.jsonl").exists() and
                (run / "metrics.jsonl").read_text().count("\n") > lines):
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.03))
        process.kill()
        process.communicate()
        if process.returncode == 0:  # it had ended: compare, and begin anew
            check_same(run, whole)
            number += 1
            run = tmp_path / f"run-{number}"
            continue
        kills += 1
        inside += bool(list(run.glob("*.partial")) or list(run.glob("*.tmp-*")))
    bmojo("train", "--resume", "--out", run, "--quiet")
    print(f"{kills} kills, {inside} inside a save")
    check_same(run, whole)
