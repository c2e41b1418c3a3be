"""What the benchmarks of tools/ compute and keep, without running one."""

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import bench  # noqa: E402
import bench_full  # noqa: E402
import measure  # noqa: E402
from bench_full import Cell, predict  # noqa: E402


def test_no_torch_is_loaded():
    assert "torch" not in sys.modules and "matplotlib" not in sys.modules


def test_visible_pairs_by_hand():
    # Full: 1 + 2 + 3 + 4 + 5.
    assert measure.visible_pairs(5, 0) == 15
    # Window 2 over 5 tokens: 1 + 2 + 2 + 2 + 2.
    assert measure.visible_pairs(5, 2) == 9
    # 1 fading token of each chunk but the first: t = 2, 3, 4.
    assert measure.visible_pairs(5, 2, fading=1) == 12
    # 1 eidetic token: at t = 2 one of the 2 places before the chunk has left the window, at t = 3
    # both; at t = 4, s = 4, three of 4.
    assert measure.visible_pairs(5, 2, eidetic=1) == pytest.approx(9 + 0.5 + 1 + 0.75)


def test_visible_pairs_of_a_room_for_all_are_those_of_full_attention():
    # When nothing is forgotten, a query at the end of a chunk sees every key before it.
    def last(length):
        whole = measure.visible_pairs(length, 4, eidetic=1000)
        return whole - measure.visible_pairs(length - 1, 4, eidetic=1000)

    assert [last(n) for n in (4, 8, 12)] == [4, 8, 12]


def test_attention_flops_by_hand():
    # One layer, 2 heads of 8, 3 pairs: q·k is 8 products and sums a pair and head, so is a·v.
    forward = 3 * 2 * (2 * 8 + 2 * 8)
    assert measure.attention_flops(pairs=3, heads=2, head=8, layers=1) == 3 * forward


def test_parameters_by_hand():
    # Transformer of width 256: 4 heads of 64, 1 for keys, MLP of 992.
    layer = 2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 992
    products = 4096 * 256 + 4 * layer
    assert measure.parameters("transformer", 256) == (products + 9 * 256, products)
    tokens, pairs = 2 * 100, 2 * (100 * 101 / 2)
    attention = 3 * 4 * pairs * (2 * 2 * 64 * 4)
    assert measure.step_flops("transformer", 100, 2, 256) == 6 * products * tokens + attention


@pytest.mark.parametrize("width", bench_full.WIDTHS)
def test_families_of_a_width_are_of_one_size(width):
    sizes = {family: measure.parameters(family, width)[0] for family in measure.FAMILIES}
    mamba = sizes.pop("mamba")  # whole layers are all it can be tuned by
    assert max(sizes.values()) <= 1.01 * min(sizes.values())
    assert 0.9 <= mamba / sizes["bmojo"] <= 1


def test_parameters_are_those_of_the_program(bmojo, tmp_path):
    for family in measure.FAMILIES:
        words = measure.ours_command("", family, 1, 1, width=256)
        words = words[words.index("--preset"):words.index("--length")]
        bmojo("init", *words, "--out", tmp_path / family)
        assert bmojo.json("inspect", tmp_path / family)["parameters"] == (
            measure.parameters(family, 256)[0])
        shutil.rmtree(tmp_path / family)  # pytest keeps the folders of the last runs


def measured(seconds, size=1e9):
    return {"status": "measured", "seconds_per_step": seconds, "peak_rss_bytes": size}


def test_prediction_is_linear_in_tokens():
    done = {Cell("bmojo", 512, 1, 2048): measured(1, 1e9)}
    assert predict(Cell("bmojo", 512, 1, 8192), done) == (4, 4e9)
    assert predict(Cell("bmojo", 512, 4, 4096), done) == (8, 8e9)
    assert predict(Cell("bmojo", 768, 1, 2048), done) is None
    assert predict(Cell("mamba", 512, 1, 2048), done) is None


def test_prediction_finds_the_quadratic_part():
    # Per thousand tokens: 1 + 0.5 L.
    step = {n: n * (1 + 0.5 * n) for n in (2, 4, 8, 16)}
    done = {Cell("mistral", 512, 1, n): measured(step[n], step[n] * 1e8) for n in (2, 4)}
    seconds, size = predict(Cell("mistral", 512, 1, 16), done)
    assert seconds == pytest.approx(step[16]) and size == pytest.approx(step[16] * 1e8)
    # With one length known, memory is taken as quadratic.
    del done[Cell("mistral", 512, 1, 4)]
    assert predict(Cell("mistral", 512, 1, 4), done) == (2 * step[2], 4 * step[2] * 1e8)


