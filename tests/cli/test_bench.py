"""The driver of `make bench`: what it runs, how it takes a ratio and what it prints, over programs
that answer at once."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import bench  # noqa: E402
import bench_report  # noqa: E402
import measure  # noqa: E402

LIMITS = {"sgemm": 1e11, "bandwidth": 1e10, "threads": 2}


def test_no_torch_is_loaded():
    assert "torch" not in sys.modules and "matplotlib" not in sys.modules


def test_the_interval_is_that_of_the_median():
    # Of five numbers the median of a sample is the least with probability 0.058 (three of five or
    # more draws), which is more than a tail of 0.025: so the ends are the extremes.
    assert measure.bootstrap([3, 1, 5, 2, 4]) == {"median": 3, "low": 1, "high": 5}
    # Of ten, an outlier at each end is outside: 5 of 10 draws must hit it, probability 0.0016.
    wide = measure.bootstrap([0.1, *[1.0] * 8, 9.0])
    assert wide == {"median": 1.0, "low": 1.0, "high": 1.0}
    # Of ten in order the ends lie inside, about at the third from each side.
    ten = measure.bootstrap([float(i) for i in range(10)])
    assert ten["median"] == 4.5 and 1 < ten["low"] < 3 and 6 < ten["high"] < 8
    assert ten == measure.bootstrap([float(i) for i in range(10)])


def found(low, high, rounds=10):
    return {"ratios": [1.0] * rounds, "low": low, "high": high}


@pytest.mark.parametrize("name, low, high, at_least, goal, said", [
    ("time_2k", 0.80, 0.84, 1.0, 0.85, "goal"),
    ("time_2k", 0.80, 0.86, 1.0, 0.85, "at least (0.85: decided by noise)"),
    ("time_2k", 0.90, 0.99, 1.0, 0.85, "at least"),
    ("time_2k", 0.90, 1.01, 1.0, 0.85, "missed (1: decided by noise)"),
    ("time_2k", 0.80, 1.01, 1.0, 0.85, "missed (1 and 0.85: decided by noise)"),
    ("time_2k", 1.01, 1.20, 1.0, 0.85, "missed"),
    ("share", 0.86, 0.90, 0.7, 0.85, "goal"),
    ("share", 0.84, 0.90, 0.7, 0.85, "at least (0.85: decided by noise)"),
    ("share", 0.60, 0.69, 0.7, 0.85, "missed"),
    ("mamba_memory", 0.2, 0.24, 0.25, None, "at least"),
    ("memory_2k", 0.6, 0.74, None, 0.75, "goal"),
    ("eidetic", 0.95, 1.03, 1.08, 1.04, "goal (1: decided by noise)"),
    ("eidetic", 1.01, 1.03, 1.08, 1.04, "goal"),
])
def test_a_bar_holds_if_the_unfavourable_end_does(name, low, high, at_least, goal, said):
    assert bench_report.verdict(name, found(low, high), at_least, goal) == said
    needed = 5 if name in ("time_8k", "mamba_time", "mamba_memory", "growth") else 10
    assert bench_report.verdict(name, found(low, high, needed), at_least, goal) == said
    few = found(low, high, needed - 1)
    assert bench_report.verdict(name, few, at_least, goal) == "not enough rounds"
    assert bench_report.verdict(name, None, at_least, goal) == "not measured"


def step(seconds, size=1e9, steps=3, **more):
    return {"seconds_per_step": seconds, "peak_rss_bytes": size, "parameters": 17_000_000,
            "timed_steps": steps, **more}


def goals_of(runs, measured, sides=None):
    return bench.goals(sides or bench.choose_sides(measured), runs, measured, LIMITS)


def test_a_ratio_is_of_the_same_round():
    ours, peer = ("bmojo", 8192), ("mistral", 8192)
    measured = {ours: step(1), peer: step(4)}
    runs = {ours: {n: step(n + 1) for n in (0, 1, 2, 4)},
            peer: {n: step(4 * (n + 1)) for n in (0, 1, 3, 4)}}
    runs[peer][4] = step(25)
    result = goals_of(runs, measured)["time_8k"]
    assert result["ratios"] == [0.25, 0.25, 0.2] and result["peer"] == "mistral"
    assert (result["median"], result["low"], result["high"]) == (0.25, 0.2, 0.25)
    assert result["best"] == 0.25
    del runs[peer]
    assert "time_8k" not in goals_of(runs, measured)


def test_time_is_against_the_fastest_kind_and_memory_against_the_smallest():
    measured = {("bmojo", 2048): step(1, 3e9), ("mistral", 2048): step(2, 6e9),
                ("mistral-default", 2048): step(1.5, 5e9),
                ("mistral-compiled", 2048): step(4, 4e9), ("mistral-sliding", 8192): step(9),
                ("mamba", 2048): step(1), ("mambapy", 2048): step(8, 8e9),
                ("mambapy-default", 2048): step(16, 5e9)}
    sides = bench.choose_sides(measured)
    assert {name: side[1] for name, side in sides.items()} == {
        "time_2k": ("mistral-default", 2048), "memory_2k": ("mistral-compiled", 2048),
        "time_8k": ("mistral-sliding", 8192), "mamba_time": ("mambapy", 2048),
        "mamba_memory": ("mambapy-default", 2048), "growth": ("bmojo-in-a-row", 2048),
        "eidetic": ("bmojo-off", 2048)}
    runs = {key: {0: row} for key, row in measured.items()}
    assert goals_of(runs, measured)["memory_2k"]["ratios"] == [3 / 4]
    # What no goal is measured against is shown beside them.
    beside = {(row["ours"], row["peer"]): (row["time"], row["memory"])
              for row in bench.beside_goals(measured)}
    assert beside == {("bmojo", "mistral"): (1 / 2, 3 / 6),
                      ("bmojo", "mistral-default"): (1 / 1.5, 3 / 5),
                      ("bmojo", "mistral-compiled"): (1 / 4, 3 / 4),
                      ("mamba", "mambapy"): (1 / 8, 1 / 8),
                      ("mamba", "mambapy-default"): (1 / 16, 1 / 5)}


def test_without_a_peer_there_is_no_ratio():
    sides = bench.choose_sides({})
    assert sides["time_2k"][1] is None
    assert goals_of({("bmojo", 8192): {0: step(1)}}, {}, sides) == {}


def test_growth_is_of_means():
    measured = {("bmojo", 16384): step(12, mean_seconds_per_step=16),
                ("bmojo-in-a-row", 2048): step(1, steps=8, mean_seconds_per_step=1)}
    bench.add(measured, ("bmojo-in-a-row", 2048), step(2, mean_seconds_per_step=3), 8)
    assert measured["bmojo-in-a-row", 2048] == step(1, steps=16, mean_seconds_per_step=2)
    runs = {("bmojo", 16384): {0: step(12, mean_seconds_per_step=18)},
            ("bmojo-in-a-row", 2048): {0: step(1, mean_seconds_per_step=2)}}
    growth = goals_of(runs, measured)["growth"]
    assert growth["ratios"] == [9] and growth["best"] == 8


def test_the_share_is_of_the_best_sgemm():
    key = ("bmojo", 2048)
    flops = measure.step_flops("bmojo", 2048)
    runs = {key: {n: step(flops / 1e11 * slower) for n, slower in enumerate((2, 4, 2, 2, 2))}}
    share = goals_of(runs, {key: step(flops / 1e11)})["share"]
    assert share["ratios"] == pytest.approx([0.5, 0.25, 0.5, 0.5, 0.5])
    assert share["median"] == pytest.approx(0.5) and share["best"] == pytest.approx(1)


def test_what_one_process_alone_has_is_kept():
    optimizer = {"seconds_per_step_with_optimizer": 2.5, "optimizer_seconds": 0.1}
    rows = {("bmojo-adamw", 2048): step(2, 4e8)}
    bench.add(rows, ("bmojo-adamw", 2048), step(2.5, 5e8) | optimizer, 3)
    bench.add(rows, ("bmojo-adamw", 2048), step(2.5, 5e8, seconds_per_step_with_optimizer=None), 3)
    assert rows["bmojo-adamw", 2048] == step(2, 4e8, 9) | optimizer
    assert bench.adamw_share(rows) == pytest.approx(0.04) and bench.adamw_share({}) is None


def test_default_malloc_is_not_tuned(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    assert measure.environment()["MALLOC_MMAP_THRESHOLD_"] == str(1 << 30)
    plain = measure.environment(tuned=False)
    assert not [name for name in plain if name.startswith("MALLOC_")]
    assert plain["ONEDNN_MAX_CPU_ISA"] == measure.environment()["ONEDNN_MAX_CPU_ISA"]


def run_bench(monkeypatch, folder, minutes=30, samples=3, usual=1.0, **answers):
    """bench.main over programs that answer at once: (commands with their tuning, the report). After
    `samples` of the limits the next ones take too long. A step takes `usual`
    seconds; `answers` by model and length say otherwise."""
    commands, limits = [], iter([LIMITS] * samples)

    def run_json(command, timeout, tuned=True):
        if "limits" in command:
            if sample := next(limits, None):
                return sample
            raise measure.OutOfTime("limits: not done in 3 s")
        commands.append((command, tuned))
        name = command[3] if "train" in command else command[command.index("--preset") + 1]
        length = command[command.index("--length") + 1]
        answer = {"seconds_per_step": usual, "mean_seconds_per_step": 1.5, "peak_rss_bytes": 1e9,
                  "parameters": 17_000_000,
                  "optimizer_seconds": None if "--no-optimizer" in command else 0.02,
                  "seconds_per_step_with_optimizer": 1.1}
        return answer | answers.get(f"{name} {length}" + ("" if tuned else " default"), {})

    monkeypatch.setattr(bench, "run_json", run_json)
    monkeypatch.setattr(bench, "measure_kernels", lambda *_: [])
    monkeypatch.setattr(sys, "argv", ["bench.py", "--out", str(folder), "--budget", str(minutes)])
    try:
        bench.main()
    finally:
        report = json.loads((folder / "bench.json").read_text())
        assert (folder / "bench.md").read_text() == bench_report.markdown(report)
    return commands, report


def seconds(value):
    return {"seconds_per_step": value}


def names(commands):
    """Of each command its model, as in the report."""
    for words, tuned in commands:
        if "--preset" not in words:
            yield words[3] + ("" if tuned else "-default")
        elif "eidetic_tokens=0" in words:
            yield "bmojo-off"
        else:
            yield words[words.index("--preset") + 1].removesuffix("-tiny")


def test_each_row_is_run_as_named(monkeypatch, tmp_path):
    commands, report = run_bench(monkeypatch, tmp_path)
    sides = {(name, length) for name in bench.MISTRALS for length in (2048, 8192)}
    sides |= {("mistral-default", 2048), ("mistral-default", 8192), ("mambapy", 2048),
              ("mambapy-default", 2048), ("bmojo-off", 2048), ("bmojo-in-a-row", 2048)}
    wanted = {*bench.ROUNDS, *bench.AT_LAST, *sides}
    assert {(row["model"], row["length"]) for row in report["steps"]} == wanted
    assert report["left_out"] == []
    assert {name: len(goal["ratios"]) for name, goal in report["goals"].items()} == {
        "time_2k": 10, "memory_2k": 10, "eidetic": 10, "share": 10, "time_8k": 5, "mamba_time": 5,
        "mamba_memory": 5, "growth": 5}
    assert sum("--recompute" in words for words, _ in commands) == 2  # at 2k and at 8k
    assert sum("--no-optimizer" not in words and "--preset" in words for words, _ in commands) == 1
    assert report["adamw_share"] == pytest.approx(0.02 / 1.1)
    repeats = {words[words.index("--repeat") + 1] for words, _ in commands}
    assert repeats == {"1", "2", "3", "8"}  # a round, a kind, at last, in a row
    text = (tmp_path / "bench.md").read_text()
    assert "mambapy, default malloc, 2,048" in text and "not measured" not in text


def test_rounds_alternate(monkeypatch, tmp_path):
    commands, report = run_bench(
        monkeypatch, tmp_path, **{"mistral-compiled 2048": {"peak_rss_bytes": 5e8},
                                  "mambapy 2048 default": seconds(0.5)})
    run = list(names(commands))
    forwards = ["bmojo", "mistral", "mistral-compiled", "bmojo-off"]
    first = run.index("bmojo")
    assert run[first:first + 20] == 2 * (forwards + forwards[::-1]) + forwards
    peers = {name: goal["peer"] for name, goal in report["goals"].items()}
    assert (peers["time_2k"], peers["memory_2k"]) == ("mistral", "mistral-compiled")
    assert (peers["mamba_time"], peers["mamba_memory"]) == ("mambapy-default", "mambapy")
    assert report["goals"]["memory_2k"]["median"] == 2


def test_the_best_kinds_are_tried_with_default_malloc(monkeypatch, tmp_path):
    _, report = run_bench(monkeypatch, tmp_path, **{
        "mistral-sliding 2048": seconds(0.5), "mistral-compiled 2048": {"peak_rss_bytes": 5e8},
        "mistral-compiled 2048 default": {"peak_rss_bytes": 4e8}})
    tried = {row["model"] for row in report["steps"] if row["length"] == 2048}
    assert {name for name in tried if "mistral" in name and "default" in name} == {
        "mistral-sliding-default", "mistral-compiled-default"}
    peers = {name: goal["peer"] for name, goal in report["goals"].items()}
    assert (peers["time_2k"], peers["memory_2k"]) == ("mistral-sliding", "mistral-compiled-default")
    # At 8,192 what took twice the fastest's time at 2,048 is left out, and that is said.
    assert report["left_out"] == [f"{name} at 8192: took 2.00 x the fastest at 2048" for name in
                                  ("mistral", "mistral-compiled", "mistral-sliding-compiled")]


def test_what_does_not_fit_is_noted(monkeypatch, tmp_path):
    # Steps of 10 s: with loading and warm-ups at most 60 s are expected, 100 for nine in a row.
    _, report = run_bench(monkeypatch, tmp_path, minutes=80 / 60, usual=10.0)
    assert [line.rsplit(",", 1)[0] for line in report["left_out"]] == [
        f"bmojo-in-a-row at 2048, round {n}: needs 100 s" for n in (2, 3, 4, 5)]
    assert len(report["goals"]["growth"]["ratios"]) == 1
    text = (tmp_path / "bench.md").read_text()
    assert "not enough rounds" in text and "left out: bmojo-in-a-row at 2048, round 2" in text


def test_limits_that_take_too_long_cost_no_result(monkeypatch, tmp_path):
    _, report = run_bench(monkeypatch, tmp_path, samples=1)
    assert report["limits"]["samples"] == [LIMITS] and len(report["steps"]) > 10
    assert report["left_out"] == ["limits: limits: not done in 3 s"] * 2


def test_report_is_written_before_unequal_sizes_fail(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="mamba and mambapy must be within 1 %"):
        run_bench(monkeypatch, tmp_path, **{"mambapy 2048": {"parameters": 10**6}})
    assert "wrong: mamba and mambapy" in (tmp_path / "bench.md").read_text()


def test_roofline_share():
    samples = [{"sgemm": 90.0, "bandwidth": 10.0, "threads": 2},
               {"sgemm": 100.0, "bandwidth": 8.0, "threads": 2}]
    limits = bench.best_limits(samples)
    assert limits == {"sgemm": 100.0, "bandwidth": 10.0, "threads": 2, "samples": samples}
    assert bench.roofline_share({"flops": 50, "bytes": 20, "seconds": 4}, limits) == 0.5
    assert bench.roofline_share({"flops": 400, "bytes": 20, "seconds": 5}, limits) == 0.8


def test_what_has_no_time_is_named(capsys):
    budget = bench.Budget(0)
    assert budget.spend("mambapy at 2048", lambda left: 1) is None
    assert budget.left_out and "mambapy at 2048" in capsys.readouterr().err


def test_what_was_printed_in_time_is_kept():
    with pytest.raises(measure.OutOfTime) as late:
        measure.run(["sh", "-c", "echo one; echo two; printf half; sleep 100"], timeout=5)
    assert late.value.output == "one\ntwo\n" and str(late.value) == "stopped after 5 s"


def test_kernels_that_torch_had_no_time_for_have_a_star(monkeypatch):
    timed = {"label": "eager", "forward": 0.002, "backward": 0.002}

    def run(command, timeout, text=None):
        if text is None:
            return "".join(json.dumps(kernel(name)) + "\n" for name in ("swiglu", "rotary"))
        line = json.dumps({"kernel": "swiglu", "name": "a", "peers": [timed]})
        raise measure.OutOfTime("stopped after 9 s", line + "\n")

    monkeypatch.setattr(bench, "run", run)
    budget = bench.Budget(1)
    cases = bench.measure_kernels(budget, Namespace(bin="bin", smoke=False))
    for case in cases:
        bench.compare(case, LIMITS)
    assert budget.left_out == ["kernels, by torch: the last ones: stopped after 9 s"]
    assert [row[4] for row in rows_of(report_of(*cases), "swiglu")] == ["2.00", "2.00"]
    assert [row[4] for row in rows_of(report_of(*cases), "rotary")] == ["2.00*", "4.00*"]


def kernel(name, peers=(), **more):
    """A case of 1 ms forward and 3 ms backward, the roofline at a half and a quarter."""
    passes = {"forward": {"seconds": 0.001, "reference_seconds": 0.002, "flops": 5e7, "bytes": 1},
              "backward": {"seconds": 0.003, "reference_seconds": 0.004, "flops": 7.5e7, "bytes": 1}}
    case = {"kernel": name, "name": "a", "peers": list(peers), **passes, **more}
    bench.compare(case, LIMITS)
    return case


def report_of(*kernels, **more):
    return {"command": "make bench", "commit": "c", "machine": "m", "limits": LIMITS, "goals": {},
            "beside_goals": [], "adamw_share": None, "steps": [], "kernels": list(kernels),
            "left_out": [], "wrong": [], **more}


def rows_of(report, start):
    return [[cell.strip() for cell in line.split("|")[2:9]]
            for line in bench_report.markdown(report).splitlines() if line.startswith("| " + start)]


def test_report_names_goals_and_gaps():
    report = report_of(kernel("innovation"), left_out=["mambapy at 2048: needs 60 s, 5 left"])
    text = bench_report.markdown(report)
    assert "not measured" in text and "left out: mambapy at 2048" in text
    assert "| beside the goals: best single step of each side, no interval |" in text
    assert "caches flushed between repeats and passes" in text.replace("\n", " ")
    # A star: of torch's own ways none was timed.
    assert rows_of(report, "innovation") == [["f", "1.00", "50%", "2.0", "2.00*", "0.50", ""],
                                             ["b", "3.00", "25%", "4.0", "4.00*", "0.75", "0.67"]]
    assert json.dumps(report)


def test_the_fastest_peer_counts_compiled_or_not():
    peers = [{"label": "eager", "forward": 0.002, "backward": 0.002},
             {"label": "eager, compiled", "forward": 0.001, "backward": 0.004},
             {"label": "other, compiled", "error": "not compiled in 30 s"}]
    report = report_of(kernel("swiglu", peers))
    # A star: another might have been faster, had there been time.
    # Of both passes together eager is the fastest, 4 ms as ours.
    assert [row[-3:] for row in rows_of(report, "swiglu")] == [["1.00*", "1.00", ""],
                                                               ["2.00*", "1.50", "1.00"]]
    text = bench_report.markdown(report)
    assert "swiglu, a, forward by torch: eager, compiled" in text
    assert "swiglu, a, backward by torch: eager\n" in text
    assert "swiglu: other, compiled: not compiled in 30 s" in text


def test_plain_aten_may_be_the_fastest_peer():
    report = report_of(kernel("swiglu", [{"label": "slow", "forward": 0.1, "backward": 0.1}]))
    assert [row[-3:] for row in rows_of(report, "swiglu")] == [["2.00", "0.50", ""],
                                                               ["4.00", "0.75", "0.67"]]
    assert "swiglu, a, forward by torch: ATen, our reference" in bench_report.markdown(report)


def test_a_gradient_made_in_the_forward_pass_is_one_row():
    peers = [{"label": "a", "forward": 0.001, "backward": 0.004},
             {"label": "b", "forward": 0.002, "backward": 0.002},
             {"label": "c", "forward": 0.0001, "error": "no backward: refused"}]
    case = kernel("linear_cross_entropy", peers, gradient_in_forward=True)
    assert rows_of(report_of(case), "linear") == [["f+b", "4.00", "31%", "6.0", "4.00", "1.00",
                                                    "1.00"]]
    assert case["forward+backward"]["torch"] == "b"
    assert case["forward"]["torch"] == "c" and case["backward"]["roofline"] > 0  # as ever in JSON


@pytest.mark.parametrize("backward", [
    None, {"seconds": None, "reference_seconds": None, "flops": 0, "bytes": 0},
    {"seconds": 1e-9, "reference_seconds": 1e-9, "flops": 0, "bytes": 0}])
def test_a_choice_has_no_backward_row(backward):
    report = report_of(kernel("selection", [{"label": "topk", "forward": 0.002}], backward=backward))
    assert rows_of(report, "selection") == [["f", "1.00", "50%", "2.0", "2.00", "0.50", ""]]
