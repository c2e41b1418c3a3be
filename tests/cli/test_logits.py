"""The logits of five committed models have one SHA-256 each, on every machine, and another one each
with weights in bf16. Two of the files hold bf16: theirs are the same.

A sum that changes its order changes them. Whoever changes the layer's arithmetic on purpose names
the change and writes the new sums: `python tests/cli/test_logits.py BMOJO > tests/infer/models/SUMS`.
"""

import hashlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import pytest

MODELS = pathlib.Path(__file__).parent.parent / "infer/models"
SUMS = MODELS / "SUMS"
LENGTH = 700  # tokens: more than the engine reads at once
NAMES = ["bmojo", "bmojo-sliding", "hybrid", "mamba", "transformer"]


def logits_sum(program, name, flags=(), **environment):
    """The SHA-256 of the logits behind every token of a fixed text."""
    ids = [(7 * i * i + 3 * i + i // 11) % 48 for i in range(LENGTH)]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits.safetensors"
        words = [program, "score", "--model", MODELS / name, "--ids", "-", "--logits", out, *flags]
        subprocess.run(
            list(map(str, words)), input=json.dumps({"ids": ids}), text=True, check=True,
            stdout=subprocess.DEVNULL, env=os.environ | environment,
        )
        raw = out.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    info = json.loads(raw[8 : 8 + size])["logits.0"]
    assert info["shape"] == [LENGTH, 48] and info["dtype"] == "F32"
    begin, end = info["data_offsets"]
    return hashlib.sha256(raw[8 + size + begin : 8 + size + end]).hexdigest()


def known():
    """By the name of the model, and by "NAME bf16"."""
    lines = SUMS.read_text().splitlines()
    return {label: found for found, label in (line.split(maxsplit=1) for line in lines)}


def test_every_model_has_its_sums():
    assert NAMES == sorted(p.name for p in MODELS.iterdir() if p.is_dir())
    assert sorted(known()) == sorted(NAMES + [f"{name} bf16" for name in NAMES])
    same = [name for name in NAMES if known()[name] == known()[f"{name} bf16"]]
    assert same == ["bmojo-sliding", "hybrid"]


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_known_ones(bmojo, name):
    program = bmojo.folder / "bmojo"
    assert logits_sum(program, name, ["--dtype", "f32"]) == known()[name]
    for label, own in ((name, []), (f"{name} bf16", ["--dtype", "bf16"])):
        expected = known()[label]
        assert logits_sum(program, name, own) == expected
        assert logits_sum(program, name, own, BMOJO_SIMD="AVX2") == expected
        assert logits_sum(program, name, [*own, "--threads", 2, "--chunk", 37]) == expected
        assert logits_sum(program, name, [*own, "--threads", 1, "--chunk", 1]) == expected


if __name__ == "__main__":
    for each in NAMES:
        print(logits_sum(sys.argv[1], each), each)
    for each in NAMES:
        print(logits_sum(sys.argv[1], each, ["--dtype", "bf16"]), each, "bf16")
