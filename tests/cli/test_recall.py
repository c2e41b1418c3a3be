"""The layer is right for its purpose: B'MOJO learns to recall what lies far outside its window, and
cannot without its eidetic memory; and with few places it learns which tokens to keep. Trainings run
side by side, with one thread each, first on short sequences and then on long ones."""

import subprocess
import tomllib
from pathlib import Path

CONFIGS = Path(__file__).parents[2] / "configs"
WITHOUT = ["eidetic_tokens=0", "innovation_bias=false"]


def train(bmojo, config, runs):
    """Each run has a folder and flags."""
    processes = [
        subprocess.Popen([bmojo.path, "train", "--run", config, *flags, "--threads", "1", "--seed", "1",
                          "--quiet", "--out", out], stdout=subprocess.DEVNULL)
        for out, flags in runs.items()]
    assert {process.wait() for process in processes} == {0}


def accuracies(bmojo, folder, recipe, models):
    """Of the recipe with the changes of each model, on sequences that were not trained on."""
    short = {name: folder / f"{name}-short" for name in models}
    # Only the rule of innovation can have more places while training.
    plain = {name: ["--shadow", "1"] if changes else [] for name, changes in models.items()}
    train(bmojo, CONFIGS / f"{recipe}-short.toml", {
        short[name]: [*plain[name], *(word for change in changes for word in ("--set", change))]
        for name, changes in models.items()})
    config = CONFIGS / f"{recipe}.toml"
    train(bmojo, config, {
        folder / name: [*plain[name], "--init-from", short[name]] for name in models})
    task = tomllib.loads(config.read_text())["task"]
    found = {name: bmojo.json("eval", "--model", folder / name, "--task", task) for name in models}
    print({name: (answer["accuracy"], answer["held"]) for name, answer in found.items()})
    return {name: answer["accuracy"] for name, answer in found.items()}


def test_eidetic_memory_recalls_beyond_the_window(bmojo, tmp_path):
    accuracy = accuracies(bmojo, tmp_path, "demo", {"with": [], "without": WITHOUT})
    assert accuracy["with"] >= 0.95
    assert accuracy["without"] < 0.60


def test_a_memory_with_few_places_learns_to_choose(bmojo, tmp_path):
    """16 pairs among 288 tokens, 32 places. Keeping the first tokens, or none, is not enough. Other
    seeds of the recipe are in results/recall/long-16.jsonl."""
    accuracy = accuracies(bmojo, tmp_path, "recall-16", {
        "chosen": [], "first": ["eidetic_rule=first"], "without": WITHOUT})
    assert accuracy["chosen"] >= 0.95
    assert accuracy["first"] < 0.40 and accuracy["without"] < 0.40
