"""The folder of a run: who may write in it, what is one, and what in it belongs to the run."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import time
import tomllib

import pytest
from training import RECIPE, TASK, contents, losses, messages, weights


def test_a_run_in_use_is_refused(bmojo, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(
        [bmojo.path, "train", *map(str, RECIPE), "--steps", "100000", "--out", run])
    try:
        while not (run / "metrics.jsonl").exists() and process.poll() is None:
            time.sleep(0.02)
        assert "in use by another process" in bmojo("train", "--resume", "--out", run, code=2)
        assert "new or empty" in bmojo("train", *RECIPE, "--out", run, code=2)
        assert bmojo.json("train", "--resume", "--out", run, "--dry-run")["steps"] == 100000
    finally:
        process.kill()
        process.wait()


def test_of_two_that_start_one_trains(bmojo, tmp_path):
    recipe = [*RECIPE, "--steps", 2, "--eval-every", 0]
    alone = []
    for seed in (0, 1):
        bmojo("train", *recipe, "--seed", seed, "--out", tmp_path / f"alone-{seed}")
        alone.append(losses(tmp_path / f"alone-{seed}"))
    for turn in range(5):
        run = tmp_path / f"run-{turn}"
        both = [subprocess.Popen(
            [bmojo.path, "train", *map(str, recipe), "--seed", str(seed), "--out", run],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for seed in (0, 1)]
        errors = [each.communicate(timeout=60)[1] for each in both]
        codes = [each.returncode for each in both]
        assert sorted(codes) == [0, 2], errors
        refused, first = errors[codes.index(2)], codes.index(0)
        assert "in use by another process" in refused or "new or empty" in refused
        assert tomllib.loads((run / "run.toml").read_text())["seed"] == first
        assert json.loads((run / "latest/train.json").read_text())["recipe"]["seed"] == first
        assert losses(run) == alone[first]
        assert weights(run) == weights(tmp_path / f"alone-{first}")


def test_a_folder_that_another_start_holds(bmojo, tmp_path):
    """Locked and still empty: what is in there comes from the other one."""
    run = tmp_path / "run"
    run.mkdir()
    with open(run / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert bmojo("train", *RECIPE, "--steps", 1, "--out", run, code=2) == (
            f"bmojo: --out: must not be in use by another process, got {run}/lock locked")
        assert [path.name for path in run.iterdir()] == ["lock"]
    bmojo("train", *RECIPE, "--steps", 1, "--out", run)
    assert len(losses(run)) == 1


def test_every_folder_made_is_on_the_disk(bmojo, tmp_path):
    """Each is flushed before the next one is made; killed there, the next is missing."""
    def left(call):
        out = tmp_path / f"kill-{call}/run"
        process = subprocess.run(
            [bmojo.path, "train", *map(str, RECIPE), "--steps", "1", "--out", f"{out}/"],
            env={**os.environ, "BMOJO_KILL_AT": str(call)}, capture_output=True)
        assert process.returncode == -signal.SIGKILL
        return [path.exists() for path in (out.parent, out, out / "lock")]

    # Make and flush, make and flush, lock.
    assert left(3) == [True, False, False]
    assert left(5) == [True, True, False]
    assert left(6) == [True, True, True]


# --- what is a run, and what is not --------------------------------------------------------------


def test_resume_refuses_what_is_no_run(bmojo, tmp_path):
    run, mine = tmp_path / "run", tmp_path / "mine"
    bmojo("train", *RECIPE, "--steps", 1, "--out", run)
    mine.mkdir()
    shutil.copy(run / "run.toml", mine)
    (mine / "metrics.jsonl").write_text("my own lines\n")
    (mine / "notes.tmp-mine").write_text("mine")
    before = contents(mine)
    for dry in ([], ["--dry-run"]):
        message = bmojo("train", "--resume", "--out", mine, *dry, code=2)
        assert message.startswith("bmojo: --out: must be the folder of a run to resume, got '")
        assert message.endswith("' without run.json; give its run.toml to --run, with another --out")
    assert contents(mine) == before


def test_resume_misses_checkpoints_that_are_gone(bmojo, tmp_path):
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 3, "--out", run)
    for path in run.glob("step-*"):
        shutil.rmtree(path)
    before = contents(run)
    assert bmojo("train", "--resume", "--out", run, code=1) == (
        f"bmojo: {run}: must hold the checkpoint that latest names, got no step at all; put it back, "
        "or start anew in another --out")
    assert contents(run) == before and len(losses(run)) == 3


def test_resume_removes_what_is_its_own(bmojo, tmp_path):
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 2, "--max-minutes", 1e-9, "--out", run)
    ours = ["run.toml.tmp-1-0", "run.json.tmp-1-0", "metrics.jsonl.tmp-1-0", "step-00000002.partial"]
    theirs = ["notes.tmp-mine", "run.tmp-1-0", "step-two.partial", "notes.partial"]
    for name in ours + theirs:
        (run / name).write_text("")
    (run / "latest.tmp-1-0").symlink_to("step-00000001")
    bmojo("train", "--resume", "--max-minutes", 0, "--out", run, "--quiet")
    assert len(losses(run)) == 2
    left = {path.name for path in run.iterdir()}
    assert left & {*ours, "latest.tmp-1-0"} == set() and left >= set(theirs)


# What is said of each.
MANIFESTS = {
    "no files": "manifest.json must name a file, got none",
    "no list": "manifest.json must name a file, got none",
    "no object": "manifest.json must name a file, got none",
    "above": "manifest.json must name files of its folder, got '../x'",
    "absolute": "manifest.json must name files of its folder, got '/",
    "below": "manifest.json must name files of its folder, got 'inner/x'",
    "empty": "manifest.json must name files of its folder, got ''",
    "dot": "manifest.json must name files of its folder, got '.'",
    "dots": "manifest.json must name files of its folder, got '..'",
    "linked file": "manifest.json must name regular files, got 'x'",
    "linked folder": "manifest.json must name files of its folder, got 'inner/x'",
    "gone": "manifest.json must name regular files, got 'x'",
    "folder": "manifest.json must name regular files, got 'x'",
    "no entry": "manifest.json must give bytes and digest of 'config.json', got 1",
    "bytes": "config.json must hold ",
    "digest": "config.json must have the digest of manifest.json, got another",
    "no json": "manifest.json: ",
    "linked manifest": "manifest.json must be a regular file, got none",
    "no manifest": "manifest.json must be a regular file, got none",
}


@pytest.mark.parametrize("fault", MANIFESTS)
def test_a_manifest_that_is_none(bmojo, tmp_path, steps, fault):
    """The step before is whole, and the run goes on from there."""
    shutil.copytree(steps, run := tmp_path / "run", symlinks=True)
    folder, path = run / "step-00000002", run / "step-00000002/manifest.json"
    manifest = json.loads(path.read_text())
    files = manifest["files"]
    # What is named outside is there and just as it is said to be.
    config = files["config.json"]
    for place in (tmp_path, run):
        shutil.copy(folder / "config.json", place / "x")
    names = {"above": "../x", "absolute": str(tmp_path / "x"), "below": "inner/x", "empty": "",
             "dot": ".", "dots": "..", "linked file": "x", "linked folder": "inner/x", "gone": "x",
             "folder": "x"}
    if fault in names:
        files[names[fault]] = config
    if fault == "below":
        (folder / "inner").mkdir()
        shutil.copy(folder / "config.json", folder / "inner/x")
    elif fault == "linked file":
        (folder / "x").symlink_to(tmp_path / "x")
    elif fault == "linked folder":
        (folder / "inner").symlink_to(tmp_path)
    elif fault == "folder":
        (folder / "x").mkdir()
    elif fault == "no files":
        manifest["files"] = {}
    elif fault == "no list":
        manifest["files"] = list(files)
    elif fault == "no object":
        manifest = list(files)
    elif fault == "no entry":
        files["config.json"] = 1
    elif fault == "bytes":
        config["bytes"] += 1
    elif fault == "digest":
        config["digest"] = config["digest"][:-1] + ("0" if config["digest"][-1] != "0" else "1")
    path.write_text(json.dumps(manifest) if fault != "no json" else "{")
    if fault == "linked manifest":
        path.rename(tmp_path / "manifest.json")
        path.symlink_to(tmp_path / "manifest.json")
    elif fault == "no manifest":
        path.unlink()
    said = messages(bmojo, "--resume", "--max-minutes", 0, "--out", run).splitlines()
    passed_over = f"skipping {folder}, which is not what its manifest says: {MANIFESTS[fault]}"
    assert said[0].startswith(passed_over), said
    assert f"{run}: goes on from step 1" in said
    assert losses(run) == losses(steps) and weights(run) == weights(steps)


@pytest.fixture(scope="module")
def steps(bmojo, tmp_path_factory):
    """A run of two steps, both saved."""
    run = tmp_path_factory.mktemp("steps") / "run"
    bmojo("train", *RECIPE, "--steps", 2, "--save-every", 1, "--eval-every", 0, "--out", run)
    return run


def test_a_run_that_was_killed_as_it_began(bmojo, tmp_path):
    bmojo("train", *RECIPE, "--steps", 1, "--out", tmp_path / "whole")
    run = tmp_path / "run"
    run.mkdir()
    (run / "lock").touch()
    shutil.copy(tmp_path / "whole/run.json", run)
    message = bmojo("train", "--resume", "--out", run, code=2)
    assert message.startswith("bmojo: --out: must be the folder of a run to resume, got '")
    assert message.endswith("' without run.toml; start it without --resume")
    bmojo("train", *RECIPE, "--steps", 1, "--out", run)
    assert losses(run) == losses(tmp_path / "whole")


def test_a_young_run_says_that_it_is(bmojo, tmp_path):
    """The disk was full at its first save."""
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 3, "--save-every", 1, "--eval-every", 0, "--out", run, code=1,
          file_limit=8000)
    for words in (["inspect", run], ["export", run, "--out", tmp_path / "exported"],
                  ["eval", "--model", run, *TASK], ["generate", "--model", run, "--ids", 1],
                  ["train", "--init-from", run, *TASK, "--out", tmp_path / "tuned"]):
        assert bmojo(*words, code=2) == (
            f"bmojo: {run}: must hold a checkpoint, got a run that has none yet"), words
    resume = ["--resume", "--out", run, "--max-minutes", 1e-9]
    assert f"{run}: no checkpoint yet, starts at step 0\n" in messages(bmojo, *resume)
    said = messages(bmojo, *resume)
    assert f"{run}: goes on from step 1\n" in said
    assert re.search(r"^\d:\d\d in this call, ", said, re.MULTILINE), said
    assert messages(bmojo, *resume, "--quiet") == ""


def test_the_best_is_none_of_the_steps_to_come(bmojo, tmp_path):
    """Back at a checkpoint from before the first validation."""
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 2, "--save-every", 1, "--eval-every", 2, "--out", run)
    assert (run / "best").resolve().name == "step-00000002"
    (run / "step-00000002/model.safetensors").write_bytes(b"")
    bmojo("train", "--resume", "--eval-every", 0, "--out", run, "--quiet")
    assert (run / "latest").resolve().name == "step-00000002" and not (run / "best").is_symlink()
