"""Text to token shards: `bmojo tokenize`, and `bmojo inspect` on what it writes."""

import io
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from conftest import listing

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BMOJO_DATA", ROOT.parent / "shared/data"))
MISTRAL = DATA / "tokenizers/mistral-7b-v0.1/tokenizer.model"


def read_shard(path):
    """(header, documents as arrays of ids, bytes of text of each), by docs/shards.md alone."""
    raw = Path(path).read_bytes()
    magic, version, width, vocab, end, tokens, documents, size, zero = struct.unpack_from(
        "<8s2I6Q", raw
    )
    assert (magic, version, zero) == (b"BMOJOTOK", 1, 0)
    assert width == (2 if vocab <= 65536 else 4)
    names = [raw[at : at + 64].rstrip(b"\0").decode() for at in (64, 128, 192)]
    header = dict(zip(["tokenizer", "tokenizer_digest", "digest"], names, strict=True))
    header |= {"vocab_size": vocab, "end": end, "tokens": tokens, "bytes": size}
    ids = np.frombuffer(raw, f"<u{width}", tokens, 256)
    at = 256 + -(-tokens * width // 64) * 64
    assert not any(raw[256 + tokens * width : at])
    index = np.frombuffer(raw, "<u8", 2 * documents, at).reshape(documents, 2).astype(np.int64)
    assert at + 16 * documents == len(raw)
    assert tuple(index[-1]) == (tokens, size)
    assert (ids[index[:, 0] - 1] == end).all()
    parts = np.split(ids, index[:-1, 0])
    return header, [part[:-1] for part in parts], np.diff(index[:, 1], prepend=0).tolist()


def read_folder(folder):
    """Documents and text sizes of all shards."""
    documents, sizes = [], []
    for path in sorted(folder.glob("*.tokens")):
        _, some, bytes_of = read_shard(path)
        documents += some
        sizes += bytes_of
    return documents, sizes


def write_jsonl(path, texts, field="text"):
    path.write_text("".join(json.dumps({"id": 1, field: text}) + "\n" for text in texts))
    return path


WORDS = "the of Memory 123 fading_tokens  naïve Straße слово 記憶 メモリ 기억 الذاكرة स्मृति ﬁ Ⅷ ½ é"
WORDS += " \u200b e\u0301"


def mixed_text(size, seed, breaks=True):
    """Words of many scripts, emoji, long blanks, NUL, control characters, broken UTF-8."""
    draw = random.Random(seed)
    odd = ["😀", "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "\t", "\0", "\x7f", "\u2581", "</s>", "<0x0A>"]
    odd += ["\ufeff", "\U0010ffff"]
    broken = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"]
    out, length = [], 0
    while length < size:
        kind = draw.random()
        if kind < 0.75:
            part = (draw.choice(WORDS.split(" ")) + " ").encode()
        elif kind < 0.80:
            part = b" " * draw.choice([1, 2, 3, 7, 16, 17, 100, 5000 if kind < 0.751 else 31])
        elif kind < 0.88:
            part = draw.choice(odd).encode()
        elif kind < 0.93:
            part = draw.choice(broken)
        elif kind < 0.97 and breaks:
            part = draw.choice([b"\n", b"\n\n", b"\r\n", b"\n    "])
        else:
            part = draw.randbytes(draw.randint(1, 9)).replace(b"\n", b"")
        out.append(part)
        length += len(part)
    return b"".join(out)


# --- bytes ---------------------------------------------------------------------------------------


def test_bytes_come_back_in_the_order_of_the_input(bmojo, tmp_path):
    folder = tmp_path / "in"
    (folder / "b/c").mkdir(parents=True)
    texts = {"b/c/2.txt": mixed_text(5000, 1), "b/1.txt": bytes(range(256)), "z.txt": b"z\0z",
             "a.txt": b"a", "nothing.txt": b""}  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    lines = ["first", "", "zwei \0 é 😀", "\n"]
    write_jsonl(folder / "c.jsonl", lines)
    for name in ("b/x.md", "y.json", "z.TXT"):
        (folder / name).write_text("left out")
    (tmp_path / "single.md").write_bytes(b"a file that is named is taken")

    out = bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / "out", folder,
                tmp_path / "single.md")  # fmt: skip
    expected = [texts["a.txt"], texts["b/1.txt"], texts["b/c/2.txt"]]
    expected += [line.encode() for line in lines if line]
    expected += [texts["z.txt"], (tmp_path / "single.md").read_bytes()]
    documents, sizes = read_folder(tmp_path / "out")
    assert [part.astype(np.uint8).tobytes() for part in documents] == expected
    assert sizes == [len(text) for text in expected]
    assert listing(tmp_path / "out") == ["shard-00000.tokens"]
    header, _, _ = read_shard(tmp_path / "out/shard-00000.tokens")
    size = sum(sizes)
    tokens = size + len(expected)
    assert header["tokenizer"] == "bytes" and header["tokenizer_digest"] == ""
    assert (header["vocab_size"], header["end"], header["tokens"]) == (257, 256, tokens)
    assert out == (
        f"{tmp_path}/out: 8 documents, {tokens:,} tokens, {size:,} B, {size / tokens:.2f} bytes a "
        "token, 1 shard; left out: 2 empty documents, 3 other files\n"
    )


def test_json_summary(bmojo, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["one", "", "three"], field="content")
    got = bmojo.json("tokenize", "--tokenizer", "bytes", "--field", "content", "--out",
                     tmp_path / "out", tmp_path / "a.jsonl")  # fmt: skip
    assert got == {
        "out": str(tmp_path / "out"),
        "tokenizer": "bytes",
        "vocab_size": 257,
        "documents": 2,
        "tokens": 10,
        "bytes": 8,
        "bytes_per_token": 0.8,
        "shards": 1,
        "empty_documents": 1,
        "other_files": 0,
    }


def test_a_shard_ends_with_the_document_that_fills_it(bmojo, tmp_path):
    lengths = [3, 4, 1, 30, 2, 2, 5]
    write_jsonl(tmp_path / "a.jsonl", ["x" * length for length in lengths])
    bmojo("tokenize", "--tokenizer", "bytes", "--shard-tokens", 9, "--out", tmp_path / "out",
          tmp_path / "a.jsonl")  # fmt: skip
    shards = [read_shard(path) for path in sorted((tmp_path / "out").iterdir())]
    found = [[len(part) for part in documents] for _, documents, _ in shards]
    assert found == [[3, 4], [1, 30], [2, 2, 5]]
    assert bmojo.json("inspect", tmp_path / "out", "--verify")["tokens"] == sum(lengths) + 7


def test_output_is_the_same_for_any_number_of_threads(bmojo, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    draw = random.Random(3)
    for i in range(30):
        (folder / f"{i}.txt").write_bytes(mixed_text(draw.choice([0, 10, 10_000, 90_000]), i))
    (folder / "long.txt").write_bytes(mixed_text(3_500_000, 4))
    texts = [mixed_text(draw.choice([0, 50, 3000]), i) for i in range(1500)]
    write_jsonl(folder / "lines.jsonl", [text.decode(errors="replace") for text in texts])
    results = []
    for threads in (1, 2, 5):
        out = tmp_path / f"out{threads}"
        bmojo("tokenize", "--tokenizer", "bytes", "--threads", threads, "--shard-tokens", 300_000,
              "--out", out, folder)  # fmt: skip
        results.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert len(results[0]) > 5
    assert results[0] == results[1] == results[2]


# --- SentencePiece -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Small models, one whose texts may be cut and two whose may not."""
    draw = random.Random(0)
    lines = [mixed_text(200, i, breaks=False).decode(errors="ignore") for i in range(600)]
    lines = [line.replace("\0", "").replace("\r", "") for line in lines]
    draw.shuffle(lines)
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    kinds = {
        "cut": plain | {"model_type": "bpe", "byte_fallback": True},
        "unknowns": {"model_type": "bpe"},
        "unigram": plain | {"model_type": "unigram", "byte_fallback": True},
    }
    files = {}
    for name, options in kinds.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, minloglevel=2, num_threads=1,
            vocab_size=800, hard_vocab_limit=False, **options,
        )  # fmt: skip
        files[name] = tmp_path_factory.mktemp("models") / f"{name}.model"
        files[name].write_bytes(model.getvalue())
    return files


def assert_ids_are_pythons(bmojo, model, texts, folder):
    """Each text as a file of its own, given in order; those without an id are left out."""
    files = []
    for i, text in enumerate(texts):
        files.append(folder / f"text{i:02}")
        files[-1].write_bytes(text)
    bmojo("tokenize", "--tokenizer", model, "--out", folder / "out", *files)
    documents, sizes = read_folder(folder / "out")
    python = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pairs = [(text, ids) for text in texts if (ids := python.encode(text))]
    assert sizes == [len(text) for text, _ in pairs]
    for found, (_, ids) in zip(documents, pairs, strict=True):
        expected = np.array(ids)
        assert len(found) == len(expected)
        wrong = np.flatnonzero(found != expected)
        assert wrong.size == 0, f"id {wrong[0]} of {len(expected)}"
    header, _, _ = read_shard(folder / "out/shard-00000.tokens")
    assert header["tokenizer"] == "sentencepiece" and header["end"] == python.eos_id()
    assert header["vocab_size"] == python.get_piece_size()
    assert (folder / "out/tokenizer.model").read_bytes() == Path(model).read_bytes()
    got = bmojo.json("inspect", folder / "out", "--verify")
    assert got["verified"] is True and got["tokenizer_digest"] == header["tokenizer_digest"]


@pytest.mark.parametrize("name", ["cut", "unknowns", "unigram"])
def test_ids_are_those_of_python(bmojo, models, tmp_path, name):
    texts = [mixed_text(150_000, 1), mixed_text(40_000, 2, breaks=False), b" " * 20_000 + b"x",
             b"\n" * 30_000, b"\n", b"\xff", b"\0", random.Random(1).randbytes(30_000)]  # fmt: skip
    assert_ids_are_pythons(bmojo, models[name], texts, tmp_path)


def test_ten_megabytes_of_mixed_text(bmojo, tmp_path):
    if not MISTRAL.exists():
        pytest.skip(f"no SentencePiece model at {MISTRAL}; BMOJO_DATA names the data's folder")
    texts = [mixed_text(2_500_000, 1), mixed_text(200_000, 2, breaks=False),
             random.Random(2).randbytes(1_000_000), b" " * 100_000 + b"\n" * 1000]  # fmt: skip
    for name in ("wikitext-2/valid.txt", "tiny-shakespeare/input.txt", "eval/lambada_test.jsonl"):
        if (DATA / name).exists():
            texts.append((DATA / name).read_bytes())
    texts.append(mixed_text(max(10_000_000 - sum(map(len, texts)), 1), 3))
    assert sum(map(len, texts)) >= 10_000_000
    assert_ids_are_pythons(bmojo, MISTRAL, texts, tmp_path)


def test_jsonl_ids_are_those_of_python(bmojo, models, tmp_path):
    texts = [mixed_text(3000, i).decode(errors="replace") for i in range(50)]
    write_jsonl(tmp_path / "a.jsonl", texts)
    bmojo("tokenize", "--tokenizer", models["cut"], "--out", tmp_path / "out", tmp_path / "a.jsonl")
    python = sentencepiece.SentencePieceProcessor(model_file=str(models["cut"]))
    documents, sizes = read_folder(tmp_path / "out")
    assert [part.tolist() for part in documents] == [python.encode(text) for text in texts]
    assert sizes == [len(text.encode()) for text in texts]


def test_threads_share_a_long_document(bmojo, models, tmp_path):
    (tmp_path / "long.txt").write_bytes(mixed_text(2_500_000, 9))
    results = []
    for threads in (1, 3):
        out = tmp_path / f"out{threads}"
        bmojo("tokenize", "--tokenizer", models["cut"], "--threads", threads, "--out", out,
              tmp_path / "long.txt")  # fmt: skip
        results.append((out / "shard-00000.tokens").read_bytes())
    assert results[0] == results[1]


# --- mistakes and failures -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "must be valid JSON, got unexpected end of input"),
        ("{", "must be valid JSON"),
        ('{"text": "a"} x', "must be valid JSON"),
        ('{"text": "a", "text": "b"}', "'text' must appear once"),
        ('{"text": "\\ud800"}', "must be valid JSON"),
        ('["text"]', "must be a JSON object, got array"),
        ('"text"', "must be a JSON object, got string"),
        ('{"Text": "a"}', "field 'text' is missing; choose another with --field"),
        ('{"text": 5}', "field 'text' must be a string, got number"),
        ('{"text": null}', "field 'text' must be a string, got null"),
    ],
)
def test_bad_lines_are_refused_with_their_place(bmojo, tmp_path, line, message):
    good = json.dumps({"text": "x" * 1000}) + "\n"
    # One in the first part that is read, one far behind it.
    for before in (2, 3000):
        (tmp_path / "a.jsonl").write_text(good * before + line + "\n" + good)
        error = bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / "out",
                      tmp_path / "a.jsonl", code=2)  # fmt: skip
        assert error.startswith(f"bmojo: {tmp_path}/a.jsonl:{before + 1}: {message}")
    assert listing(tmp_path) == ["a.jsonl"]


