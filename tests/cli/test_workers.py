"""Two workers: the same run as one, the same bits every time, and an end that is always clean."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest
from training import TASK, TINY, but, losses, metrics, streams, weights

# Small steps of the weights: what rounding changes stays as small as it was.
RECIPE = [*TINY, *TASK, "--batch-tokens", 8 * 48, "--micro-batch", 2, "--lr", 1e-3, "--ssm-lr",
          1e-3, "--threads", 1, "--seed", 3, "--eval-tokens", 960, "--quiet"]
SHORT = [*RECIPE, "--steps", 20]
LONG_STEPS = 600
LONG = [*RECIPE, "--steps", LONG_STEPS, "--save-every", 20, "--eval-every", 1000]


@pytest.fixture(scope="module")
def two(bmojo, tmp_path_factory):
    """A short run of two workers."""
    run = tmp_path_factory.mktemp("workers") / "two"
    assert bmojo.json("train", *SHORT, "--workers", 2, "--out", run)["step"] == 20
    return run


def test_two_workers_train_as_one(bmojo, two, tmp_path):
    bmojo("train", *SHORT, "--out", tmp_path / "one")
    one = metrics(tmp_path / "one")
    assert [row["step"] for row in one] == list(range(1, 21))
    assert [row["tokens"] for row in metrics(two)] == [row["tokens"] for row in one]
    assert one[0]["loss"] != pytest.approx(one[-1]["loss"], rel=1e-3)  # it has learnt something
    for key in ("loss", "grad_norm", "grad_norm_ssm", "grad_norm_rest"):
        expected = [row[key] for row in one]
        assert [row[key] for row in metrics(two)] == pytest.approx(expected, rel=1e-5), key
    scored, expected = ([row["val_loss"] for row in rows if "val_loss" in row]
                        for rows in (metrics(two), one))
    assert expected and scored == pytest.approx(expected, rel=1e-5)


def test_two_workers_repeat_themselves_to_the_bit(bmojo, two, tmp_path):
    bmojo("train", *SHORT, "--workers", 2, "--out", tmp_path / "again")
    assert losses(tmp_path / "again") == losses(two)
    assert weights(tmp_path / "again") == weights(two)


def test_two_workers_resume_to_the_bit(bmojo, tmp_path, text):  # noqa: F811
    """Each worker's carried memories come back."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    recipe = [*streams(text), "--threads", 1, "--workers", 2, "--steps", 8]
    bmojo("train", *recipe, "--out", whole)
    bmojo("train", *recipe, "--max-minutes", 1e-9, "--out", parts)
    for name in ("state-0.safetensors", "state-1.safetensors"):
        assert (parts / "latest" / name).stat().st_size > 1000
    bmojo("train", "--resume", "--out", parts, "--max-minutes", 1e-9, "--quiet")
    assert len(losses(parts)) == 2
    bmojo("train", "--resume", "--out", parts, "--max-minutes", 0, "--quiet")
    assert losses(parts) == losses(whole) and weights(parts) == weights(whole)
    assert "workers must be 2" in bmojo("train", "--resume", "--out", parts, "--workers", 1, code=2)


