"""Bad input of `bmojo train`: one line, exit 2, nothing written."""

import os
import shutil
import tomllib

import pytest
from conftest import SMALL
from test_malformed import ABSENT, NORM, replace_tensor, truncate
from training import RECIPE, TASK, TINY, but, streams


def test_bad_input_is_one_line_and_changes_nothing(bmojo, tmp_path, text):
    out = tmp_path / "out"

    def refused(*flags, out=out):
        message = bmojo("train", *flags, "--out", out, code=2)
        assert not (tmp_path / "out").exists()
        return message

    assert refused(*TINY) == "bmojo: --task or --data: one is needed, got neither"
    absent = f"bmojo: {tmp_path}/absent: cannot be read: No such file or directory"
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
        (b"a text " * 50, "must be a token shard, got a file of another kind; bmojo tokenize makes "
                          "shards of text"),
        (raw[:-100], f"must be of the right length for {held} tokens and 5 documents, got "
                     f"{len(raw) - 100} bytes; the file is damaged or cut off"),
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
    assert refused("--run", tmp_path / "none.toml") == (
        f"bmojo: {tmp_path}/none.toml: cannot be read: No such file or directory")
    os.mkfifo(tmp_path / "pipe")
    assert refused("--run", tmp_path / "pipe") == (
        f"bmojo: {tmp_path}/pipe: must be a regular file, got a device or pipe; write it to "
        "a file first")
    odd = tmp_path / "odd.toml"
    for content, fault in [
        ('colour = "red"\n', "1: key 'colour' is not known"),
        ("micro-batch = 2", "1: key 'micro-batch' is not known; write 'micro_batch'"),
        ("steps = 1\n\nsteps = 2\n", f"3: key 'steps' must stand once, got it again after {odd}:1"),
        ("steps = 1\n[model]\nlr = 1\n",
         "2: must be key = value, got the table '[model]'; a run file has none"),
        ("steps = ten", "1: value must be text in quotes, a number, true, false or a list of them, "
                        "got 'ten'"),
        ("steps = '1x'", "1: --steps: must be a whole number in digits, got '1x'"),
        ("steps = 1.0", "1: --steps: must be a whole number in digits, got '1.0'"),
        ("steps = 0", "1: --steps: must be at least 1, got 0; leave it out to have it chosen"),
        ("segment = 0", "1: --segment: must be at least 1, got 0; leave it out to have it chosen"),
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
    for flag in ("--steps", "--seed"):
        for number in ("1x", "1e3", "0x10", "+-5", "", " 1"):
            assert refused(*TINY, *TASK, flag, number) == (
                f"bmojo: {flag}: must be a whole number in digits, got '{number}'")
        assert refused(*TINY, *TASK, flag, "99999999999999999999") == (
            f"bmojo: {flag}: must be from 0 to 9223372036854775807, "
            "got 99999999999999999999")
    for number in ("1,5", "0x10", "1e"):
        assert refused(*TINY, *TASK, "--lr", number) == f"bmojo: --lr: must be a number, got '{number}'"
    for number in ("1e999", "inf"):
        assert refused(*TINY, *TASK, "--lr", number) == (
            f"bmojo: --lr: must be from 0 to 1e+30, got {number}")
    # What is said twice would be dropped in silence.
    assert refused(*TINY, *TASK, "--set", "window=8", "--set", "window=16").startswith(
        "bmojo: --set: ")
    assert "--lr" in refused(*TINY, *TASK, "--lr", "1e-3", "--lr", "2e-3")
    assert refused(*TINY, *TASK, "--recompute=no") == (
        "bmojo: --recompute: must be true or false, got 'no'")
    assert bmojo.json("train", *TINY, *TASK, "--steps", "0100", "--dry-run")["steps"] == 100
    assert refused(*but([*TINY, *TASK], "--set", "fading_tokens=0", "--set",
                        "fading_residual=false", "--set", "innovation_bias=false")) == (
        "bmojo: config: fading_tokens = 0 needs fading_residual or innovation_bias to train, got "
        "neither; the SSM would receive no gradient")
    assert refused(*TINY, *TASK, "--warmup", 2) == "bmojo: --warmup: must be from 0 to 1, got 2"
    for flag in ("--keep", "--eval-every", "--seed", "--sample-every"):
        message = refused(*TINY, *TASK, flag, -3)
        assert message == f"bmojo: {flag}: must be at least 0, got -3"
    for flag in ("--steps", "--tokens", "--batch-tokens", "--micro-batch", "--segment", "--bptt",
                 "--threads", "--eval-tokens"):  # inside, 0 means the default
        for given in (0, -3):
            assert refused(*TINY, *TASK, flag, given) == (
                f"bmojo: {flag}: must be at least 1, got {given}; leave it out to have it chosen")
    for given in ("0", "0m", "-3", "1h"):
        assert refused(*TINY, *TASK, "--save-every", given) == (
            f"bmojo: --save-every: must be steps like 500 or minutes like 10m, at least 1, got "
            f"'{given}'")
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
    assert message.endswith("; name another one")
    assert bmojo("train", *RECIPE, "--out", full, "--dry-run", code=2) == message
    message = bmojo("train", "--resume", "--out", full, code=2)
    assert message.startswith("bmojo: --out: must be the folder of a run to resume, got '")
    assert message.endswith(" without run.toml; name the folder of a run")
    assert [path.name for path in full.iterdir()] == ["something"]
    assert (full / "something").read_text() == "mine"
    (full / "something").rename(full / "run.json")  # of the name that a run killed early leaves
    (full / "run.json").write_text("{}")
    assert bmojo("train", *RECIPE, "--out", full, code=2) == (
        f"bmojo: {full}/run.json: must hold config and source of a run, got another file")
    assert (full / "run.json").read_text() == "{}"
    assert bmojo("train", *RECIPE, code=2) == "bmojo: --out: must name the run's folder, got none"


def test_every_refusal_names_a_way_on(bmojo, tmp_path):
    """A run that failed before its first checkpoint, then one that has some."""
    run, other = tmp_path / "run", tmp_path / "other"
    recipe = [*RECIPE, "--steps", 3, "--save-every", 1, "--eval-every", 0]
    bmojo("train", *recipe, "--out", run, code=1, file_limit=8000)  # the disk was full
    assert bmojo("train", *but(recipe, "--lr", 1e-3), "--out", run, code=2) == (
        f"bmojo: --out: folder must be new or empty, got '{run}'; the run in it has no checkpoint "
        "yet: delete the folder, or start that run again with --resume")
    assert bmojo("train", *but(recipe, "--lr", 1e-3), "--resume", "--out", run, code=2) == (
        f"bmojo: --resume: lr must be 0.01, as {run} was started, got 0.001; to change it, start "
        "anew in another --out")
    shutil.copytree(run, other)
    bmojo("train", *recipe, "--resume", "--out", other)
    shutil.rmtree(run)
    bmojo("train", *but(recipe, "--lr", 1e-3), "--out", run)
    assert bmojo("train", *recipe, "--out", other, code=2) == (
        f"bmojo: --out: folder must be new or empty, got '{other}'; add --resume to go on with the "
        "run in it, or name another one")
    bmojo("train", *recipe, "--resume", "--out", other)
    absent = tmp_path / "absent"
    assert bmojo("train", *recipe, "--resume", "--out", absent, code=2) == (
        f"bmojo: --out: must be the folder of a run to resume, got '{absent}' without run.toml; "
        "start it without --resume")


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


def test_validation_must_fit_its_data(bmojo, tmp_path, text, pieces):
    recipe = [*TINY, "--data", text, "--dry-run"]
    assert bmojo("train", *recipe, "--val-data", text, "--val-fraction", 0.1, code=2) == (
        "bmojo: --val-data and --val-fraction: must be one of them, got both")
    message = bmojo("train", *recipe, "--val-data", pieces / "tokens", code=2)
    assert message.startswith("bmojo: --val-data: must be of the tokenizer of --data, got ")
    assert bmojo("train", *TINY, *TASK, "--val-fraction", 0.1, "--dry-run", code=2) == (
        "bmojo: --task: cannot be given with --val-data or --val-fraction; it validates on fresh sequences")


def test_what_eval_and_task_refuse(bmojo, tmp_path, text, small):
    def refused(*flags):
        return bmojo("eval", "--model", small, *flags, code=2)

    assert refused("--task", "mqar:pairs=4,length=48,vocab=60") == (
        "bmojo: --task: vocabulary must be the model's = 40, got 60")
    assert refused("--data", text) == (
        "bmojo: --data: vocabulary must be the model's = 40, got 257")
    # One that is larger is padded, if it is known that the model has the tokenizer of the data.
    bmojo("init", *but(SMALL, "--set", "vocab_size=300"), "--out", tmp_path / "larger")
    assert bmojo("eval", "--model", tmp_path / "larger", "--data", text, code=2) == (
        "bmojo: --data: vocabulary must be the model's = 300, got 257")
    bmojo("train", *but(streams(text), "--set", "vocab_size=300"), "--steps", 1, "--out",
          tmp_path / "run")
    assert bmojo.json("eval", "--model", tmp_path / "run", "--data", text)["loss"] > 0
    assert "--show" in bmojo("task", "mqar:pairs=4,length=48,vocab=60", code=2)


@pytest.mark.parametrize("damage, fault", [
    (truncate, "/model.safetensors: data must be "),
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


def test_an_accuracy_to_stop_at_needs_validations(bmojo, text, tmp_path):
    out = ["--out", tmp_path / "run"]
    message = "--stop-accuracy: needs validations on a --task, got "
    assert message + "--eval-every 0" in bmojo("train", *RECIPE, "--stop-accuracy", 0.5,
                                               "--eval-every", 0, *out, code=2)
    assert message + "text" in bmojo("train", *TINY, "--data", text, "--stop-accuracy", 0.5, *out,
                                     code=2)
    assert "--stop-accuracy: must be from 0 to 1, got 1.5" in bmojo(
        "train", *RECIPE, "--stop-accuracy", 1.5, *out, code=2)


@pytest.mark.parametrize("flags, message", [
    (["--shadow", 0.5], "--shadow: must be at least 1, got 0.5"),
    (["--shadow", 1e9], "--shadow: must be from 1 to 1000000"),
    (["--shadow", 1e6], "eidetic_tokens must be from 0 to"),
    (["--cut-from", 1.5], "--cut-from: must be from 0 to 1, got 1.5"),
    (["--cut-places", "few"], "--cut-places: must be used, drawn or shrinking, got 'few'"),
    (["--shadow", 2, "--cut-places", "shrinking", "--cut-from", 0.9],
     "--cut-from: must be below 0.8 with --cut-places shrinking, got 0.9"),
    (["--cut-level", "still"], "--cut-level: must be held or moving, got 'still'"),
    (["--cut-temperature", 0], "--cut-temperature: must be from 1e-06 to 1000000, got 0"),
    (["--shadow", 2, "--set", "eidetic_rule=first"],
     "--shadow: needs eidetic_rule = innovation, got first"),
])
def test_places_while_training_must_be_possible(bmojo, tmp_path, flags, message):
    recipe = but(RECIPE, "--set", "eidetic_tokens=64", *flags)
    assert message in bmojo("train", *recipe, "--out", tmp_path / "run", code=2)
    assert not any(tmp_path.iterdir())


def test_an_oracle_is_for_tasks(bmojo, tmp_path, text):
    recipe = [*TINY, "--set", "eidetic_rule=oracle"]
    assert "eidetic_rule: oracle keeps what the answers of a --task need, got --data" in bmojo(
        "train", *recipe, "--data", text, "--out", tmp_path / "run", code=2)
    bmojo("init", *recipe, "--out", tmp_path / "model")
    assert "eidetic_rule=oracle must be told what to keep" in bmojo(
        "score", "--model", tmp_path / "model", "--ids", "-", input=b'{"ids":[1,2,3]}\n', code=2)