def test_prediction_ignores_what_was_not_measured():
    done = {Cell("bmojo", 512, 1, 2048): {"status": "failed", "reason": "killed"}}
    assert predict(Cell("bmojo", 512, 1, 4096), done) is None


def test_limits_of_a_cell():
    assert bench_full.too_large(None) is None
    assert bench_full.too_large((119, 15e9)) is None
    assert "121 s a step" in bench_full.too_large((121, 1e9))
    assert "17 GB" in bench_full.too_large((1, 17e9))


def test_cells_are_those_of_the_figure():
    cells = bench_full.all_cells()
    assert len(cells) == len(set(cells)) == 5 * 4 * 2 * 3 + 4 + 4 + 1 + 2
    # A prediction needs the shorter cell first.
    for cell in cells:
        shorter = Cell(cell.model, cell.width, cell.batch, cell.length // 2)
        assert shorter not in cells or cells.index(shorter) < cells.index(cell)


def test_a_killed_run_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "bench-full.jsonl"
    cells = [Cell("bmojo", 512, 1, n) for n in (2048, 4096, 8192)] + [Cell("bmojo", 512, 4, 16384)]
    done = {}
    bench_full.store(path, cells[0], measured(20), done)
    bench_full.store(path, cells[1], {"status": "failed", "reason": "killed"}, done)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"model": "bmojo", "wid')
    assert list(bench_full.load(path)) == cells[:2]
    assert path.read_bytes() == whole

    run = []
    monkeypatch.setattr(bench_full, "measure",
                        lambda cell, *_: run.append(cell) or measured(cell.length / 100))
    options = type("Options", (), {"budget": None, "bin": ""})
    done = bench_full.run_cells(cells, path, options)
    assert run == cells[1:3]
    assert done[cells[3]]["status"] == "not run"
    assert bench_full.load(path) == done
    # Nothing is left to do, and nothing is written.
    size = path.stat().st_size
    bench_full.run_cells(cells, path, options)
    assert run == cells[1:3] and path.stat().st_size == size


def test_verdicts():
    assert bench.verdict("time_2k", 0.8, 1.0, 0.85) == "goal"
    assert bench.verdict("time_2k", 0.9, 1.0, 0.85) == "at least"
    assert bench.verdict("time_2k", 1.1, 1.0, 0.85) == "missed"
    assert bench.verdict("share", 0.9, 0.7, 0.85) == "goal"
    assert bench.verdict("share", 0.6, 0.7, 0.85) == "missed"
    assert bench.verdict("mamba_memory", 0.2, 0.25, None) == "at least"
    assert bench.verdict("growth", None, 8.4, 8.1) == "not measured"


def test_roofline_share():
    limits = {"sgemm": 100.0, "bandwidth": 10.0}
    assert bench.roofline_share({"flops": 50, "bytes": 20, "seconds": 4}, limits) == 0.5
    assert bench.roofline_share({"flops": 400, "bytes": 20, "seconds": 5}, limits) == 0.8


def test_what_has_no_time_is_named(capsys):
    budget = bench.Budget(0)
    assert budget.spend("mambapy at 2048", lambda left: 1) is None
    assert budget.left_out and "mambapy at 2048" in capsys.readouterr().err


def test_report_names_goals_and_gaps():
    kernel = {"kernel": "innovation", "name": "a", "peers": []}
    for name in ("forward", "backward"):
        kernel[name] = {"seconds": 0.001, "reference_seconds": 0.002, "roofline": 0.5}
    report = {"command": "make bench", "commit": "c", "machine": "m", "fastest_mistral": None,
              "limits": {"sgemm": 1e11, "bandwidth": 1e10, "threads": 2},
              "goals": bench.goal_values({}, {"sgemm": 1e11}), "steps": [], "kernels": [kernel],
              "left_out": ["mambapy at 2048: needs 60 s, 5 left"]}
    text = bench.markdown(report)
    assert "not measured" in text and "left out: mambapy at 2048" in text
    row = next(line for line in text.splitlines() if line.startswith("| innovation"))
    assert [cell.strip() for cell in row.split("|")[3:8]] == ["1.00", "50%", "2.0", "-", "-"]
    assert json.dumps(report)