def test_torchrun_starts_the_same_run(bmojo, two, tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torchrun needs torch's Python side")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               2, "--no-python", bmojo.folder / "bmojo-torch", "train", *SHORT, "--out", run]
    process = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    assert losses(run) == losses(two)
    assert weights(run) == weights(two)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_torchrun_on_two_machines(bmojo, two, tmp_path):
    """As docs/training.md has it, both of them here."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torchrun needs torch's Python side")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nnodes", 2,
               "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint",
               f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1", "--shutdown-timeout", 5,
               bmojo.folder / "bmojo-torch", "train", *SHORT, "--out", run]
    agents = [subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        errors = [agent.communicate(timeout=300)[1] for agent in agents]
    finally:
        for agent in agents:
            agent.terminate()  # passed on to its worker
            agent.wait()
    assert [agent.returncode for agent in agents] == [0, 0], errors
    assert losses(run) == losses(two)
    assert weights(run) == weights(two)


def test_workers_are_those_that_were_started(bmojo, tmp_path):
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    environment = {**os.environ, **place}
    message = bmojo("train", *SHORT, "--workers", 3, "--out", tmp_path / "run", code=2,
                    env=environment)
    assert message == "bmojo: --workers: must be as many as were started = 2, got 3; leave it out"
    assert not (tmp_path / "run").exists()
    bmojo("train", *SHORT, "--workers", 2, "--dry-run", env=environment)


@pytest.mark.parametrize("threads", ["8", None])
def test_threads_are_those_of_the_plan(bmojo, tmp_path, threads):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if threads:
        environment["OMP_NUM_THREADS"] = threads
    recipe = [*TINY, *TASK, "--batch-tokens", 8 * 48, "--steps", 2, "--eval-tokens", 48, "--workers",
              2, "--quiet"]
    plan = bmojo("train", *recipe, "--dry-run", env=environment)
    bmojo("train", *recipe, "--out", tmp_path / "run", env=environment)
    written = tomllib.loads((tmp_path / "run/run.toml").read_text())["threads"]
    assert re.search(rf"^workers +2 with {written} threads?$", plan, re.MULTILINE), (written, plan)


def ends_within_10_seconds(process):
    """Or within 20, where this process itself stood still for more than a second meanwhile."""
    start = before = time.monotonic()
    longest = 0
    while process.poll() is None:
        assert before - start < 60
        time.sleep(0.05)
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
    return before - start < (10 if longest < 1 else 20)


def test_a_mistake_is_said_once(bmojo, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("")
    start = time.monotonic()
    message = bmojo("train", *SHORT, "--workers", 2, "--out", tmp_path / "full", code=2)
    assert "new or empty" in message
    message = bmojo("train", *SHORT, "--workers", 3, "--out", tmp_path / "run", code=2)
    assert "--batch-tokens" in message
    assert time.monotonic() - start < 20
    assert not (tmp_path / "run").exists()


def workers_of(process):
    """{rank: process id} of the workers that a running `bmojo train` has started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue  # it has ended meanwhile
        ranks = [int(word[11:]) for word in words if word.startswith(b"BMOJO_RANK=")]
        if parent == process.pid and ranks:
            found[ranks[0]] = int(folder.name)
    return found


def is_running(process_id):
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def long_run(bmojo, tmp_path):
    """A run of two workers on its way, with a checkpoint: (process, workers, folder)."""
    run = tmp_path / "run"
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [str(word) for word in (bmojo.path, "train", *LONG, "--workers", 2, "--out", run)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")})
    while not (run / "latest").exists() and process.poll() is None:
        time.sleep(0.005)
    workers = workers_of(process)
    try:
        assert process.poll() is None, process.communicate()[1]
        assert workers.keys() == {0, 1}
        yield process, workers, run
    finally:
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while any(map(is_running, workers.values())) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(is_running, workers.values()))


def check_and_resume(bmojo, run):
    """The checkpoint is whole, and the run goes on from it to its end."""
    done = int((run / "latest").resolve().name.removeprefix("step-"))
    assert 0 < done < LONG_STEPS
    bmojo("inspect", run / "latest", "--verify")
    bmojo("train", "--resume", "--out", run, "--quiet")
    assert [step for step, _ in losses(run)] == list(range(1, LONG_STEPS + 1))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_worker_ends_the_run(bmojo, long_run, rank):
    process, workers, run = long_run
    os.kill(workers[rank], signal.SIGKILL)
    assert ends_within_10_seconds(process)
    out, error = process.communicate()
    assert process.returncode == 1 and out == ""
    assert error == f"bmojo: worker {rank} of 2 was lost (signal 9); the last checkpoint stays\n"
    assert not any(map(is_running, workers.values()))
    check_and_resume(bmojo, run)


def test_a_stuck_worker_does_not_keep_a_lost_run(long_run):
    process, workers, _ = long_run
    os.kill(workers[0], signal.SIGSTOP)
    os.kill(workers[1], signal.SIGKILL)
    assert ends_within_10_seconds(process)
    error = process.communicate()[1]
    assert process.returncode == 1
    assert error == "bmojo: worker 1 of 2 was lost (signal 9); the last checkpoint stays\n"


@pytest.mark.parametrize("told", ["all", "worker 1"])
def test_a_signal_saves_and_ends_both(bmojo, long_run, told):
    process, workers, run = long_run
    os.kill(process.pid if told == "all" else workers[1], signal.SIGTERM)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130, error
    assert error.count("\n") == 1 and "go on with --resume" in error
    assert not any(map(is_running, workers.values()))
    assert (run / "latest").resolve().name == f"step-{len(losses(run)):08}"
    check_and_resume(bmojo, run)


@pytest.mark.parametrize("told", ["all", "one"])
def test_a_signal_to_workers_that_are_starting(bmojo, tmp_path, told):
    process = subprocess.Popen(
        [bmojo.path, "train", *map(str, [*TINY, *TASK]), "--batch-tokens", "384", "--steps", "100000",
         "--workers", "2", "--threads", "1", "--quiet", "--out", tmp_path / "run"],
        stderr=subprocess.PIPE, text=True)
    try:
        while len(workers := workers_of(process)) < 2 and process.poll() is None:
            time.sleep(0.001)
        if told == "one":  # as soon as it hears
            while not int(re.search(r"SigCgt:\s*(\w+)", Path(
                    f"/proc/{workers[1]}/status").read_text())[1], 16) >> (signal.SIGTERM - 1) & 1:
                time.sleep(0.001)
        os.kill(process.pid if told == "all" else workers[1], signal.SIGTERM)
        error = process.communicate(timeout=60)[1]
        assert process.returncode == 130, error
        assert not any(map(is_running, workers.values()))
    finally:
        process.kill()


def test_workers_do_not_outlive_their_parent(long_run, tmp_path):
    process, workers, _ = long_run
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while any(map(is_running, workers.values())):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not list((tmp_path / "temporary").iterdir())


# --- on several machines -------------------------------------------------------------------------


@contextmanager
def by_hand(bmojo, *flags_of_each):
    """Workers that were not started by one process and only have an address in common."""
    place = {"WORLD_SIZE": str(len(flags_of_each)), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(free_port())}
    workers = [subprocess.Popen(
        [str(word) for word in (bmojo.folder / "bmojo-torch", "train", *flags)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **place, "RANK": str(rank)}) for rank, flags in enumerate(flags_of_each)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()  # also one that is stopped
            worker.wait()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_machine_that_vanishes_ends_the_run(bmojo, tmp_path, rank):
    """Stopped, it closes no connection: only its silence tells."""
    run, other = tmp_path / "run", 1 - rank
    with by_hand(bmojo, *[[*LONG, "--out", run]] * 2) as workers:
        while not (run / "latest").exists() and all(each.poll() is None for each in workers):
            time.sleep(0.005)
        workers[rank].send_signal(signal.SIGSTOP)
        # 7 s of silence after the last beat heard, which may be a second late; half a second
        # between two looks. A worker that stood still itself counts the silence anew.
        assert ends_within_10_seconds(workers[other])
        out, error = workers[other].communicate()
        assert workers[rank].poll() is None  # still there, and still
    assert workers[other].returncode == 1 and out == ""
    assert re.fullmatch(
        rf"bmojo: worker {other} of 2: lost (worker {rank}|the store of the workers) "
        r"\(silent for 7 s\); the last checkpoint stays\n", error), error
    check_and_resume(bmojo, run)


def test_workers_that_all_stood_still_are_not_lost(bmojo, tmp_path):
    """As on a laptop that slept: whoever did not run himself has heard nobody."""
    run = tmp_path / "run"
    with by_hand(bmojo, *[[*LONG, "--out", run]] * 2) as workers:
        while not (run / "latest").exists() and all(each.poll() is None for each in workers):
            time.sleep(0.005)
        for sent, pause in ((signal.SIGSTOP, 10), (signal.SIGCONT, 0)):
            for each in workers:
                each.send_signal(sent)
            time.sleep(pause)
        for each in workers:
            assert each.wait(timeout=120) == 0, each.communicate()[1]
    assert len(losses(run)) == LONG_STEPS


@pytest.mark.parametrize("unlike", ["seed", "text"])
def test_workers_must_be_alike(bmojo, tmp_path, text, unlike):  # noqa: F811
    if unlike == "seed":
        recipes = [but(SHORT, "--seed", seed) for seed in (1, 2)]
    else:
        (tmp_path / "loud").mkdir()
        for path in (tmp_path / "text").iterdir():
            (tmp_path / "loud" / path.name).write_text(path.read_text().upper())
        bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / "shouts", tmp_path / "loud")
        recipes = [[*streams(data), "--threads", 1, "--steps", 3]
                   for data in (text, tmp_path / "shouts")]
    with by_hand(bmojo, *[[*recipe, "--out", tmp_path / "run"] for recipe in recipes]) as workers:
        errors = [worker.communicate(timeout=60)[1] for worker in workers]
    codes = [worker.returncode for worker in workers]
    assert 2 in codes and set(codes) <= {1, 2}, errors
    for code, error in zip(codes, errors):
        assert error.startswith("bmojo: ") and error.count("\n") == 1
        assert code == 1 or "differs" in error, error
    assert not (tmp_path / "run").exists()
