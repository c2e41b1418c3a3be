#!/usr/bin/env python3
"""Makes Llama 3's tokenizer.json from the vocabulary inside llama-cpp-python's source package.

    tools/llama3_tokenizer.py [--package FILE.tar.gz] [--out build/tokenizers/llama-3]

Without --package the package is downloaded by pip (77 MB). The tests compare bmojo with Python's
`tokenizers` on the result where it is there; it is not part of the project."""

import argparse
import json
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "llama-cpp-python==0.3.36"
VOCABULARY = "vendor/llama.cpp/models/ggml-vocab-llama-bpe.gguf"
CONTROL = 3  # the type of special tokens
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def download(folder):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
           "--no-binary", ":all:", "--no-deps", "--dest", str(folder), PACKAGE]  # fmt: skip
    subprocess.run(pip, check=True)
    return next(Path(folder).glob("*.tar.gz"))


def vocabulary_in(package):
    with tarfile.open(package) as archive:
        for member in archive:
            if member.name.endswith(VOCABULARY):
                return archive.extractfile(member).read()
    sys.exit(f"{package}: must hold {VOCABULARY}, got none")


class Gguf:
    """The fields before the tensors of a GGUF file."""

    NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
               12: "d"}  # fmt: skip
    STRING, ARRAY = 8, 9

    def __init__(self, data):
        self.data, self.at = data, 0
        magic, _version, _tensors, fields = self.unpack("4sIQQ")
        if magic != b"GGUF":
            sys.exit(f"{VOCABULARY}: must be a GGUF file, got {magic!r}")
        self.fields = {self.string(): self.value(self.unpack("I")[0]) for _ in range(fields)}

    def unpack(self, layout):
        found = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return found

    def string(self):
        (size,) = self.unpack("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind):
        if kind == self.STRING:
            return self.string()
        if kind == self.ARRAY:
            inner, count = self.unpack("IQ")
            return [self.value(inner) for _ in range(count)]
        return self.unpack(self.NUMBERS[kind])[0]


def tokenizer_of(fields):
    tokens = fields["tokenizer.ggml.tokens"]
    types = fields["tokenizer.ggml.token_type"]
    special = [i for i, kind in enumerate(types) if kind == CONTROL]
    begin = tokens[fields["tokenizer.ggml.bos_token_id"]]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    mark = {"SpecialToken": {"id": begin, "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [mark, text],
        "pair": [mark, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {begin: {"id": begin, "ids": [tokens.index(begin)], "tokens": [begin]}},
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags, "special": True} for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": {"type": "Sequence", "processors": [byte_level, template]},
        "decoder": byte_level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {token: i for i, token in enumerate(tokens) if types[i] != CONTROL},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, help="the source package, where it is there already")
    parser.add_argument("--out", type=Path, default=ROOT / "build/tokenizers/llama-3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = vocabulary_in(options.package or download(folder))
    tokenizer = tokenizer_of(Gguf(data).fields)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "tokenizer.json"
    path.write_text(json.dumps(tokenizer, ensure_ascii=False))
    print(f"{path}: {len(tokenizer['model']['vocab']):,} tokens, "
          f"{len(tokenizer['added_tokens'])} special")


if __name__ == "__main__":
    main()
