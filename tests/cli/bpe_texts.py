"""Texts that byte-level tokenizers are compared on, and the comparison with Python's `tokenizers`."""

import json
import os
import random
from pathlib import Path

import numpy as np
from test_tokenize import DATA, ROOT, mixed_text, read_shard
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel

os.environ["TOKENIZERS_PARALLELISM"] = "false"

LLAMA3 = Path(os.environ.get("BMOJO_LLAMA3") or ROOT / "build/tokenizers/llama-3/tokenizer.json")
# By name: the file that bmojo takes.
REAL = {
    "gpt2": DATA / "tokenizers/gpt2/vocab.json",
    "gpt-neox": DATA / "tokenizers/gpt-neox-20b/tokenizer.json",
    "smollm2": DATA / "tokenizers/smollm2/tokenizer.json",
    "llama3": LLAMA3,
}

# First and last code point of what a script, or a kind of character, uses.
BLOCKS = [
    (0x20, 0x7E), (0x0, 0x1F), (0x80, 0xFF), (0x100, 0x24F), (0x250, 0x2AF), (0x300, 0x36F),
    (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x8A0, 0x8FF), (0x900, 0x97F),
    (0x980, 0x9FF), (0xE00, 0xE7F), (0xF00, 0xFFF), (0x1100, 0x11FF), (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF),
    (0x20D0, 0x20FF), (0x2100, 0x218F), (0x2460, 0x24FF), (0x2600, 0x27BF), (0x3000, 0x30FF),
    (0x3400, 0x34FF), (0x4E00, 0x9FFF), (0xA960, 0xA97F), (0xAC00, 0xD7FF), (0xF900, 0xFAFF),
    (0xFB00, 0xFB4F), (0xFE00, 0xFE2F), (0xFF00, 0xFFFD), (0x10A00, 0x10A5F), (0x10F30, 0x10F8F),
    (0x11100, 0x1114F), (0x11900, 0x1195F), (0x113B0, 0x113FF), (0x16100, 0x1613F),
    (0x105C0, 0x105FF), (0x16D40, 0x16D7F), (0x1D100, 0x1D1FF), (0x1D7C0, 0x1D7FF),
    (0x1E000, 0x1E02F), (0x1F000, 0x1FAFF), (0x20000, 0x2A6FF), (0x2F800, 0x2FA1F),
    (0xE0000, 0xE007F), (0x10FFF0, 0x10FFFF),
]  # fmt: skip
PIECES = """'s 't 're 've 'm 'll 'd 'S 'T 'RE 'Ve 'M 'LL 'lL 'D 'ſ 'ſt ' '' ''s '1 'x ß ſ İ ı K ﬀ
<|endoftext|> <|padding|> <|im_start|> <|begin_of_text|> <|end_of_text|> <|endoftext <| |> </s> <s>
1 12 123 1234 1234567 ٣٤٥ Ⅷ ½ ² 1a a1 _ __ ... !? -- => // /* */ ( (( ((a .a ,b "c" `d` #e @f
a Ab ABC the The don't I'll you're naïve Straße слово 記憶力 メモリ 기억 ᄀ ᅡ ᆨ 각 é e\u0301 q\u0307\u0323 q\u0323\u0307
\u0344 \u0958 \u09c7\u09be \u1e9b\u0323 \u212b \u2126 \uf900 \u0301 \u0323\u0301 \u1abf\u0323 \U00011935\U00011930
\u0958\u093c \U000105d2\u0307 😀 👩\u200d👩\u200d👧 🏳️\u200d🌈 🇩🇪 \ufffd \ufeff \u200b \u00ad \U0010ffff""".split()
PIECES += [" ", "  ", "   ", " " * 7, " " * 24, " " * 25, " " * 60, "\t", "\t\t", "\n", "\n\n", "\r\n",
           "\r", " \n", "\n ", " \n \n", "\t\n\t", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0",
           "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", " \u3000 ",
           "\u180e", "\0", "\x01", "\x7f"]  # fmt: skip


def oracle_of(path):
    """Python's tokenizer for a file that bmojo takes."""
    if path.name != "vocab.json":
        return Tokenizer.from_file(str(path))
    tokenizer = Tokenizer(models.BPE.from_file(str(path), str(path.with_name("merges.txt"))))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def ids_of(oracle, text):
    return oracle.encode(text, add_special_tokens=False).ids


