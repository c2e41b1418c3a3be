"""Evaluation on the torch-free engine: the same numbers as through torch, and with torch nowhere."""

import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import SMALL
from training import but

TASK = "mqar:pairs=4,length=96,vocab=40,gap=16"
FAMILIES = ["bmojo", "bmojo-f", "mamba", "transformer", "hybrid"]


def small_of(bmojo, family, out, *more):
    """A checkpoint of a family with the vocabulary of the tasks here."""
    bmojo("init", "--preset", f"{family}-tiny", "--set", "vocab_size=40", "--set", "num_layers=2", *more, "--out", out)
    return out


def needs_torch(bmojo):
    if not (bmojo.folder / "bmojo-torch").exists():
        pytest.skip("built without torch")


@pytest.mark.parametrize("family", FAMILIES)
def test_tasks_score_as_with_torch(bmojo, tmp_path, family):
    needs_torch(bmojo)
    model = small_of(bmojo, family, tmp_path / "m")
    flags = ["eval", "--model", model, "--task", TASK, "--sequences", 40]
    if family != "mamba":
        flags += ["--set", "window=16"]
    native, torch = bmojo.json(*flags), bmojo.json(*flags, "--engine", "torch")
    assert native["accuracy"] == torch["accuracy"] and native["held"] == torch["held"]
    assert native["loss"] == pytest.approx(torch["loss"], abs=1e-5)
    assert {key: native[key] for key in ("task", "answers", "length")} == {
        key: torch[key] for key in ("task", "answers", "length")}


def test_an_oracle_and_other_sizes_score_as_with_torch(bmojo, tmp_path):
    needs_torch(bmojo)
    model = small_of(bmojo, "bmojo", tmp_path / "m", "--set", "eidetic_rule=oracle")
    for size in (2, 8):
        flags = ["eval", "--model", model, "--task", TASK, "--sequences", 20, "--set", "window=8",
                 "--set", f"eidetic_tokens={size}", "--set", "fading_tokens=5"]
        native, torch = bmojo.json(*flags), bmojo.json(*flags, "--engine", "torch")
        assert native["held"] == torch["held"] == [min(1, size / 4)] * 2
        assert native["accuracy"] == torch["accuracy"]
        assert native["loss"] == pytest.approx(torch["loss"], abs=1e-5)


def test_data_scores_as_with_torch(bmojo, tmp_path, text):
    needs_torch(bmojo)
    model = tmp_path / "m"
    bmojo("init", "--preset", "bmojo-tiny", "--set", "vocab_size=257", "--set", "num_layers=2",
          "--set", "window=16", "--out", model)
    flags = ["eval", "--model", model, "--data", text]
    native, torch = bmojo.json(*flags), bmojo.json(*flags, "--engine", "torch")
    assert native["tokens"] == torch["tokens"]
    for key in ("loss", "bits_per_byte"):
        assert native[key] == pytest.approx(torch[key], abs=1e-5)
    assert [row["tokens"] for row in native["by_position"]] == [
        row["tokens"] for row in torch["by_position"]]
    for ours, theirs in zip(native["by_position"], torch["by_position"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)  # of few tokens


def test_the_batch_and_the_threads_change_nothing(bmojo, small):
    flags = ["eval", "--model", small, "--task", TASK, "--sequences", 10]
    whole = bmojo.json(*flags, "--batch", 10, "--threads", 2)
    for batch, threads in ((1, 1), (3, 2), (16, 1)):
        other = bmojo.json(*flags, "--batch", batch, "--threads", threads)
        # Sums over sequences are added batch by batch.
        assert other.pop("loss") == pytest.approx(whole["loss"], rel=1e-14)
        assert other == {key: value for key, value in whole.items() if key != "loss"}


def test_torch_is_not_needed(bmojo, tmp_path, small):
    """The program alone evaluates and explains."""
    (tmp_path / "bin").mkdir()
    shutil.copy(bmojo.path, tmp_path / "bin/bmojo")
    alone = type(bmojo)(tmp_path / "bin")
    flags = ["--model", small, "--task", TASK]
    assert alone.json("eval", *flags, "--sequences", 2)["answers"] == 8
    assert len(alone.json("explain", *flags)["answers"]) == 4
    for verb, flag in (("eval", ["--engine", "torch"]), ("explain", ["--realization"])):
        assert "needs bmojo-torch beside bmojo" in alone(verb, *flags, *flag, code=2)


@pytest.mark.skipif(bool(os.environ.get("BMOJO_SANITIZE")), reason="a sanitizer has its own malloc")
def test_a_million_tokens_are_read_in_little_memory(bmojo, tmp_path):
    """The task's sequence takes 24 bytes a token; what the model adds does not grow with it."""
    bmojo("init", *but(SMALL, "--set", "window=64", "--set", "vocab_size=16"), "--out", tmp_path / "m")

    def peak(length):
        task = f"induction:length={length},vocab=16"
        command = [bmojo.path, "eval", "--model", tmp_path / "m", "--task", task, "--sequences", "1",
                   "--json", "--quiet"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        result = json.loads(child.stdout.read())
        assert result["answers"] == 1 and result["length"] == length
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        return 1024 * usage.ru_maxrss

    short, long = 4096, 1048576
    assert peak(long) - peak(short) < 24 * (long - short) + 8e6


def test_people_read_accuracy_and_loss(bmojo, small):
    text = bmojo("eval", "--model", small, "--task", TASK, "--sequences", 4)
    assert re.match(r"mqar:.*\naccuracy [\d.]+ % of 16 answers, loss \d\.\d{4}\n", text)
