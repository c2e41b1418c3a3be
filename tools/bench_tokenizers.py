#!/usr/bin/env python3
"""Encoding speed of byte-level tokenizers beside Python's `tokenizers`, one thread each.

    tools/bench_tokenizers.py [--bin build/release/bin] [--text FILE…] [--repeat 5]

Both read the same files, by turns. bmojo's seconds are those of `bmojo tokenize --threads 1`, less
those of the same on a text of one word: start, reading the tokenizer, flushing the shards.
`tokenizers` is given whole files and paragraphs; the faster way counts. What is compared is the best
of the repeats, in seconds of CPU time, which other work on the machine disturbs less."""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/cli"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from bpe_texts import DATA, REAL, oracle_of  # noqa: E402


def cpu_seconds():
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds_of(call):
    start = cpu_seconds()
    call()
    return cpu_seconds() - start


def bmojo_call(program, tokenizer, files):
    def call():
        with tempfile.TemporaryDirectory() as folder:
            words = [program, "tokenize", "--quiet", "--threads", "1", "--tokenizer", tokenizer]
            subprocess.run([*words, "--out", f"{folder}/out", *files], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip

    return call


def python_call(oracle, texts):
    return lambda: [oracle.encode(text, add_special_tokens=False) for text in texts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
    parser.add_argument("--text", type=Path, nargs="+", help="[the first 20 novels of the data]")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    files = options.text or sorted(DATA.glob("books/train/*.txt"))[:20]
    texts = [path.read_bytes() for path in files]
    size = sum(map(len, texts)) / 1e6
    print(f"{len(files)} files, {size:.1f} MB\n")
    print("| tokenizer | bmojo, MB/s | `tokenizers`, MB/s | ratio |\n|---|---|---|---|")
    for name, path in REAL.items():
        if not path.exists():
            print(f"| {name} | no {path} | | |")
            continue
        oracle = oracle_of(path)
        strings = [text.decode(errors="replace") for text in texts]
        paragraphs = [part + "\n\n" for text in strings for part in text.split("\n\n")]
        with tempfile.NamedTemporaryFile(suffix=".txt") as one:
            one.write(b"word")
            one.flush()
            start = bmojo_call(options.bin / "bmojo", path, [one.name])
            whole = bmojo_call(options.bin / "bmojo", path, files)
            rounds = [[seconds_of(call) for call in
                       (start, whole, python_call(oracle, strings), python_call(oracle, paragraphs))]
                      for _ in range(options.repeat)]  # fmt: skip
        starts, wholes, *others = map(min, zip(*rounds, strict=True))
        others = min(others)
        ours = size / (wholes - starts)
        print(f"| {name} | {ours:.1f} | {size / others:.1f} | {ours * others / size:.1f} |")


if __name__ == "__main__":
    main()
