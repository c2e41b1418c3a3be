"""The driver of `make bench-engine`: what it runs, how it takes a ratio, what it prints, over
programs that answer at once; and the weights it writes for both engines."""

import io
import json
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import MAMBA, write_hugging_face

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import bench_engine  # noqa: E402
import engine_alone  # noqa: E402
import engine_peers  # noqa: E402
import engine_report  # noqa: E402
from engine_cases import CHECKS, GOALS, LONG, REPORTED, Case, Engines, Part, kinds, parts, speed  # noqa: E402


def test_no_torch_is_loaded():
    assert "torch" not in sys.modules and "llama_cpp" not in sys.modules


def test_both_sides_get_the_same_work():
    engines = Engines.__new__(Engines)
    engines.program, engines.pythons = Path("bin/bmojo"), {"native": "python"}
    engines.models = {"smollm2": (Path("model"), Path("model.gguf"))}
    case = Case("smollm2", "decode", 2048, batch=8)
    ours, peer = engines.ours(case), engines.peer(case, ("native", "on", "off", "f32"))
    assert ours[:4] == ["bin/bmojo", "bench", "--model", "model"]
    assert peer[4:12] == ["bench", "model.gguf", "--flash", "on", "--mmap", "off", "--cache", "f32"]
    work = case.flags()
    assert ours[4:-2] == work == peer[12:]
    assert work == ["--prompt", "1", "--tokens", "64", "--depth", "2047", "--batch", "8",
                    "--threads", "2"]
    assert Case("smollm2", "decode").flags()[5] == "0"
    assert Case("smollm2", "prefill").flags()[:6] == [
        "--prompt", "512", "--tokens", "1", "--depth", "0,0,0"]


def asked(**changes):
    return list(parts(Namespace(**{"goals": False, "rounds": 10, "only": [], "longest": LONG}
                                | changes)))


def test_what_the_goals_ask_is_measured():
    goals, reported = asked()
    assert (goals, reported) == (GOALS, REPORTED)
    named = {name for name, *_ in engine_report.GOALS}
    assert {name for name in named if name.startswith(("smollm2", "mamba"))} == goals.cases.keys()
    assert goals.rounds == 10 and reported.rounds == 5
    starts = goals.starts | reported.starts
    assert {f"start-{name}" for name in starts} == {name for name in named if "start" in name}
    barred = {name for name, _, at_least, _ in engine_report.GOALS if at_least}
    assert barred == goals.cases.keys() | {"share-f32", "share-bf16", "growth", "batch-bmojo-0",
                                           "batch-bmojo-2048", "start-packed"}
    assert goals.depths == {"f32": [2048, LONG], "bf16": [2048]}
    every = {n: sorted(goals.depths[n] + reported.depths[n]) for n in goals.depths}
    assert every == dict.fromkeys(("f32", "bf16"), [0, 2048, 8192, 32768, LONG])
    assert [[case.batch for case in pair] for pair in goals.batches.values()] == [[1, 8], [1, 8]]
    cases = goals.cases | reported.cases
    decoded = {(c.model, c.depth, c.batch) for c in cases.values() if c.phase == "decode"}
    assert decoded == {(model, *at) for model in ("smollm2", "mamba")
                       for at in ((0, 1), (2048, 1), (8192, 1), (0, 8), (2048, 8))}
    for name, case in cases.items():
        like = cases[case.tried_as or name]
        assert (like.model, like.cache) == (case.model, case.cache)
        assert list(cases).index(case.tried_as or name) <= list(cases).index(name)
    assert kinds(Case("smollm2", "decode", cache="f16")) == [
        (build, flash, mmap, "f16") for build in ("native", "blas") for flash in ("off", "on")
        for mmap in ("on", "off")]
    assert len(kinds(Case("mamba", "decode"))) == 4


