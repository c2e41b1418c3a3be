"""The layer is right for its purpose: B'MOJO learns to recall what lies far outside its window, and
cannot without its eidetic memory; and with few places it learns which tokens to keep. Trainings run
side by side, with one thread each."""

import subprocess
import tomllib
from pathlib import Path

CONFIGS = Path(__file__).parents[2] / "configs"
WITHOUT = ["--set", "eidetic_tokens=0", "--set", "innovation_bias=false"]


def accuracies(bmojo, folder, config, runs):
    """Of the recipe with the flags of each run, on sequences that were not trained on."""
    processes = [
        subprocess.Popen([bmojo.path, "train", "--run", config, *flags, "--threads", "1", "--seed", "1",
                          "--quiet", "--out", folder / name], stdout=subprocess.DEVNULL)
        for name, flags in runs.items()]
    assert {process.wait() for process in processes} == {0}
    task = tomllib.loads(config.read_text())["task"]
    found = {name: bmojo.json("eval", "--model", folder / name, "--task", task) for name in runs}
    print({name: (answer["accuracy"], answer["held"]) for name, answer in found.items()})
    return {name: answer["accuracy"] for name, answer in found.items()}


def test_eidetic_memory_recalls_beyond_the_window(bmojo, tmp_path):
    accuracy = accuracies(bmojo, tmp_path, CONFIGS / "demo.toml", {"with": [], "without": WITHOUT})
    assert accuracy["with"] >= 0.95
    assert accuracy["without"] < 0.60


def test_a_memory_with_few_places_learns_to_choose(bmojo, tmp_path):
    """16 pairs among 288 tokens, 32 places. Keeping the first tokens, or none, is not enough."""
    accuracy = accuracies(bmojo, tmp_path, CONFIGS / "recall-16.toml", {
        "chosen": [],
        "first": ["--set", "eidetic_rule=first", "--shadow", "1"],
        "without": [*WITHOUT, "--shadow", "1"]})
    assert accuracy["chosen"] >= 0.95
    assert accuracy["first"] < 0.40 and accuracy["without"] < 0.40
