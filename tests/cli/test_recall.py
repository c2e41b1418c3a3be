"""The layer is right for its purpose: B'MOJO learns to recall what lies far outside its window, and
cannot without its eidetic memory. Two trainings side by side, with one thread each."""

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
