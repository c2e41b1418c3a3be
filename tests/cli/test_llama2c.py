"""Models of llama2.c: what tools/llama2c.py makes of them computes, spells and writes the same."""

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import read_safetensors
from test_tokenize import read_folder, write_jsonl

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BMOJO_DATA") or ROOT.parent / "shared/data")
STORIES = DATA / "checkpoints/stories260K"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# Texts and scores. What merges stands before the characters, as in the files of llama2.c.
MERGED = ["ab", "bc", " a", "abc", " b", "bcd", "  ", "éa"]
PIECES = [("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0), *((byte, 0.0) for byte in BYTES),
          *((text, -float(i)) for i, text in enumerate(MERGED)),
          *((text, -float(i + len(MERGED))) for i, text in enumerate(" abcdé"))]  # fmt: skip
# Two heads read each key, and no size equals another. Negative: a head with weights of its own.
SIZES = dict(width=24, mlp=20, layers=3, heads=6, kv_heads=3, vocabulary=len(PIECES), length=11)
TEXTS = ["abc ab  bca", "ab\ncd", "  a bcd", "éa é", "日本 abcabc", "x", "aab  b   b"]


def shapes(sizes):
    L, D, F, V = sizes["layers"], sizes["width"], sizes["mlp"], abs(sizes["vocabulary"])
    d = D // sizes["heads"]
    keys, table = sizes["kv_heads"] * d, (sizes["length"], d // 2)
    found = dict(embedding=(V, D), norm1=(L, D), q=(L, D, D), k=(L, keys, D), v=(L, keys, D),
                 o=(L, D, D), norm2=(L, D), w1=(L, F, D), w2=(L, D, F), w3=(L, F, D), norm=(D,),
                 cosines=table, sines=table)  # fmt: skip
    return found | ({"head": (V, D)} if sizes["vocabulary"] < 0 else {})


def write_model(path, sizes):
    draw = np.random.default_rng(1)
    weights = {name: draw.standard_normal(shape).astype("f4") for name, shape in shapes(sizes).items()}
    for name, array in weights.items():
        # Strong enough that attention is far from uniform, and weak enough for fp32.
        array *= 0.25 if "norm" in name else 2 / np.sqrt(array.shape[-1])
        array += "norm" in name
    path.write_bytes(struct.pack("<7i", *sizes.values()) + b"".join(w.tobytes() for w in weights.values()))
    return weights


def write_pieces(path, pieces=PIECES):
    raw = [text.encode() for text, _ in pieces]
    path.write_bytes(struct.pack("<i", max(map(len, raw))) + b"".join(
        struct.pack("<fi", score, len(text)) + text for (_, score), text in zip(pieces, raw)))


def read_model(path):
    raw = path.read_bytes()
    sizes = dict(zip(SIZES, struct.unpack("<7i", raw[:28])))
    weights, at = {}, 28
    for name, shape in shapes(sizes).items():
        count = int(np.prod(shape))
        weights[name] = np.frombuffer(raw, "<f4", count, at).reshape(shape)
        at += 4 * count
    assert at == len(raw)
    return sizes, weights


def read_pieces(path):
    raw, at, pieces = path.read_bytes(), 4, []
    while at < len(raw):
        score, length = struct.unpack_from("<fi", raw, at)
        pieces.append((raw[at + 8:at + 8 + length].decode(), score))
        at += 8 + length
    return pieces


def rms_norm(x, gain):
    return gain * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def neighbours(d):
    return [(2 * i, 2 * i + 1) for i in range(d // 2)]


def half_apart(d):
    return [(i, i + d // 2) for i in range(d // 2)]


def rotate(x, pairs):
    """[length, heads, d]; pair i of a head turns by the angle t / 10000^(2 i / d)."""
    out = x.copy()
    for i, (a, b) in enumerate(pairs):
        angle = np.arange(len(x))[:, None] / 10000 ** (2 * i / x.shape[-1])
        out[..., a] = x[..., a] * np.cos(angle) - x[..., b] * np.sin(angle)
        out[..., b] = x[..., a] * np.sin(angle) + x[..., b] * np.cos(angle)
    return out


def logits_of(sizes, weights, ids, order=neighbours):
    """[length, vocabulary] of the whole text, in double, as llama2.c defines the model."""
    w = {name: array.astype("f8") for name, array in weights.items()}
    T, H, G = len(ids), sizes["heads"], sizes["kv_heads"]
    d = sizes["width"] // H
    x = w["embedding"][ids]
    for layer in range(sizes["layers"]):
        u = rms_norm(x, w["norm1"][layer])
        q = rotate((u @ w["q"][layer].T).reshape(T, H, d), order(d))
        k = rotate((u @ w["k"][layer].T).reshape(T, G, d), order(d))
        v = (u @ w["v"][layer].T).reshape(T, G, d)
        mixed = np.empty((T, H, d))
        for head in range(H):
            own = head // (H // G)
            scores = q[:, head] @ k[:, own].T / np.sqrt(d)
            scores[np.triu_indices(T, 1)] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, head] = shares / shares.sum(-1, keepdims=True) @ v[:, own]
        x = x + mixed.reshape(T, -1) @ w["o"][layer].T
        u = rms_norm(x, w["norm2"][layer])
        gate = u @ w["w1"][layer].T
        x = x + (gate / (1 + np.exp(-gate)) * (u @ w["w3"][layer].T)) @ w["w2"][layer].T
    return rms_norm(x, w["norm"]) @ w.get("head", w["embedding"]).T


def encode(pieces, text):
    """As llama2.c does: characters, or their bytes; then the best neighbours merge, one by one."""
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    out = [ids[" "]]
    for character in text:
        out += [ids[character]] if character in ids else [byte + 3 for byte in character.encode()]
    while True:
        merged = [ids.get(pieces[a][0] + pieces[b][0], -1) for a, b in zip(out, out[1:])]
        best = max((i for i, id in enumerate(merged) if id >= 0),
                   key=lambda i: (pieces[merged[i]][1], -i), default=None)
        if best is None:
            return out
        out[best:best + 2] = [merged[best]]


def convert(*paths, code=0):
    result = subprocess.run([sys.executable, ROOT / "tools/llama2c.py", *paths], capture_output=True,
                            text=True)
    assert result.returncode == code, result.stderr
    return result.stderr


def imported(bmojo, folder, model, pieces):
    convert(model, pieces, folder / "hf")
    bmojo("import", folder / "hf", "--out", folder / "model")
    return folder / "model"


def scored(bmojo, model, ids, folder):
    (folder / "ids.jsonl").write_text(json.dumps({"ids": ids}))
    bmojo("score", "--model", model, "--ids", folder / "ids.jsonl", "--logits", folder / "logits")
    _, tensors = read_safetensors(folder / "logits")
    _, shape, raw = tensors["logits.0"]
    return np.frombuffer(raw, "<f4").reshape(shape)


def spelled(bmojo, model, texts, folder):
    write_jsonl(folder / "texts.jsonl", texts)
    bmojo("tokenize", "--tokenizer", model / "tokenizer.model", "--out", folder / "tokens",
          folder / "texts.jsonl")
    return [ids.tolist() for ids in read_folder(folder / "tokens")[0]]


@pytest.fixture
def files(tmp_path):
    """Of a model of random weights."""
    write_model(tmp_path / "model.bin", SIZES)
    write_pieces(tmp_path / "tokens.bin")
    return tmp_path / "model.bin", tmp_path / "tokens.bin"


@pytest.mark.parametrize("sign", [1, -1], ids=["tied", "own head"])
def test_logits_are_those_of_the_model(bmojo, tmp_path, sign):
    sizes = SIZES | {"vocabulary": sign * SIZES["vocabulary"]}
    weights = write_model(tmp_path / "model.bin", sizes)
    write_pieces(tmp_path / "tokens.bin")
    model = imported(bmojo, tmp_path, tmp_path / "model.bin", tmp_path / "tokens.bin")
    ids = np.random.default_rng(2).integers(0, len(PIECES), 37).tolist()
    wanted, got = logits_of(sizes, weights, ids), scored(bmojo, model, ids, tmp_path)
    # fp32 beside fp64: under 1e-5. The promise to users is 1e-4.
    assert abs(got - wanted).max() <= 1e-4 * abs(wanted).max()
    other = logits_of(sizes, weights, ids, half_apart)  # it would show
    assert abs(other - wanted).max() > 1e-2 * abs(wanted).max()


def test_the_config_says_how_a_text_begins_and_ends(bmojo, files, tmp_path):
    config = bmojo.json("inspect", imported(bmojo, tmp_path, *files))["config"]
    assert config["bos_token_id"] == config["eos_token_id"] == 1
    assert config["window"] == 0 and config["norm_eps"] == 1e-5 and config["rope_theta"] == 10000
    assert config["tied_embeddings"] and config["head_size"] == 4 and config["num_kv_heads"] == 3


def test_texts_are_spelled_alike(bmojo, files, tmp_path):
    model = imported(bmojo, tmp_path, *files)
    assert spelled(bmojo, model, TEXTS, tmp_path) == [encode(PIECES, text) for text in TEXTS]


def test_pieces_keep_their_ids(files, tmp_path):
    import sentencepiece

    convert(*files, tmp_path / "hf")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "hf/tokenizer.model"))
    assert processor.get_piece_size() == len(PIECES)
    for i, (text, score) in enumerate(PIECES):
        assert processor.id_to_piece(i) == text.strip("\n").replace(" ", "\u2581")
        assert processor.get_score(i) == score
        assert processor.is_byte(i) == (3 <= i < 259) and processor.is_control(i) == (i in (1, 2))
    assert processor.is_unknown(0)


def changed(**sizes):
    return struct.pack("<7i", *(SIZES | sizes).values())


@pytest.mark.parametrize("header, message", [
    (b"\x01", "must begin with a header of 28 bytes, got 1 bytes"),
    (changed(), "must have 65100 bytes as its header says, got 28"),
    (changed(width=0), "width must be from 1 to 2^24, got 0"),
    (changed(vocabulary=0), "vocabulary must be from 1 to 2^24, got 0"),
    (changed(mlp=-3), "mlp must be from 1 to 2^24, got -3"),
    (changed(heads=5), "heads must divide half the width = 12, and kv_heads the heads, got 5 and 3"),
    (changed(kv_heads=4), "heads must divide half the width = 12, and kv_heads the heads, got 6 and 4"),
    (changed(width=0x616B3432, mlp=2), "must be of llama2.c's format 0, got format 2"),
    (changed(width=1 << 23, mlp=1 << 23, layers=1 << 23, heads=1, kv_heads=1), "bytes as its header says"),
])  # fmt: skip
def test_other_files_are_refused(files, tmp_path, header, message):
    model, pieces = files
    model.write_bytes(header)
    error = convert(model, pieces, tmp_path / "hf", code=2)
    assert error.startswith(f"llama2c: {model}: ") and message in error and error.count("\n") == 1
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize("change, message", [
    (lambda raw: raw[:-1], "piece 272 must lie in the file, got 2 bytes"),
    (lambda raw: raw + b"\0", "piece 273 must have a score and a length, got the end"),
    (lambda raw: raw[:4] + struct.pack("<fi", 0, -1) + raw[12:], "piece 0 must lie in the file, got -1 bytes"),
    (lambda raw: raw.replace("é".encode(), b"\xff\xff"), "must be UTF-8, got other bytes"),
    (lambda raw: raw + struct.pack("<fi", 0, 0), "must hold the model's 273 pieces, got 274"),
    (lambda raw: raw.replace(b"<unk>", b"<ukn>"), "piece 0 must be <unk>, got '<ukn>'"),
    (lambda raw: raw.replace(b"<0x41>", b"<0x40>"), "pieces 3 to 258 must be the bytes, got others"),
    (lambda raw: raw.replace(b"bcd", b"abc"), "pieces must be different, got one twice"),
])  # fmt: skip
def test_other_vocabularies_are_refused(files, tmp_path, change, message):
    model, pieces = files
    pieces.write_bytes(change(pieces.read_bytes()))
    error = convert(model, pieces, tmp_path / "hf", code=2)
    assert error.startswith(f"llama2c: {pieces}: ") and message in error and error.count("\n") == 1


def test_nothing_is_overwritten(files, tmp_path):
    (tmp_path / "hf").mkdir()
    assert "must be a new folder, got one that is there" in convert(*files, tmp_path / "hf", code=2)
    error = convert(tmp_path / "none.bin", files[1], tmp_path / "new", code=2)
    assert "No such file" in error and error.count("\n") == 1


# --- a model that was trained --------------------------------------------------------------------


@pytest.fixture
def stories(bmojo, tmp_path):
    if not STORIES.exists():
        pytest.skip(f"no {STORIES}; BMOJO_DATA names the data's folder")
    return imported(bmojo, tmp_path, STORIES / "stories260K.bin", STORIES / "tok512.bin")


def known_text():
    """What its page shows that run.c wrote at temperature 0: 256 tokens behind <s>."""
    page = (STORIES / "stories260K.md").read_text()
    return re.search(r"\$ \./run [^\n]* -t 0\.0\n(.*?)\n```", page, re.DOTALL)[1]


def greedy(sizes, weights, count):
    ids = [1]
    while len(ids) <= count:
        ids.append(int(logits_of(sizes, weights, ids)[-1].argmax()))
    return ids[1:]


def test_stories_are_written_token_for_token(bmojo, stories):
    written = bmojo.json("generate", "--model", stories, "--ids", "1", "--temperature", "0",
                         "--max-tokens", "256")
    # The blank that begins a text is not printed by run.c.
    assert written["text"].removeprefix(" ") == known_text() and len(written["ids"]) == 256
    assert written["ids"] == greedy(*read_model(STORIES / "stories260K.bin"), 256)


def test_stories_are_spelled_alike(bmojo, stories, tmp_path):
    pieces = read_pieces(STORIES / "tok512.bin")
    texts = [*known_text().splitlines(), known_text(), *TEXTS, "Ωmega\t  1234567890 «»"]
    texts = [text for text in texts if text]
    assert spelled(bmojo, stories, texts, tmp_path) == [encode(pieces, text) for text in texts]


def test_logits_of_stories_are_those_of_the_model(bmojo, stories, tmp_path):
    ids = encode(read_pieces(STORIES / "tok512.bin"), known_text())[:200]
    wanted = logits_of(*read_model(STORIES / "stories260K.bin"), ids)
    assert abs(scored(bmojo, stories, ids, tmp_path) - wanted).max() <= 1e-4 * abs(wanted).max()
