"""`bmojo train --resume`: unbroken to the bit, and what is refused."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import pytest
from conftest import SMALL
from training import (MODEL, RECIPE, TASK, TINY, but, carried, contents, losses, metrics, streams,
                      weights)


def test_resumed_is_unbroken_to_the_bit(bmojo, tmp_path, text):
    for name, recipe in (("task", RECIPE), ("stream", streams(text)),
                         ("recompute", [*streams(text), "--recompute"])):
        whole, parts = tmp_path / f"{name}-whole", tmp_path / f"{name}-parts"
        recipe = [*recipe, "--steps", 14, "--eval-every", 5]
        bmojo("train", *recipe, "--out", whole)
        bmojo("train", *recipe, "--save-every", 4, "--max-minutes", 1e-9, "--out", parts)
        assert len(losses(parts)) == 1
        for _ in range(3):  # a step each
            bmojo("train", "--resume", "--out", parts, "--max-minutes", 1e-9, "--quiet")
        assert len(losses(parts)) == 4
        # A kill after the checkpoint of step 4: later lines are cut and written again, the same.
        with open(parts / "metrics.jsonl", "a") as file:
            file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
        bmojo("train", "--resume", "--out", parts, "--max-minutes", 0, "--quiet")
        assert losses(parts) == losses(whole)
        assert weights(parts) == weights(whole)
        assert [r.get("val_loss") for r in metrics(parts)] == [r.get("val_loss") for r in metrics(whole)]


def test_a_signal_saves_and_exits_130(bmojo, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    recipe = [*RECIPE, "--steps", 1000, "--eval-every", 2000]
    bmojo("train", *recipe, "--out", whole)
    for sent in (signal.SIGINT, signal.SIGTERM):
        resume = ["--resume"] if run.exists() else []
        process = subprocess.Popen(
            [bmojo.path, "train", *map(str, [] if resume else recipe), "--out", run, *resume],
            stderr=subprocess.PIPE)
        before = len(losses(run)) if resume else 0
        while process.poll() is None and (
                not (run / "metrics.jsonl").exists()
                or (run / "metrics.jsonl").read_bytes().count(b"\n") < before + 3):
            time.sleep(0.02)
        process.send_signal(sent)
        error = process.communicate(timeout=60)[1].decode()
        assert process.returncode == 130, error
        assert "go on with --resume" in error
        assert (run / "latest").resolve().name == f"step-{len(losses(run)):08}"
    bmojo("train", "--resume", "--out", run, "--quiet")
    assert losses(run) == losses(whole) and weights(run) == weights(whole)


def read_or_end(terminal):
    """What a terminal shows; nothing once the last writer is gone."""
    try:
        return os.read(terminal, 65536).decode()
    except OSError:
        return ""


def test_a_signal_does_not_wait_for_a_long_step(bmojo, tmp_path, text):
    """Steps of many micro-batches, two of them left in their middle: the memories of before are
    saved."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    recipe = but(streams(text), "--segment", 64, "--bptt", 4, "--batch-tokens", 256 * 512,
                 "--micro-batch", 1, "--threads", 1, "--steps", 2, "--eval-every", 2)
    recipe.remove("--quiet")
    bmojo("train", *recipe, "--quiet", "--out", whole)
    for done in (0, 1):
        # On a terminal a line comes every 0.1 s: "step 1/2 + 7 %  …"
        terminal, theirs = os.openpty()
        process = subprocess.Popen(
            [bmojo.path, "train", *map(str, ["--resume"] if done else recipe), "--out", run],
            stderr=theirs, env=os.environ | {"TERM": "xterm"})
        os.close(theirs)
        error = ""
        try:
            while f"step {done}/2 + " not in error:
                error += os.read(terminal, 65536).decode()
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)
            while part := read_or_end(terminal):
                error += part
        finally:
            process.kill()
            process.wait()
            os.close(terminal)
        assert process.returncode == 130 and "go on with --resume" in error, error
        if done:
            assert losses(run) == losses(whole)[:1]
            assert (run / "latest").resolve().name == "step-00000001"
        else:
            assert not (run / "metrics.jsonl").exists()
            assert [path.name for path in run.glob("step-*")] == ["step-00000000"]
    bmojo("train", "--resume", "--out", run, "--quiet")
    assert losses(run) == losses(whole) and weights(run) == weights(whole)
    assert carried(run) == carried(whole)


