"""The benchmark against length: the work of a step, what is predicted, left out and kept, without
running one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
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


def test_cells_of_another_machine_are_not_gone_on_with(tmp_path):
    path, here = tmp_path / "bench-full.jsonl", bench_full.machine()
    cells, done = [Cell("bmojo", 512, 1, n) for n in (2048, 4096, 8192)], {}
    bench_full.store(path, cells[0], measured(1) | {"machine": here}, done)
    bench_full.store(path, cells[1], {"status": "not run", "reason": "not run: 130 s"}, done)
    bench_full.check_machine(path, done)
    bench_full.store(path, cells[2], measured(1) | {"machine": "an abacus"}, done)
    before = path.read_bytes()
    result = subprocess.run([sys.executable, measure.ROOT / "tools/bench_full.py", "--out", tmp_path],
                            capture_output=True, text=True)
    assert result.returncode == 2 and path.read_bytes() == before
    assert result.stderr.count("\n") == 1 and "got those of an abacus" in result.stderr


@pytest.mark.parametrize("width, seconds, timed", [
    (512, None, (3, 2)), (512, 3, (3, 2)), (512, 9, (2, 1)), (512, 11, (2, 1)), (512, 61, (1, 0)),
    (768, 3, (3, 2)), (768, 9, (2, 1)), (768, 11, (1, 1)), (768, 61, (1, 0))])
def test_of_long_steps_fewer_are_timed(monkeypatch, width, seconds, timed):
    commands = []

    def run_json(command, timeout):
        commands.append(command)
        return {"seconds_per_step": 1, "peak_rss_bytes": 1, "parameters": 1, "threads": 2}

    monkeypatch.setattr(bench_full, "run_json", run_json)
    row = bench_full.measure(Cell("bmojo", width, 1, 2048), "", seconds and (seconds, 1e9))
    assert (row["timed_steps"], row["warm_ups"]) == timed
    words = " ".join(commands[0])
    assert "--repeat {} --warm-ups {} ".format(*timed) in words


def test_full_table_says_where_its_cells_come_from():
    origin = {"machine": "a machine", "threads": 2, "commit": "c1"}
    done = {Cell("bmojo", 512, 1, 2048): measured(1) | origin | {"timed_steps": 3, "warm_ups": 2},
            Cell("bmojo", 512, 1, 16384): measured(12) | origin | {"timed_steps": 1, "warm_ups": 1},
            Cell("mistral", 512, 1, 16384): {"status": "not run", "reason": "not run: 130 s"}}
    text = bench_full.summary(done)
    first = text.split("\n\n")[0].replace("\n", " ")
    assert "`make bench-full` at c1 on a machine, 2 threads" in first
    assert "Warning" not in text and "A single step" in text
    cells = [[cell.strip() for cell in line.split("|")[3:8]] for line in text.splitlines()
             if line.startswith("| 512")]
    assert cells == [["bmojo", "2,048", "1.000", "1.00 GB", "3 after 2"],
                     ["bmojo", "16,384", "12.000", "1.00 GB", "1 after 1"],
                     ["mistral", "16,384", "not run: 130 s", "", ""]]
    done[Cell("bmojo", 512, 1, 2048)]["commit"] = "c2"
    assert "Warning: cells come from 2 commits" in bench_full.summary(done)
    assert "at c1, c2 on" in bench_full.summary(done)
