"""What tools/recall.py prints and draws, from made-up results, and that docs/recall.md has the
numbers of the committed ones."""

import json
import re
import sys
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import recall  # noqa: E402
from metrics import Mistake  # noqa: E402
from plot import COLOURS  # noqa: E402
from sweep_figure import points_of  # noqa: E402

# 16 pairs: 32 places, a span of 128, and 160 rows of 2 x 1 x 64 x 4 bytes are tight, just so.
TASK = "mqar:pairs=16,length=320,vocab=512,span=128,gap=160,fill=random"
ROW_BYTES = 512
SET = ["pattern=ssm,bmojo", "window=16", "num_kv_heads=1", "head_size=64", "eidetic_tokens=32"]


def asked(accuracy, task=TASK, rows=160, **more):
    return {"task": task, "set": [], "accuracy": accuracy, "low": accuracy - 0.01,
            "high": accuracy + 0.02, "held": [accuracy / 2], "memory_bytes": ROW_BYTES * rows,
            **more}


def result(family, seed, *evals, axes=None, still=False, stopped=False, **recipe):
    return {"family": family, "axes": axes or {}, "parameters": 81793, "evals": list(evals),
            "still_falling": still, "stopped_early": stopped,
            "recipe": {"preset": "bmojo-tiny", "set": SET, "lr": 1e-3, "seed": seed} | recipe}