def test_resume_refuses_another_run(bmojo, tmp_path, text):
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 3, "--out", run)
    before = contents(run)

    def refused(*flags):
        return bmojo("train", "--resume", "--out", run, *flags, code=2)

    assert "lr must be 0.01" in refused("--lr", 2e-2)
    assert "steps must be 3" in refused("--steps", 9)
    assert "seed must be 0" in refused("--seed", 1)
    assert "workers must be 1" in refused("--workers", 2)
    assert "set must be" in refused("--set", "hidden_size=32")
    assert "threads must be" in refused("--threads", 3)
    assert "task must be" in refused("--task", "mqar:pairs=3,length=48,vocab=40")
    (tmp_path / "other.json").write_text(bmojo("config", *TINY))
    for other in (["--config", tmp_path / "other.json"], ["--init-from", run]):
        assert refused(*other) == (f'bmojo: --resume: model must be "by --preset", as {run} was '
                                   f'started, got "by {other[0]}"; to change it, start anew in another --out')
    assert contents(run) == before
    # The data has changed under the run.
    stream = tmp_path / "stream"
    bmojo("train", *streams(text), "--steps", 2, "--out", stream)
    (tmp_path / "other.txt").write_text("another text " * 4000)
    shutil.rmtree(text)
    bmojo("tokenize", "--tokenizer", "bytes", "--out", text, tmp_path / "other.txt")
    assert "data must be" in bmojo("train", "--resume", "--out", stream, code=2)


def test_a_dry_run_refuses_what_the_run_would(bmojo, tmp_path):
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 2, "--out", run)
    toml = run / "run.toml"
    before = toml.read_text()
    toml.write_text(re.sub(r"(?m)^lr = .*$", "lr = 0.5", before))
    for dry in (["--dry-run"], []):
        message = bmojo("train", "--resume", *dry, "--out", run, code=2)
        assert re.search(r"\blr must be 0.01\b.*got 0.5", message), message
    toml.write_text(before)
    record = json.loads((run / "run.json").read_text())
    record["config"]["window"] += 1
    (run / "run.json").write_text(json.dumps(record))
    for dry in (["--dry-run"], []):
        assert "window must be 16" in bmojo("train", "--resume", *dry, "--out", run, code=2)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_step_exits_130(bmojo, tmp_path, sent):
    """The log of file changes is a pipe that is full: the program waits there before it makes the
    run's folder."""
    run, log = tmp_path / "run", tmp_path / "log"
    os.mkfifo(log)
    pipe = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    process = subprocess.Popen([bmojo.path, "train", *map(str, RECIPE), "--steps", "3", "--out", run],
                               env={**os.environ, "BMOJO_FILE_LOG": str(log)})
    try:
        while process.poll() is None and log not in open_files(process):
            time.sleep(0.01)
        process.send_signal(sent)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        os.close(pipe)
    assert not run.exists()


def open_files(process):
    files = []
    for name in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            files.append(name.readlink())
    return files


def test_resume_refuses_a_model_that_was_edited(bmojo, tmp_path):
    run, file = tmp_path / "run", tmp_path / "model.json"
    file.write_text(bmojo("config", *TINY))
    bmojo("train", "--config", file, *RECIPE[len(TINY):], "--steps", 3, "--out", run)
    bmojo("train", "--resume", "--out", run, "--quiet")
    before = contents(run)
    # By any name: what it holds counts.
    same, other = shutil.copy(file, tmp_path / "same.json"), tmp_path / "other.json"
    bmojo("train", "--resume", "--config", same, "--out", run, "--quiet")
    assert "file must exist" in bmojo("train", "--resume", "--config", other, "--out", run, code=2)
    other.write_text(bmojo("config", *but(TINY, "--set", "hidden_size=24")))
    for given in (["--config", other], []):
        assert "hidden_size must be 16" in bmojo("train", "--resume", *given, "--out", run, code=2)
        shutil.copy(other, file)
    assert contents(run) == before


@pytest.mark.parametrize("changed", ["config", "weights", "seed", "data", None])
def test_resume_before_the_first_checkpoint(bmojo, tmp_path, text, changed):
    """A full disk ended the run at its first save: run.json knows what it was started with."""
    whole, run, file, weights_ = (tmp_path / name for name in ("whole", "run", "a.json", "weights"))
    model = [*TINY, "--set", "vocab_size=257"]
    file.write_text(bmojo("config", *model))
    bmojo("init", *model, "--out", weights_)
    start = ["--init-from", weights_] if changed in ("weights", "seed") else ["--config", file]
    recipe = [*start, *streams(text)[len(TINY):], "--steps", 4, "--save-every", 2, "--eval-every",
              100]
    assert "writing failed" in bmojo("train", *recipe, "--out", run, code=1, file_limit=8000)
    assert not list(run.glob("step-*"))
    if not changed:
        file.unlink()  # nobody needs it any more
        bmojo("train", "--resume", "--out", run, "--quiet")
        file.write_text(bmojo("config", *model))
        bmojo("train", *recipe, "--out", whole)
        assert losses(run) == losses(whole) and weights(run) == weights(whole)
        return
    before = contents(run)
    other = but(model, "--set", "hidden_size=24")
    if changed == "config":
        file.write_text(bmojo("config", *other))
    elif changed in ("weights", "seed"):
        shutil.rmtree(weights_)
        bmojo("init", *(other if changed == "weights" else model), "--seed", 1, "--out", weights_)
        bmojo("train", "--resume", "--out", run, "--dry-run", code=2)
    else:
        shutil.rmtree(text)
        (tmp_path / "other.txt").write_text("another text " * 4000)
        bmojo("tokenize", "--tokenizer", "bytes", "--out", text, tmp_path / "other.txt")
    message = bmojo("train", "--resume", "--out", run, code=2)
    if changed in ("seed", "data"):
        what = "data" if changed == "data" else "weights"
        assert re.fullmatch(rf'bmojo: --resume: {what} must be "xxh3-128:\w+", as '
                            rf'{re.escape(str(run))} was started, got "xxh3-128:\w+"; to change it, start anew in '
                            'another --out', message), message
    else:
        assert message == (f"bmojo: --resume: hidden_size must be 16, as {run} was started, got 24; to "
                           "change it, start anew in another --out")
    assert contents(run) == before


