"""`bmojo train` as a user sees it: files, resuming to the bit, refusals."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

MODEL = """hidden_size=16 num_layers=2 ssm_inner_size=12 ssm_state_size=3 ssm_dt_rank=2 num_heads=2
num_kv_heads=1 head_size=8 window=16 fading_tokens=3 eidetic_tokens=6 mlp_size=20"""
TINY = ["--preset", "bmojo-tiny", *(w for f in MODEL.split() for w in ("--set", f))]
TASK = ["--task", "mqar:pairs=4,length=48,vocab=40,gap=8"]
RECIPE = [*TINY, *TASK, "--batch-tokens", 8 * 48, "--lr", 1e-2, "--ssm-lr", 1e-2, "--quiet"]


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run):
    return [(row["step"], row["loss"]) for row in metrics(run)]


def weights(run):
    return (run / "latest/model.safetensors").read_bytes()


@pytest.fixture
def text(bmojo, tmp_path):
    """Token shards of some text."""
    (tmp_path / "text").mkdir()
    for i in range(5):
        words = " ".join(f"word{(i * 7 + j * j) % 97}" for j in range(900))
        (tmp_path / "text" / f"{i}.txt").write_text(words)
    bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / "tokens", tmp_path / "text")
    return tmp_path / "tokens"


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
        assert row["tokens"] == row["step"] * 8 * 48
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


def test_resumed_is_unbroken_to_the_bit(bmojo, tmp_path, text):
    for name, recipe in (("task", RECIPE), ("stream", streams(text))):
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


def test_resume_refuses_another_run(bmojo, tmp_path, text):
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 3, "--out", run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def refused(*flags):
        return bmojo("train", "--resume", "--out", run, *flags, code=2)

    assert "lr must be 0.01" in refused("--lr", 2e-2)
    assert "steps" in refused("--steps", 9)
    assert "seed must be 0" in refused("--seed", 1)
    assert "workers must be 1" in refused("--workers", 2)
    assert "set must be" in refused("--set", "hidden_size=32")
    assert "threads" in refused("--threads", 3)
    assert "task" in refused("--task", "mqar:pairs=3,length=48,vocab=40")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    # The data has changed under the run.
    stream = tmp_path / "stream"
    bmojo("train", *streams(text), "--steps", 2, "--out", stream)
    (tmp_path / "other.txt").write_text("another text " * 4000)
    shutil.rmtree(text)
    bmojo("tokenize", "--tokenizer", "bytes", "--out", text, tmp_path / "other.txt")
    assert "data must be" in bmojo("train", "--resume", "--out", stream, code=2)


def test_bad_input_is_one_line_and_changes_nothing(bmojo, tmp_path, text):
    out = tmp_path / "out"

    def refused(*flags, out=out):
        message = bmojo("train", *flags, "--out", out, code=2)
        assert not (tmp_path / "out").exists()
        return message

    assert "--task or --data" in refused(*TINY)
    assert "must be" in refused(*TINY, "--data", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(*TINY, "--data", tmp_path / "empty")
    shard = next(text.glob("*.tokens"))
    (tmp_path / "cut.tokens").write_bytes(shard.read_bytes()[:-100])
    assert "cut.tokens" in refused(*TINY, "--data", tmp_path / "cut.tokens")
    assert "vocab_size" in refused(*TINY, "--set", "vocab_size=100", "--data", text)
    assert "vocab_size" in refused(*TINY, "--set", "vocab_size=100", *TASK)
    assert "--batch-tokens" in refused(*TINY, *TASK, "--batch-tokens", 50)
    assert "pairs=12" in refused(*TINY, "--task", "mqar:pairs=20,length=48,vocab=100")
    assert "--run" in refused("--run", tmp_path / "none.toml")
    (tmp_path / "run.toml").write_text('colour = "red"\n')
    assert "colour" in refused("--run", tmp_path / "run.toml")
    assert "no gradient" in refused(*TINY, *TASK, "--set", "fading_tokens=0", "--set",
                                    "fading_residual=false", "--set", "innovation_bias=false")
    assert "--warmup: must be from 0 to 1" in refused(*TINY, *TASK, "--warmup", 2)
    for flag in ("--micro-batch", "--steps", "--keep", "--eval-every", "--seed", "--sample-every"):
        assert f"{flag}: must be at least" in refused(*TINY, *TASK, flag, -3)
    assert "--max-skips: must be at least 1" in refused(*TINY, *TASK, "--max-skips", 0)
    assert "a context of 999999" in refused(*TINY, "--data", text, "--context", 999999, "--segment",
                                            999999, "--batch-tokens", 999999)
    assert "validation" in refused(*TINY, "--data", text, "--val-fraction", 1e-9)
    assert "nowhere" in refused(*TINY, "--data", text, "--val-data", tmp_path / "nowhere")
    full = tmp_path / "full"
    full.mkdir()
    (full / "something").write_text("mine")
    assert "new or empty" in bmojo("train", *RECIPE, "--out", full, code=2)
    assert (full / "something").read_text() == "mine"
    assert "run.toml" in bmojo("train", "--resume", "--out", full, code=2)
    assert "--out" in bmojo("train", *RECIPE, code=2)


def test_dry_run_prints_the_plan(bmojo, tmp_path):
    plan = bmojo.json("train", "--preset", "bmojo-130m", *TASK, "--dry-run")
    assert plan["parameters"] > 100e6 and plan["lr"] == pytest.approx(6e-4, rel=0.2)
    assert plan["ssm_lr"] == pytest.approx(5 * plan["lr"])
    assert plan["tokens"] >= 20 * plan["parameters"]
    text = bmojo("train", *RECIPE, "--dry-run")
    assert "parameters" in text and "memory" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not any(tmp_path.iterdir())


def test_a_full_disk_stops_cleanly(bmojo, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    recipe = [*RECIPE, "--steps", 6, "--save-every", 2, "--eval-every", 100]
    bmojo("train", *recipe, "--out", whole)
    # The weights do not fit, the small files do: at the first save, and behind a checkpoint.
    assert "writing failed" in bmojo("train", *recipe, "--out", run, code=1, file_limit=8000)
    assert not list(run.glob("step-*")) and len(losses(run)) == 2
    bmojo("train", "--resume", "--out", run, "--max-minutes", 1e-9, "--quiet")
    assert losses(run) == losses(whole)[:1]
    before = weights(run)
    message = bmojo("train", "--resume", "--out", run, "--max-minutes", 0, "--quiet", code=1,
                    file_limit=8000)
    assert "writing failed" in message and not list(run.glob("*.partial"))
    assert weights(run) == before
    bmojo("train", "--resume", "--out", run, "--max-minutes", 0, "--quiet")
    assert losses(run) == losses(whole) and weights(run) == weights(whole)


def test_damage_is_not_passed_over_in_silence(bmojo, tmp_path):
    run = tmp_path / "run"
    bmojo("train", *RECIPE, "--steps", 4, "--save-every", 2, "--eval-every", 100, "--out", run)
    path = run / "step-00000004/optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = subprocess.run([bmojo.path, "train", "--resume", "--out", run], capture_output=True)
    assert result.returncode == 0 and b"step-00000004 is not what its manifest says" in result.stderr
    bmojo("inspect", run / "latest", "--verify")
    for path in run.glob("step-*/model.safetensors"):
        path.write_bytes(b"")
    assert "whole checkpoint" in bmojo("train", "--resume", "--out", run, "--quiet", code=1)


def test_a_run_in_use_is_refused(bmojo, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(
        [bmojo.path, "train", *map(str, RECIPE), "--steps", "100000", "--out", run])
    while not (run / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.02)
    assert "in use by another process" in bmojo("train", "--resume", "--out", run, code=2)
    process.kill()
    process.wait()


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


def test_samples_are_text(bmojo, tmp_path, text):
    process = subprocess.run(
        [bmojo.path, "train", *map(str, streams(text)[:-1]), "--steps", "4", "--sample-every", "2",
         "--sample-tokens", "8", "--out", tmp_path / "run"], capture_output=True, text=True,
        errors="replace")
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("--- sample at step") == 2 and "word" in process.stderr


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
