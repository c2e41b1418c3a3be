"""`bmojo train` as a user sees it: files, resuming to the bit, refusals."""

import fcntl
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import termios
import time
import tomllib

import numpy as np
import pytest
import sentencepiece
from conftest import (MAMBA, MISTRAL, SMALL, hugging_face_shapes, read_safetensors,
                      write_hugging_face)
from test_malformed import ABSENT, NORM, replace_tensor, truncate

MODEL = """hidden_size=16 num_layers=2 ssm_inner_size=12 ssm_state_size=3 ssm_dt_rank=2 num_heads=2
num_kv_heads=1 head_size=8 window=16 fading_tokens=3 eidetic_tokens=6 mlp_size=20"""
TINY = ["--preset", "bmojo-tiny", *(w for f in MODEL.split() for w in ("--set", f))]
TASK = ["--task", "mqar:pairs=4,length=48,vocab=40,gap=8"]
RECIPE = [*TINY, *TASK, "--batch-tokens", 8 * 48, "--lr", 1e-2, "--ssm-lr", 1e-2, "--quiet"]
OVERHEADS = ("read_seconds", "log_seconds", "save_seconds")
# Activations of many tokens, far above what the program holds anyway.
WIDE = """hidden_size=256 num_layers=3 ssm_inner_size=256 ssm_dt_rank=16 num_heads=4 num_kv_heads=2
head_size=64 window=64 mlp_size=512"""


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run):
    return [(row["step"], row["loss"]) for row in metrics(run)]


def weights(run):
    return (run / "latest/model.safetensors").read_bytes()


def carried(run):
    return (run / "latest/state-0.safetensors").read_bytes()


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def messages(bmojo, *flags):
    """What `train` says beside its result."""
    result = subprocess.run([bmojo.path, "train", *map(str, flags)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stderr


@pytest.fixture
def text(bmojo, tmp_path):
    """Token shards of some text."""
    (tmp_path / "text").mkdir()
    for i in range(5):
        words = " ".join(f"word{(i * 7 + j * j) % 97}" for j in range(900))
        (tmp_path / "text" / f"{i}.txt").write_text(words)
    bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / "tokens", tmp_path / "text")
    return tmp_path / "tokens"


@pytest.fixture(scope="module")
def pieces(bmojo, tmp_path_factory):
    """text.txt, a SentencePiece model of it, and tokens/, its shards."""
    folder = tmp_path_factory.mktemp("pieces")
    words = [f"word{i * i % 89} und so weiter" for i in range(3000)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words), model_writer=model, vocab_size=120, model_type="bpe",
        minloglevel=2, num_threads=1, hard_vocab_limit=False)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    (folder / "text.txt").write_text(" ".join(words))
    bmojo("tokenize", "--tokenizer", folder / "tokenizer.model", "--out", folder / "tokens",
          folder / "text.txt")
    return folder


def streams(text):
    """Memories carried without end, gradients through two segments, accumulation."""
    return [*TINY, "--data", text, "--val-fraction", 0.1, "--segment", 24, "--bptt", 2, "--context",
            0, "--batch-tokens", 6 * 48, "--micro-batch", 3, "--lr", 1e-2, "--ssm-lr", 1e-2,
            "--eval-tokens", 512, "--quiet"]


def test_a_run_leaves_what_is_promised(bmojo, tmp_path):
    run = tmp_path / "run"
    out = bmojo.json("train", *RECIPE, "--steps", 12, "--save-every", 4, "--keep", 2, "--eval-every",
                     6, "--out", run)
    assert out["step"] == 12 and out["best_val_loss"] > 0
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, 13))
    for row in rows:
        assert {"tokens", "loss", "lr", "ssm_lr", "grad_norm", "grad_norm_ssm", "grad_norm_rest",
                "tokens_per_s", "seconds", "skipped"} <= row.keys()
        assert all(row[key] >= 0 for key in OVERHEADS)
        assert row["tokens"] == row["step"] * 8 * 48
    # What it did beside computing: a line holds what came since the one before, the result all.
    for key in OVERHEADS:
        assert 0 < sum(row[key] for row in rows) <= out[key]
    assert sum(out[key] for key in OVERHEADS) < out["seconds"]
    saves = [row["step"] for row in rows if row["save_seconds"] > 0]
    assert {5, 9} <= set(saves) and {2, 3, 4} & set(saves) == set()
    assert [row["step"] for row in rows if "val_loss" in row] == [6, 12]
    assert all("val_accuracy" in row for row in rows if "val_loss" in row)
    held = rows[0]["memories"]
    assert [each["layer"] for each in held] == [0, 1]
    assert all(each["held"] == 6 and 0 < each["age"] < 48 for each in held)
    assert (run / "latest").resolve().name == "step-00000012"
    assert (run / "best").exists()
    steps = sorted(path.name for path in run.glob("step-*"))
    assert len(steps) <= 3 and "step-00000012" in steps  # two, and the best
    for name in ("config.json", "model.safetensors", "optimizer.safetensors", "train.json",
                 "manifest.json"):
        assert (run / "latest" / name).is_file()
    bmojo("inspect", run / "latest", "--verify")
    assert bmojo.json("inspect", run) == bmojo.json("inspect", run / "latest")
    bmojo("export", run, "--out", tmp_path / "exported")
    assert (tmp_path / "exported/model.safetensors").is_file()
    result = bmojo.json("eval", "--model", run, *TASK, "--sequences", 50)
    assert result["answers"] == 200 and 0 <= result["accuracy"] <= 1 and result["length"] == 48


