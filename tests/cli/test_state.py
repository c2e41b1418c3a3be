"""State files: what `bmojo inspect` says of one, and what a failing disk leaves of one."""

import json
import os
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest
import sentencepiece
from conftest import FIELDS, SMALL, listing

IDS = [(7 * i * i + 3) % 40 for i in range(20)]
NUMBERS = ["conv_tail", "ssm", "outputs", "window", "fading", "eidetic"]
SET = [("innovation", "f4"), ("position", "i8"), ("token", "i8")]
ARRAYS = [(name, "f4") for name in NUMBERS]
ARRAYS += [(f"{which}.{name}", kind) for which in ("frozen", "running") for name, kind in SET]


def write_state(bmojo, model, file, ids=IDS, **environment):
    """The exit code of the program that reads ids and saves the state."""
    words = [bmojo.folder / "infer_write_state", model, file, *ids]
    return subprocess.run(
        list(map(str, words)), env=os.environ | environment, stderr=subprocess.DEVNULL
    ).returncode


def read_state(path):
    """(header, position, logits, layers), as docs/checkpoint.md describes the file."""
    raw, at = path.read_bytes(), 8
    assert raw[:8] == b"BMOJOSTA" and re.fullmatch(rb"xxh3-128:[0-9a-f]{32}", raw[-41:])

    def number(kind="<Q"):
        nonlocal at
        at += 8
        return struct.unpack(kind, raw[at - 8 : at])[0]

    def array(kind):
        nonlocal at
        found = np.frombuffer(raw, kind, count := number(), at)
        at += count * np.dtype(kind).itemsize
        return found

    header = json.loads(array("S1").tobytes())
    position = number("<q")
    assert [number() for _ in range(2)] == [3, position]  # seed, counter
    array("i8"), array("S1"), array("S1")
    logits = array("f4")
    layers = [{name: array(kind) for name, kind in ARRAYS}
              for _ in range(header["config"]["num_layers"])]
    assert at == len(raw) - 41
    return header, position, logits, layers


@pytest.fixture
def made(bmojo, tmp_path):
    """made(rule): a state of 20 tokens, of a model that keeps by this rule."""

    def make(rule="innovation"):
        model = tmp_path / f"model-{rule}"
        bmojo("init", *SMALL, "--set", f"eidetic_rule={rule}", "--out", model)
        assert write_state(bmojo, model, tmp_path / f"{rule}.state") == 0
        return tmp_path / f"{rule}.state"

    return make


def test_json_says_what_the_file_holds(bmojo, made):
    file = made()
    header, position, logits, layers = read_state(file)
    got = bmojo.json("inspect", file)
    assert (got["kind"], got["position"], position) == ("state", 20, 20)
    assert got["bytes"] == file.stat().st_size
    assert got["digest"] == header["digest"] and got["config"] == header["config"]
    assert got["weight_type"] == header["weight_type"] == "f32"
    assert got["sampler"]["recent"] == IDS and got["sampler"]["seed"] == 3
    assert len(logits) == 40 and got["window_bytes_per_token"] == 0
    assert len(got["layers"]) == len(layers) == 2
    for layer, state in zip(got["layers"], layers):
        assert layer["kind"] == "bmojo"
        # w = 8, m_f = 3: the last eight, and the three before the chunk that began at 16.
        assert layer["window"] == {"first": 12, "last": 19}
        assert layer["fading"] == {"first": 13, "last": 15}
        norm = np.linalg.norm(state["ssm"].astype("f8"))
        assert norm > 0 and layer["fading_state_norm"] == pytest.approx(norm, rel=1e-12)
        for which, flag in (("running", "kept"), ("frozen", "seen")):
            members = [each for each in layer["eidetic"] if each[flag]]
            assert [each["position"] for each in members] == state[f"{which}.position"].tolist()
            assert [each["token"] for each in members] == [IDS[each["position"]] for each in members]
            assert [each["innovation"] for each in members] == (
                state[f"{which}.innovation"].astype("f8").tolist()
            )
            assert len(members) == 5
        assert all(each["text"] is None for each in layer["eidetic"])


def test_what_is_seen_and_what_is_kept(bmojo, made):
    """The set was frozen at token 16."""
    for rule, seen, kept in (
        ("first", range(0, 5), range(0, 5)),
        ("recent", range(11, 16), range(15, 20)),
    ):
        for layer in bmojo.json("inspect", made(rule))["layers"]:
            found = {each["position"]: (each["seen"], each["kept"]) for each in layer["eidetic"]}
            assert found == {p: (p in seen, p in kept) for p in {*seen, *kept}}


