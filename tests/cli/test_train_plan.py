"""What `bmojo train` says before it begins: its header, and the plan of --dry-run."""

import re
from statistics import median

import pytest
from training import RECIPE, TASK, but, messages, streams

HEADER = ["model", "parameters", "data", "steps", "total", "time", "memory"]


def test_a_header_says_what_is_trained(bmojo, tmp_path, text):
    recipe = [*streams(text)[:-1], "--steps", 9, "--eval-every", 4]
    said = messages(bmojo, *recipe, "--out", tmp_path / "run").splitlines()
    assert [line.split()[0] for line in said[:7]] == HEADER
    assert all(len(line) < 80 for line in said)
    plan = bmojo.json("train", *recipe, "--dry-run")
    tokens = bmojo.json("inspect", text)["tokens"]
    read = tokens - int(0.1 * tokens)
    assert plan["epochs"] == pytest.approx(9 * 6 * 48 / read)
    assert said[0] == "model         bmojo-tiny: 2 layers (bmojo), width 16"
    parameters, epochs = plan["parameters"], plan["epochs"]
    assert said[1] == (
        f"parameters    {parameters:,}, {parameters - 257 * 16:,} without embeddings")
    assert said[2] == (
        f"data          tokens: {tokens:,} tokens in 5 documents, read {epochs:.3g} times")
    assert said[3] == "steps         9 of 288 tokens: 6 sequences of 48"
    assert re.fullmatch(r"time          about \d+ s, by a trial of 144 tokens", said[5])
    resumed = messages(bmojo, "--resume", "--out", tmp_path / "run").splitlines()
    assert resumed[:5] == said[:5] and resumed[7].endswith("goes on from step 9")


def test_dry_run_prints_the_plan(bmojo, tmp_path):
    plan = bmojo.json("train", "--preset", "bmojo-130m", *TASK, "--dry-run")
    assert plan["parameters"] > 100e6 and plan["lr"] == pytest.approx(6e-4, rel=0.2)
    assert plan["ssm_lr"] == pytest.approx(5 * plan["lr"])
    assert plan["tokens"] >= 20 * plan["parameters"]
    # A micro-batch of it would take a minute, so two layers are tried; epochs are for text.
    assert plan["tried_layers"] == 2 and plan["seconds"] > 3600 and plan["epochs"] is None
    text = bmojo("train", *RECIPE, "--out", tmp_path / "run", "--dry-run")
    assert [line.split()[0] for line in text.splitlines()[:7]] == HEADER
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not any(tmp_path.iterdir())


def check_memory(bmojo, tmp_path, recipe):
    """The plan's memory is within 15 % of what a run takes, by medians of three: what the program
    itself holds when it begins differs by megabytes from process to process."""
    plans = [bmojo.json("train", *recipe, "--dry-run") for _ in range(3)]
    peaks = [bmojo.json("train", *recipe, "--out", tmp_path / f"run-{i}")[
        "peak_memory_bytes"] for i in range(3)]
    said, program = (median(plan[key] for plan in plans) for key in ("memory_bytes", "program_bytes"))
    grown = median(peaks) - program
    print(f"said {said / 1e6:.0f} MB, grown by {grown / 1e6:.0f} MB")
    assert said == pytest.approx(grown, rel=0.15)
    return plans[0]


SHAPES = [  # preset, hidden size, layers, length, sequences at once, times, tried, more flags
    ("bmojo-tiny", 256, 3, 512, 4, 1, 4, ["--set", "window=64"]),
    ("bmojo-tiny", 256, 3, 512, 2, 3, 2, ["--set", "window=64"]),
    ("bmojo-tiny", 256, 3, 512, 4, 2, 4, ["--set", "window=64", "--workers", 2]),
    ("bmojo-f-tiny", 128, 4, 1024, 8, 1, 4, ["--set", "window=64"]),
    ("mamba-tiny", 256, 4, 512, 4, 1, 4, []),
    ("transformer-tiny", 128, 4, 1024, 2, 1, 2, ["--set", "window=0"]),
    ("hybrid-tiny", 512, 2, 256, 4, 1, 4, ["--recompute"]),
]


def id_of(shape):
    return f"{shape[0]}-{shape[5]}" + "-workers" * ("--workers" in shape[7])


@pytest.mark.parametrize("shape", SHAPES, ids=id_of)
def test_the_memory_of_the_plan_is_that_of_the_run(bmojo, tmp_path, shape):
    """A run also validates and saves, and the heap is cut up a little further."""
    family, width, layers, length, rows, times, tried, more = shape
    recipe = ["--preset", family, "--set", f"hidden_size={width}", "--set", f"num_layers={layers}",
              "--task", f"mqar:pairs=16,length={length},vocab=256", "--batch-tokens",
              times * rows * length,
              "--micro-batch", rows, "--steps", 2, "--eval-tokens", length, "--threads", 1, *more]
    plan = check_memory(bmojo, tmp_path, recipe)
    assert plan["tried_tokens"] == tried * length and plan["memory_bytes"] > plan["program_bytes"]