def written(path, *rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def printed(rows):
    """{family: rows of cells}"""
    found, family = {}, None
    for line in filter(None, recall.tables(rows).splitlines()):
        if line.startswith("|"):
            found[family].append([cell.strip() for cell in line[1:-1].split("|")])
        else:
            family = line
            found[family] = []
    return {name: lines[2:] for name, lines in found.items()}


def test_numbers_of_the_tables(tmp_path):
    few = {"set": ["eidetic_tokens=16"], "rows": 144}
    rows = [result("a,1", seed, asked(right), asked(right / 2, **few), still=seed > 1)
            for seed, right in ((3, 0.9), (1, 0.8), (2, 1.0))]
    rows.append(result("b", 7, asked(0.95, held=[]), stopped=True))
    # Standard errors: 10 / √3 and 5 / √3 points.
    assert printed(recall.read(written(tmp_path / "r.jsonl", rows[3], *rows[:3]))) == {
        "b": [[TASK, "", "81,920", "81,793", "7", "95.00 %", "95.00 %", "–", "94.00 to 97.00", "–",
               "stopped early"]],
        "a": [[TASK, "", "81,920", "81,793", "2", "100.00 %", "100.00 %", "–", "99.00 to 102.00",
               "50.00 %", "still falling"],
              [f"{TASK}, eidetic_tokens=16", "", "73,728", "81,793", "2", "50.00 %", "50.00 %", "–",
               "49.00 to 52.00", "25.00 %", "still falling"]]}  # of one run's lines the last counts
    rows = [row | {"axes": {"seed": row["recipe"]["seed"]}} for row in rows[:3]]
    assert printed(recall.read(written(tmp_path / "r.jsonl", *rows)))["a"] == [
        [TASK, "", "81,920", "81,793", "1, 2, 3", "90.00 %", "80.00 %", "5.77", "–", "45.00 %",
         "2 of 3 still falling"],
        [f"{TASK}, eidetic_tokens=16", "", "73,728", "81,793", "1, 2, 3", "45.00 %", "40.00 %",
         "2.89", "–", "22.50 %", "2 of 3 still falling"]]


def test_families_are_named_by_what_is_found(tmp_path):
    rows = [result(f"seed-{seed}", seed, asked(right), axes={"lr": lr}, lr=lr)
            for seed, right in ((31, 0.5), (32, 0.7)) for lr in (1e-3, 3e-3)]
    file = written(tmp_path / "r.jsonl", *rows, result("other", 31, asked(0.1)))
    assert list(printed(recall.read(file))) == ["seed-31", "seed-32", "other"]
    found = printed(recall.read(file, "^seed"))
    assert [(row[1], row[4], row[5]) for row in found["seed"]] == [
        ("lr=0.001", "31, 32", "60.00 %"), ("lr=0.003", "31, 32", "60.00 %")]
    assert list(found) == ["seed", "other"]
    assert list(printed(recall.read(file, r"lr=([\d.]+)"))) == ["0.001", "0.003", "other"]
    # The same seed twice would count one run as two.
    with pytest.raises(Mistake, match="seed: a seed must stand once in a row, got 31 twice"):
        recall.tables(2 * recall.read(file, "^seed"))


@pytest.mark.parametrize("change, known", [
    ({}, True),
    ({"set": ["eidetic_tokens=33"]}, False),
    ({"task": TASK.replace("span=128", "span=126")}, False),
    ({"task": TASK.replace("gap=160", "gap=159")}, False),
    ({"task": TASK.replace("gap=160", "gap=0..160")}, False),
    ({"task": TASK.replace("pairs=16", "pairs=15..16")}, False),
    ({"task": TASK.replace("fill=random", "fill=pad")}, False),
    ({"rows": 161}, False),
    ({"rows": 161, "set": ["pattern=ssm"]}, True),
    ({"rows": 161, "set": ["pattern=attention", "window=0"]}, True),
    ({"set": ["pattern=ssm,attention", "eidetic_tokens=99"]}, True),
    ({"task": "induction:length=256,vocab=16"}, True),
    ({"task": "mqar:pairs=16"}, None),
])
def test_tight_memory(tmp_path, change, known):
    row, = recall.read(written(tmp_path / "r.jsonl", result("a", 1, asked(0.5, **change))))
    assert recall.tight(row, row["evals"][0]) is known


def test_the_model_of_weights_from_another_sweep(tmp_path):
    short = result("short", 1, asked(1), axes={"lr": 0.001, "seed": 1})
    short["recipe"]["set"] = SET[1:]  # the preset says the pattern: bmojo alone
    long = result("a", 1, asked(0.5), init_from="build/first/short,lr=1e-3,seed=1",
                  set=["eidetic_tokens=48"])
    del long["recipe"]["preset"]
    (tmp_path / "long").mkdir()
    for first in (tmp_path / "first.jsonl", tmp_path / "first/results.jsonl"):
        file = tmp_path / ("long/results.jsonl" if first.parent.name == "first" else "long.jsonl")
        written(file, long)
        row, = recall.read(file)
        assert recall.tight(row, row["evals"][0]) is None
        assert row["model"] == {"eidetic_tokens": "48"}
        with pytest.raises(Mistake, match="got set.window, which that of a does not; where a run"):
            list(recall.lines_of([row], "set.window"))
        recall.results_of.cache_clear()
        written(first, short)
        row, = recall.read(file)
        assert row["model"] == {"pattern": "bmojo", "window": "16", "num_kv_heads": "1",
                                "head_size": "64", "eidetic_tokens": "48"}
        assert recall.tight(row, row["evals"][0]) is False


def test_points_of_a_picture(tmp_path):
    sets = [asked(0.3, set=["eidetic_tokens=8"]), asked(0.4, set=["window=64"]),
            asked(0.2, task=TASK.replace("pairs=16", "pairs=12"))]
    rows = recall.read(written(tmp_path / "r.jsonl", result("a", 1, asked(0.5), *sets),
                               result("b", 1, asked(0.9))))
    lines = list(recall.lines_of(rows, "set.eidetic_tokens"))
    assert points_of(lines, "set.eidetic_tokens") == (
        {"a": {32: [0.5], 8: [0.3]}, "b": {32: [0.9]}}, "accuracy")
    rows[1]["evals"][0]["task"] = TASK.replace("pairs=16", "pairs=24")
    assert list(points_of(list(recall.lines_of(rows, "parameters")), "parameters")[0]) == [
        "a, mqar:pairs=16", "b, mqar:pairs=24"]


def test_points_that_are_not_tight_are_hollow(tmp_path, capsys):
    coloured = []
    for name, fill in (("tight", "random"), ("not", "pad")):
        evals = [asked(0.3 + 0.01 * rows, task=TASK.replace("random", fill), rows=rows)
                 for rows in (10, 20, 30)]
        file = written(tmp_path / "r.jsonl", result("a", 1, *evals))
        picture = tmp_path / f"{name}.png"
        recall.work([str(file), "--against", "memory_bytes", "--out", str(picture)])
        assert capsys.readouterr().out == f"{picture}: 1 results, 1 families against memory_bytes\n"
        with Image.open(picture) as image:
            pixels = np.asarray(image.convert("RGB"))
        coloured.append((pixels == list(bytes.fromhex(COLOURS[0][1:]))).all(axis=-1).sum())
    assert coloured[1] < coloured[0] - 60  # the insides of three discs


@pytest.mark.parametrize("flags, message", [
    (["--by", "("], "--by: must be a regular expression, got ( (missing"),
    (["--against", "lr"], "--against and --out: must be given together, got one"),
    (["--against", "rate", "--out", "r.png"], "--against: must be one of length, memory_bytes"),
    (["--against", "lr", "--out", "r.svg"], "r.svg: must end in .png"),
])
def test_mistakes(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path / "r.jsonl", result("a", 1, asked(0.5)))
    with pytest.raises((Mistake, SystemExit)) as mistake:
        recall.work([str(file), *flags])
    said = capsys.readouterr().err.removeprefix("recall: ") or str(mistake.value)
    assert said.startswith(message)


def test_results_without_answers_are_refused(tmp_path):
    file = written(tmp_path / "r.jsonl", result("a", 1, {"loss": 2.5}, axes={"lr": 1}))
    with pytest.raises(Mistake, match="must be results of tasks, got a,lr=1 without accuracy"):
        recall.read(file)


# --- docs/recall.md ------------------------------------------------------------------------------


def share(text, value):
    """As the page shows it, with the digits it has there."""
    digits = len(text.removesuffix(" %").partition(".")[2])
    return f"{100 * value:.{digits}f} %"


def test_the_page_has_the_numbers_of_the_results():
    page = (ROOT / "docs/recall.md").read_text()
    section = page.split("\n## What it reaches\n")[1].split("\n## ")[0]
    runs = {}
    for name in re.findall(r"\(\.\./(results/recall/tight-\d[^)]*)\)", section):
        for row in recall.read(ROOT / name):
            whole = row["evals"][0]
            pairs, places = recall.task_keys(whole)["pairs"], row["model"]["eidetic_tokens"]
            half, = (each for each in row["evals"] if each["set"] == [f"eidetic_tokens={pairs}"])
            assert whole["set"] == [] and recall.tight(row, whole)
            runs[f"{pairs}, {places}", row["recipe"]["seed"]] = whole, half
    lines = [[cell.strip() for cell in line[1:-1].split("|")]
             for line in section.splitlines() if line.startswith("|")]
    told, seen, size = {}, set(), ""
    for first, seed, *cells in (line for line in lines if len(line) == 7 and line[1].isdigit()):
        size = first or size
        seen.add((size, int(seed)))
        whole, half = runs[size, int(seed)]
        accuracy, interval, held, _, halved = cells
        assert accuracy == recall.percent(whole["accuracy"]), (size, seed)
        assert interval == f"{100 * whole['low']:.2f} to {100 * whole['high']:.2f}", (size, seed)
        assert held == recall.percent(*whole["held"]), (size, seed)
        assert halved == share(halved, half["accuracy"]), (size, seed)
        told.setdefault(size, []).append(whole["accuracy"])
        pairs = size.split(",")[0]
        told.setdefault(f"{pairs}, {pairs}", []).append(half["accuracy"])
    assert seen == runs.keys() and len(seen) >= 16  # no seed is left out
    totals = [line for line in lines if re.match(r"\d+ pairs, \d+ places", line[0])]
    assert len(totals) >= 4
    for what, seeds, *shown in (line[:5] for line in totals):
        values = told[", ".join(re.findall(r"\d+", what))]
        assert int(seeds.split()[0]) == len(values)
        assert shown == [share(text, of(values)) for text, of in zip(shown, (mean, median, min))]
