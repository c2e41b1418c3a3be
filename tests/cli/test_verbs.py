"""Every verb that needs no torch, end to end."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import (
    MAMBA,
    SMALL,
    hugging_face_shapes,
    listing,
    read_safetensors,
    write_hugging_face,
    write_safetensors,
    write_sparse_safetensors,
)

VERBS = ["config", "init", "inspect", "import", "export", "tokenize", "task", "plot",
         "score", "generate", "bench", "eval", "explain"]  # fmt: skip
TORCH_VERBS = ["train"]


# --- help, version, mistakes ---------------------------------------------------------------------


@pytest.mark.parametrize("verb", [None, *VERBS, *TORCH_VERBS])
def test_help_fits_80_columns(bmojo, verb):
    """Its columns are counted in bytes."""
    if verb in TORCH_VERBS and not (bmojo.folder / "bmojo-torch").exists():
        pytest.skip("built without torch")
    text = bmojo(*([verb] if verb else []), "--help")
    assert max(map(len, text.splitlines())) <= 80 and text.isascii()
    assert f"Usage: bmojo {verb or ''}".rstrip() in text
    if verb:
        for flag in ["--json", "--quiet", "--threads", "--seed"]:
            assert flag in text
    else:
        for each in VERBS + TORCH_VERBS:
            assert re.search(rf"^  {each} ", text, re.MULTILINE)


def test_version(bmojo):
    pattern = r"bmojo \d+\.\d+\.\d+ \(commit ([0-9a-f]{12}|unknown)\)\n"
    assert re.fullmatch(pattern, bmojo("--version"))


@pytest.mark.parametrize(
    "args, message",
    [
        ([], "a verb is needed, got none; bmojo --help lists them"),
        (["--quiet"], "--quiet: unknown flag; see bmojo --help"),
        (["config"], "--preset or --config: one is needed, got neither"),
        (["config", "--preset", "nano"], "--preset: 'nano' is not known; bmojo config --list"),
        (["config", "--preset", "a\nb\x1b[31m"], r"--preset: 'a\x0ab\x1b[31m' is not known"),
        (["config", "--preset", "a", "--config", "b"], "must be one of them, got both"),
        (["config", "--config", "/nowhere/c.json"], "/nowhere/c.json: file must exist"),
        (["config", "--list", "--preset", "bmojo-tiny"], "--list: must stand alone"),
        (["config", "--preset", "bmojo-tiny", "--set", "window"], "--set: must be key=value"),
        (["config", "--preset", "bmojo-tiny", "--set", "depth=3"], "field 'depth' is not known"),
        (["config", "--preset", "bmojo-tiny", "--set", "window=x"], 'whole number in digits, got "x"'),
        (["config", "--preset", "bmojo-tiny", "--set", "window=\udcff"],
         "window must be a whole number"),
        (["config", "--preset", "bmojo-tiny", "--set", "window=1.5"], 'whole number in digits, got "1.5"'),
        (["config", "--preset", "bmojo-tiny", "--set", "fading_tied=1"], "true or false, got 1"),
        (["config", "--preset"], "--preset: must have a value, got none; see bmojo config --help"),
        (["config", "--what"], "--what: unknown flag; see bmojo config --help"),
        (["config", "--sed=3"],
         "--sed: unknown flag; did you mean --seed? see bmojo config --help"),
        (["config", "-seed", "3"], "-seed: unknown flag; did you mean --seed? see"),
        (["init", "--ot", "x"], "--ot: unknown flag; did you mean --out? see bmojo init --help"),
        (["config", "extra"], "'extra': unexpected argument; see bmojo config --help"),
        (["confg"], "'confg': unknown verb; did you mean config? bmojo --help lists them all"),
        (["trian"], "'trian': unknown verb; did you mean train? bmojo --help lists them all"),
        (["frobnicate"], "'frobnicate': unknown verb; bmojo --help lists them all"),
        (["config", "--preset", "a", "--preset", "b"],
         "--preset: must be given once, got it 2 times; see bmojo config --help"),
        (["init", "--config", "a", "--config", "b", "--out", "x"],
         "--config: must be given once, got it 2 times"),
        *[([verb, *more, "--set", "window=4", "--set", "mlp_size=8", "--set", "window=5"],
           "--set: 'window' must be set once, got it twice")
          for verb, *more in (["config", "--preset", "bmojo-tiny"],
                              ["init", "--preset", "bmojo-tiny", "--out", "x"], ["inspect", "x"])],
        (["init", "--preset", "bmojo-tiny"], "--out is required; see bmojo init --help"),
        (["init", "--preset", "bmojo-tiny", "--out", "x", "--seed", "-1"],
         "--seed: must be from 0 to 9223372036854775807, got -1"),
        (["init", "--preset", "bmojo-tiny", "--out", "x", "--seed", "1e3"],
         "--seed: must be a whole number in digits, got '1e3'"),
        (["init", "--preset", "bmojo-tiny", "--out", "x", "--seed", "18446744073709551617"],
         "--seed: must be from 0 to 9223372036854775807, got 18446744073709551617"),
        (["init", "--preset", "bmojo-tiny", "--out", "x", "--seed", "0x10"],
         "--seed: must be a whole number in digits, got '0x10'"),
        (["init", "--preset", "bmojo-tiny", "--out", "x", "--threads", "0"],
         "--threads: must be from 1 to 4096, got 0"),
        (["init", "--out", "x"], "--preset or --config: one is needed"),
        (["inspect"], "PATH is required; see bmojo inspect --help"),
        (["config", "--config", "/dev/zero"],
         "/dev/zero: must be a regular file, got a device or pipe; write it to a file first"),
        (["inspect", "/nowhere"], "/nowhere: cannot be read: No such file"),
        (["import", "/nowhere", "--out", "x"], "/nowhere: must be a folder with config.json"),
        (["import", "d", "--out", "x", "--dtype", "q8"],
         "--dtype: must be f32, bf16 or f16, got 'q8'"),
        (["export", "/nowhere", "--out", "x"], "/nowhere: file must exist, got none"),
        (["export", "d", "--out", "x", "--dtype", "q8"],
         "--dtype: must be f32, bf16 or f16, got 'q8'"),
    ],
)
def test_mistakes_exit_2_with_one_line(bmojo, tmp_path, args, message):
    assert message in bmojo(*args, code=2, cwd=tmp_path)
    assert listing(tmp_path) == []


def test_torch_verbs_run_bmojo_torch_beside(bmojo, tmp_path):
    shutil.copy(bmojo.path, tmp_path / "bmojo")
    alone = type(bmojo)(tmp_path)
    for verb in TORCH_VERBS:
        assert f"{verb}: needs bmojo-torch beside bmojo, got none at" in alone(verb, code=2)

    other = tmp_path / "bmojo-torch"
    other.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 0\n')
    other.chmod(0o755)
    assert alone("train", "--out", "a b", "--help") == "train|--out|a b|--help|"
    assert alone("explain", "--realization") == "explain|--realization|"
    for choice in (["--engine", "torch"], ["--engine=torch"]):
        for verb in ("score", "eval", "explain"):
            assert alone(verb, *choice, "--help") == "|".join([verb, *choice, "--help", ""])
    assert alone("bench", "--train") == "bench|--train|"
    assert "'frobnicate': unknown verb" in alone("frobnicate", "x", code=2)
    other.write_text("#!/bin/sh\necho 'bmojo: no' >&2\nexit 7\n")
    alone("generate", "--engine", "torch", code=7)
    other.chmod(0o644)
    assert "cannot be run: Permission denied" in alone("bench", "--train", code=1)


def test_full_stdout_exits_1(bmojo):
    long = ["task", "mqar:pairs=4,length=9000,vocab=40", "--show"]  # more than a buffer
    for args in (["config", "--list"], ["config", "--preset", "bmojo-tiny"], ["--help"], long):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([bmojo.path, *args], stdout=full, stderr=subprocess.PIPE)
        assert result.returncode == 1
        assert re.fullmatch(rb"bmojo: stdout: writing failed[^\n]*\n", result.stderr)


def run_unread(command, which, **options):
    """(exit code, what came on the other of stdout and stderr) where nobody reads this one."""
    reader, writer = os.pipe()
    os.close(reader)
    other = "stderr" if which == "stdout" else "stdout"
    result = subprocess.run(command, timeout=120, **{which: writer, other: subprocess.PIPE},
                            **options)
    os.close(writer)
    return result.returncode, getattr(result, other)


def test_where_nobody_reads_it_ends_without_a_word(bmojo):
    for args in (["config", "--list"], ["config", "--preset", "bmojo-tiny"], ["--help"],
                 ["--version"], ["task", "mqar", "--show"]):
        assert run_unread([bmojo.path, *args], "stdout") == (128 + signal.SIGPIPE, b""), args


def test_messages_that_nobody_reads_change_no_exit_code(bmojo, tmp_path):
    command = [bmojo.path, "config", "--preset", "nano"]
    assert run_unread(command, "stderr") == (2, b"")
    with open("/dev/full", "wb") as full:
        assert subprocess.run(command, stderr=full).returncode == 2
    command = [bmojo.path, "init", *SMALL, "--out", tmp_path / "x"]
    assert run_unread(command, "stderr")[0] == 0


@pytest.mark.parametrize("program", ["bmojo", "bmojo-torch"])
def test_a_current_folder_that_is_gone(bmojo, tmp_path, program):
    if not (bmojo.folder / program).exists():
        pytest.skip("built without torch")
    (tmp_path / "gone").mkdir()
    for verb in ("config", "score"):  # one of either program
        run = subprocess.run(["bash", "-c", 'cd "$1" && rmdir "$1" && "$2" "$3"; r=$?; mkdir "$1"; '
                              "exit $r", "-", tmp_path / "gone", bmojo.folder / program, verb],
                             capture_output=True)
        assert run.returncode == 2 and run.stdout == b""
        assert run.stderr == (b"bmojo: current folder: must exist, got one that has been removed; "
                              b"cd to another\n")


def test_a_pipe_is_no_config(bmojo, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/stdin"):
        message = bmojo("config", "--config", path, code=2, input=b"{}", timeout=60)
        assert message == (f"bmojo: {path}: must be a regular file, got a device or pipe; write it "
                           "to a file first")


# --- config --------------------------------------------------------------------------------------


def test_config_prints_what_it_reads(bmojo, tmp_path):
    sets = ["--set", "window=100", "--set", "norm_eps=1e-6"]
    text = bmojo("config", "--preset", "hybrid-130m", *sets)
    config = json.loads(text)
    assert config["model_type"] == "bmojo" and config["pattern"] == "ssm,attention"
    assert config["window"] == 100 and config["norm_eps"] == 1e-6
    (tmp_path / "config.json").write_text(text)
    assert bmojo("config", "--config", tmp_path / "config.json") == text
    assert bmojo("config", "--config", tmp_path) == text
    assert bmojo.json("config", "--config", tmp_path) == config


def test_config_list(bmojo):
    text, listed = bmojo("config", "--list"), bmojo.json("config", "--list")
    assert max(map(len, text.splitlines())) <= 80
    for preset in listed["presets"]:
        row = rf"^{re.escape(preset['name'])} +{preset['parameters']:,} "
        assert re.search(row, text, re.MULTILINE)
    fields = bmojo.json("config", "--preset", "bmojo-tiny")
    assert ["model_type", *listed["fields"]] == list(fields)
    assert set(listed["fields"]) <= set(text.split())


def test_presets_of_a_size_have_the_same_parameters(bmojo):
    listed = {each["name"]: each for each in bmojo.json("config", "--list")["presets"]}
    families = ["bmojo", "bmojo-paper", "bmojo-f", "mamba", "transformer", "hybrid"]
    sizes = {"tiny": None, "130m": 130e6, "370m": 370e6, "790m": 790e6, "1.4b": 1.4e9}
    assert sorted(listed) == sorted(f"{family}-{size}" for family in families for size in sizes)
    for size, nominal in sizes.items():
        inner = [listed[f"{family}-{size}"]["parameters_without_embeddings"] for family in families]
        assert max(inner) <= 1.03 * min(inner), (size, inner)
        for family in families:
            total = listed[f"{family}-{size}"]["parameters"]
            assert nominal is None or abs(total / nominal - 1) <= 0.05, (family, size, total)


def test_the_pages_know_the_presets(bmojo):
    root = Path(__file__).parents[2]
    page = (root / "docs/checkpoint.md").read_text()
    presets = bmojo.json("config", "--list")["presets"]
    for text in (page, (root / "README.md").read_text()):
        assert f"{len(presets)} presets" in text
    for preset in presets:
        row = re.search(rf"^\| `{re.escape(preset['name'])}` \|.*$", page, re.MULTILINE)[0]
        config = bmojo.json("config", "--preset", preset["name"])
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1:3] == [str(config["hidden_size"]), str(config["num_layers"])]
        assert cells[6:8] == [f"{preset['parameters']:,}",
                              f"{preset['parameters_without_embeddings']:,}"]


# --- init ----------------------------------------------------------------------------------------


def test_init_is_a_function_of_the_seed(bmojo, tmp_path):
    def bytes_of(name, *flags):
        bmojo("init", *SMALL, "--out", tmp_path / name, *flags)
        return (tmp_path / name / "model.safetensors").read_bytes()

    first = bytes_of("a", "--seed", 1)
    assert bytes_of("b", "--seed", 1, "--threads", 1, "--quiet") == first
    assert bytes_of("c", "--seed", 2) != first
    assert bytes_of("d") == bytes_of("e", "--seed", 0)
    assert listing(tmp_path / "a") == ["config.json", "model.safetensors"]
    report = bmojo.json("init", *SMALL, "--seed", 3, "--out", tmp_path / "f")
    assert report["seed"] == 3 and report["out"] == str(tmp_path / "f")
    assert report["parameters"] == bmojo.json("inspect", tmp_path / "f")["parameters"]


def test_init_takes_an_empty_folder_and_leaves_a_full_one(bmojo, tmp_path):
    (tmp_path / "out").mkdir()
    bmojo("init", *SMALL, "--out", tmp_path / "out")
    before = (tmp_path / "out/model.safetensors").read_bytes()
    message = bmojo("init", *SMALL, "--seed", 9, "--out", tmp_path / "out", code=2)
    assert "out: folder must be new or empty, got" in message
    assert (tmp_path / "out/model.safetensors").read_bytes() == before
    (tmp_path / "file").write_text("kept")
    assert "got the file" in bmojo("init", *SMALL, "--out", tmp_path / "file", code=2)
    message = bmojo("init", *SMALL, "--out", tmp_path / "a/b", code=2)
    assert "parent of the folder must exist" in message
    assert listing(tmp_path) == ["file", "out"]


def test_init_refuses_what_the_disk_cannot_hold(bmojo, tmp_path):
    huge = ["--set", "vocab_size=16000000", "--set", "hidden_size=1000000"]
    message = bmojo("init", "--preset", "bmojo-tiny", *huge, "--out", tmp_path / "x", code=1)
    assert re.search(r"x: needs 64\.\d TB of free disk, got ", message)
    assert listing(tmp_path) == []


# --- failures while writing ----------------------------------------------------------------------


def big_folder(bmojo, folder, native):
    """A Mamba of 2 GB as a sparse file, under Hugging Face's names or native ones."""
    config = MAMBA | {"vocab_size": 1 << 20, "hidden_size": 512, "state_size": 16}
    shapes = hugging_face_shapes(config | {"time_step_rank": 32})
    text = json.dumps(config | {"time_step_rank": "auto"})
    if native:
        fields = ["vocab_size=1048576", "hidden_size=512", "ssm_inner_size=1024", "num_layers=2"]
        fields = [word for field in [*fields, "ssm_dt_rank=32"] for word in ("--set", field)]
        text = bmojo("config", "--preset", "mamba-tiny", *fields)
        names = {"backbone.embeddings.": "embedding.", "backbone.layers.": "layers.",
                 ".mixer.": ".ssm.", "backbone.norm_f.": "norm."}  # fmt: skip
        for theirs, ours in names.items():
            shapes = {name.replace(theirs, ours): shape for name, shape in shapes.items()}
    folder.mkdir()
    (folder / "config.json").write_text(text)
    write_sparse_safetensors(folder / "model.safetensors", shapes)
    return folder


