"""What the committed results promise, that they are of the recipes as they are now, and that
README's table says what they say."""

import json
import re
import sys
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import bench  # noqa: E402
import bench_report  # noqa: E402
import bench_train  # noqa: E402
import demo  # noqa: E402
import engine_report  # noqa: E402
import shakespeare  # noqa: E402
from engine_cases import ROUNDS  # noqa: E402
from experiment import load_recipe  # noqa: E402


def test_the_demo_holds_for_five_seeds():
    short, recipe = (load_recipe(ROOT / f"configs/{name}.toml") for name in ("demo-short", "demo"))
    demo.check_tight(recipe, "demo.toml")
    rows = json.loads((ROOT / "results/demo.json").read_text())["runs"]
    assert [row["seed"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert row["recipe"] == recipe and row["short"] == short and row["task"] == recipe["task"]
        assert row["changes"] == demo.CHANGES and "changes" not in row["commit"]
        ours, *others = (row[name] for name in demo.TITLES)
        assert ours["accuracy"] >= 0.9 and demo.is_good(row)
        for other in others:
            assert other["steps"] == ours["steps"] == short["steps"] + recipe["steps"]
            assert other["answers"] == ours["answers"] >= 1000
            assert ours["accuracy"] - other["accuracy"] >= 0.3
            assert abs(other["memory_bytes"] / ours["memory_bytes"] - 1) <= 0.05
        assert max(row[name]["seconds"] for name in demo.TITLES) <= 480  # they run side by side
    assert "30 points more than each of the others, in\n5 of 5 seeds." in demo.summary(rows)


def recall_rows(name):
    lines = (ROOT / f"results/recall/{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_other_seeds_of_the_recipe_that_a_test_trains():
    """configs/recall-16-short.toml and recall-16.toml, which cli/recall trains with seed 1."""
    short, recipe = (load_recipe(ROOT / f"configs/recall-16{part}.toml") for part in ("-short", ""))
    firsts = {row["recipe"]["seed"]: row["recipe"] for row in recall_rows("short-16")}
    rows = recall_rows("long-16")
    assert {row["recipe"]["seed"] for row in rows} >= {5, 11, 14, *range(21, 26)}
    for row in rows:
        first = firsts[row["recipe"]["seed"]]
        assert {key: first[key] for key in short} | {"eval_every": 100} == short
        kept = recipe.keys() - {"preset", "set"}  # the weights bring them
        assert {key: row["recipe"][key] for key in kept} | {"eval_every": 500} == {
            key: recipe[key] for key in kept}
        asked = row["evals"][0]
        assert asked["set"] == [] and asked["answers"] == 10000
        assert asked["accuracy"] >= 0.93


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


def bench_results():
    return json.loads((ROOT / "results/bench.json").read_text())


def test_the_report_is_of_the_stored_numbers():
    assert (ROOT / "results/bench.md").read_text() == bench_report.markdown(bench_results())


def test_no_goal_of_the_engine_holds_by_a_few_rounds():
    lines = (ROOT / "results/bench-engine.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| goal of the engine"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]]
            for line in takewhile(lambda line: line.startswith("|"), lines[start + 2:])]
    assert len(rows) >= len([goal for goal in engine_report.GOALS if goal[2]])
    for *_, rounds, holds in rows:
        enough = rounds != "-" and int(rounds) >= ROUNDS
        assert enough or holds in ("not enough rounds", "not measured", "no bar"), rows


# README's table

def measured_table():
    """(header, rows) under "## Measured", as cells."""
    section = (ROOT / "README.md").read_text().split("\n## Measured\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return header, rows


def exists(command):
    """Whether its first words name something of this project."""
    words = command.split()
    if words[0] == "make":
        return re.search(rf"^{re.escape(words[1])}:", (ROOT / "Makefile").read_text(), re.M)
    if words[0] == "bmojo":
        return (ROOT / f"src/bmojo/cli/{words[1]}_verb.cpp").exists()
    if words[0] == "ctest":
        return (ROOT / "tests/cli" / f"test_{words[-1].removeprefix('cli/')}.py").exists()
    return words[0] == ".venv/bin/python" and (ROOT / words[1]).exists()


def test_each_row_of_readme_names_the_command_that_prints_it():
    assert exists("make bench") and exists("bmojo init") and exists("ctest -R cli/results")
    for wrong in ("make nothing", "bmojo nothing", "ctest -R cli/nothing", "ls README.md",
                  ".venv/bin/python tools/nothing.py"):
        assert not exists(wrong), wrong
    header, rows = measured_table()
    assert header == ["what", "ours", "beside", "printed by"] and len(rows) >= 8
    for row in rows:
        commands = re.findall("`([^`]+)`", row[-1])
        assert commands and all(map(exists, commands)), row


def steps(model, length):
    """What bench.json has of a model: [seconds, gigabytes]; of a list of peers the fastest and,
    where it is another, the one with the least memory."""
    rows = {(row["model"], row["length"]): row for row in bench_results()["steps"]}
    if isinstance(model, str):
        chosen = [(model, length)]
    else:
        chosen = [bench.best_kind(model, length, field, rows)
                  for field in (bench.TIME, bench.MEMORY)]
    return [value for key in dict.fromkeys(chosen)
            for value in (rows[key][bench.TIME], rows[key][bench.MEMORY] / 1e9)]


def ratio(name, digits, results):
    """A goal of bench.json in README's words: the median, its interval, whether the bar holds."""
    at_least, goal = next(bars for key, _, *bars in bench_report.GOALS if key == name)
    found, bar = results["goals"][name], bench_report.number(at_least, "g")
    said = {
        "not enough rounds": "not enough rounds",
        f"missed ({bar}: decided by noise)": f"the bar of {bar} is decided by noise",
        "missed": f"misses the bar of {bar}",
        "at least": f"holds the bar of {bar}",
    }[bench_report.verdict(name, found, at_least, goal)]
    median, low, high = (f"{found[field]:.{digits}f}" for field in ("median", "low", "high"))
    return f"{median} ({low} to {high}), {said}"


def test_a_ratio_has_its_interval_and_its_verdict():
    goals = {"time_8k": {"median": 0.45, "low": 0.41, "high": 0.4949, "ratios": [0.45] * 5}}
    assert ratio("time_8k", 2, {"goals": goals}) == "0.45 (0.41 to 0.49), holds the bar of 0.5"
    goals["time_8k"]["high"] = 0.51
    assert ratio("time_8k", 3, {"goals": goals}) == (
        "0.450 (0.410 to 0.510), the bar of 0.5 is decided by noise")
    goals["time_8k"]["ratios"].pop()
    assert ratio("time_8k", 2, {"goals": goals}).endswith("to 0.51), not enough rounds")


def ends(percents):
    """Both ends of a range, or one number where they look the same with one decimal."""
    low, high = min(percents), max(percents)
    return [low] if f"{low:.1f}" == f"{high:.1f}" else [low, high]


def test_equal_ends_are_one_number():
    assert ends([0.41, 0.36, 0.44]) == [0.36] and ends([0.34, 0.36]) == [0.34, 0.36]


def recall(name):
    rows = json.loads((ROOT / "results/demo.json").read_text())["runs"]
    return ends([100 * row[name]["accuracy"] for row in rows])


def losses(config):
    names = [shakespeare.NANOGPT, *shakespeare.FAMILIES]
    recipes = {name: load_recipe(ROOT / f"configs/shakespeare-{name}.toml") for name in names}
    done = shakespeare.load_done(ROOT / "results/shakespeare.json", recipes)
    found = [run["val_loss"] for run in shakespeare.chosen(config, done)]
    assert len(found) == len(shakespeare.SEEDS)
    return [min(found), max(found)]


def as_shown(text, values):
    """The numbers of a cell must be these, each rounded as it is shown."""
    shown = re.findall(r"\d+\.\d+", text)
    return shown == [f"{value:.{len(number.split('.')[1])}f}" for value, number in
                     zip(values, shown)] and len(shown) == len(values)


def test_numbers_are_compared_as_they_are_shown():
    assert as_shown("1.69 s, 0.6 GB", [1.6896, 0.56])
    assert not as_shown("1.70 s, 0.6 GB", [1.6896, 0.56])
    assert not as_shown("1.69 s", [1.6896, 0.56]) and not as_shown("1.69 s, 0.6 GB", [1.6896])


def test_readme_has_the_numbers_of_the_results():
    wanted = {
        r"recall of 8 pairs": (recall("bmojo"), recall("hybrid") + recall("mamba")),
        r"step of B'MOJO.* 2,048": (steps("bmojo", 2048), steps(bench.MISTRALS, 2048)),
        r"step of B'MOJO.* 8,192": (steps("bmojo", 8192), steps(bench.MISTRALS, 8192)),
        r"step of Mamba.* 2,048": (steps("mamba", 2048), steps(bench.MAMBAPYS, 2048)),
        r"tiny-shakespeare.*nanoGPT": (losses("nanogpt"), [shakespeare.NANOGPT_LOSS]),
        r"tiny-shakespeare.*window": (losses("bmojo") + losses("bmojo-rotary"),
                                      losses("transformer") + losses("mamba")),
    }
    results = bench_results()
    assert "memory_8k" not in results["goals"]
    ratios = {
        r"step of B'MOJO.* 2,048": (ratio("time_2k", 2, results), ratio("memory_2k", 2, results)),
        r"step of B'MOJO.* 8,192": (ratio("time_8k", 2, results), "none was taken"),
        r"step of Mamba.* 2,048": (ratio("mamba_time", 2, results),
                                   ratio("mamba_memory", 3, results)),
    }
    _, rows = measured_table()
    for what, (ours, beside) in wanted.items():
        row, = [row for row in rows if re.search(what, row[0])]
        shown, *ratios_shown = row[2].split(". Ratio of time ")
        assert as_shown(row[1], ours), (row, ours)
        assert as_shown(shown, beside), (row, beside)
        assert ratios_shown == (["; of memory ".join(ratios[what])] if what in ratios else []), row
