"""What the committed results promise, and that they are of the recipes as they are now."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import bench_train  # noqa: E402
import demo  # noqa: E402
from experiment import load_recipe  # noqa: E402


def test_the_demo_holds_for_five_seeds():
    recipe = load_recipe(ROOT / "configs/demo.toml")
    demo.check_reach(recipe, "demo.toml")
    rows = json.loads((ROOT / "results/demo.json").read_text())["runs"]
    assert [row["seed"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert row["recipe"] == recipe and row["task"] == recipe["task"] and row["twin"] == demo.TWIN
        ours, twin = row["bmojo"], row["without"]
        assert ours["steps"] == twin["steps"] == recipe["steps"]
        assert ours["answers"] == twin["answers"] >= 1000
        assert ours["accuracy"] >= 0.9 and ours["accuracy"] - twin["accuracy"] >= 0.3
        assert max(ours["seconds"], twin["seconds"]) <= 240  # they run side by side
    assert "at least 90 % and 30 points more than its twin in 5 of 5 seeds." in demo.summary(rows)


def test_training_keeps_to_its_limits():
    result = json.loads((ROOT / "results/train.json").read_text())
    assert result["ratio"] == bench_train.ratio(result["runs"])
    assert result["overheads"] == bench_train.overheads(result["runs"]["1"])
    assert bench_train.missed(result) == []
    steps = {"1": [{"tokens_per_s": [100, 900]}, {"tokens_per_s": [110]}],
             "2": [{"tokens_per_s": [99, 98]}, {"tokens_per_s": [1, 100]}]}
    assert bench_train.ratio(steps) == 98.5 / 110
    worse = {"ratio": 0.899, "overheads": {"total": 0.03}}
    assert bench_train.missed(worse) == [
        "beside computing must be below 3 % of the time, got 3.000 %",
        "2 workers must have at least 0.9 of the speed of 1, got 0.90"]