LARGE = ["--set", "hidden_size=512", "--set", "num_layers=8", "--set", "num_heads=8", "--set",
         "num_kv_heads=8", "--set", "head_size=64", "--set", "mlp_size=1408", "--set", "window=256"]


@pytest.mark.parametrize("family, micro_batches, changes", [
    ("bmojo", 1, []),
    ("bmojo", 2, []),
    ("bmojo", 1, ["--recompute"]),
    ("bmojo-f", 1, []),
    ("mamba", 1, []),
    ("transformer", 1, []),
    ("transformer", 2, ["--set", "window=0"]),
    ("hybrid", 1, []),
], ids=lambda value: str(value) if isinstance(value, (str, int)) else "".join(value).strip("-"))
def test_of_a_model_too_large_to_try_a_few_layers_are(bmojo, tmp_path, family, micro_batches,
                                                      changes):
    """27 to 36 M parameters."""
    recipe = but(["--preset", f"{family}-tiny", *LARGE, "--task",
                  "mqar:pairs=16,length=1024,vocab=8192", "--batch-tokens", 1024 * micro_batches,
                  "--micro-batch", 1, "--steps", 2, "--eval-tokens", 1024], *changes)
    plan = bmojo.json("train", *recipe, "--dry-run")
    layers = 4 if family == "hybrid" or changes == ["--recompute"] else 2
    assert plan["tried_layers"] == layers
    run = bmojo.json("train", *recipe, "--quiet", "--out", tmp_path / "run")
    grown = run["peak_memory_bytes"] - plan["program_bytes"]
    print(f"said {plan['memory_bytes'] / 1e6:.0f} MB, grown by {grown / 1e6:.0f} MB; "
          f"said {plan['seconds']:.1f} s, took {run['seconds']:.1f} s")
    assert plan["memory_bytes"] == pytest.approx(grown, rel=0.15)
    assert run["seconds"] / 4 < plan["seconds"] < 4 * run["seconds"]
    text = bmojo("train", *recipe, "--dry-run").splitlines()
    assert text[5].endswith(f" tokens and {layers} layers")
    assert text[6].startswith("memory        about ")


@pytest.mark.parametrize("memories", [["--context", 0], ["--context", 512], ["--bptt", 2]],
                         ids=lambda flags: "-".join(map(str, flags)).strip("-"))
def test_memories_that_are_carried_are_in_the_plan(bmojo, tmp_path, text, memories):
    """Four micro-batches a step; the window is full after the second step."""
    recipe = ["--preset", "bmojo-tiny", "--data", text, "--segment", 128, "--micro-batch", 8,
              "--batch-tokens", 8192, "--eval-every", 0, "--threads", 1, *memories]
    check_memory(bmojo, tmp_path, [*recipe, "--steps", 6])


@pytest.mark.parametrize("flags", [
    ["--batch-tokens", 8 * 2 * 256, "--steps", 12, "--eval-every", 0],
    ["--batch-tokens", 2 * 256, "--steps", 6, "--eval-every", 1, "--eval-tokens", 64 * 256],
], ids=["eight-micro-batches", "mostly-validation"])
def test_the_time_of_the_plan_is_near_that_of_the_run(bmojo, tmp_path, flags):
    """Medians of three, by turns, within a factor of 3: leaving out micro-batches or validation
    makes one of 6 or more."""
    recipe = ["--preset", "bmojo-tiny", "--set", "hidden_size=96", "--task",
              "mqar:pairs=16,length=256,vocab=256", "--micro-batch", 2, "--threads", 1, *flags]
    said, taken = [], []
    for i in range(3):
        said.append(bmojo.json("train", *recipe, "--dry-run")["seconds"])
        taken.append(bmojo.json("train", *recipe, "--quiet", "--out", tmp_path / f"run-{i}")[
            "seconds"])
    print(f"said {median(said):.2f} s, took {median(taken):.2f} s")
    assert median(taken) / 3 < median(said) < 3 * median(taken)


def test_long_names_fit_a_terminal(bmojo, text):
    long = text.parent / ("a-folder-with-a-name-" * 6)
    text.rename(long)
    for read in (["--data", long], ["--task", "noisy-mqar:pairs=4,length=96,vocab=64,noise=0.25"]):
        plan = bmojo("train", "--preset", "bmojo-tiny", "--set", "num_layers=1", *read,
                     "--segment", 96, "--batch-tokens", 96, "--steps", 1, "--threads", 1,
                     "--dry-run")
        assert all(len(line) < 80 for line in plan.splitlines()), plan
        assert "1 layer (bmojo)" in plan and "1 sequence of 96" in plan