def test_weights_may_change_behind_the_first_checkpoint(bmojo, tmp_path, small):
    run, moved = tmp_path / "run", tmp_path / "moved"
    recipe = ["--init-from", small, *TASK, "--batch-tokens", 8 * 48, "--steps", 2, "--quiet"]
    bmojo("train", *recipe, "--max-minutes", 1e-9, "--out", run)
    small.rename(moved)
    bmojo("init", *SMALL, "--seed", 1, "--out", small)
    bmojo("train", "--resume", "--init-from", moved, "--max-minutes", 1e-9, "--out", run, "--dry-run")
    bmojo("train", "--resume", "--max-minutes", 0, "--out", run, "--quiet")
    shutil.copytree(small, other := tmp_path / "other")
    assert "weights must be" in bmojo("train", "--resume", "--init-from", other, "--out", run, code=2)


@pytest.mark.parametrize("has_record", [True, False], ids=["run.json", "of before"])
def test_an_older_damaged_checkpoint_is_in_nobodys_way(bmojo, tmp_path, has_record):
    run = tmp_path / "run"
    one_step = ["--max-minutes", 1e-9, "--quiet", "--out", run]
    bmojo("train", *RECIPE, "--steps", 3, "--keep", 0, "--eval-every", 100, *one_step)
    bmojo("train", "--resume", *one_step)
    (run / "step-00000001/config.json").write_text("{")
    if not has_record:  # nor did run.toml leave out what the steps say
        (run / "run.json").unlink()
        (run / "run.toml").write_text((run / "run.toml").read_text() + "tokens = 0\n")
    bmojo("train", "--resume", "--out", run, "--max-minutes", 0, "--quiet")
    assert len(losses(run)) == 3


def test_the_same_command_resumes(bmojo, tmp_path):
    """With --resume added: by flags or by a run file, lists and tokens in the place of steps."""
    flags = [*RECIPE, "--tokens", 1500]
    fields = json.dumps(MODEL.split())
    (tmp_path / "recipe.toml").write_text(
        f'preset = "bmojo-tiny"\nset = {fields}\ntask = "{TASK[1]}"\nbatch_tokens = 384\n'
        "tokens = 1_500  # four steps\n")
    by_file = ["--run", tmp_path / "recipe.toml", "--set", "window=12", "--quiet"]
    for name, words in (("flags", flags), ("endless", [*flags, "--context", 0]), ("file", by_file)):
        run = tmp_path / name
        bmojo("train", *words, "--max-minutes", 1e-9, "--out", run)
        assert len(losses(run)) == 1
        more = bmojo("train", *but(words, "--tokens", 5000), "--resume", "--out", run, code=2)
        assert "--resume: steps must be 4" in more
        bmojo("train", *words, "--resume", "--max-minutes", 0, "--out", run)
        assert len(losses(run)) == 4
    assert bmojo.json("inspect", tmp_path / "file")["config"]["window"] == 12
    # What differs is said, not the whole list.
    assert bmojo("train", "--resume", "--set", "hidden_size=32", "--out", run, code=2) == (
        f'bmojo: --resume: set must be "hidden_size=16" in place 1, as {run} was started, got '
        '"hidden_size=32"; to change it, start anew in another --out')


def test_a_run_resumes_from_any_folder(bmojo, tmp_path, text):
    (tmp_path / "elsewhere").mkdir()
    text.rename(tmp_path / 'odd "name" \\n #1')
    (tmp_path / "model.json").write_text(bmojo("config", *TINY, "--set", "vocab_size=257"))
    flags = ["--config", "model.json", *streams('odd "name" \\n #1/')[len(TINY):], "--steps", 3]
    bmojo("train", *flags, "--max-minutes", 1e-9, "--out", "run", cwd=tmp_path)
    bmojo("train", "--resume", "--out", tmp_path / "run", "--max-minutes", 1e-9, "--quiet",
          cwd=tmp_path / "elsewhere")
    assert len(losses(tmp_path / "run")) == 2
    bmojo("train", *flags, "--resume", "--max-minutes", 0, "--out", "run", cwd=tmp_path)
    assert len(losses(tmp_path / "run")) == 3
    started = tomllib.loads((tmp_path / "run/run.toml").read_text())
    assert started["config"] == f"{tmp_path}/model.json"
    assert started["data"] == [f'{tmp_path}/odd "name" \\n #1']
