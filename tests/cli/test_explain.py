"""`bmojo explain` and tools/explain.py: what is told agrees with the definition of the memories, and
with what the other verbs say of the same sequence."""

import io
import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL, listing
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import explain  # noqa: E402

WINDOW, FADING, EIDETIC = 8, 3, 5  # of the small model
TASK = "mqar:pairs=4,length=60,vocab=40,gap=8"
IDS = [(7 * i * i + 3 * i) % 40 for i in range(50)]


@pytest.fixture(scope="module")
def model(bmojo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain") / "model"
    bmojo("init", *SMALL, "--seed", 3, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def told(bmojo, model):
    return bmojo.json("explain", "--model", model, "--task", TASK)


def flat(ids):
    return ",".join(map(str, ids))


def largest(innovation, count):
    """Positions of the largest innovations in order of time; of equal ones the earlier."""
    order = sorted(range(len(innovation)), key=lambda p: (-innovation[p], p))
    return sorted(order[:count])


# --- what is told --------------------------------------------------------------------------------


def check_layer(layer, length, window, places):
    """All follows from the innovation of the tokens."""
    innovation = layer["innovation"]
    assert len(innovation) == length and min(innovation) > 0
    sets = [{"from": s, "positions": largest(innovation[:s], places)}
            for s in range(0, length, window)]
    assert layer["sets"] == sets
    assert layer["kept"] == largest(innovation, places)
    after = [(each["from"], each["positions"]) for each in sets[1:]] + [(length, layer["kept"])]
    gone = [{"position": p, "left_at": t} for each, (t, held) in zip(sets, after)
            for p in each["positions"] if p not in held]
    assert layer["dropped"] == gone


def check_attention(answer, layer, sets, window=WINDOW, fading=FADING):
    """The shares are one whole, and every key is one that its query may see."""
    t, s = answer["position"], answer["position"] // window * window
    shares, keys = layer["attention"], layer["keys"]
    assert list(shares) == ["eidetic", "fading", "window"]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)  # fp32
    weights = [key["weight"] for key in keys]
    assert weights == sorted(weights, reverse=True) and 1 <= len(keys) <= 8
    held = sets[t // window]["positions"] if sets else []
    for key in keys:
        p = key["position"]
        assert {"eidetic": p in held and p <= t - window, "fading": s - fading <= p < s,
                "window": t - window < p <= t}[key["memory"]]
    for memory, share in shares.items():
        assert sum(key["weight"] for key in keys if key["memory"] == memory) <= share + 1e-5
    assert (shares["eidetic"] > 0) == any(p <= t - window for p in held)


def test_memories_follow_from_the_innovation(told):
    assert list(told) == ["task", "ids", "targets", "memory", "layers", "answers"]
    assert told["task"] == "mqar:pairs=4,length=60,vocab=40,gap=8,fill=random"
    assert told["memory"] == {"eidetic_tokens": EIDETIC, "fading_tokens": FADING, "window": WINDOW}
    assert [(each["layer"], each["kind"]) for each in told["layers"]] == [(0, "bmojo"),
                                                                          (1, "bmojo")]
    for layer in told["layers"]:
        check_layer(layer, 60, WINDOW, EIDETIC)
        assert layer["dropped"]  # so that this is seen at all


def test_attention_is_one_whole_over_what_a_query_sees(told):
    assert len(told["answers"]) == 4
    for answer in told["answers"]:
        assert [each["layer"] for each in answer["layers"]] == [0, 1]
        for layer in answer["layers"]:
            sets = told["layers"][layer["layer"]]["sets"]
            check_attention(answer, layer, sets)
            held = answer["source"] in sets[answer["position"] // WINDOW]["positions"]
            assert layer["held"] is held


def test_the_sequence_and_its_answers_are_those_of_the_task(bmojo, model, told):
    shown = bmojo.json("task", TASK, "--show")
    assert (told["ids"], told["targets"]) == (shown["ids"], shown["targets"])
    asked = [t for t, due in enumerate(shown["targets"]) if due >= 0]
    assert [each["position"] for each in told["answers"]] == asked
    for answer in told["answers"]:
        assert answer["due"] == shown["targets"][answer["position"]]
        assert answer["source"] == shown["sources"][answer["position"]]
    other = bmojo.json("explain", "--model", model, "--task", TASK, "--number", 5, "--seed", 2)
    assert other["ids"] == bmojo.json("task", TASK, "--show", "--number", 5, "--seed", 2)["ids"]


@pytest.mark.parametrize("places", [EIDETIC, 16])
def test_it_agrees_with_eval(bmojo, model, places):
    flags = ["--model", model, "--task", TASK, "--set", f"eidetic_tokens={places}"]
    told = bmojo.json("explain", *flags)
    score = bmojo.json("eval", *flags, "--sequences", 1)
    answers = told["answers"]
    right = [each["due"] == each["predicted"] for each in answers]
    assert np.mean(right) == pytest.approx(score["accuracy"])
    loss = [-math.log(each["probability"]) for each in answers]
    assert np.mean(loss) == pytest.approx(score["loss"], abs=1e-5)
    held = [[each["layers"][i]["held"] for each in answers] for i in (0, 1)]
    assert np.mean(held, 1) == pytest.approx(score["held"])
    assert places == EIDETIC or np.max(score["held"]) > 0


def test_ids_are_asked_for_what_comes_next(bmojo, model):
    told = bmojo.json("explain", "--model", model, "--ids", flat(IDS))
    assert told["ids"] == IDS and told["task"] is None and "targets" not in told
    (answer,) = told["answers"]
    assert (answer["position"], answer["due"], answer["source"]) == (49, None, None)
    line = json.dumps({"ids": IDS + [0]}).encode()
    score = json.loads(bmojo("score", "--model", model, "--ids", "-", input=line))
    assert answer["predicted"] == score["argmax"][50]
    assert answer["probability"] == pytest.approx(math.exp(score["top"][50]), abs=1e-6)
    for layer in told["layers"]:
        check_layer(layer, 50, WINDOW, EIDETIC)
    for layer in answer["layers"]:
        assert layer["held"] is None
        check_attention(answer, layer, told["layers"][layer["layer"]]["sets"])


def test_one_token_sees_itself(bmojo, model):
    (answer,) = bmojo.json("explain", "--model", model, "--ids", 7)["answers"]
    for layer in answer["layers"]:
        assert layer["attention"] == {"eidetic": 0, "fading": 0, "window": 1}
        assert layer["keys"] == [{"memory": "window", "position": 0, "weight": 1}]


def test_long_sequences_are_read_in_segments(bmojo, model):
    """2,048 tokens at a time, which is no multiple of this window."""
    told = bmojo.json("explain", "--model", model, "--set", "window=7", "--set", "eidetic_tokens=40",
                      "--task", "mqar:pairs=12,length=2100,vocab=40,gap=2000")
    for layer in told["layers"]:
        check_layer(layer, 2100, 7, 40)
    assert {each["position"] >= 2048 for each in told["answers"]} == {True, False}
    for answer in told["answers"]:
        for layer in answer["layers"]:
            check_attention(answer, layer, told["layers"][layer["layer"]]["sets"], window=7)


@pytest.mark.parametrize("preset, kinds", [
    ("bmojo-f", ["bmojo"] * 4), ("mamba", ["ssm"] * 4), ("transformer", ["attention"] * 4),
    ("hybrid", ["ssm", "attention"] * 2)])
def test_models_without_eidetic_memory(bmojo, tmp_path, preset, kinds):
    bmojo("init", "--preset", f"{preset}-tiny", "--set", "vocab_size=40", "--set", "num_layers=4",
          "--out", tmp_path / "m")
    told = bmojo.json("explain", "--model", tmp_path / "m", "--task", TASK)
    assert [each["kind"] for each in told["layers"]] == kinds
    for layer in told["layers"]:
        assert [layer[key] for key in ("innovation", "kept", "dropped", "sets")] == [[]] * 4
    for answer in told["answers"]:
        seen = [each["layer"] for each in answer["layers"]]
        assert seen == [i for i, kind in enumerate(kinds) if kind != "ssm"]
        for layer in answer["layers"]:
            assert layer["held"] is False and layer["attention"]["eidetic"] == 0
            assert sum(layer["attention"].values()) == pytest.approx(1, abs=1e-5)
    assert bmojo("explain", "--model", tmp_path / "m", "--task", TASK).count(" 0 of 60 tokens") == 4


# --- the table -----------------------------------------------------------------------------------


def test_the_table(bmojo, model, told):
    for flags, layer in (([], 1), (["--layer", 0], 0)):
        text = bmojo("explain", "--model", model, "--task", TASK, *flags)
        lines = text.splitlines()
        assert max(map(len, lines)) <= 80
        right = sum(each["due"] == each["predicted"] for each in told["answers"])
        assert lines[0] == told["task"]
        assert lines[1] == f"{right} of 4 answers right; what layer {layer} attends to"
        for answer, row in zip(told["answers"], lines[4:]):
            seen = answer["layers"][layer]
            key = seen["keys"][0]
            held = "yes" if seen["held"] else "no"
            assert row.split() == [
                f"{answer['position']}", f"{answer['due']}", f"{answer['predicted']}",
                f"{answer['probability']:.4f}", held, key["memory"], f"{key['position']}",
                f"{key['weight']:.3f}"]
        assert lines[9:] == [f"layer {i}, bmojo: 5 of 60 tokens kept, {len(each['dropped'])} let go"
                             for i, each in enumerate(told["layers"])]


def test_the_table_of_ids(bmojo, model):
    lines = bmojo("explain", "--model", model, "--ids", flat(IDS)).splitlines()
    assert lines[0] == "50 tokens; what comes next, and what layer 1 attends to"
    assert lines[3].split()[:2] == ["49", "-"] and lines[3].split()[4] == "-"


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, says", [
    (["--model", "MODEL"], "explain: --task or --ids is needed, got neither"),
    (["--model", "MODEL", "--ids", "1", "--task", TASK],
     "explain: --task or --ids is needed, got both"),
    (["--model", "MODEL", "--ids", "1,2", "--number", "0"],
     "explain: --number cannot be given with --ids"),
    (["--model", "MODEL", "--ids", "1,40"], "--ids: ids must be from 0 to 39, got 40"),
    (["--model", "MODEL", "--ids", "1,-1"], "--ids: ids must be from 0 to 39, got -1"),
    (["--model", "MODEL", "--ids", "1,x"], "--ids: must be whole numbers like 1,2,3, got '1,x'"),
    (["--model", "MODEL", "--task", "mqar:pairs=4,length=60,vocab=64"],
     "--task: vocabulary must be the model's = 40, got 64"),
    (["--model", "MODEL", "--task", "mqr"], "task: must be one of"),
    (["--model", "MODEL", "--ids", "1", "--layer", "2"], "--layer: must be from 0 to 1, got 2"),
    (["--model", "MODEL", "--ids", "1", "--layer", "-1"], "--layer: must be from 0 to"),
    (["--model", "MODEL", "--task", TASK, "--number", "-1"], "--number: must be from 0 to"),
    (["--model", "MODEL", "--ids", "1", "--set", "num_heads=2"], "num_heads"),
    (["--model", "/no/such", "--ids", "1"], "/no/such"),
    (["--ids", "1"], "--model"),
    (["--model", "MODEL", "--ids", "1", "--out", "a.pdf"], "explain: a.pdf: must end in .png"),
    (["--model", "MODEL", "--ids", "1", "--out", "/no/such/a.png"],
     "explain: /no/such/a.png: its folder must exist, got none"),
])
def test_mistakes(bmojo, model, tmp_path, arguments, says):
    filled = [model if each == "MODEL" else each for each in arguments]
    assert says in bmojo("explain", *filled, code=2, cwd=tmp_path)
    assert listing(tmp_path) == []


def test_weights_that_are_no_numbers(bmojo, model, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-4:] = b"\xff\xff\xff\x7f"  # NaN, in the last tensor of the file
    path.write_bytes(raw)
    message = bmojo("explain", "--model", tmp_path / "m", "--ids", "1,2,3", code=1)
    assert "explain: logits must be finite, got NaN or infinity at position 2" in message


# --- pictures ------------------------------------------------------------------------------------


def pixels(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def count(picture, colour):
    wanted = [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    return int((picture == wanted).all(-1).sum())


def height_of(answers, innovation=True):
    rows = explain.ROW * answers + 10 if answers else 0
    above = explain.INNOVATION if innovation else 0
    return explain.TOP + above + (explain.GAP if above and rows else 0) + rows + explain.BOTTOM


def test_a_picture(bmojo, model, told, tmp_path):
    out = tmp_path / "a.png"
    text = bmojo("explain", "--model", model, "--task", TASK, "--out", out)
    assert text.endswith(f"\n\n{out}: layer 1\n") and listing(tmp_path) == ["a.png"]
    picture = pixels(out)
    assert picture.shape == (height_of(4), 1200, 3)
    for colour in (*explain.MEMORIES.values(), explain.LET_GO, explain.PASSED):
        assert count(picture, colour) > 100, colour
    again = bmojo.json("explain", "--model", model, "--task", TASK, "--layer", 0, "--out", out)
    assert again == told  # the layer is that of the picture alone
    assert not np.array_equal(pixels(out), picture)
    bmojo("explain", "--model", model, "--ids", flat(IDS), "--out", out)
    assert pixels(out).shape == (height_of(1), 1200, 3)


def draw(monkeypatch, told, *arguments):
    """In this process, where matplotlib is loaded once."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(told)))
    return explain.main([str(each) for each in arguments])


def test_layers_without_attention_or_memory(monkeypatch, capsys, told, tmp_path):
    out = tmp_path / "a.png"
    nothing = {"innovation": [], "kept": [], "dropped": [], "sets": []}
    bare = told | {"layers": [told["layers"][0] | nothing, told["layers"][1]]}
    assert draw(monkeypatch, bare, "--out", out, "--layer", 0) == 0
    assert pixels(out).shape == (height_of(4, innovation=False), 1200, 3)
    unasked = told | {"answers": []}
    assert draw(monkeypatch, unasked, "--out", out, "--layer", 0) == 0
    assert pixels(out).shape == (height_of(0), 1200, 3)
    bare["layers"][0]["kind"] = "ssm"
    assert draw(monkeypatch, bare | {"answers": []}, "--out", out, "--layer", 0) == 2
    assert capsys.readouterr().err == ("explain: layer 0: must have attention to be drawn, got ssm; "
                                       "--layer names another\n")


def test_of_many_answers_some_are_shown(monkeypatch, told, tmp_path):
    shown = explain.pick(list(range(100)))
    assert len(shown) == len(set(shown)) == 32 and (shown[0], shown[-1]) == (0, 99)
    assert explain.pick([1, 2]) == [1, 2]
    many = told | {"answers": told["answers"] * 20}
    assert draw(monkeypatch, many, "--out", tmp_path / "a.png", "--layer", 1) == 0
    assert pixels(tmp_path / "a.png").shape == (height_of(32), 1200, 3)


def test_numbers_that_are_none_are_drawn_as_nothing(monkeypatch, told, tmp_path):
    layer = told["layers"][1]
    odd = layer | {"innovation": [None] * len(layer["innovation"])}
    told = told | {"layers": [told["layers"][0], odd]}
    assert draw(monkeypatch, told, "--out", tmp_path / "a.png", "--layer", 1) == 0


def test_names_of_answers():
    answer = {"position": 9, "due": 3, "predicted": 3}
    assert explain.name_of(answer) == "at 9: 3 ✓"
    assert explain.name_of(answer | {"predicted": 4}) == "at 9: 3, not 4 ✗"
    assert explain.name_of(answer | {"due": None}) == "at 9: next 3"


def test_script_and_python_must_be_there(bmojo, model, tmp_path):
    """As for `plot`; without --out neither is needed."""
    bin_folder = tmp_path / "project" / "build" / "bin"
    bin_folder.mkdir(parents=True)
    shutil.copy(bmojo.path, bin_folder / "bmojo")
    alone = type(bmojo)(bin_folder)
    flags = ["explain", "--model", model, "--ids", "1,2"]
    alone(*flags)
    flags += ["--out", tmp_path / "a.png"]
    message = alone(*flags, code=2)
    assert "explain: needs the project's Python and its tools/explain.py, got none above" in message
    (tmp_path / "project" / "tools").mkdir()
    (tmp_path / "project" / "tools" / "explain.py").write_text("")
    python = tmp_path / "project" / ".venv" / "bin" / "python"
    message = alone(*flags, code=2)
    assert f"explain: needs the project's Python, got none at {python}; run make setup" in message
    python.parent.mkdir(parents=True)
    # Says what it was given; more than a pipe would hold is read.
    python.write_text('#!/bin/sh\nprintf "%s|" "$@" >&2\nwc -c >&2\nexit 2\n')
    python.chmod(0o755)
    flags[4] = flat(IDS * 400)
    message = alone(*flags, code=2)
    script = tmp_path / "project" / "tools" / "explain.py"
    said, _, size = message.removeprefix("bmojo: ").rpartition("|")
    assert said == f"{script}|--out={tmp_path}/a.png|--layer=1" and int(size) > 100_000
