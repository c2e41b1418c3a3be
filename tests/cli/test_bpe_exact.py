"""Byte-level BPE of GPT-2, GPT-NeoX, SmolLM2 and Llama 3 against Python's `tokenizers`: 10 MB of
mixed text, code points in context, and fuzzed strings. BMOJO_FUZZ sets how many of these (30,000);
from a million on, every code point is tried instead of an eighth."""

import os
import random

import pytest
from bpe_texts import REAL, assert_ids_are_pythons, every_character, fuzzed_text, megabytes

NUM_FUZZED = int(os.environ.get("BMOJO_FUZZ") or 30_000)


@pytest.fixture(params=REAL)
def tokenizer(request):
    path = REAL[request.param]
    if not path.exists():
        how = "tools/llama3_tokenizer.py makes it" if request.param == "llama3" else (
            "BMOJO_DATA names the data's folder")  # fmt: skip
        pytest.skip(f"no {path}; {how}")
    return path


def test_ten_megabytes_of_mixed_text(bmojo, tmp_path, tokenizer):
    texts = megabytes(10_000_000)
    assert sum(map(len, texts)) >= 10_000_000
    assert_ids_are_pythons(bmojo, tokenizer, texts, tmp_path / "work")


def test_code_points(bmojo, tmp_path, tokenizer):
    texts = list(every_character())[:: 1 if NUM_FUZZED >= 1_000_000 else 8]
    assert_ids_are_pythons(bmojo, tokenizer, texts, tmp_path / "work")


def test_fuzzed_strings(bmojo, tmp_path, tokenizer):
    draw, num_left, part = random.Random(7), NUM_FUZZED, 0
    while num_left > 0:
        count = min(num_left, 100_000)
        texts = [fuzzed_text(draw) for _ in range(count)]
        assert_ids_are_pythons(bmojo, tokenizer, texts, tmp_path / f"{part}")
        num_left, part = num_left - count, part + 1