@pytest.mark.parametrize("verb", ["init", "import", "export"])
def test_a_write_that_fails_exits_1_and_leaves_nothing(bmojo, tmp_path, small, verb):
    source = tmp_path / "hf"
    write_hugging_face(source, MAMBA)
    out = tmp_path / "work"
    out.mkdir()
    args = {"init": SMALL, "import": [source], "export": [small]}[verb]
    message = bmojo(verb, *args, "--out", out / "x", code=1, file_limit=8192)
    assert re.search(r"model\.safetensors: writing failed: File too large$", message)
    assert listing(out) == []


@pytest.mark.parametrize(
    "verb, number",
    [
        ("init", signal.SIGINT),
        ("import", signal.SIGINT),
        ("export", signal.SIGINT),
        ("init", signal.SIGTERM),
        ("init", signal.SIGHUP),
    ],
)
def test_an_interrupt_leaves_nothing(bmojo, tmp_path, verb, number):
    out = tmp_path / "work"
    out.mkdir()
    args = ["--preset", "bmojo-790m"]
    if verb != "init":
        args = [big_folder(bmojo, tmp_path / "source", native=verb == "export")]
    command = [bmojo.path, verb, *args, "--out", out / "x"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not listing(out) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert listing(out) != [] and listing(out) != ["x"]
    process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert error == b"bmojo: interrupted; nothing partly written is left\n"
    assert listing(out) == []


# --- inspect -------------------------------------------------------------------------------------


def test_inspect_json(bmojo, small):
    got = bmojo.json("inspect", small)
    keys = ["parameters", "parameters_without_embeddings", "memory_bytes", "config"]
    assert list(got)[:4] == keys
    D, E, N, R, K, V, F, Q, G = 12, 10, 3, 5, 4, 40, 20, 24, 12
    ssm = 2 * E * D + E * K + E + (R + 2 * N) * E + E * R + E + E * N + E + D * E
    attention = Q * D + 2 * G * D + D * Q + D + 1
    inner = 2 * (D + ssm + attention + D + 3 * F * D) + D
    assert got["parameters_without_embeddings"] == inner
    assert got["parameters"] == inner + V * D
    row = 2 * G * 4
    memory = {
        "window": 2 * 8 * row,
        "fading": 2 * 6 * row,
        "ssm_state": 2 * E * N * 4,
        "conv_tail": 2 * E * (K - 1) * 4,
        "predictor": 2 * 4 * D * 4,
        "eidetic": 2 * 5 * (row + 2 * (4 + 8 + 8)),
    }
    assert got["memory_bytes"] == memory | {"total": sum(memory.values())}
    assert list(got["memory_bytes"]) == [*memory, "total"]
    assert got["config"] == json.loads((small / "config.json").read_text())
    metadata, tensors = read_safetensors(small / "model.safetensors")
    assert got["tensors"] == len(tensors) and got["dtypes"] == {"F32": len(tensors)}
    assert got["files"][0]["digest"] == metadata["bmojo.digest"]


def test_inspect_for_people(bmojo, small):
    text = bmojo("inspect", small)
    assert max(map(len, text.splitlines())) <= 80
    for part in ["B'MOJO, width 12", "bmojo x 2", "F32", "model.safetensors", "xxh3-128:"]:
        assert part in text
    text = bmojo("inspect", small / "model.safetensors")
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^layers\.1\.ssm\.conv1d\.weight +F32 +\[10, 1, 4\]$", text, re.MULTILINE)


def test_inspect_settings_change_memories_only(bmojo, small):
    before = bmojo.json("inspect", small)
    after = bmojo.json("inspect", "--set", "eidetic_tokens=10", "--set", "window=16", small)
    assert after["parameters"] == before["parameters"]
    for name, factor in [("eidetic", 2), ("window", 2), ("fading", 1), ("ssm_state", 1)]:
        assert after["memory_bytes"][name] == factor * before["memory_bytes"][name]
    assert after["config"]["eidetic_tokens"] == 10
    for bad, message in [
        ("mlp_size=3", "must be one of eidetic_tokens, fading_tokens, window for given weights"),
        ("window=0", "window must be at least 1 with fading or eidetic tokens"),
        ("window=-1", "window must be from 0 to"),
        ("eidetic_tokens", "--set: must be key=value"),
    ]:
        assert message in bmojo("inspect", small, "--set", bad, code=2)
    message = bmojo("inspect", small / "model.safetensors", "--set", "window=4", code=2)
    assert "--set: needs a checkpoint folder" in message


def test_inspect_unlimited_window_grows(bmojo, tmp_path):
    bmojo("init", "--preset", "transformer-tiny", "--set", "vocab_size=64", "--out", tmp_path / "t")
    got = bmojo.json("inspect", tmp_path / "t")
    assert got["memory_bytes"]["total"] == 0
    assert got["window_bytes_per_token"] == 4 * 2 * 1 * 32 * 4
    assert "adds 1,024 B a token" in bmojo("inspect", tmp_path / "t")


def test_verify_finds_a_flipped_byte(bmojo, small):
    file = small / "model.safetensors"
    assert bmojo.json("inspect", small, "--verify")["verified"] is True
    assert re.search(r"^verified +yes$", bmojo("inspect", small, "--verify"), re.MULTILINE)
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    bmojo("inspect", small)
    digest = r"xxh3-128:[0-9a-f]{32}"
    for path in (small, file):
        message = bmojo("inspect", path, "--verify", code=2)
        found = re.search(rf"safetensors: digest must be ({digest}), got ({digest});", message)
        assert found and found[1] != found[2]
        assert found[1] == bmojo.json("inspect", small)["files"][0]["digest"]


def test_verify_says_where_no_digest_is_stored(bmojo, tmp_path):
    write_safetensors(tmp_path / "a.safetensors", {"x": np.zeros(3, "f4")}, {"made by": "hand\n"})
    got = bmojo.json("inspect", tmp_path / "a.safetensors", "--verify")
    assert got["verified"] is False and got["metadata"] == {"made by": "hand\n"}
    assert got["tensor_list"] == [{"name": "x", "dtype": "F32", "shape": [3], "bytes": 12}]
    text = bmojo("inspect", tmp_path / "a.safetensors", "--verify")
    assert "a digest is not stored" in text and r"made by = hand\x0a" in text


# --- progress ------------------------------------------------------------------------------------


def terminal_output(bmojo, *args):
    """What appears on a terminal of 60 columns, and the seconds of computing behind it."""
    primary, secondary = pty.openpty()
    os.set_blocking(primary, False)
    subprocess.run(["stty", "cols", "60"], stdin=secondary, check=True)
    command = [bmojo.path, *map(str, args)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=secondary)
    os.close(secondary)
    seen = b""
    while True:
        try:
            seen += os.read(primary, 65536)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # the last writer is gone
            break
    os.close(primary)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return seen.decode(), used.ru_utime + used.ru_stime


def test_progress_moves_on_a_terminal_only(bmojo, tmp_path):
    flags = ["--preset", "bmojo-130m"]
    shown, seconds = terminal_output(bmojo, "init", *flags, "--out", tmp_path / "a")
    lines = [line.removesuffix("\x1b[K") for line in shown.split("\r") if line.strip("\x1b[K")]
    assert lines or seconds < 1.2, "more than a second of work must show progress"
    for line in lines:
        assert re.fullmatch(r"init +\d+ %  [\d.]+ \w*B/s  [\d:]+ left", line) and len(line) < 60
    assert not lines or shown.endswith("\r\x1b[K")
    assert terminal_output(bmojo, "init", *flags, "--quiet", "--out", tmp_path / "b")[0] == ""
    assert terminal_output(bmojo, "init", *SMALL, "--out", tmp_path / "c")[0] == ""
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