def test_the_first_fault_in_order_is_reported(bmojo, tmp_path):
    good = json.dumps({"text": "x" * 1000}) + "\n"
    (tmp_path / "a.jsonl").write_text(good * 1500 + "first\n" + good * 1500 + "second\n")
    for _ in range(5):
        error = bmojo("tokenize", "--tokenizer", "bytes", "--threads", 4, "--out",
                      tmp_path / "out", tmp_path / "a.jsonl", code=2)  # fmt: skip
        assert "a.jsonl:1501: " in error


def test_mistakes_exit_2_with_one_line(bmojo, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x.md").write_text("text")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("kept")
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    os.mkfifo(tmp_path / "pipe")
    before = listing(tmp_path)
    names = ["--tokenizer", "bytes", "--out", "out"]
    for args, message in [
        (names, "INPUT is required"),
        (["a.txt", "--out", "out"], "--tokenizer is required"),
        (["a.txt", "--tokenizer", "bytes"], "--out is required"),
        ([*names, "none.txt"], "none.txt: must be a text file, a JSONL file or a folder, got No"),
        ([*names, "pipe"], "pipe: must be a text file, a JSONL file or a folder, got a device"),
        ([*names, "folder"], "folder: folder must hold *.txt or *.jsonl files, got none of 1"),
        ([*names, "empty.txt"], "inputs: must hold text, got 1 empty documents"),
        ([*names, "a.txt", "--shard-tokens", "0"], "--shard-tokens: must be from 1 to 10995116277"),
        (["a.txt", "--out", "full", "--tokenizer", "bytes"], "out: folder must be new or empty"),
        (["a.txt", "--out", "a.txt", "--tokenizer", "bytes"], "out: must be a folder, got the"),
        (["a.txt", "--out", "out", "--tokenizer", "byte"],
         "tokenizer: must be bytes, tokenizer.json, tokenizer.model or vocab.json, got 'byte'"),
        (["a.txt", "--out", "out", "--tokenizer", "a.txt"],
         "a.txt: must be a SentencePiece model, got a file of another kind or a damaged one"),
        (["a.txt", "--out", "out", "--tokenizer", "tokenizer.json"],
         "tokenizer.json: pre_tokenizer must be ByteLevel, Digits and ByteLevel, or Split and "
         "ByteLevel, got 'none'"),
        (["a.txt", "--out", "out", "--tokenizer", "folder"],
         "must be a regular file, got a folder"),
        (["a.txt", "--out", "out", "--tokenizer", "pipe"],
         "pipe: must be a regular file, got a device or pipe; write it to a file first"),
    ]:
        assert message in bmojo("tokenize", *args, code=2, cwd=tmp_path, timeout=60)
    assert listing(tmp_path) == before and listing(tmp_path / "full") == ["x"]


def test_sentencepiece_must_be_beside_the_program(bmojo, models, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    shutil.copy(bmojo.path, tmp_path / "bmojo")
    alone = type(bmojo)(tmp_path)
    flags = ["tokenize", "--tokenizer", models["cut"], "--out", tmp_path / "out"]
    flags.append(tmp_path / "a.txt")
    module = tmp_path / "bmojo-sentencepiece.so"
    assert alone(*flags, code=1) == f"bmojo: tokenizer: needs {module}, got none; build again"
    module.write_text("no module")
    message = alone(*flags, code=1)
    assert message.startswith(f"bmojo: tokenizer: needs {module}, got ")
    assert message.endswith("; build again") and not (tmp_path / "out").exists()


def test_parents_of_the_folder_are_made(bmojo, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for out in ("data/books", "data/more/", "deep/down/below/it"):
        bmojo("tokenize", "--tokenizer", "bytes", "--out", out, "a.txt", cwd=tmp_path)
        assert listing(tmp_path / out) == ["shard-00000.tokens"]
    message = bmojo("tokenize", "--tokenizer", "bytes", "--out", "a.txt/out", "a.txt", code=2,
                    cwd=tmp_path)
    assert message == (f"bmojo: out: folder must be creatable, got {tmp_path}/a.txt (Not a "
                       "directory)")
    assert listing(tmp_path) == ["a.txt", "data", "deep"]


def test_parents_are_on_the_disk_before_what_they_hold(bmojo, tmp_path):
    """Killed at each call that changes the file system: make, flush, make, flush."""
    (tmp_path / "a.txt").write_text("text")

    def num_made(call):
        top = tmp_path / str(call)
        words = [bmojo.path, "tokenize", "--tokenizer", "bytes", "--out", top / "b/out", "a.txt"]
        process = subprocess.run(words, cwd=tmp_path, capture_output=True,
                                 env={**os.environ, "BMOJO_KILL_AT": str(call)})
        assert process.returncode == -signal.SIGKILL
        return top.exists() + (top / "b").exists()

    assert [num_made(call) for call in (1, 2, 3, 4, 5)] == [0, 1, 1, 2, 2]
    assert not list(tmp_path.glob("*/b/out/*"))


def test_a_parent_behind_a_link_is_the_link_s(bmojo, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "other/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("other/deep")
    bmojo("tokenize", "--tokenizer", "bytes", "--out", "link/../new/out/", "a.txt", cwd=tmp_path)
    assert listing(tmp_path / "other/new/out") == ["shard-00000.tokens"]
    assert listing(tmp_path) == ["a.txt", "link", "other"]


def test_a_write_that_fails_exits_1_and_leaves_nothing(bmojo, tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(5_000_000))
    message = bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / "out",
                    tmp_path / "a.txt", code=1, file_limit=3_000_000)  # fmt: skip
    assert re.search(r"shard-00000\.tokens: writing failed: File too large$", message)
    assert listing(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(bmojo, tmp_path, number):
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "a.txt").touch()
    os.truncate(tmp_path / "a.txt", 4 << 30)  # takes no disk
    command = [bmojo.path, "tokenize", "--tokenizer", "bytes", "--out", work / "out"]
    process = subprocess.Popen([*command, tmp_path / "a.txt"], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not listing(work) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert listing(work) not in ([], ["out"])
    process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert error == b"bmojo: interrupted; nothing partly written is left\n"
    assert listing(work) == []


# --- inspect -------------------------------------------------------------------------------------


@pytest.fixture
def shards(bmojo, tmp_path):
    """Two shards of three documents."""
    write_jsonl(tmp_path / "a.jsonl", ["one", "three", "seven"])
    bmojo("tokenize", "--tokenizer", "bytes", "--shard-tokens", 8, "--out", tmp_path / "shards",
          tmp_path / "a.jsonl")  # fmt: skip
    return tmp_path / "shards"


def test_inspect_json(bmojo, shards):
    got = bmojo.json("inspect", shards)
    digests = [read_shard(path)[0]["digest"] for path in sorted(shards.iterdir())]
    assert re.fullmatch(r"xxh3-128:[0-9a-f]{32}", got.pop("digest"))
    assert got == {
        "kind": "tokens",
        "tokenizer": "bytes",
        "tokenizer_digest": "",
        "tokenizer_file": "",
        "vocab_size": 257,
        "end_of_document": 256,
        "documents": 3,
        "tokens": 16,
        "text_bytes": 13,
        "bytes_per_token": 13 / 16,
        "files": [
            {"name": "shard-00000.tokens", "bytes": 256 + 64 + 32, "documents": 2, "tokens": 10,
             "text_bytes": 8, "digest": digests[0]},
            {"name": "shard-00001.tokens", "bytes": 256 + 64 + 16, "documents": 1, "tokens": 6,
             "text_bytes": 5, "digest": digests[1]},
        ],
    }  # fmt: skip
    one = bmojo.json("inspect", shards / "shard-00001.tokens", "--verify")
    assert (one["kind"], one["tokens"], one["verified"]) == ("tokens", 6, True)


def test_inspect_for_people(bmojo, shards, models, tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    bmojo("tokenize", "--tokenizer", models["cut"], "--out", tmp_path / "sp", tmp_path / "a.txt")
    for folder in (shards, tmp_path / "sp"):
        text = bmojo("inspect", folder, "--verify")
        assert max(map(len, text.splitlines())) <= 80 + len(str(tmp_path))
        for part in ["tokenizer", "documents", "bytes a token", "xxh3-128:", "shard-00000.tokens"]:
            assert part in text
        assert re.search(r"^verified +yes$", text, re.MULTILINE)
    message = bmojo("inspect", shards, "--set", "window=4", code=2)
    assert "--set: needs a checkpoint folder, got the token shards" in message


def test_verify_finds_a_flipped_byte(bmojo, shards):
    file = shards / "shard-00001.tokens"
    raw = bytearray(file.read_bytes())
    raw[256] ^= 1
    file.write_bytes(raw)
    bmojo("inspect", shards)
    for path in (shards, file):
        message = bmojo("inspect", path, "--verify", code=2)
        digest = r"xxh3-128:[0-9a-f]{32}"
        found = re.search(rf"00001\.tokens: digest must be ({digest}), got ({digest});", message)
        assert found and found[1] == read_shard(file)[0]["digest"] != found[2]


def test_verify_finds_another_tokenizer(bmojo, models, tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    bmojo("tokenize", "--tokenizer", models["cut"], "--out", tmp_path / "out", tmp_path / "a.txt")
    (tmp_path / "out/tokenizer.model").write_bytes(models["unigram"].read_bytes())
    bmojo("inspect", tmp_path / "out")
    message = bmojo("inspect", tmp_path / "out", "--verify", code=2)
    assert "tokenizer.model: digest must be xxh3-128:" in message


def test_inspect_refuses_damaged_shards(bmojo, shards, models, tmp_path):
    file = shards / "shard-00001.tokens"
    raw = file.read_bytes()
    for damaged, message in [
        (b"", "must be a token shard of at least 256 bytes, got 0"),
        (raw[:100], "must be a token shard of at least 256 bytes, got 100"),
        (raw[:-1], "the file is damaged or cut off"),
        (b"?" + raw[1:], "must be a token shard, got a file of another kind"),
        (raw[:32] + b"\xff" * 8 + raw[40:], "the file is damaged or cut off"),
        (raw[:-16] + bytes(8) + raw[-8:], "index must increase"),
    ]:
        file.write_bytes(damaged)
        for path in (shards, file):
            error = bmojo("inspect", path, code=2)
            assert error.startswith(f"bmojo: {file}: ") and message in error
    (tmp_path / "a.txt").write_text("some text")
    bmojo("tokenize", "--tokenizer", models["cut"], "--out", tmp_path / "sp", tmp_path / "a.txt")
    file.write_bytes((tmp_path / "sp/shard-00000.tokens").read_bytes())
    assert f"{file}: tokenizer must be that of {shards}/shard-00000" in bmojo(
        "inspect", shards, code=2
    )
