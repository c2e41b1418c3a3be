"""score, generate and bench through the built programs: values, exit codes, one-line mistakes."""

import json
import math
import os
import pty
import resource
import shutil
import signal
import subprocess

import numpy as np
import pytest
from conftest import listing, read_safetensors


@pytest.fixture(scope="module")
def model(bmojo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("score") / "model"
    sets = ["vocab_size=50", "window=8", "fading_tokens=3", "eidetic_tokens=5"]
    bmojo("init", "--preset", "bmojo-tiny", *[f for s in sets for f in ("--set", s)],
          "--seed", "1", "--out", folder)
    return folder


def jsonl(*lines):
    return "".join(json.dumps({"ids": line}) + "\n" for line in lines).encode()


LINES = [[1, 2, 3, 4, 5] * 9, [7], [9, 8] * 13, [49] * 40]


@pytest.fixture(scope="module")
def score(bmojo, model):
    def run(*flags, lines=LINES):
        out = bmojo("score", "--model", model, "--ids", "-", *flags, input=jsonl(*lines))
        return [json.loads(line) for line in out.splitlines()]

    return run


def test_logprobs_are_those_of_the_logits(score, tmp_path):
    out = tmp_path / "logits.safetensors"
    results = score("--logits", out)
    _, logits = read_safetensors(out)
    assert len(results) == len(LINES)
    for n, (ids, result) in enumerate(zip(LINES, results)):
        dtype, shape, raw = logits[f"logits.{n}"]
        assert (dtype, shape) == ("F32", (len(ids), 50))
        rows = np.frombuffer(raw, "<f4").reshape(shape).astype(float)
        assert result["logprobs"][0] is result["argmax"][0] is result["top"][0] is None
        assert len(result["logprobs"]) == len(result["argmax"]) == len(result["top"]) == len(ids)
        for i in range(1, len(ids)):
            row = rows[i - 1]
            total = math.log(sum(math.exp(x) for x in row))
            assert result["logprobs"][i] == pytest.approx(row[ids[i]] - total, abs=1e-5)
            assert row[result["argmax"][i]] == max(row)
            assert result["top"][i] == pytest.approx(max(row) - total, abs=1e-5)


CUTS = [["--chunk", "1"], ["--chunk", "7"], ["--batch", "3"], ["--batch", "4", "--chunk", "5"],
        ["--threads", "1"]]  # fmt: skip


@pytest.mark.parametrize("flags", CUTS)
def test_chunks_and_batches_change_no_bit(score, flags):
    assert score() == score(*flags)


@pytest.mark.parametrize("flags", [["--chunk", "1"], ["--chunk", "7"], ["--threads", "1"]])
def test_chunks_change_nothing_in_torch(score, flags):
    for expected, got in zip(score("--engine", "torch"), score("--engine=torch", *flags)):
        for a, b in zip(expected["logprobs"], got["logprobs"]):
            assert a == b is None or a == pytest.approx(b, abs=1e-4)


FAMILIES = ["bmojo", "bmojo-paper", "bmojo-f", "mamba", "transformer", "hybrid"]


@pytest.mark.parametrize("family", FAMILIES)
def test_both_engines_give_the_same_logits(bmojo, tmp_path, family):
    sets = ["vocab_size=50", "hidden_size=96"]
    if family != "transformer" and family != "mamba":
        sets.append("window=8")
    if family in ("bmojo", "bmojo-paper"):
        sets.append("eidetic_tokens=5")
    bmojo("init", "--preset", f"{family}-tiny", *[f for s in sets for f in ("--set", s)],
          "--seed", "3", "--out", tmp_path / "model")
    logits = []
    for engine in ("native", "torch"):
        out = tmp_path / f"{engine}.safetensors"
        bmojo("score", "--model", tmp_path / "model", "--ids", "-", "--engine", engine,
              "--logits", out, input=jsonl([1, 2, 3, 4, 5] * 9))
        _, tensors = read_safetensors(out)
        logits.append(np.frombuffer(tensors["logits.0"][2], "<f4").astype(float))
    # The products differ in the order of their sums; no ε lies near the cut in these draws.
    error = np.abs(logits[0] - logits[1]).max() / np.abs(logits[1]).max()
    assert error < 1e-4


def test_the_instruction_set_can_be_capped(bmojo, model, score):
    def capped(name, code=0):
        return bmojo("score", "--model", model, "--ids", "-", code=code, input=jsonl(*LINES),
                     env={**os.environ, "BMOJO_SIMD": name})

    narrow = [json.loads(line)["logprobs"][1:] for line in capped("AVX2").splitlines()]
    assert narrow == [result["logprobs"][1:] for result in score()]  # kernels: to the bit
    assert capped("AVX3")
    message = capped("SSE9", code=2)
    assert message.startswith("bmojo: BMOJO_SIMD: must be one of ") and "AVX2" in message


def test_memory_settings_change_the_answer(score):
    assert score() != score("--set", "eidetic_tokens=0")


def test_generate_is_repeatable_and_scored(bmojo, score, model):
    flags = ["generate", "--model", model, "--ids", "1,2,3", "--max-tokens", "12", "--ignore-eos",
             "--json", "--seed", "5"]
    first, again = (json.loads(bmojo(*flags)) for _ in range(2))
    assert first == again
    assert len(first["ids"]) == 12 and first["finish"] == "length" and first["prompt_tokens"] == 3
    whole = score(lines=[[1, 2, 3] + first["ids"]])[0]["logprobs"][3:]
    assert first["logprobs"] == whole  # to the bit, though read in other parts
    other = json.loads(bmojo(*flags[:-1], "6"))
    assert other["ids"] != first["ids"]


def test_greedy_takes_the_most_likely(bmojo, score, model):
    run = bmojo("generate", "--model", model, "--ids", "4", "--max-tokens", "6", "--temperature",
                "0", "--ignore-eos")
    ids = [4] + [int(x) for x in run.split()]
    assert score(lines=[ids])[0]["argmax"][1:] == ids[1:]
    for narrow in (["--top-k", "1"], ["--top-p", "0.0001"], ["--top-p", "0"], ["--min-p", "1"],
                   ["--temperature", "1e-320"]):
        drawn = bmojo("generate", "--model", model, "--ids", "4", "--max-tokens", "6", *narrow,
                      "--ignore-eos")
        assert drawn == run, narrow


def test_filters_keep_the_most_likely(bmojo, score, model, tmp_path):
    score("--logits", tmp_path / "logits.safetensors", lines=[[4]])
    _, tensors = read_safetensors(tmp_path / "logits.safetensors")
    logits = np.frombuffer(tensors["logits.0"][2], "<f4").astype(float)
    order = np.argsort(-logits)
    p = np.exp(logits[order]) / np.exp(logits).sum()
    # Each is set so that the third token is the last to stay; all three are about as likely.
    for narrow in (["--top-k", 3], ["--top-p", p[0] + p[1] + p[2] / 2],
                   ["--min-p", (p[2] + p[3]) / 2 / p[0]]):  # fmt: skip
        drawn = bmojo("generate", "--model", model, "--ids", "4", "--max-tokens", "1",
                      "--num-samples", "100", "--ignore-eos", *narrow)  # fmt: skip
        assert {int(id) for id in drawn.split()} == set(order[:3].tolist()), narrow


def test_samples_and_eos(bmojo, model):
    run = bmojo("generate", "--model", model, "--ids", "4", "--num-samples", "40", "--max-tokens",
                "60", "--json")
    samples = [json.loads(line) for line in run.splitlines()]
    assert len(samples) == 40
    ended = [s for s in samples if s["finish"] == "eos"]
    assert ended and all(s["ids"][-1] == 2 for s in ended)
    assert all(2 not in s["ids"][:-1] for s in samples)


def test_bench_measures_a_training_step(bmojo):
    run = bmojo("bench", "--train", "--preset", "bmojo-tiny", "--set", "vocab_size=100", "--length",
                "64", "--batch", "2", "--repeat", "1", "--json")
    result = json.loads(run)
    assert result["phase"] == "train" and result["length"] == 64 and result["batch"] == 2
    assert result["seconds_per_step"] > 0 and result["parameters"] > 900_000


@pytest.mark.parametrize("lines, says", [
    ("", "must hold at least one line"),
    ("[1]\n", "-:1: must be {\"ids\": [..]}"),
    ("{\"ids\": 3}\n", "-:1: must be {\"ids\": [..]}"),
    ("{\"ids\": []}\n", "-:1: ids must hold at least one id"),
    ("{\"ids\": [1.5]}\n", "-:1: ids must be whole numbers, got 1.5"),
    ("{\"ids\": [1]}\n{\"ids\": [50]}\n", "-:2: ids must be from 0 to 49, got 50"),
    ("{\"ids\": [-1]}\n", "-:1: ids must be from 0 to 49, got -1"),
    ("{\"ids\": [1]\n", "-:1: must be valid JSON"),
])
def test_wrong_lines(bmojo, model, tmp_path, lines, says):
    out = tmp_path / "logits.safetensors"
    assert says in bmojo("score", "--model", model, "--ids", "-", "--logits", out, code=2,
                         input=lines.encode())
    assert listing(tmp_path) == []


def test_broken_weights_are_reported_not_scored(bmojo, model, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    raw = bytearray((broken / "model.safetensors").read_bytes())
    raw[-4:] = np.float32("nan").tobytes()  # the last gain
    (broken / "model.safetensors").write_bytes(raw)
    assert "finite" in bmojo("score", "--model", broken, "--ids", "-", code=1, input=jsonl([1, 2]))
    assert "finite" in bmojo("generate", "--model", broken, "--ids", "1", code=1)


def test_a_closed_pipe_leaves_nothing_behind(bmojo, model, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(jsonl(*[[1, 2, 3] * 20] * 3000))
    (tmp_path / "out").mkdir()
    shell = '"$1" score --model "$2" --ids "$3" --logits "$4" --quiet | head -n 1 >/dev/null'
    subprocess.run(["bash", "-c", shell, "-", bmojo.path, model, lines,
                    tmp_path / "out/logits.safetensors"], stderr=subprocess.DEVNULL)
    assert [name for name in listing(tmp_path / "out") if name != "logits.safetensors"] == []


def test_where_nobody_reads_scoring_ends_soon(bmojo, model, tmp_path):
    """Without a word; far from all lines are scored, and no logits are left."""
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(jsonl(*[[1, 2, 3] * 20] * 3000))
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([bmojo.path, "score", "--model", model, "--ids", lines, "--quiet",
                          "--logits", tmp_path / "logits.safetensors"],
                         stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (run.returncode, run.stderr) == (128 + signal.SIGPIPE, b"")
    assert listing(tmp_path) == ["lines.jsonl"]


def test_nothing_is_printed_into_files_where_stdout_is_closed(bmojo, model, tmp_path):
    """A file that took the place of stdout would hold what is printed."""
    (tmp_path / "lines").write_bytes(jsonl(*[[1, 2, 3] * 200] * 4))  # more than a buffer of results
    run = subprocess.run(["bash", "-c", '"$@" >&-', "-", bmojo.path, "score", "--model", model,
                          "--ids", tmp_path / "lines", "--logits", tmp_path / "x.safetensors"],
                         capture_output=True)
    assert run.returncode == 1 and run.stderr.endswith(b": Bad file descriptor\n")
    assert listing(tmp_path) == ["lines"]


def test_a_line_has_a_bound(bmojo, model):
    for endless in (b"x" * ((64 << 20) + 1), b'{"ids": [1]}\n' + b"\0" * ((64 << 20) + 1)):
        message = bmojo("score", "--model", model, "--ids", "-", code=2, input=endless)
        number = endless.count(b"\n") + 1
        assert message == f"bmojo: -:{number}: line must be at most 67108864 bytes, got more"
    with open("/dev/zero", "rb") as endless:
        message = bmojo("score", "--model", model, "--ids", "-", code=2, stdin=endless, timeout=100)
        assert message == "bmojo: -:1: line must be at most 67108864 bytes, got more"


def test_reading_that_fails_is_no_end_of_the_lines(bmojo, model, tmp_path):
    """The first byte of /proc/self/mem cannot be read; nor can a terminal's other end once it is
    closed, after what was written to it."""
    message = bmojo("score", "--model", model, "--ids", "/proc/self/mem", code=1)
    assert message == "bmojo: /proc/self/mem: reading failed: Input/output error"
    primary, secondary = pty.openpty()
    os.write(secondary, jsonl([1, 2], [3, 4]))
    os.close(secondary)
    message = bmojo("score", "--model", model, "--ids", "-", code=1, stdin=primary)
    os.close(primary)
    assert message == "bmojo: -: reading failed: Input/output error"
    folder = os.open(tmp_path, os.O_RDONLY)
    message = bmojo("score", "--model", model, "--ids", "-", code=2, stdin=folder)
    os.close(folder)
    assert message == "bmojo: -: standard input must be a file or a pipe, got a folder"


def test_a_pipe_is_no_file_of_lines(bmojo, model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    message = bmojo("score", "--model", model, "--ids", tmp_path / "pipe", code=2, timeout=60)
    assert message == (f"bmojo: {tmp_path}/pipe: must be a regular file, got a device or pipe; "
                       "give - and pipe it in")


def test_training_goes_on_where_nobody_reads(bmojo, tmp_path):
    """Messages and a result that nobody reads cost no step and no checkpoint."""
    flags = ["--preset", "bmojo-tiny", "--task", "mqar:pairs=4,length=48,vocab=40",
             "--batch-tokens", 96, "--steps", 2]
    for which in ("stderr", "stdout"):
        reader, writer = os.pipe()
        os.close(reader)
        out = tmp_path / which
        run = subprocess.run([bmojo.path, "train", *map(str, flags), "--out", out],
                             **{which: writer})
        os.close(writer)
        assert which == "stderr" or run.returncode == 128 + signal.SIGPIPE
        bmojo("inspect", out, "--verify")
        assert len((out / "metrics.jsonl").read_text().splitlines()) == 2


def test_too_large_for_the_memory_is_one_line(bmojo, model):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    run = subprocess.run([bmojo.path, "bench", "--train", "--model", model, "--length", "4000000"],
                         capture_output=True, preexec_fn=limit)
    assert run.returncode == 1 and run.stdout == b""
    assert run.stderr.startswith(b"bmojo: out of memory") and run.stderr.count(b"\n") == 1


@pytest.mark.parametrize("arguments, says", [
    (["score", "--ids", "-"], "--model"),
    (["score", "--model", "/no/such", "--ids", "-"], "/no/such"),
    (["score", "--model", "MODEL", "--ids", "/no/such"], "/no/such: cannot be read"),
    (["score", "--model", "MODEL", "--ids", "-", "--chunk", "0"], "--chunk: must be from 1 to"),
    (["score", "--model", "MODEL", "--ids", "-", "--chunk", "1e3"],
     "--chunk: must be a whole number in digits, got '1e3'"),
    (["score", "--modle", "MODEL", "--ids", "-"],
     "--modle: unknown flag; did you mean --model? see bmojo score --help"),
    (["score", "--model", "MODEL", "--ids", "-", "--set", "window=4", "--set", "window=5"],
     "--set: 'window' must be set once, got it twice"),
    (["score", "--model", "MODEL", "--ids", "."], ".: must be a regular file, got a folder"),
    (["score", "--model", "MODEL", "--ids", "/dev/zero"],
     "/dev/zero: must be a regular file, got a device or pipe; give - and pipe it in"),
    (["score", "--model", "MODEL", "--ids", "/dev/stdin"],
     "/dev/stdin: must be a regular file, got a device or pipe; give - and pipe it in"),
    (["score", "--model", "MODEL", "--ids", "-", "--engine", "gpu"], "--engine"),
    (["score", "--model", "MODEL", "--ids", "-", "--engine", "torch", "--dtype", "bf16"],
     "--dtype: must be f32 with --engine torch, got bf16"),
    (["score", "--model", "MODEL", "--ids", "-", "--set", "num_heads=2"], "num_heads"),
    (["generate", "--model", "MODEL", "--ids", "1,x"], "--ids"),
    (["generate", "--model", "MODEL", "--ids", ""], "--ids: must be whole numbers"),
    (["generate", "--model", "MODEL", "--ids", "1,,2"], "--ids: must be whole numbers"),
    (["generate", "--model", "MODEL", "--ids", "1,"], "--ids: must be whole numbers"),
    (["generate", "--model", "MODEL", "--ids", "1", "--temperature", "nan"],
     "--temperature: must be a number, got 'nan'"),
    (["generate", "--model", "MODEL", "--ids", "1", "--top-p", "nan"], "--top-p: must be a number"),
    (["generate", "--model", "MODEL", "--ids", "50"], "ids must be from 0 to 49, got 50"),
    (["generate", "--model", "MODEL", "--ids", "1", "--temperature", "-1"], "--temperature"),
    (["generate", "--model", "MODEL", "--ids", "1", "--top-p", "2"], "--top-p"),
    (["generate", "--model", "MODEL", "--ids", "1", "--max-tokens", "0"], "--max-tokens"),
    (["bench", "--train"], "--preset"),
    (["bench", "--train", "--preset", "bmojo-tiny", "--model", "MODEL"], "--model cannot be given with"),
])
def test_wrong_arguments(bmojo, model, arguments, says):
    filled = [model if a == "MODEL" else a for a in arguments]
    assert says in bmojo(*filled, code=2, input=jsonl([1]))
