"""The layer is right for its purpose: B'MOJO learns to recall what lies far outside its window, and
cannot without its eidetic memory. Two trainings side by side, a core each."""

import subprocess
from pathlib import Path

CONFIG = Path(__file__).parents[2] / "configs/demo.toml"
TWIN = ["--set", "eidetic_tokens=0", "--set", "innovation_bias=false"]


def test_eidetic_memory_recalls_beyond_the_window(bmojo, tmp_path):
    runs = {"with": [], "without": TWIN}
    processes = [
        subprocess.Popen([bmojo.path, "train", "--run", CONFIG, *flags, "--threads", "1", "--seed", "1",
                          "--quiet", "--out", tmp_path / name], stdout=subprocess.DEVNULL)
        for name, flags in runs.items()]
    assert [process.wait() for process in processes] == [0, 0]
    task = next(line.split('"')[1] for line in CONFIG.read_text().splitlines()
                if line.startswith("task"))
    accuracy = {name: bmojo.json("eval", "--model", tmp_path / name, "--task", task)["accuracy"]
                for name in runs}
    print(accuracy)
    assert accuracy["with"] >= 0.95
    assert accuracy["without"] < 0.60