def test_text_for_people(bmojo, made):
    text = bmojo("inspect", made("recent"))
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^position +20 tokens read$", text, re.MULTILINE)
    assert re.search(r"^  window +12 … 19 \(8\)$", text, re.MULTILINE)
    assert re.search(r"^  norm of h +[0-9.e-]+$", text, re.MULTILINE)
    assert len(re.findall(r"^ +\d+ +\d+ +[0-9.e-]+  leaves$", text, re.MULTILINE)) == 2 * 4
    assert len(re.findall(r"^ +\d+ +\d+ +[0-9.e-]+  new$", text, re.MULTILINE)) == 2 * 4
    assert "unlimited" not in text


def test_text_of_tokens(bmojo, pieces, tmp_path):
    tokenizer = sentencepiece.SentencePieceProcessor(str(pieces / "tokenizer.model"))
    model = tmp_path / "model"
    flags = [f"vocab_size={tokenizer.vocab_size()}" if word == "vocab_size=40" else word
             for word in SMALL]  # fmt: skip
    bmojo("init", *flags, "--out", model)
    ids = tokenizer.encode("word16 und so weiter word25 und so")
    assert len(ids) > 8 and write_state(bmojo, model, tmp_path / "state", ids) == 0
    shutil.copy(pieces / "tokenizer.model", model)
    got = bmojo.json("inspect", tmp_path / "state", "--model", model)
    for each in got["layers"][0]["eidetic"]:
        piece = tokenizer.id_to_piece(ids[each["position"]])
        assert each["text"] == piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ")
    text = bmojo("inspect", tmp_path / "state", "--model", model)
    assert max(map(len, text.splitlines())) <= 80
    shown = json.dumps(got["layers"][0]["eidetic"][0]["text"], ensure_ascii=False)
    assert f" {shown}\n" in text


def test_an_unlimited_window_grows_with_the_text(bmojo, tmp_path):
    fields = [field for field in FIELDS.split()
              if not field.startswith(("window", "fading", "eidetic"))]  # fmt: skip
    flags = ["--preset", "transformer-tiny", *(f"--set={field}" for field in fields)]
    bmojo("init", *flags, "--out", tmp_path / "model")
    sizes = []
    for count in (10, 20):
        assert write_state(bmojo, tmp_path / "model", tmp_path / "state", IDS[:count]) == 0
        sizes.append((tmp_path / "state").stat().st_size)
    got = bmojo.json("inspect", tmp_path / "state")
    assert got["layers"][0]["window"] == {"first": 0, "last": 19}
    # `recent`, which the program fills with all ids, has 8 bytes a token too.
    assert sizes[1] - sizes[0] == 10 * (got["window_bytes_per_token"] + 8)
    assert "the window is unlimited and adds" in bmojo("inspect", tmp_path / "state")


def test_bad_input(bmojo, made, small, tmp_path):
    file = made()
    bmojo("init", *SMALL, "--seed", 1, "--out", tmp_path / "other")
    message = bmojo("inspect", file, "--model", tmp_path / "other", code=2)
    assert "--model: must be the state's model" in message
    assert "--model: needs a state file" in bmojo("inspect", small, "--model", small, code=2)
    message = bmojo("inspect", file, "--set", "window=4", code=2)
    assert "--set: needs a checkpoint folder, got the state" in message
    raw = file.read_bytes()
    for damaged in (raw[:-1], raw[:60], raw[:500] + bytes([raw[500] ^ 1]) + raw[501:], raw + b"x"):
        file.write_bytes(damaged)
        message = bmojo("inspect", file, code=2)
        assert "cut short or damaged" in message and "innovation.state" in message
    file.write_bytes(raw[:20])
    assert "must be a state file of at least" in bmojo("inspect", file, code=2)


def test_a_failing_disk_leaves_the_old_file(bmojo, small, tmp_path):
    """Each call that changes or flushes a file fails once."""
    folder = tmp_path / "states"
    folder.mkdir()
    assert write_state(bmojo, small, folder / "state") == 0
    old = (folder / "state").read_bytes()
    assert write_state(bmojo, small, tmp_path / "new", IDS[::-1]) == 0
    new = (tmp_path / "new").read_bytes()
    log = tmp_path / "log"
    assert write_state(bmojo, small, tmp_path / "new", IDS[::-1], BMOJO_FILE_LOG=str(log)) == 0
    calls = [line.split("\t")[0] for line in log.read_text().splitlines()]
    renamed = calls.index("rename") + 1
    for number in range(1, len(calls) + 1):
        assert write_state(bmojo, small, folder / "state", IDS[::-1], BMOJO_FAIL_AT=str(number)) != 0
        # Behind the rename only the folder's flush can fail.
        assert (folder / "state").read_bytes() == (old if number <= renamed else new), number
        assert listing(folder) == ["state"]