def test_the_run_file_is_complete_and_runs_again(bmojo, tmp_path):
    bmojo("train", *RECIPE, "--steps", 5, "--out", tmp_path / "a")
    bmojo("train", "--run", tmp_path / "a/run.toml", "--out", tmp_path / "b", "--quiet")
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert (tmp_path / "a/run.toml").read_text() == (tmp_path / "b/run.toml").read_text()
    # What is given beside it wins.
    bmojo("train", "--run", tmp_path / "a/run.toml", "--steps", 3, "--out", tmp_path / "c", "--quiet")
    assert len(losses(tmp_path / "c")) == 3


def test_flags_win_over_the_run_file(bmojo, tmp_path, text):
    """Of what does not go together only the flag's is left."""
    bmojo("train", *RECIPE, "--steps", 2, "--out", tmp_path / "a")
    by_file = ["--run", tmp_path / "a/run.toml", "--quiet"]
    # The weights of a run take the place of the preset it was made by, and of the preset's --set.
    bmojo("train", *by_file, "--init-from", tmp_path / "a", "--set", "window=12", "--out",
          tmp_path / "b")
    tuned = tomllib.loads((tmp_path / "b/run.toml").read_text())
    assert tuned["init_from"] == str(tmp_path / "a") and tuned["set"] == ["window=12"]
    assert "preset" not in tuned and tuned["steps"] == 2
    (tmp_path / "model.json").write_text(bmojo("config", *TINY))
    plan = bmojo.json("train", *by_file, "--config", tmp_path / "model.json", "--dry-run")
    assert plan["parameters"] == bmojo.json("inspect", tmp_path / "a")["parameters"]
    # A task takes the place of text and of its validation.
    (tmp_path / "text.toml").write_text(f'preset = "bmojo-tiny"\ndata = ["{text}"]\nval_fraction = 0.1')
    assert bmojo.json("train", "--run", tmp_path / "text.toml", *TASK, "--dry-run")["context"] == 48
    message = bmojo("train", *TINY, *TASK, "--init-from", tmp_path / "a", "--dry-run", code=2)
    assert message == "bmojo: --init-from: excludes --preset and --config"


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
    recipe = [*RECIPE, "--steps", 400, "--eval-every", 1000]
    bmojo("train", *recipe, "--out", whole)
    for sent in (signal.SIGINT, signal.SIGTERM):
        resume = ["--resume"] if run.exists() else []
        process = subprocess.Popen(
            [bmojo.path, "train", *map(str, [] if resume else recipe), "--out", run, *resume],
            stderr=subprocess.PIPE)
        before = len(losses(run)) if resume else 0
        while process.poll() is None and (
                not (run / "metrics.jsonl").exists() or len(losses(run)) < before + 3):
            time.sleep(0.02)
        process.send_signal(sent)
        error = process.communicate(timeout=60)[1].decode()
        assert process.returncode == 130, error
        assert "go on with --resume" in error
        assert (run / "latest").resolve().name == f"step-{len(losses(run)):08}"
    bmojo("train", "--resume", "--out", run, "--quiet")
    assert losses(run) == losses(whole) and weights(run) == weights(whole)