def test_the_time_is_printed_before_anything_is_built(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench_engine.py", "--goals"])
    monkeypatch.setattr(bench_engine, "Engines", lambda options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bench_engine.main()
    minutes = (CHECKS + GOALS.seconds()) / 60
    assert capsys.readouterr().out == f"bench-engine: about {minutes:.0f} minutes, once all is built\n"


def test_parts_of_it_can_be_asked_for():
    only, = asked(goals=True, rounds=3, longest=2048)
    assert only.cases == GOALS.cases and only.rounds == 3
    assert only.depths == {"f32": [2048], "bf16": [2048]}
    goals, reported = asked(only=["mamba-decode"])
    assert list(goals.cases) == ["mamba-decode", "mamba-decode-2k"]
    assert list(reported.cases) == ["mamba-decode-8k"]
    assert not (goals.depths or goals.batches or goals.starts)
    goals, reported = asked(only=["bmojo"])
    assert not (goals.cases or reported.cases) and goals.depths and reported.starts


def test_the_time_is_known_before():
    read = Case("smollm2", "prefill")  # 3 x 512 tokens, and two written after each
    assert read.seconds("ours") == pytest.approx(1.5 + 1536 / 800 + 6 / 45)
    batch = Case("mamba", "decode", 2048, batch=8, tokens=35)
    assert batch.seconds("peer") == pytest.approx(1.5 + 8 * 2048 / 250 + 2 * 35 / 35)
    part = Part({"a": read, "b": Case("smollm2", "decode", tried_as="a")}, rounds=3, tries=2,
                depths={}, batches={}, starts={})
    pairs = sum(case.seconds(side) for case in part.cases.values() for side in ("ours", "peer"))
    assert part.seconds() == pytest.approx(8 * 2 * read.seconds("peer") + 3 * pairs)
    # What Makefile, CONTRIBUTING.md and docs/engine.md say.
    assert 25 * 60 < sum(part.seconds() for part in asked(goals=True)) < 35 * 60
    assert 95 * 60 < sum(part.seconds() for part in asked()) < 115 * 60


def row(phase, tokens_per_second):
    return {"phase": phase, "tokens_per_second": tokens_per_second, "peak_rss_bytes": 5}


def test_the_first_time_warms_up():
    rows = [row("prefill", 1), row("decode", 7), row("prefill", 4), row("decode", 9),
            row("prefill", 6)]
    assert speed(rows, "prefill") == 5 and speed(rows[:2], "decode") == 7


class Now:
    """A budget that never ends."""

    def __init__(self):
        self.left_out = []

    def spend(self, what, work):
        return work(1)

    def leave_out(self, what, why):
        self.left_out.append(what)


class Engine:
    def ours(self, case):
        return ["ours"]

    def peer(self, case, kind):
        return list(kind)


def part_of(cases, rounds=1, tries=1):
    return Part(cases, rounds, tries, depths={}, batches={}, starts={})


def test_the_fastest_kind_of_the_peer_counts(monkeypatch):
    speeds = {"native on off f32": [5, 5], "blas off on f32": [4, 6], "blas off on f16": [9]}
    calls = []

    def rows_of(command, left):
        name = " ".join(command)
        calls.append(name)
        known = speeds.get(name, [])
        return [row("decode", known.pop(0) if known else 1)]

    monkeypatch.setattr(bench_engine, "rows_of", rows_of)
    cases = {"a": Case("smollm2", "decode"), "b": Case("smollm2", "decode", 8192, tried_as="a"),
             "half": Case("smollm2", "decode", cache="f16")}
    best, tried = {}, []
    part = part_of({name: cases[name] for name in "ab"}, tries=2)
    bench_engine.try_kinds(Engine(), Now(), part, best, tried)
    # The better of two: a single try would have taken "native on off".
    fastest = ("blas", "off", "on", "f32")
    assert best == {"a": fastest, "b": fastest}
    assert calls[8:] == calls[:8][::-1] and len(set(calls)) == 8 and len(tried) == 16
    bench_engine.try_kinds(Engine(), Now(), part_of({"half": cases["half"]}), best, tried)
    assert best["half"] == ("blas", "off", "on", "f16") and len(tried) == 24


def test_rounds_alternate(monkeypatch):
    calls = []

    def rows_of(command, left):
        calls.append(" ".join(command))
        return [row("decode", 10 if calls[-1] == "ours" else 4)]

    monkeypatch.setattr(bench_engine, "rows_of", rows_of)
    part = part_of({"a": Case("smollm2", "decode"), "none": Case("mamba", "decode")}, rounds=3)
    best = {"a": ("blas", "off", "on", "f32")}
    runs = bench_engine.run_rounds(Engine(), Now(), part, best)
    turn = ["ours", "blas off on f32"]
    assert calls == [*turn, *turn[::-1], *turn, *3 * ["ours"]]
    only, = bench_engine.compared(part, runs, best)
    assert (only["case"], only["cache"], only["ratios"]) == ("a", "f32", [2.5] * 3)


def test_a_ratio_is_of_the_same_round():
    def of(side, number, value):
        return {"case": "a", "side": side, "round": number, "speed": value, "peak_rss_bytes": 1}

    runs = [of("ours", 0, 2.0), of("peer", 0, 1.0), of("ours", 1, 9.0), of("peer", 2, 9.0),
            of("ours", 3, 8.0), of("peer", 3, 2.0)]
    best = {"a": ("native", "off", "on", "f32")}
    only, = bench_engine.compared(part_of({"a": Case("mamba", "decode")}), runs, best)
    assert only["ratios"] == [2.0, 4.0] and (only["ours"], only["peer"]) == (5.0, 1.5)


def test_goals_come_before_what_is_reported(monkeypatch):
    done = []

    def note(name, *answer):
        def work(engines, budget, part, *more):
            done.append((name, part))
            return answer[0] if answer else None
        return work

    monkeypatch.setattr(bench_engine, "compare_answers", lambda *_: None)
    monkeypatch.setattr(bench_engine, "bandwidth", lambda *_: {"bandwidth": 1.0, "sgemm": None})
    for name, *answer in (("try_kinds",), ("run_rounds", []), ("measure_bmojo",),
                          ("batch_ratios", {}), ("start_ups", {})):
        monkeypatch.setattr(bench_engine, name, note(name, *answer))
    found = bench_engine.measure_all(None, Now(), asked())
    assert [part for _, part in done] == [GOALS] * 5 + [REPORTED] * 5
    assert len(found["limits"]["samples"]) == 3


def test_turns_of_writing_go_over_the_depths():
    rows = [row("prefill", 50), row("decode", 1), row("prefill", 40), row("decode", 2)]
    found = engine_alone.by_depth(rows, [2048, 8192])
    assert found == {2048: {"prefill": 50, "decode": [1]}, 8192: {"prefill": 40, "decode": [2]}}
    rows += [row("decode", 10), row("decode", 20), row("decode", 11), row("decode", 21)]
    found = engine_alone.by_depth(rows, [2048, 8192])
    assert found[2048]["decode"] == [10, 11] and found[8192]["decode"] == [20, 21]
    assert engine_alone.by_depth([], [2048]) == {}


BMOJO = {"f32": {"bytes_a_token": 1e8, "peak_rss_bytes": 3e8, "depths": {
    2048: {"prefill": 800.0, "decode": [80.0] * 5}, 0: {"prefill": 900.0, "decode": [81.0]},
    131072: {"prefill": 790.0, "decode": [64.0] * 5}}}}


def test_goals_are_of_pairs_shares_and_times():
    rows = [{"case": name, "ratios": [ratio] * 5} for name, ratio in (
        ("smollm2-decode", 1.2), ("smollm2-decode-f16", 9.0), ("smollm2-batch-decode", 7.0))]
    found = engine_alone.goals(rows, BMOJO, {0: [5.0] * 5, 2048: []},
                               {"packed": [0.1] * 5}, {"bandwidth": 1e10})
    medians = {name: goal["median"] for name, goal in found.items()}
    assert medians == {"smollm2-decode": 1.2, "share-f32": 0.8, "growth": 1.25,
                       "batch-bmojo-0": 5.0, "start-packed": 100.0}
    assert engine_alone.goals([], BMOJO, {}, {}, {"bandwidth": None}).keys() == {"growth"}


def test_bytes_a_token_are_weights_and_memories():
    inspected = {"parameters": 1000, "memory_bytes": {"total": 50}}
    assert engine_alone.bytes_a_token(inspected, "f32") == 4050
    assert engine_alone.bytes_a_token(inspected, "bf16") == 2050


def test_answers_are_compared():
    ours = np.array([[1.0, 2.0], [5.0, 4.0]])
    theirs = np.array([[1.0, 2.0], [4.0, 4.5]])
    found = bench_engine.agreement(ours, theirs)
    assert found == {"tokens": 2, "argmax": 0.5, "error": pytest.approx(1 / 4.5)}
    answers = [{"model": "mamba", **found}, {"model": "a", "error": 1e-5}]
    line, = bench_engine.wrong_answers(answers)
    assert line.startswith("mamba: logits must be within 0.001 of llama.cpp's, got 0.22")


def test_texts_of_both_are_spelled_by_the_peer(monkeypatch):
    from safetensors.numpy import save_file
    logits = np.eye(3, dtype=np.float32)

    def run(command, left, text=None):
        verb = next(word for word in command if word in ("logits", "score", "generate", "text"))
        if verb == "logits":
            np.save(command[command.index("--out") + 1], logits)
            return json.dumps({"ids": [1, 2, 0], "written": [5, 6, 7]})
        if verb == "score":
            assert command[3] == "packed" and json.loads(text) == {"ids": [1, 2, 0]}
            save_file({"logits.0": logits}, command[command.index("--logits") + 1])
            return ""
        if verb == "generate":
            assert command[5] == "1,2,0"
            return json.dumps({"ids": [5, 6, 8]})
        return json.dumps([" ".join(map(str, ids)) for ids in json.loads(text)])

    monkeypatch.setattr(bench_engine, "run", run)
    engines = Namespace(program="bmojo", models={"smollm2": ("packed", 0), "mamba": ("packed", 0)},
                        llama=lambda verb, name, kind: [verb, name])
    found = bench_engine.compare_answers(engines, "smollm2", ("native",), 1)
    assert found["texts"] == ["5 6 8", "5 6 7"] and (found["same"], found["written"]) == (2, 3)
    assert bench_engine.compare_answers(engines, "mamba", ("native",), 1)["texts"] == []


def test_the_peer_spells_ids(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "llama_cpp", Namespace(GGML_TYPE_F32=0, GGML_TYPE_F16=1))
    import llama_peer
    monkeypatch.delitem(sys.modules, "llama_peer")
    model = Namespace(text_of=lambda ids: "".join(map(chr, ids)))
    monkeypatch.setattr(llama_peer, "Model", lambda path, *_: model if path == "a.gguf" else None)
    monkeypatch.setattr(sys, "argv", ["llama_peer.py", "text", "a.gguf"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("[[97, 98], []]\n"))
    llama_peer.main()
    assert json.loads(capsys.readouterr().out) == ["ab", ""]


def goal(low, high, middle):
    return {"ratios": [middle] * 10, "median": middle, "low": low, "high": high}


REPORT = {
    "command": "make bench-engine", "commit": "c0", "machine": "a machine", "threads": 2,
    "peer": "llama 1", "limits": {"bandwidth": 1e10, "sgemm": None}, "bmojo": BMOJO,
    "goals": {"smollm2-decode": goal(0.96, 1.0, 0.98), "growth": goal(1.0, 1.01, 1.005),
              "start-packed": goal(140, 160, 150), "start-plain": goal(1, 2, 1.5),
              "start-bmojo-bf16": goal(30, 36, 33)},
    "compared": [{"case": "x", "model": "mamba", "phase": "decode", "depth": 2048, "batch": 8,
                  "cache": "f32", "kind": ("blas", "off", "off", "f32"), "ours": 1234.5, "peer": 10.0,
                  "ratios": [1] * 10, "median": 1.5, "low": 1.4, "high": 1.6}],
    "runs": [{"case": "x", "side": "ours", "peak_rss_bytes": 5e8}],
    "answers": [{"model": "smollm2", "kind": ("native", "on", "on", "f32"), "tokens": 256,
                 "argmax": 1.0, "error": 1.5e-6, "same": 64, "written": 64, "texts": ["a\ntext", "another"]}],
    "tried": [{"case": "x", "kind": ("native", flash, "on", "f16"), "speed": speed}
              for flash, speed in (("on", 12.0), ("off", 7.0), ("on", 11.0))],
    "left_out": ["this: that"]}


def cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_report():
    text = engine_report.markdown(REPORT)
    assert text.startswith("`make bench-engine` at c0 on a machine,\n2 threads, beside llama 1. ")
    assert "Read 10.0 GB/s, sgemm - GFLOP/s." in text
    assert cells(text, "f32 decode, ours / llama.cpp, depth 0") == [
        "0.95", "1.1", "0.98", "0.96 to 1", "10", "at least"]
    assert cells(text, "B'MOJO decode, time at")[-1] == "goal"
    assert cells(text, "generate: start to first token, 135 M, packed")[-1].startswith("missed")
    assert cells(text, "generate: start to first token, 135 M, plain")[-1] == "no bar"
    assert cells(text, "f32 prefill of 512")[-1] == "not measured"
    assert cells(text, "Mamba 130M") == [
        "decode", "2,048", "8", "f32", "with BLAS, flash off, huge pages", "1,234.5", "10.0", "1.500",
        "1.400 to 1.600", "10", "500 MB", "-"]
    assert cells(text, "SmolLM2-135M") == ["no BLAS, flash on, mapped", "256", "100.0%",
                                           "1.5e-06", "64 of 64"]
    assert cells(text, "x ") == ["no BLAS, flash on, mapped", "f16", "12.0 and 11.0"]
    assert cells(text, "f32         | 2,048") == ["2,048", "800", "80.0", "12.50", "80%"]
    assert "- ours writes 'a\\ntext'\n- llama.cpp writes 'another'\n" in text
    assert "- left out: this: that" in text
    assert "ours writes" not in engine_report.markdown(REPORT | {"answers": []})
    assert cells(text, "generate: start to first token, B'MOJO 130M, packed, bf16")[-1] == "no bar"
    assert "Its prompt is given as `--ids`" in text and "maps it as it lies" in text
    assert "- f32: 100.0 MB a token (weights and memories); peak memory" in text


@pytest.mark.parametrize("rounds, said", [(9, "not enough rounds"), (10, "goal")])
def test_a_goal_needs_ten_rounds(rounds, said):
    found = {"ratios": [1.3] * rounds, "median": 1.3, "low": 1.2, "high": 1.4}
    text = engine_report.markdown(REPORT | {"goals": {"smollm2-prefill": found}})
    assert cells(text, "f32 prefill of 512")[-1] == said


def test_amx_is_left_out_where_it_is_listed():
    assert engine_peers.cmake_options("native", ["avx2"]) == engine_peers.BUILDS["native"]
    assert "-mno-amx-tile" in engine_peers.cmake_options("blas", ["avx2", "amx_tile"])


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_peers, "run", lambda command: None)
    installed = []
    for recipe in ("a==1", "a==1", "a==2"):
        python = engine_peers.environment("x", recipe, lambda pip: installed.append(pip[0]), tmp_path)
    assert installed == [str(python)] * 2 and python == tmp_path / "x/bin/python"
    with pytest.raises(ZeroDivisionError):
        engine_peers.environment("x", "a==3", lambda pip: 1 / 0, tmp_path)
    assert not (tmp_path / "x.recipe").exists()  # what failed is not taken for made


def test_what_is_made_is_whole(tmp_path):
    def half(part):
        part.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine_peers.made(tmp_path / "a", half)
    assert not (tmp_path / "a").exists()
    assert engine_peers.made(tmp_path / "a", lambda part: part.write_text("b")).read_text() == "b"
    assert engine_peers.made(tmp_path / "a", half).read_text() == "b"


def test_ours_runs_from_packed_folders(tmp_path, monkeypatch):
    calls = []

    def run(command):
        calls.append(command[1:])
        out = command[command.index("--out") + 1] if "--out" in command else command[-1]
        Path(out).mkdir(parents=True)

    monkeypatch.setattr(engine_peers, "FOLDER", tmp_path)
    monkeypatch.setattr(engine_peers, "run", run)
    monkeypatch.setattr(engine_peers, "weights_python", lambda: "python")
    monkeypatch.setattr(engine_peers, "smollm2_folder", lambda python: "hf")
    first, again = (engine_peers.models("bmojo") for _ in range(2))
    assert first == again and {name for name, (_, gguf) in first.items() if gguf} == {
        "smollm2", "mamba"}
    packed = [call for call in calls if "--packed" in call]
    assert len(packed) == 8 and len(calls) == 8 + 5  # packed anew each time, all else made once
    for name, (folder, _) in first.items():
        assert folder.exists() and (f"{folder}.part" in sum(packed, [])) == (name != "smollm2-plain")
    words, = (call for call in packed[:4] if f"{first['bmojo-bf16'][0]}.part" in call)
    assert words[:5] == ["export", str(tmp_path / "models/bmojo"), "--packed", "--dtype", "bf16"]


@pytest.fixture
def weights():
    """Runs code beside llama_weights.py, in a process of its own: its packages are the tests' too."""
    def run(code, *words):
        done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True,
                              text=True, cwd=TOOLS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_mamba_as_gguf(weights, tmp_path):
    tensors = write_hugging_face(tmp_path / "hf", MAMBA)
    out = weights("""
import json, sys, pathlib, gguf, llama_weights
llama_weights.mamba(*map(pathlib.Path, sys.argv[1:]))
reader = gguf.GGUFReader(sys.argv[2])
fields = {k: f.contents() for k, f in reader.fields.items()}
print(json.dumps([fields, {t.name: [str(t.tensor_type.name), t.data.tolist()]
                           for t in reader.tensors}]))
""", tmp_path / "hf", tmp_path / "mamba.gguf")
    fields, found = json.loads(out)
    assert fields["general.architecture"] == "mamba" and fields["mamba.ssm.inner_size"] == 24
    assert fields["mamba.ssm.time_step_rank"] == 5 and fields["mamba.vocab_size"] == 40
    assert len(found) == len(tensors) and {kind for kind, _ in found.values()} == {"F32"}
    mixer = "backbone.layers.1.mixer."
    for name, wanted in (("blk.1.ssm_a", -np.exp(tensors[mixer + "A_log"])),
                         ("blk.1.ssm_conv1d.weight", tensors[mixer + "conv1d.weight"][:, 0]),
                         ("blk.1.ssm_dt.bias", tensors[mixer + "dt_proj.bias"]),
                         ("token_embd.weight", tensors["backbone.embeddings.weight"])):
        np.testing.assert_allclose(np.array(found[name][1], dtype=np.float32), wanted, rtol=1e-6)


def test_a_llama_from_gguf(weights, bmojo, tmp_path):
    """Of a quantised file: f32 of the same numbers for both, and what `bmojo import` takes."""
    out = weights("""
import json, sys, pathlib, gguf, numpy as np, llama_weights
source, folder, out = map(pathlib.Path, sys.argv[1:])
draw, tensors = np.random.default_rng(0), {}
def tensor(name, *shape):
    tensors[name] = draw.standard_normal(shape).astype("f4")
tensor("token_embd.weight", 40, 32); tensor("output_norm.weight", 32)
for part, shape in dict(attn_q=(32, 32), attn_k=(16, 32), attn_v=(16, 32), attn_output=(32, 32),
                        ffn_gate=(64, 32), ffn_up=(64, 32), ffn_down=(32, 64), attn_norm=(32,),
                        ffn_norm=(32,)).items():
    tensor(f"blk.0.{part}.weight", *shape)
writer = gguf.GGUFWriter(str(source), "llama")
for add, value in ((writer.add_context_length, 64), (writer.add_embedding_length, 32),
                   (writer.add_block_count, 1), (writer.add_feed_forward_length, 64),
                   (writer.add_head_count, 4), (writer.add_head_count_kv, 2),
                   (writer.add_rope_freq_base, 1e5), (writer.add_layer_norm_rms_eps, 1e-5),
                   (writer.add_vocab_size, 40), (writer.add_bos_token_id, 1),
                   (writer.add_eos_token_id, 2), (writer.add_token_list, ["a", "b"])):
    add(value)
Q8 = gguf.GGMLQuantizationType.Q8_0
for name, array in tensors.items():
    if array.ndim == 2:
        writer.add_tensor(name, gguf.quantize(array, Q8), raw_dtype=Q8)
    else:
        writer.add_tensor(name, array)
writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file()
writer.close()
llama_weights.smollm2(source, folder, out)
reader = gguf.GGUFReader(str(out))
assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
plain = {t.name: t.data for t in reader.tensors}
for name, array in tensors.items():
    assert plain[name].dtype == np.float32 and abs(plain[name] - array).max() < 0.03, name
from safetensors.numpy import load_file
hf = load_file(folder / "model.safetensors")
# Rows 0 … 7 of a head: llama.cpp has those that are turned together side by side.
q, own = plain["blk.0.attn_q.weight"], hf["model.layers.0.self_attn.q_proj.weight"]
for head in range(4):
    for i in range(4):
        assert (own[8 * head + i] == q[8 * head + 2 * i]).all()
        assert (own[8 * head + 4 + i] == q[8 * head + 2 * i + 1]).all()
assert (hf["model.layers.0.mlp.down_proj.weight"] == plain["blk.0.ffn_down.weight"]).all()
print(json.dumps(sorted(hf)))
""", tmp_path / "in.gguf", tmp_path / "hf", tmp_path / "out.gguf")
    assert len(json.loads(out)) == 11
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert config["window"] == 0 and config["rope_theta"] == 1e5 and config["norm_eps"] == 1e-5


def test_the_first_start_warms_the_cache(monkeypatch):
    started = []
    monkeypatch.setattr(engine_alone, "start_up",
                        lambda program, folder, left: started.append(folder) or len(started))
    models = {name: (f"folder of {name}", None) for part in (GOALS, REPORTED)
              for name in part.starts.values()}
    engines = Namespace(program="bmojo", models=models)
    found = engine_alone.start_ups(engines, Now(), replace(REPORTED, rounds=2))
    assert found == {"plain": [2, 3], "bmojo-f32": [5, 6], "bmojo-bf16": [8, 9]}
    assert started[::3] == [f"folder of {name}" for name in ("smollm2-plain", "bmojo", "bmojo-bf16")]


def test_a_batch_is_beside_one_sequence_by_turns(monkeypatch):
    batches = []

    def rows_of(case, left):
        batches.append(case.batch)
        return [row("decode", 30.0 if case.batch == 8 else 6.0)]

    monkeypatch.setattr(engine_alone, "rows_of", rows_of)
    engines = Namespace(ours=lambda case: case)
    found = engine_alone.batch_ratios(engines, Now(), replace(GOALS, rounds=2))
    assert found == {0: [5.0, 5.0], 2048: [5.0, 5.0]} and batches == 2 * [1, 8, 8, 1]


def test_depths_of_both_parts_are_joined(monkeypatch):
    peaks = {"bmojo": 9, "bmojo-bf16": 4}

    def long_texts(engines, budget, model, lengths, turns):
        part = [{"phase": phase, "tokens_per_second": length, "peak_rss_bytes": peaks[model]}
                for length in lengths for phase in ("prefill", "decode")]
        peaks[model] -= 1
        return part + [row for row in part if row["phase"] == "decode"] * (turns - 1)

    monkeypatch.setattr(engine_alone, "long_texts", long_texts)
    monkeypatch.setattr(engine_alone, "rows_of", lambda case, left: [row(case.phase, 7)])
    monkeypatch.setattr(engine_alone, "run", lambda words: json.dumps(
        {"parameters": 10, "memory_bytes": {"total": 5}}))
    engines = Namespace(program="bmojo", ours=lambda case: case,
                        models={"bmojo": ("a", None), "bmojo-bf16": ("b", None)})
    found = {}
    for part in (GOALS, REPORTED):
        engine_alone.measure_bmojo(engines, Now(), part, found)
    assert {dtype: part["peak_rss_bytes"] for dtype, part in found.items()} == {"f32": 9, "bf16": 4}
    assert {dtype: part["bytes_a_token"] for dtype, part in found.items()} == {"f32": 45, "bf16": 25}
    for part in found.values():
        assert sorted(part["depths"]) == [0, 2048, 8192, 32768, LONG]
        assert part["depths"][0] == {"prefill": 7, "decode": [7]}
        assert part["depths"][2048] == {"prefill": 2048, "decode": [2048] * 10}
        assert part["depths"][8192]["decode"] == [8192] * 5


def test_start_up_is_of_a_whole_process(bmojo, small):
    assert 0 < engine_alone.start_up(bmojo.path, small, 60) < 60
    with pytest.raises(engine_alone.Failed, match="bmojo: "):
        engine_alone.start_up(bmojo.path, small / "none", 60)


def test_measures_of_ours_alone(bmojo, small, tmp_path):
    """Over the program itself, with a model of a few kilobytes."""
    bmojo("export", small, "--packed", "--dtype", "bf16", "--out", tmp_path / "bf16")
    engines = Namespace(program=bmojo.path, models={"bmojo-bf16": (tmp_path / "bf16", None)})
    rows = engine_alone.long_texts(engines, Now(), "bmojo-bf16", [512, 520], 3)
    assert {row["dtype"] for row in rows} == {"bf16"}
    found = engine_alone.by_depth(rows, [512, 520])
    assert [len(each["decode"]) for each in found.values()] == [2, 2]
    assert all(each["prefill"] > 0 for each in found.values())
