"""kill -9 at any moment: the last complete checkpoint loads, and the run ends as if never broken.

Kills come at every call that changes the file system during saves and while a run resumes
(BMOJO_KILL_AT=N), and at random moments."""

import os
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from training import but, metrics, streams, weights

STEPS = 2  # the first saved by --save-every, the second as the best and the last
MOST_CALLS = 1000
START_CALLS = 16  # a resume makes fewer before its first step
UNFINISHED = ("*.partial", "latest.tmp-*", "best.tmp-*")


def start(bmojo, flags, **environment):
    return subprocess.Popen([bmojo.path, "train", *map(str, flags)], stderr=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, env={**os.environ, **environment})


@pytest.fixture
def recipe(text):  # noqa: F811
    """Small, with memories that are carried: everything a checkpoint can hold."""
    return but(streams(text), "--set", "num_layers=1", "--threads", 1, "--steps", STEPS,
               "--save-every", 1, "--eval-every", 2, "--keep", 1)


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


def num_lines(run):
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def sweep(kill_at, calls):
    """What kill_at gives for each call, two at a time, until a run comes to its end (None)."""
    results = []
    with ThreadPoolExecutor(2) as pool:
        for pair in zip(calls[::2], calls[1::2]):
            results += pool.map(kill_at, pair)
            if None in results:
                return [result for result in results if result is not None]
    pytest.fail(f"{len(results)} kills and no end")


def test_a_kill_at_every_call_of_a_save(bmojo, tmp_path, recipe):
    whole = tmp_path / "whole"
    bmojo("train", *recipe, "--out", whole)

    def kill_at(call):
        """None where the run ended before."""
        run = tmp_path / f"kill-{call}"
        process = start(bmojo, [*recipe, "--out", run], BMOJO_KILL_AT=str(call))
        error = process.communicate(timeout=120)[1]
        if process.returncode == 0:
            return None
        assert process.returncode == -signal.SIGKILL, error
        # Killed before there was a run, the user starts again.
        resume = ["--resume"] if (run / "run.toml").exists() else recipe
        bmojo("train", *resume, "--out", run, "--quiet")
        check_same(run, whole)
        shutil.rmtree(run)
        return call

    kills = len(sweep(kill_at, range(1, MOST_CALLS)))
    print(f"{kills} kills, one at each call")
    assert kills > 60


def test_a_kill_at_every_call_of_a_resume(bmojo, tmp_path, recipe):
    """Until the first step at every call; from there on, a save as above, at every eighth."""
    whole, left = tmp_path / "whole", tmp_path / "left"
    bmojo("train", *recipe, "--out", whole)
    bmojo("train", *recipe, "--max-minutes", 1e-9, "--out", left)
    # After its first step the run was killed in a save: everything that a resume repairs.
    with open(left / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "lo')
    (left / "latest").unlink()
    (left / "latest.tmp-1-0").symlink_to("step-00000001")
    (left / "step-00000002.partial").mkdir()
    (left / "step-00000002.partial/config.json").write_text("{")
    resume = ["--resume", "--max-minutes", 0, "--quiet"]

    def kill_at(call):
        """Whether the step was done; None where the run ended before."""
        run = tmp_path / f"kill-{call}"
        shutil.copytree(left, run, symlinks=True)
        process = start(bmojo, [*resume, "--out", run], BMOJO_KILL_AT=str(call))
        error = process.communicate(timeout=120)[1]
        if process.returncode != 0:
            assert process.returncode == -signal.SIGKILL, error
            stepped = num_lines(run) == 2
            bmojo("train", *resume, "--out", run)
        check_same(run, whole)
        shutil.rmtree(run)
        return stepped if process.returncode != 0 else None

    stepped = sweep(kill_at, [*range(1, START_CALLS + 1), *range(START_CALLS + 1, MOST_CALLS, 8)])
    print(f"{len(stepped)} kills, {stepped.count(False)} before the step")
    # Cutting the metrics back makes five calls, the link three.
    assert stepped.count(False) >= 8 and any(stepped[:START_CALLS])


def unfinished(run):
    """What saves that were cut short have left; the times tell one from its like of before."""
    return {(path.name, path.lstat().st_mtime_ns) for name in UNFINISHED for path in run.glob(name)}


def test_kills_at_random_moments(bmojo, tmp_path, recipe):
    """Of three kills two come soon after a step, where it saves, and one at any moment at all."""
    whole = tmp_path / "whole"
    recipe[recipe.index("--steps") + 1] = 24
    begun = time.monotonic()
    bmojo("train", *recipe, "--out", whole)
    life = time.monotonic() - begun
    chance = random.Random(1)
    kills = inside = anywhere = number = 0
    run = tmp_path / "run-0"
    while kills < 50 or inside < 20:
        assert kills < 400, f"only {inside} of {kills} kills fell into a save"
        lines, before = num_lines(run), unfinished(run)
        process = start(bmojo, ["--resume", "--out", run, "--quiet"] if (run / "run.toml").exists()
                        else [*recipe, "--out", run])
        is_anywhere = kills % 3 == 2
        if is_anywhere:
            time.sleep(chance.uniform(0, life))
        else:
            while process.poll() is None and num_lines(run) <= lines:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.03))
        process.kill()
        error = process.communicate()[1]
        if process.returncode == 0:  # it had ended: compare, and begin anew
            check_same(run, whole)
            number += 1
            run = tmp_path / f"run-{number}"
            continue
        assert process.returncode == -signal.SIGKILL, error
        kills += 1
        anywhere += is_anywhere
        inside += bool(unfinished(run) - before)
    bmojo("train", *(["--resume"] if (run / "run.toml").exists() else recipe), "--out", run, "--quiet")
    print(f"{kills} kills, {inside} inside a save, {anywhere} at any moment")
    check_same(run, whole)