def test_a_signal_does_not_wait_for_a_long_step(bmojo, tmp_path, text):
    """Steps of many micro-batches, two of them left in their middle: the memories of before are
    saved."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    recipe = [*streams(text), "--segment", 64, "--bptt", 4, "--batch-tokens", 256 * 512,
              "--micro-batch", 1, "--threads", 1, "--steps", 2, "--eval-every", 2]
    recipe.remove("--quiet")
    bmojo("train", *recipe, "--quiet", "--out", whole)
    for done in (0, 1):
        process = subprocess.Popen(
            [bmojo.path, "train", *map(str, ["--resume"] if done else recipe), "--out", run],
            stderr=subprocess.PIPE, text=True)
        try:
            # A plain line comes every five seconds: "step 1/2 + 37/512  …"
            for line in process.stderr:
                if line.startswith(f"step {done}/2 + "):
                    break
            process.send_signal(signal.SIGTERM)
            error = process.communicate(timeout=120)[1]
        finally:
            process.kill()
            process.wait()
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
                                   f'started, got "by {other[0]}"')
    assert contents(run) == before
    # The data has changed under the run.
    stream = tmp_path / "stream"
    bmojo("train", *streams(text), "--steps", 2, "--out", stream)
    (tmp_path / "other.txt").write_text("another text " * 4000)
    shutil.rmtree(text)
    bmojo("tokenize", "--tokenizer", "bytes", "--out", text, tmp_path / "other.txt")
    assert "data must be" in bmojo("train", "--resume", "--out", stream, code=2)


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
    other.write_text(bmojo("config", *TINY, "--set", "hidden_size=24"))
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
    other = [*model, "--set", "hidden_size=24"]
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
                            rf'{re.escape(str(run))} was started, got "xxh3-128:\w+"', message), message
    else:
        assert message == f"bmojo: --resume: hidden_size must be 16, as {run} was started, got 24"
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
    chosen = [w for f in ("micro-batch", "segment", "bptt", "threads", "context") for w in (f"--{f}", 0)]
    for name, words in (("flags", flags), ("chosen", [*flags, *chosen]), ("file", by_file)):
        run = tmp_path / name
        bmojo("train", *words, "--max-minutes", 1e-9, "--out", run)
        assert len(losses(run)) == 1
        more = bmojo("train", *words, "--resume", "--tokens", 5000, "--out", run, code=2)
        assert "--resume: steps must be 4" in more
        bmojo("train", *words, "--resume", "--max-minutes", 0, "--out", run)
        assert len(losses(run)) == 4
    assert bmojo.json("inspect", tmp_path / "file")["config"]["window"] == 12
    # What differs is said, not the whole list.
    assert bmojo("train", "--resume", "--set", "hidden_size=32", "--out", run, code=2) == (
        f'bmojo: --resume: set must be "hidden_size=16" in place 1, as {run} was started, got '
        '"hidden_size=32"')


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


def test_bad_input_is_one_line_and_changes_nothing(bmojo, tmp_path, text):
    out = tmp_path / "out"

    def refused(*flags, out=out):
        message = bmojo("train", *flags, "--out", out, code=2)
        assert not (tmp_path / "out").exists()
        return message

    assert refused(*TINY) == "bmojo: --task or --data: one is needed, got neither"
    absent = f"bmojo: {tmp_path}/absent: must be a readable file, got No such file or directory"
    assert refused(*TINY, "--data", tmp_path / "absent") == absent
    val = ["--val-data", tmp_path / "absent"]
    for dry in ([], ["--dry-run"]):  # what cannot start has no plan
        assert refused(*TINY, "--data", text, *val, *dry) == absent
    (tmp_path / "bare").mkdir()
    assert refused(*TINY, "--data", tmp_path / "bare") == (
        f"bmojo: {tmp_path}/bare: folder must hold *.tokens shards, got none; bmojo tokenize writes "
        "them")
    raw, held = next(text.glob("*.tokens")).read_bytes(), bmojo.json("inspect", text)["tokens"]
    for damaged, fault in [
        (b"", "must be a token shard of at least 256 bytes, got 0"),
        (b"a text " * 50, "must be a token shard, got a file of another kind"),
        (raw[:-100], f"must be as long as {held} tokens and 5 documents take, got {len(raw) - 100} "
                     "bytes; the file is damaged or cut off"),
    ]:
        (tmp_path / "a.tokens").write_bytes(damaged)
        assert refused(*TINY, "--data", tmp_path / "a.tokens") == f"bmojo: {tmp_path}/a.tokens: {fault}"
    small = [*TINY, "--set", "vocab_size=100"]
    assert refused(*small, "--data", text) == (
        "bmojo: vocab_size: must be at least the data's = 257, got 100")
    assert refused(*small, *TASK) == "bmojo: vocab_size: must be the task's = 40, got 100"
    assert refused(*TINY, *TASK, "--batch-tokens", 50) == (
        "bmojo: --batch-tokens: must be a multiple of 48 (segment x bptt x workers), got 50")
    assert refused(*TINY, "--task", "mqar:pairs=20,length=48,vocab=100") == (
        "bmojo: task mqar: length must be at least 4 x pairs + gap = 80, got 48; length=80 or "
        "pairs=12 would fit")
    assert refused("--run", tmp_path / "none.toml").startswith(
        "bmojo: --run: must be a readable file, got '")
    odd = tmp_path / "odd.toml"
    for content, fault in [
        ('colour = "red"\n', "1: key 'colour' is not known"),
        ("micro-batch = 2", "1: key 'micro-batch' is not known; write 'micro_batch'"),
        ("steps = 1\n\nsteps = 2\n", f"3: key 'steps' must stand once, got it again after {odd}:1"),
        ("steps = 1\n[model]\nlr = 1\n",
         "2: must be key = value, got the table '[model]'; a run file has none"),
        ("steps = ten", "1: value must be text in quotes, a number, true, false or a list of them, "
                        "got 'ten'"),
        ("steps = '1x'", "1: --steps: must be a whole number below 2^63, got '1x'"),
        ("steps = 1.0", "1: --steps: must be a whole number below 2^63, got '1.0'"),
        ("steps = 0", "1: --steps: must be at least 1, got 0"),
        ("steps = [1, 2]", "1: key 'steps' must have one value, got a list"),
        ('task = ""', "1: --task: must hold text, got none; leave it out"),
        ("recompute = 5", "1: --recompute: must be true or false, got '5'"),
        ('recompute = "yes"', "1: --recompute: must be true or false, got 'yes'"),
    ]:
        odd.write_text(content)
        assert refused("--run", odd) == f"bmojo: {odd}:{fault}"
    for content in ("save_every = 10m", "lr = 5.", "steps = 0100"):  # as tomllib has it
        odd.write_text(content)
        with pytest.raises(tomllib.TOMLDecodeError):
            tomllib.loads(content)
        assert "1: value must be text in quotes, a number" in refused("--run", odd)
    for number in ("1x", "1e3", "0x10", "99999999999999999999", "", " 1"):
        for flag in ("--steps", "--seed"):
            assert refused(*TINY, *TASK, flag, number) == (
                f"bmojo: {flag}: must be a whole number below 2^63, got '{number}'")
    for number in ("1,5", "0x10", "1e999", "1e"):
        assert refused(*TINY, *TASK, "--lr", number) == f"bmojo: --lr: must be a number, got '{number}'"
    assert refused(*TINY, *TASK, "--recompute=no") == (
        "bmojo: --recompute: must be true or false, got 'no'")
    assert bmojo.json("train", *TINY, *TASK, "--steps", "0100", "--dry-run")["steps"] == 100
    assert refused(*TINY, *TASK, "--set", "fading_tokens=0", "--set", "fading_residual=false",
                   "--set", "innovation_bias=false") == (
        "bmojo: config: fading_tokens = 0 needs fading_residual or innovation_bias to train, got "
        "neither; the SSM would receive no gradient")
    assert refused(*TINY, *TASK, "--warmup", 2) == "bmojo: --warmup: must be from 0 to 1, got 2"
    for flag in ("--micro-batch", "--keep", "--eval-every", "--seed", "--sample-every"):
        message = refused(*TINY, *TASK, flag, -3)
        assert message == f"bmojo: {flag}: must be at least 0, got -3"
    for flag in ("--steps", "--tokens", "--batch-tokens"):  # inside, 0 means the default
        for given in (0, -3):
            assert refused(*TINY, *TASK, flag, given) == (
                f"bmojo: {flag}: must be at least 1, got {given}")
    message = refused(*TINY, *TASK, "--max-skips", 0)
    assert message.startswith("bmojo: --max-skips: must be ") and message.endswith(", got 0")
    for dry in ([], ["--dry-run"]):
        assert refused(*TINY, "--data", text, "--context", 999999, "--segment", 999999,
                       "--batch-tokens", 999999, *dry) == (
            f"bmojo: data: must hold at least 1000000 tokens for a context of 999999, got {held}")
        assert refused(*TINY, "--data", text, "--val-fraction", 1e-9, *dry) == (
            "bmojo: validation: must hold more than 2048 tokens, got 0")
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").write_text("mine")
    message = bmojo("train", *RECIPE, "--out", full, code=2)
    assert message.startswith("bmojo: --out: folder must be new or empty, got '")
    assert message.endswith("; give --resume to go on with a run")
    assert bmojo("train", *RECIPE, "--out", full, "--dry-run", code=2) == message
    message = bmojo("train", "--resume", "--out", full, code=2)
    assert message.startswith("bmojo: --out: must be the folder of a run to resume, got '")
    assert message.endswith(" without run.toml")
    assert [path.name for path in full.iterdir()] == ["something"]
    assert (full / "something").read_text() == "mine"
    (full / "something").rename(full / "run.json")  # of the name that a run killed early leaves
    (full / "run.json").write_text("{}")
    assert bmojo("train", *RECIPE, "--out", full, code=2) == (
        f"bmojo: {full}/run.json: must hold config and source of a run, got another file")
    assert (full / "run.json").read_text() == "{}"
    assert bmojo("train", *RECIPE, code=2) == "bmojo: --out: must name the run's folder, got none"


@pytest.mark.parametrize("flags", [
    ["--segment", 2**62, "--bptt", 4],
    ["--segment", 2**40, "--bptt", 2**40],
    ["--bptt", 2**41],
    ["--batch-tokens", 2**62],
    ["--micro-batch", 2**62],
    ["--context", 2**62],
    ["--steps", 2**62],
    ["--tokens", 2**62],
    ["--workers", 2**40, "--segment", 2**24],
    ["--threads", 2**32],
    ["--steps", 2**40, "--segment", 2**20, "--batch-tokens", 2**40],
], ids=lambda flags: flags[0])  # fmt: skip
def test_sizes_whose_products_overflow(bmojo, text, flags):
    message = bmojo("train", *TINY, "--data", text, *flags, "--dry-run", code=2)
    assert message.startswith("bmojo: --") and "must be" in message


# --- damage that must be found before the run's folder is made -----------------------------------


@pytest.mark.parametrize("damage, fault", [
    (truncate, "/model.safetensors: tensor "),
    (lambda folder: replace_tensor(folder, NORM, ABSENT), f": tensor '{NORM}' is missing"),
    (lambda folder: (folder / "model.safetensors").unlink(), ": folder must hold model.safetensors"),
], ids=["cut", "absent", "gone"])  # fmt: skip
def test_nothing_begins_from_damaged_weights(bmojo, tmp_path, small, damage, fault):
    damage(small)
    for dry in (["--dry-run"], []):
        message = bmojo("train", "--init-from", small, *TASK, "--batch-tokens", 8 * 48, "--steps", 1,
                        "--out", tmp_path / "run", *dry, code=2)
        assert message.startswith(f"bmojo: {small}{fault}")
        assert not (tmp_path / "run").exists()


def test_nothing_begins_with_a_damaged_tokenizer(bmojo, tmp_path, pieces):
    shutil.copytree(pieces / "tokens", tmp_path / "tokens")
    file = tmp_path / "tokens/tokenizer.model"
    whole = file.read_bytes()
    for damaged in (b"", whole[:-9], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        message = bmojo("train", *streams(tmp_path / "tokens"), "--steps", 1, "--out",
                        tmp_path / "run", code=2)
        assert message.startswith(f"bmojo: {file}: ")
        assert not (tmp_path / "run").exists()


# --- what 0 means --------------------------------------------------------------------------------


@pytest.mark.parametrize("still", ["lr", "ssm_lr"])
def test_a_rate_of_0_moves_nothing(bmojo, tmp_path, small, still):
    run = tmp_path / "run"
    rates = {"lr": 1e-2, "ssm_lr": 1e-2} | {still: 0}
    bmojo("train", "--init-from", small, *TASK, "--batch-tokens", 8 * 48, "--steps", 3, "--lr",
          rates["lr"], "--ssm-lr", rates["ssm_lr"], "--eval-tokens", 480, "--quiet", "--out", run)
    assert all((row[rate] > 0) == (rate != still) for row in metrics(run) for rate in rates)
    _, before = read_safetensors(small / "model.safetensors")
    _, after = read_safetensors(run / "latest/model.safetensors")
    moved = {name for name in before if before[name] != after[name]}
    assert moved == {name for name in before if (".ssm." in name) == (still == "lr")}


def test_never_validating(bmojo, tmp_path):
    run = tmp_path / "run"
    out = bmojo.json("train", *RECIPE, "--steps", 3, "--eval-every", 0, "--out", run)
    assert out["best_val_loss"] is None and not (run / "best").exists()
    assert len(metrics(run)) == 3 and not any("val_loss" in row for row in metrics(run))


# --- what is shown -------------------------------------------------------------------------------


def test_progress_is_a_plain_line(bmojo, tmp_path):
    def shown(*flags):
        return messages(bmojo, *RECIPE[:-1], "--eval-tokens", 480, "--steps", 3, *flags)

    # The first step is shown, and then one every five seconds.
    lines = [line for line in shown("--out", tmp_path / "a").splitlines() if line.startswith("step 1/")]
    assert len(lines) == 1 and re.fullmatch(
        r"step 1/3  loss \d\.\d{4}  [\d.]+ k?tok/s  \d+ % of sgemm  \d+:\d\d left  [\d.]+ [MG]B",
        lines[0]), lines
    assert shown("--quiet", "--out", tmp_path / "b") == ""


@pytest.mark.parametrize("columns", [None, 60, 200])
def test_a_line_is_cut_at_the_edge_of_a_terminal_only(bmojo, tmp_path, columns):
    """With so many steps it is longer than 79 columns from step 100 on; its end is the memory."""
    steps = 2**40
    words = [*RECIPE[:-1], "--steps", steps, "--out", tmp_path / "run"]
    reader, writer = os.openpty() if columns else os.pipe()
    if columns:
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen([bmojo.path, "train", *map(str, words)], stdout=subprocess.DEVNULL,
                               stderr=writer)
    os.close(writer)
    seen, lines = "", []
    try:
        while not lines:  # every 0.1 s on a terminal, else every 5 s
            more = os.read(reader, 65536).decode()
            assert more, seen  # it goes on for ever
            seen += more
            shown = re.split(r"\x1b\[K|\r|\n", seen)[:-1]
            lines = [line for line in shown if re.match(r"step \d{3,}/", line)]
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    if columns == 60:
        assert len(lines[0]) == 59
    else:
        assert re.fullmatch(
            rf"step \d+/{steps}  loss \d\.\d{{4}}  [\d.]+ k?tok/s  \d+ % of sgemm  long left  "
            r"[\d.]+ [MG]B", lines[0]), lines


def test_dry_run_prints_the_plan(bmojo, tmp_path):
    plan = bmojo.json("train", "--preset", "bmojo-130m", *TASK, "--dry-run")
    assert plan["parameters"] > 100e6 and plan["lr"] == pytest.approx(6e-4, rel=0.2)
    assert plan["ssm_lr"] == pytest.approx(5 * plan["lr"])
    assert plan["tokens"] >= 20 * plan["parameters"]
    text = bmojo("train", *RECIPE, "--dry-run")
    assert "parameters" in text and "memory" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not any(tmp_path.iterdir())


def peak_memory(bmojo, flags):
    """Of a whole run, in bytes."""
    process = subprocess.Popen([bmojo.path, "train", *map(str, flags)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return 1024 * usage.ru_maxrss


def test_the_memory_of_the_plan_is_that_of_the_run(bmojo, tmp_path):
    wide = ["--preset", "bmojo-tiny", *(w for f in WIDE.split() for w in ("--set", f)), "--task",
            "mqar:pairs=16,length=256,vocab=2048", "--batch-tokens", 16 * 256, "--micro-batch", 16,
            "--steps", 2, "--eval-tokens", 256, "--threads", 1, "--quiet"]
    said = bmojo.json("train", *wide, "--dry-run")["memory_bytes"]
    little = [*RECIPE, "--steps", 2, "--eval-tokens", 48, "--threads", 1]
    grown = (peak_memory(bmojo, [*wide, "--out", tmp_path / "wide"])
             - peak_memory(bmojo, [*little, "--out", tmp_path / "little"]))
    print(f"said {said / 1e6:.0f} MB, grown by {grown / 1e6:.0f} MB")
    assert 0.5 * grown < said < 1.6 * grown


def test_a_full_disk_stops_cleanly(bmojo, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    recipe = [*RECIPE, "--steps", 6, "--save-every", 2, "--eval-every", 100]
    bmojo("train", *recipe, "--out", whole)
    # The weights do not fit, the small files do: at the first save, and behind a checkpoint.
    full = "writing failed: File too large"
    assert full in bmojo("train", *recipe, "--out", run, code=1, file_limit=8000)
    assert not list(run.glob("step-*")) and len(losses(run)) == 2
    bmojo("train", "--resume", "--out", run, "--max-minutes", 1e-9, "--quiet")
    assert losses(run) == losses(whole)[:1]
    before = weights(run)
    message = bmojo("train", "--resume", "--out", run, "--max-minutes", 0, "--quiet", code=1,
                    file_limit=8000)
    assert full in message and not list(run.glob("*.partial"))
    assert weights(run) == before
    bmojo("train", "--resume", "--out", run, "--max-minutes", 0, "--quiet")
    assert losses(run) == losses(whole) and weights(run) == weights(whole)


def test_a_full_disk_while_logging_has_a_reason(bmojo, tmp_path):
    run = tmp_path / "run"
    recipe = [*RECIPE, "--steps", 100, "--eval-every", 1000, "--out", run]
    assert bmojo("train", *recipe, code=1, file_limit=4000) == (
        f"bmojo: {run}/metrics.jsonl: writing failed: File too large")
    assert (run / "metrics.jsonl").stat().st_size == 4000  # the last line torn


@pytest.mark.parametrize("flags", [[], ["--quiet"]], ids=["shown", "quiet"])
def test_damage_is_not_passed_over_in_silence(bmojo, tmp_path, flags):
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 4, "--save-every", 2, "--eval-every", 100, "--out", run)
    path = run / "step-00000004/optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = subprocess.run([bmojo.path, "train", "--resume", "--out", run, *flags],
                            capture_output=True)
    assert result.returncode == 0 and b"step-00000004 is not what its manifest says" in result.stderr
    bmojo("inspect", run / "latest", "--verify")
    for path in (damaged := list(run.glob("step-*/model.safetensors"))):
        path.write_bytes(b"")
    result = subprocess.run([bmojo.path, "train", "--resume", "--out", run, *flags],
                            capture_output=True, text=True)
    *passed_over, error = result.stderr.splitlines()
    assert result.returncode == 1 and error.startswith("bmojo: ") and "whole checkpoint" in error
    assert len(passed_over) == len(damaged)


def test_init_from_starts_with_its_weights(bmojo, tmp_path):
    bmojo("train", *RECIPE, "--steps", 30, "--out", tmp_path / "first")
    bmojo("train", "--init-from", tmp_path / "first", *TASK, "--batch-tokens", 8 * 48, "--steps", 3,
          "--lr", 1e-3, "--ssm-lr", 1e-3, "--quiet", "--out", tmp_path / "second")
    assert losses(tmp_path / "second")[0][1] < losses(tmp_path / "first")[0][1]
    before = weights(tmp_path / "first")
    assert before != weights(tmp_path / "second")
    message = bmojo("train", "--init-from", tmp_path / "first", "--preset", "bmojo-tiny", *TASK, "--out",
                    tmp_path / "third", code=2)
    assert "--init-from" in message


@pytest.mark.parametrize("config", [MAMBA, MISTRAL], ids=["mamba", "mistral"])
def test_init_from_an_imported_checkpoint(bmojo, tmp_path, config):
    draw = np.random.default_rng(0)
    shapes = hugging_face_shapes(config)
    write_hugging_face(tmp_path / "theirs", config, {
        name: (0.3 * draw.standard_normal(shape)).astype("f4") for name, shape in shapes.items()})
    bmojo("import", tmp_path / "theirs", "--out", tmp_path / "ours")
    recipe = ["--init-from", tmp_path / "ours", *TASK, "--batch-tokens", 8 * 48, "--quiet"]
    bmojo("train", *recipe, "--steps", 1, "--lr", 1e-12, "--ssm-lr", 1e-12, "--out", tmp_path / "same")
    _, before = read_safetensors(tmp_path / "ours/model.safetensors")
    _, after = read_safetensors(tmp_path / "same/latest/model.safetensors")
    assert before.keys() == after.keys()
    for name, (dtype, shape, raw) in before.items():
        assert after[name][:2] == (dtype, shape), name
        near = np.frombuffer(after[name][2], "f4")
        np.testing.assert_allclose(near, np.frombuffer(raw, "f4"), atol=1e-9, err_msg=name)
    bmojo("train", *recipe, "--steps", 40, "--lr", 1e-2, "--ssm-lr", 1e-2, "--out", tmp_path / "tuned")
    first, *_, last = (loss for _, loss in losses(tmp_path / "tuned"))
    assert first == losses(tmp_path / "same")[0][1] and last < first - 0.05
    bmojo("export", tmp_path / "tuned/latest", "--out", tmp_path / "back")
    assert json.loads((tmp_path / "back/config.json").read_text())["model_type"] == config["model_type"]


def test_text_of_a_sentencepiece_model(bmojo, tmp_path, pieces):
    run = tmp_path / "run"
    recipe = [*map(str, streams(pieces / "tokens"))]
    recipe.remove("--quiet")
    process = subprocess.run(
        [bmojo.path, "train", *recipe, "--steps", "60", "--sample-every", "60", "--sample-tokens",
         "12", "--out", run], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "|" in process.stderr and "weiter" in process.stderr, "the sample is text"
    assert losses(run)[-1][1] < losses(run)[0][1] - 1
    # The checkpoint carries its tokenizer, its config the vocabulary and the end of a document.
    model = (pieces / "tokenizer.model").read_bytes()
    assert (run / "latest/tokenizer.model").read_bytes() == model
    python = sentencepiece.SentencePieceProcessor(model_proto=model)
    config = bmojo.json("inspect", run / "latest")["config"]
    assert config["vocab_size"] == python.get_piece_size()
    assert config["eos_token_id"] == python.eos_id()
    result = bmojo.json("eval", "--model", run, "--data", pieces / "tokens")
    nats = result["bits_per_byte"] * np.log(2) * (pieces / "text.txt").stat().st_size
    assert nats == pytest.approx(result["loss"] * result["tokens"], rel=1e-6)


def test_text_of_other_pieces_is_refused(bmojo, tmp_path, text, pieces):
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    # Bytes would fit this vocabulary.
    bmojo("train", *streams(pieces / "tokens"), "--set", "vocab_size=300", "--steps", 1, "--out", run)
    recipe = ["--init-from", run, "--segment", 24, "--batch-tokens", 6 * 24, "--steps", 1, "--quiet",
              "--out", tuned]
    assert "tokenizer" in bmojo("train", *recipe, "--data", text, code=2)
    assert not tuned.exists()
    assert "tokenizer" in bmojo("eval", "--model", run, "--data", text, code=2)
    bmojo("train", *recipe, "--data", pieces / "tokens")


def test_samples_are_text(bmojo, tmp_path, text):
    process = subprocess.run(
        [bmojo.path, "train", *map(str, streams(text)[:-1]), "--steps", "4", "--sample-every", "2",
         "--sample-tokens", "8", "--out", tmp_path / "run"], capture_output=True, text=True,
        errors="replace")
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("--- sample at step") == 2 and "word" in process.stderr


def test_a_sample_that_nobody_sees_is_not_drawn(bmojo, tmp_path, text):
    """It would take hours."""
    bmojo("train", *streams(text), "--steps", 2, "--sample-every", 1, "--sample-tokens", 10**8,
          "--out", tmp_path / "run", timeout=120)


def test_eval_of_text(bmojo, tmp_path, text):
    bmojo("train", *streams(text), "--steps", 5, "--out", tmp_path / "run")
    result = bmojo.json("eval", "--model", tmp_path / "run", "--data", text)
    tokens = bmojo.json("inspect", text)
    assert result["tokens"] == tokens["tokens"] - tokens["documents"]
    assert sum(row["tokens"] for row in result["by_position"]) == result["tokens"]
    edges = [(row["from"], row["to"]) for row in result["by_position"]]
    assert edges[:4] == [(0, 1), (1, 2), (2, 4), (4, 8)]
    mean = sum(row["tokens"] * row["loss"] for row in result["by_position"]) / result["tokens"]
    assert mean == pytest.approx(result["loss"], rel=1e-9)
    # The same text by `score`, document by document.
    nats, ids = 0.0, []
    for path in sorted((tmp_path / "text").iterdir()):
        ids.append(list(path.read_bytes()) + [256])
    lines = "\n".join(json.dumps({"ids": each}) for each in ids)
    (tmp_path / "ids.jsonl").write_text(lines)
    out = bmojo("score", "--model", tmp_path / "run/latest", "--ids", tmp_path / "ids.jsonl")
    for line in out.splitlines():
        nats -= sum(json.loads(line)["logprobs"][1:])
    assert nats / result["tokens"] == pytest.approx(result["loss"], rel=1e-4)


def test_task_shows_an_example(bmojo):
    text = bmojo("task", "mqar:pairs=3,length=40,vocab=64", "--show")
    assert text.count("->") == 3 and all(len(line) <= 80 for line in text.splitlines())
    shown = bmojo.json("task", "mqar:pairs=3,length=40,vocab=64", "--show")
    assert sum(target >= 0 for target in shown["targets"]) == 3
    assert bmojo("task", "mqar", "--show").count("->") == 4
    assert "would fit" in bmojo("task", "mqar:pairs=30,length=40", "--show", code=2)
