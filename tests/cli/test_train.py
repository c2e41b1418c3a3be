"""`bmojo train` as a user sees it: files, flags, progress, samples."""

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import termios
import tomllib

import numpy as np
import pytest
import sentencepiece
import tokenizers
from conftest import MAMBA, MISTRAL, hugging_face_shapes, read_safetensors, write_hugging_face
from training import (OVERHEADS, RECIPE, TASK, TINY, but, losses, messages, metrics, streams,
                      weights)


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
    assert message == "bmojo: --init-from: cannot be given with --preset or --config"


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
        r"step 1/3  loss \d\.\d{4}  [\d.]+ k?tok/s  \d+:\d\d left  [\d.]+ [MG]B",
        lines[0]), lines
    assert shown("--quiet", "--out", tmp_path / "b") == ""


@pytest.mark.parametrize("columns", [None, 60, 200])
def test_a_line_is_cut_at_the_edge_of_a_terminal_only(bmojo, tmp_path, columns):
    """With so many steps it is longer than 59 columns from step 100 on; its end is the memory."""
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
            rf"step \d+/{steps}  loss \d\.\d{{4}}  [\d.]+ k?tok/s  long left  [\d.]+ [MG]B",
            lines[0]), lines


def test_the_papers_presets_train_by_their_fading_tokens(bmojo):
    paper = ["train", "--preset", "bmojo-paper-tiny", *TASK, "--dry-run"]
    assert bmojo.json(*paper)["parameters"] > 0
    message = bmojo(*paper, "--set", "fading_tokens=0", code=2)
    assert "needs fading_residual or innovation_bias to train, got neither" in message


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
    assert result.returncode == 0
    assert b"step-00000004, which is not what its manifest says" in result.stderr
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


def samples(progress):
    """What was drawn, without the prompt before the bar."""
    return re.findall(r"--- sample at step \d+\n.*?\|(.*?)\n---", progress, re.DOTALL)


