"""What is on the disk when a file gets its name; disks that are full, that fail, or that lose what
is being read; programs that are killed or told twice to end.

BMOJO_FILE_LOG=FILE lists every change of the file system, BMOJO_FAIL_AT=N fails the N-th of them
with EIO."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SMALL, listing
from test_kill import check_same
from training import RECIPE, TASK, TINY, but, losses, streams, weights

NO_ROOM, FAILED = "No space left on device", "Input/output error"
CUT_SHORT = "reading failed: the file was cut short while in use, or its disk has failed"


@pytest.fixture
def recipe(text):
    """Two steps that are saved, with memories that are carried."""
    return but(streams(text), "--set", "num_layers=1", "--threads", 1, "--steps", 2,
               "--save-every", 1, "--eval-every", 2, "--keep", 1)


def logged_to(log):
    return {**os.environ, "BMOJO_FILE_LOG": str(log)}


def failing_at(call):
    return {**os.environ, "BMOJO_FAIL_AT": str(call)}


def changes(log):
    """[(what, path, new path)] of every call, in order."""
    fields = (line.split("\t") for line in log.read_text().splitlines())
    return [(what, Path(path), Path(to)) for what, path, to in fields]


# --- the order of writes, flushes and names ------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(bmojo, tmp_path, recipe, workers):
    run, log = tmp_path / "run", tmp_path / "log"
    bmojo("train", *but(recipe, "--workers", workers, "--keep", 0), "--out", run, env=logged_to(log))
    done = changes(log)

    def places(*change):
        return [i for i, each in enumerate(done) if each[: len(change)] == change]

    for step in ("step-00000001", "step-00000002"):
        partial, folder = run / f"{step}.partial", run / step
        named = done.index(("rename", partial, folder))
        files = listing(folder)
        assert "manifest.json" in files and f"state-{workers - 1}.safetensors" in files
        for file in files:
            temporary, place = next((path, i) for i, (what, path, to) in enumerate(done)
                                    if what == "rename" and to == partial / file)
            assert max(places("write", temporary)) < max(places("flush", temporary)) < place
            assert any(place < i < named for i in places("flush", partial)), file
        # What the folder holds was complete when it was flushed.
        last = max(i for i in places("flush", partial) if i < named)
        assert last == named - 1
        assert done[named + 1][:2] == ("flush", run)
        # So were the losses up to this step, and the links follow.
        lines = run / "metrics.jsonl"
        assert any(max(i for i in places("write", lines) if i < named) < i < named
                   for i in places("flush", lines))
    for link, step in (("latest", 2), ("best", 2)):
        linked = [i for i, (what, _, to) in enumerate(done) if (what, to) == ("rename", run / link)]
        assert max(linked) > places("rename", run / f"step-{step:08}.partial")[0] + 1
        assert all(done[i + 1][:2] == ("flush", run) for i in linked)


# --- a disk that is full -------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if not shutil.which("mount"):
        pytest.skip("a file system of 4 MB is needed, and there is no mount(8)")
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a file system of 4 MB is needed, got: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_checkpoint_that_fills_the_disk(bmojo, tmp_path, small_disk):
    """Each takes 1.6 MB: the third finds no room."""
    fields = ("hidden_size=64", "ssm_inner_size=96", "mlp_size=192", "num_layers=2")
    flags = but([*TINY, *TASK], *(word for field in fields for word in ("--set", field)),
                "--batch-tokens", 8 * 48, "--steps", 3, "--save-every", 1, "--keep", 0,
                "--eval-every", 0, "--quiet")
    whole, run = tmp_path / "whole", small_disk / "run"
    bmojo("train", *flags, "--out", whole)
    size = sum(path.stat().st_size for path in (whole / "step-00000001").iterdir())
    assert 2 * size < 3.9e6 < 3 * size
    message = bmojo("train", *flags, "--out", run, code=1)
    assert message.startswith(f"bmojo: {run}/step-00000003.partial/"), message
    assert message.endswith(f" failed: {NO_ROOM}"), message
    assert sorted(path.name for path in run.glob("step-*")) == ["step-00000001", "step-00000002"]
    assert (run / "latest").resolve().name == "step-00000002"
    assert bmojo("eval", "--model", run, *TASK, "--quiet")
    shutil.rmtree(run / "step-00000001")
    bmojo("train", "--resume", "--out", run, "--quiet")
    assert losses(run) == losses(whole) and weights(run) == weights(whole)


@pytest.mark.parametrize("verb", ["init", "export", "tokenize"])
def test_a_full_disk_ends_in_one_line(bmojo, tmp_path, small_disk, verb):
    (tmp_path / "text.txt").write_bytes(bytes(100_000))
    bmojo("init", *SMALL, "--out", tmp_path / "small")
    words = {"init": ["init", *SMALL], "export": ["export", tmp_path / "small"],
             "tokenize": ["tokenize", "--tokenizer", "bytes", tmp_path / "text.txt"]}[verb]
    with open(small_disk / "ballast", "wb", buffering=0) as file:
        with pytest.raises(OSError, match=NO_ROOM):
            while True:
                file.write(bytes(4096))
    message = bmojo(*words, "--out", small_disk / "out", code=1)
    ending = " of free disk, got 0 B" if verb == "init" else NO_ROOM  # init looks before it begins
    assert message.startswith(f"bmojo: {small_disk}/out") and message.endswith(ending), message
    assert listing(small_disk) == ["ballast"]
    (small_disk / "ballast").unlink()
    bmojo(*words, "--out", small_disk / "out")
    assert listing(small_disk) == ["out"]


# --- a disk that fails ---------------------------------------------------------------------------


def test_a_disk_that_fails_at_any_call_of_a_save(bmojo, tmp_path, recipe):
    """The second of two steps, from the resume to the last link."""
    whole, left, log = tmp_path / "whole", tmp_path / "left", tmp_path / "log"
    bmojo("train", *recipe, "--out", whole)
    bmojo("train", *recipe, "--max-minutes", 1e-9, "--out", left)
    resume = ["--resume", "--max-minutes", 0, "--quiet"]

    def copy(name):
        return shutil.copytree(left, tmp_path / name, symlinks=True)

    bmojo("train", *resume, "--out", copy("counted"), env=logged_to(log))
    calls = changes(log)
    assert {what for what, *_ in calls} == {"create", "write", "flush", "rename", "remove"}

    def fail_at(call):
        run = copy(f"fail-{call}")
        message = bmojo("train", *resume, "--out", run, code=1, env=failing_at(call))
        assert message.endswith(f" failed: {FAILED}"), message
        assert not list(run.glob("*.partial")) and not list(run.glob("*.tmp-*")), call
        latest = run / "latest"
        for name, stored in json.loads((latest / "manifest.json").read_text())["files"].items():
            assert (latest / name).stat().st_size == stored["bytes"]
        if call % 4 == 0:  # each of them takes as long as the failure itself
            bmojo("train", *resume, "--out", run)
            check_same(run, whole)
        shutil.rmtree(run)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fail_at, range(1, len(calls) + 1)))


def test_a_disk_that_fails_at_any_call_of_init(bmojo, tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    bmojo("init", *SMALL, "--out", tmp_path / "whole", env=logged_to(log))
    *calls, last = range(1, len(changes(log)) + 1)
    for call in calls:
        message = bmojo("init", *SMALL, "--out", out, code=1, env=failing_at(call))
        assert message.startswith(f"bmojo: {out}"), message
        assert message.endswith(f" failed: {FAILED}"), message
        assert listing(tmp_path) == ["log", "whole"]
    # The last one flushes the name of what is whole.
    assert FAILED in bmojo("init", *SMALL, "--out", out, code=1, env=failing_at(last))
    bmojo("inspect", out, "--verify")


# --- what a kill leaves behind -------------------------------------------------------------------


def test_the_next_run_removes_what_a_killed_one_left(bmojo, tmp_path):
    """Killed at each call of `init`."""
    out, left = tmp_path / "out", 0
    words = [bmojo.path, "init", *SMALL, "--out", out]
    for call in range(1, 100):
        process = subprocess.run(words, env={**os.environ, "BMOJO_KILL_AT": str(call)},
                                 capture_output=True)
        if process.returncode == 0:
            break
        left += any(".tmp-" in name for name in listing(tmp_path))
        if out.exists():  # killed when it was done
            shutil.rmtree(out)
    assert left > 5 and listing(tmp_path) == ["out"]


# --- files that are cut short while they are read ------------------------------------------------


def start(*words, **options):
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


def wait_until(condition, process):
    while not condition() and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()


def is_mapped(path, process):
    return str(path) in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_data_that_is_cut_short_ends_a_training(bmojo, tmp_path, text, recipe, workers):
    run, shard = tmp_path / "run", text / "shard-00000.tokens"
    flags = ["--steps", 100_000, "--workers", workers, "--out", run]
    process = start(bmojo.path, "train", *but(recipe, *flags))
    wait_until(lambda: (run / "latest").exists(), process)
    whole = shard.read_bytes()
    os.truncate(shard, 0)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    # Whichever worker reads first.
    assert error.replace("worker 1 of 2: ", "") == f"bmojo: {shard}: {CUT_SHORT}\n"
    shard.write_bytes(whole)
    done = len(losses(run))
    bmojo("train", "--resume", "--max-minutes", 1e-9, "--out", run, "--quiet")
    assert 1 <= len(losses(run)) <= done + 1


def test_weights_that_are_cut_short_end_a_scoring(bmojo, small):
    process = start(bmojo.path, "score", "--model", small, "--ids", "-", stdin=subprocess.PIPE)
    wait_until(lambda: is_mapped(small / "model.safetensors", process), process)
    os.truncate(small / "model.safetensors", 0)
    out, error = process.communicate('{"ids": [1, 2, 3]}\n', timeout=60)
    assert (process.returncode, out) == (1, "")
    assert error == f"bmojo: {small}/model.safetensors: {CUT_SHORT}\n"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_weights_that_are_cut_short_end_an_export(bmojo, tmp_path, small, dtype):
    """They are copied or converted; a log that nobody reads holds it where it begins to write."""
    os.mkfifo(tmp_path / "log")
    process = start(bmojo.path, "export", small, "--out", tmp_path / "out", "--dtype", dtype,
                    env=logged_to(tmp_path / "log"))
    wait_until(lambda: is_mapped(small / "model.safetensors", process), process)
    os.truncate(small / "model.safetensors", 0)
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    out, error = process.communicate(timeout=60)
    os.close(reader)
    assert (process.returncode, out) == (1, "")
    assert error == f"bmojo: {small}/model.safetensors: {CUT_SHORT}\n"
    assert not (tmp_path / "out").exists()


# --- a second Ctrl-C ------------------------------------------------------------------------------


LONG = [*RECIPE, "--steps", 3, "--save-every", 1, "--eval-every", 2, "--eval-tokens", 1_000_000]


def start_long_step(bmojo, run, *flags):
    """A training in its second step, which validates for many seconds, with the first one saved. It
    has a group of its own, as in a terminal."""
    process = subprocess.Popen([bmojo.path, "train", *map(str, [*LONG, *flags, "--out", run])],
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and not (run / "latest").exists():
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("told", ["group", "process"])
def test_a_second_signal_does_not_wait_at_all(bmojo, tmp_path, workers, told):
    run = tmp_path / "run"
    process = start_long_step(bmojo, run, "--workers", workers, "--threads", 1)
    tell = os.killpg if told == "group" else os.kill
    try:
        tell(process.pid, signal.SIGINT)
        time.sleep(1)  # sooner, it might be an echo of the first
        assert process.poll() is None, process.communicate()
        tell(process.pid, signal.SIGINT)
        second = time.monotonic()
        error = process.communicate(timeout=120)[1]
        waited = time.monotonic() - second
    finally:
        process.kill()
    assert (process.returncode, error) == (130, "")  # nothing was saved
    assert [step for step, _ in losses(run)] == [1]
    with pytest.raises(ProcessLookupError):  # no worker is left
        os.killpg(process.pid, 0)
    assert (run / "latest").resolve().name == "step-00000001"
    bmojo("inspect", run / "latest", "--verify")
    begun = time.monotonic()
    bmojo("train", "--resume", "--max-minutes", 1e-9, "--out", run, "--quiet")
    # The same step, whole: the signal came near its beginning.
    assert waited < (time.monotonic() - begun) / 2
    assert [step for step, _ in losses(run)] == [1, 2]


def test_a_signal_to_all_workers_is_heard_once(bmojo, tmp_path):
    """From the terminal, and passed on by the process that has started them however much later."""
    run = tmp_path / "run"
    process = start_long_step(bmojo, run, "--threads", 1)
    try:
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        ctypes.CDLL(None).sigqueue(process.pid, signal.SIGINT, None)
        error = process.communicate(timeout=240)[1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == "bmojo: interrupted at step 2, saved; go on with --resume\n"
