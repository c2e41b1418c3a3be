"""Tiny-shakespeare: a real training at nanoGPT's setting, and what the committed runs say."""

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import shakespeare  # noqa: E402

TEXT = Path(os.environ.get("BMOJO_DATA") or ROOT.parent / "shared/data") / "tiny-shakespeare/input.txt"
LIMIT = 1.90  # nanoGPT's README reports 1.88


def test_a_transformer_at_nanogpts_setting(bmojo, tmp_path):
    if not TEXT.is_file():
        pytest.skip(f"no {TEXT}; BMOJO_DATA names the data's folder")
    text = TEXT.read_bytes()
    cut = int(0.9 * len(text))
    for part, piece in (("train", text[:cut]), ("val", text[cut:])):
        (tmp_path / f"{part}.txt").write_bytes(piece)
        bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / part, tmp_path / f"{part}.txt")
    bmojo("train", "--run", ROOT / "configs/shakespeare-nanogpt.toml", "--data", tmp_path / "train",
          "--val-data", tmp_path / "val", "--threads", 1, "--seed", 1, "--quiet", "--out", tmp_path / "run")
    last = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    print(last["val_loss"])
    assert last["step"] == 2000 and last["val_loss"] <= LIMIT


@pytest.fixture(scope="module")
def runs():
    """The committed runs; those of a recipe that has changed since do not count."""
    recipes = {config: shakespeare.load_recipe(ROOT / f"configs/shakespeare-{config}.toml")
               for config in [shakespeare.NANOGPT, *shakespeare.FAMILIES]}
    return shakespeare.load_done(ROOT / "results/shakespeare.json", recipes)


@pytest.fixture(scope="module")
def done(runs):
    total = shakespeare.count_jobs([shakespeare.NANOGPT, *shakespeare.FAMILIES])
    assert len(runs) == total, "tools/shakespeare.py goes on where runs are missing"
    return runs


def test_the_committed_runs_are_complete(done):
    configs = [shakespeare.NANOGPT, *shakespeare.FAMILIES]
    assert set(done) == set(shakespeare.all_jobs(configs, done))


def test_families_have_equal_parameters(done):
    sizes = {config: {row["parameters_without_embeddings"] for job, row in done.items()
                      if job.config == config} for config in shakespeare.FAMILIES}
    assert all(len(each) == 1 for each in sizes.values())
    sizes = [size for each in sizes.values() for size in each]
    assert max(sizes) < 1.01 * min(sizes)


def test_nanogpts_setting_reaches_its_loss(runs):
    chosen = shakespeare.chosen(shakespeare.NANOGPT, runs)
    assert len(chosen) == 3 and all(run["val_loss"] <= LIMIT for run in chosen)


def test_bmojo_is_below_the_sliding_window_in_every_seed(done):
    ours, theirs = ({run["seed"]: run["val_loss"] for run in shakespeare.chosen(config, done)}
                    for config in ("bmojo", "transformer"))
    assert sorted(ours) == sorted(theirs) == [1, 2, 3]
    assert all(ours[seed] < theirs[seed] for seed in ours)