def wild_text(num_characters, seed):
    """Characters of all scripts, a few of one after the other."""
    draw = random.Random(seed)
    out, count = [], 0
    while count < num_characters:
        first, last = draw.choice(BLOCKS)
        run = [chr(draw.randint(first, last)) for _ in range(draw.choice([1, 1, 2, 3, 8, 30]))]
        if draw.random() < 0.3:
            run += [draw.choice(PIECES)]
        out += run
        count += len(run)
    return "".join(out)


def fuzzed_text(draw):
    out = []
    for _ in range(draw.choice([1, 2, 3, 4, 5, 6, 8, 12])):
        kind = draw.random()
        if kind < 0.75:
            out.append(draw.choice(PIECES))
        elif kind < 0.95:
            first, last = draw.choice(BLOCKS)
            out.append(chr(draw.randint(first, last)))
        else:
            out.append(chr(draw.choice([draw.randint(0, 0xD7FF), draw.randint(0xE000, 0x10FFFF)])))
    return "".join(out)


def every_character():
    """Texts that hold every code point between letters, blanks, digits and marks."""
    codes = [*range(0xD800), *range(0xE000, 0x110000)]
    for at in range(0, len(codes), 64):
        some = [chr(code) for code in codes[at : at + 64]]
        yield "".join(f"{c}a{c} 1{c}{c}e{c}\u0301\u0323 {c}\n" for c in some)


def megabytes(size):
    """About `size` bytes: novels, source code, scripts, emoji, controls, long blanks, broken UTF-8."""
    texts = [mixed_text(size // 6, 1), wild_text(size // 20, 2).encode(),
             random.Random(3).randbytes(size // 30), b" " * 100_000 + b"x" + b"\n" * 1000,
             ("漢字かな交じり文" * 2000).encode(), b"a" * 30_000 + b" " + b"ab" * 30_000]  # fmt: skip
    for i, count in enumerate([100, 137, 300, 999]):
        texts.append(b"\n".join(b" " * (count + j % 7) + b"word%d" % j for j in range(100 + i)))
    sources = sorted(path for folder in ("bench", "docs", "src", "tests", "tools")
                     for kind in ("*.cpp", "*.h", "*.py", "*.md")
                     for path in (ROOT / folder).rglob(kind))  # fmt: skip
    texts.append(b"\n".join(path.read_bytes() for path in sources)[: size // 4])
    for path in sorted(DATA.glob("books/*/*.txt")):
        if sum(map(len, texts)) < size:
            texts.append(path.read_bytes()[: size // 8])
    texts.append(mixed_text(max(size - sum(map(len, texts)), 1), 5))
    return texts


def encoded(bmojo, tokenizer, texts, folder, threads=1):
    """(header, documents) of texts: strings as lines of JSONL, bytes as files."""
    folder.mkdir(parents=True)
    if isinstance(texts[0], str):
        inputs = [folder / "lines.jsonl"]
        with inputs[0].open("w") as file:
            file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    else:
        inputs = [folder / f"text{i:02}" for i in range(len(texts))]
        for path, text in zip(inputs, texts, strict=True):
            path.write_bytes(text)
    bmojo("tokenize", "--tokenizer", tokenizer, "--threads", threads, "--out", folder / "out", *inputs)
    header, documents, _ = read_shard(folder / "out/shard-00000.tokens")
    return header, documents


def assert_ids_are_pythons(bmojo, tokenizer, texts, folder):
    oracle = oracle_of(Path(tokenizer))
    strings = [text if isinstance(text, str) else text.decode(errors="replace") for text in texts]
    expected = [np.array(found.ids) for found in
                oracle.encode_batch(strings, add_special_tokens=False)]  # fmt: skip
    expected = [(text, ids) for text, ids in zip(strings, expected, strict=True) if len(ids)]
    header, documents = encoded(bmojo, tokenizer, texts, folder)
    assert header["tokenizer"] == "bpe" and header["vocab_size"] == oracle.get_vocab_size()
    assert len(documents) == len(expected)
    for found, (text, ids) in zip(documents, expected, strict=True):
        if not np.array_equal(found, ids):
            if len(ids) < 200:
                assert found.tolist() == ids.tolist(), ascii(text)
            size = min(len(found), len(ids))
            wrong = np.flatnonzero(found[:size] != ids[:size])
            at = int(wrong[0]) if wrong.size else size
            raise AssertionError(f"id {at} of {len(ids)}: {found[at:at + 8]}, not {ids[at:at + 8]}: "
                                 f"{oracle.decode(ids[max(at - 5, 0):at + 8])!a}")  # fmt: skip
    return len(documents)