def test_text_of_a_sentencepiece_model(bmojo, tmp_path, pieces):
    run = tmp_path / "run"
    recipe = [*map(str, streams(pieces / "tokens"))]
    recipe.remove("--quiet")
    process = subprocess.run(
        [bmojo.path, "train", *recipe, "--steps", "60", "--sample-every", "60", "--sample-tokens",
         "12", "--out", run], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    sample, = samples(process.stderr)
    assert set(sample.split()) & {"und", "so", "weiter"}, "what was drawn is text"
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


def test_text_of_a_byte_level_tokenizer(bmojo, tmp_path, pieces):
    """Shards, samples and checkpoints carry tokenizer.json; weights go on with it and no other."""
    text, run = pieces / "text.txt", tmp_path / "run"
    for name, size in [("bpe", 340), ("other", 300)]:
        tokenizer = tokenizers.ByteLevelBPETokenizer()
        tokenizer.train([str(text)], vocab_size=size, special_tokens=["<|endoftext|>"],
                        show_progress=False)
        (tmp_path / name).mkdir()
        tokenizer.save(str(tmp_path / name / "tokenizer.json"))
        bmojo("tokenize", "--tokenizer", tmp_path / name / "tokenizer.json", "--out",
              tmp_path / name / "tokens", text)
    model = (tmp_path / "bpe/tokenizer.json").read_bytes()
    recipe = [*map(str, streams(tmp_path / "bpe/tokens"))]
    recipe.remove("--quiet")
    process = subprocess.run(
        [bmojo.path, "train", *recipe, "--steps", "60", "--sample-every", "60", "--sample-tokens",
         "12", "--out", run], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    sample, = samples(process.stderr)
    assert set(sample.split()) & {"und", "so", "weiter"}, "what was drawn is text"
    assert (run / "latest/tokenizer.json").read_bytes() == model
    config = bmojo.json("inspect", run / "latest")["config"]
    assert (config["vocab_size"], config["eos_token_id"]) == (
        tokenizers.Tokenizer.from_file(str(tmp_path / "bpe/tokenizer.json")).get_vocab_size(), 0)
    assert bmojo.json("eval", "--model", run, "--data", tmp_path / "bpe/tokens")["loss"] > 0
    assert "must be of the model's tokenizer, tokenizer.json xxh3" in bmojo(
        "eval", "--model", run, "--data", tmp_path / "other/tokens", code=2)
    again = ["--init-from", run, "--segment", 24, "--batch-tokens", 6 * 24, "--steps", 1, "--quiet",
             "--out", tmp_path / "tuned"]
    assert "must be of the model's tokenizer" in bmojo(
        "train", *again, "--data", tmp_path / "other/tokens", code=2)
    # What goes with the weights besides stays with them.
    (run / "latest/tokenizer_config.json").write_text("{}")
    bmojo("train", *again, "--data", tmp_path / "bpe/tokens")
    assert (tmp_path / "tuned/latest/tokenizer.json").read_bytes() == model
    assert (tmp_path / "tuned/latest/tokenizer_config.json").exists()
    bmojo("export", tmp_path / "tuned/latest", "--out", tmp_path / "exported")
    assert (tmp_path / "exported/tokenizer.json").read_bytes() == model


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
    # A model of bytes has no tokenizer.model, but its run knows what it read.
    bmojo("train", *streams(text), "--steps", 1, "--out", tmp_path / "bytes")
    message = bmojo("eval", "--model", tmp_path / "bytes", "--data", pieces / "tokens", code=2)
    assert message.startswith("bmojo: --data: must be of the model's tokenizer, bytes ")


def test_a_tokenizer_goes_with_its_weights(bmojo, tmp_path, small):
    files = {"tokenizer.model": b"pieces", "tokenizer.json": b"{}", "tokenizer_config.json": b"{ }"}
    for name, content in files.items():
        (small / name).write_bytes(content)
    (small / "notes.txt").write_text("left alone")
    run = tmp_path / "run"
    recipe = ["--init-from", small, *TASK, "--batch-tokens", 8 * 48, "--steps", 2, "--quiet",
              "--max-minutes", 1e-9, "--out", run]
    bmojo("train", *recipe)
    shutil.rmtree(small)
    bmojo("train", "--resume", "--max-minutes", 0, "--out", run)
    for step in (1, 2):
        saved = run / f"step-{step:08}"
        assert {name: (saved / name).read_bytes() for name in files} == files
        assert not (saved / "notes.txt").exists()
    bmojo("export", run / "latest", "--out", tmp_path / "exported")
    assert (tmp_path / "exported/tokenizer.json").read_bytes() == b"{}"


def test_a_tokenizer_of_other_text_is_left_behind(bmojo, tmp_path, text):
    bmojo("train", *streams(text), "--steps", 1, "--out", tmp_path / "first")
    given = tmp_path / "first/latest"
    (given / "tokenizer.json").write_text("{}")  # of whatever: nothing says that it is of bytes
    recipe = ["--init-from", given, "--data", text, "--segment", 24, "--batch-tokens", 6 * 24,
              "--steps", 1, "--quiet", "--out", tmp_path / "run"]
    bmojo("train", *recipe)
    assert not list((tmp_path / "run/latest").glob("tokenizer*"))
    for content in ("{}", "[]", '"x"', '{"name": 1, "digest": 2}'):
        (given / "train.json").write_text('{"tokenizer": %s}' % content)
        message = bmojo("eval", "--model", given, "--data", text, code=2)
        assert message.startswith(f"bmojo: {given}/train.json: tokenizer must have a name")


@pytest.mark.parametrize("workers", [1, 2])
def test_steps_that_are_not_finite_end_the_run(bmojo, tmp_path, workers):
    """Rates that ruin the weights in one step. What was saved before them stays."""
    run = tmp_path / "run"
    rates = ["--lr", 1e5, "--ssm-lr", 1e5, "--min-lr", 1e5, "--warmup", 0, "--clip", 0]
    recipe = [*TINY, *TASK, "--batch-tokens", 8 * 48, *rates, "--workers", workers, "--threads", 1,
              "--save-every", 1, "--keep", 2, "--eval-every", 3, "--max-skips", 5, "--steps", 9]
    process = subprocess.run([bmojo.path, "train", *map(str, recipe), "--out", run],
                             capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (1, "")
    assert "step 3: validation loss not finite" in process.stderr
    assert "step 3: loss or gradient not finite, skipped (2 in a row)" in process.stderr
    assert process.stderr.splitlines()[-1] == (
        "bmojo: train: 5 steps in a row had a loss or gradient that was not finite, stopped at step "
        "6; start from the last checkpoint before them, step-00000001, by --init-from, in another "
        "--out with a lower --lr and --ssm-lr")
    assert sorted(path.name for path in run.glob("step-*")) == ["step-00000001"]
    assert [row["loss"] is None for row in metrics(run)] == [False] + 5 * [True]
    for row in metrics(run)[1:]:
        assert row["grad_norm"] is row["grad_norm_ssm"] is row["grad_norm_rest"] is None
    assert metrics(run)[-1]["skipped"] == 5


def test_a_run_whose_last_loss_is_no_number(bmojo, tmp_path):
    run = tmp_path / "run"
    rates = ["--lr", 1e5, "--ssm-lr", 1e5, "--min-lr", 1e5, "--warmup", 0, "--clip", 0]
    bmojo("train", *TINY, *TASK, "--batch-tokens", 8 * 48, *rates, "--keep", 1, "--save-every", 1,
          "--steps", 3, "--eval-every", 0, "--quiet", "--out", run)
    assert "loss not finite" in bmojo("train", "--resume", "--quiet", "--out", run)
    # The end of a run is saved whatever it is; the one from before the trouble stays beside it.
    assert sorted(path.name for path in run.glob("step-*")) == ["step-00000001", "step-00000003"]


@pytest.mark.parametrize("steps", [3, 30])
def test_a_loss_that_was_never_finite_is_a_failure(bmojo, tmp_path, small, steps):
    """Before and after --max-skips."""
    path, run = small / "model.safetensors", tmp_path / "run"
    path.write_bytes(path.read_bytes()[:-4] + np.float32("nan").tobytes())
    message = bmojo("train", "--init-from", small, *TASK, "--batch-tokens", 8 * 48, "--steps", steps,
                    "--eval-every", 0, "--quiet", "--out", run, code=1)
    assert message == (
        f"bmojo: train: all {min(steps, 10)} steps were skipped, no loss or gradient was finite; "
        "start anew in another --out from other weights or with another config")
    if steps == 3:  # done, and still no model
        assert bmojo("train", "--resume", "--quiet", "--out", run, code=1) == message


def test_rates_that_ruin_the_weights_before_a_checkpoint(bmojo, tmp_path):
    rates = ["--lr", 1e5, "--ssm-lr", 1e5, "--min-lr", 1e5, "--warmup", 0, "--clip", 0]
    message = bmojo("train", *TINY, *TASK, "--batch-tokens", 8 * 48, *rates, "--steps", 30,
                    "--eval-every", 0, "--quiet", "--out", tmp_path / "run", code=1)
    assert message.endswith("stopped at step 11; start anew, in another --out with a lower --lr and "
                            "--ssm-lr")


def test_samples_are_text(bmojo, tmp_path, text):
    process = subprocess.run(
        [bmojo.path, "train", *map(str, streams(text)[:-1]), "--steps", "4", "--sample-every", "2",
         "--sample-tokens", "8", "--out", tmp_path / "run"], capture_output=True, text=True,
        errors="replace")
    assert process.returncode == 0, process.stderr
    # 8 bytes, of which some stand for themselves and some are escapes; ids would have spaces between.
    drawn = samples(process.stderr)
    assert len(drawn) == 2 and not any(re.fullmatch(r"(\d+ )+\d+", sample) for sample in drawn)
    assert all(drawn)


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


def test_a_run_stops_at_an_accuracy(bmojo, tmp_path):
    """One right answer is enough; a resumed run knows that it has stopped."""
    run = tmp_path / "run"
    recipe = [*RECIPE, "--steps", 40, "--eval-every", 5, "--out", run]
    out = bmojo.json("train", *recipe, "--stop-accuracy", 1e-6)
    rows = metrics(run)
    good = [row["step"] for row in rows if row.get("val_accuracy", 0) > 0]
    assert good == [out["step"]] and out["step"] < 40
    assert [row["step"] for row in rows if "stopped" in row] == good
    assert (run / "latest").resolve().name == f"step-{out['step']:08}"
    assert bmojo.json("train", "--resume", "--quiet", "--out", run)["step"] == out["step"]
    # Asked for more, it goes on.
    on = bmojo.json("train", "--resume", "--quiet", "--stop-accuracy", 1, "--out", run)
    assert on["step"] == 40 and "stopped" not in metrics(run)[-1]


def test_more_places_while_training(bmojo, tmp_path):
    """The checkpoint has the places it will use, and a run that goes on is the run itself."""
    recipe = [*RECIPE, "--shadow", 3, "--cut-from", 0.5, "--steps", 8, "--eval-every", 4]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    bmojo("train", *recipe, "--out", whole)
    bmojo("train", *recipe, "--max-minutes", 1e-9, "--out", broken)
    assert len(metrics(broken)) == 1
    bmojo("train", "--resume", "--max-minutes", 0, "--quiet", "--out", broken)
    assert losses(broken) == losses(whole) and weights(broken) == weights(whole)
    plain = tmp_path / "plain"
    bmojo("train", *RECIPE, "--steps", 8, "--eval-every", 4, "--out", plain)
    assert losses(plain)[0][1] != losses(whole)[0][1]
    assert bmojo.json("inspect", whole)["config"]["eidetic_tokens"] == 6
    held = [row["val_held"] for row in metrics(whole) if "val_held" in row]
    assert [len(shares) for shares in held] == [2, 2]


def test_eval_says_what_was_held(bmojo, tmp_path):
    bmojo("train", *but(RECIPE, "--set", "eidetic_rule=oracle"), "--steps", 1, "--out", tmp_path / "run")
    # Pairs are the first eight tokens, and questions come from the second chunk on.
    asked = ["eval", "--model", tmp_path / "run", "--task", "mqar:pairs=4,length=48,vocab=40,gap=8"]
    assert bmojo.json(*asked, "--set", "eidetic_tokens=8")["held"] == [1, 1]
    assert bmojo.json(*asked, "--set", "eidetic_tokens=2")["held"] == [0.5, 0.5]
    assert bmojo(*asked).splitlines()[-1] == (
        "answers in the eidetic memory when asked, by layer: 100.0 %, 100.0 %")
    mamba = tmp_path / "mamba"
    bmojo("init", "--preset", "mamba-tiny", "--set", "vocab_size=40", "--out", mamba)
    assert bmojo.json("eval", "--model", mamba, *asked[3:], "--sequences", 2)["held"] == []
