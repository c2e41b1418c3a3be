"""`import` of GGUF files: weights, config, tokenizer and chat template, and what is refused. Files
are written by gguf_files.py. The Python package gguf says what their dequantised values are."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import gguf_files as files
import numpy as np
import pytest
from bpe_texts import REAL, assert_ids_are_pythons, fuzzed_text, ids_of, oracle_of, wild_text
from conftest import LLAMA, MAMBA, hugging_face_shapes, listing, random_tensors, read_safetensors
from conftest import write_hugging_face
from gguf_files import llama_fields, llama_tensors, mamba_fields, mamba_tensors, write_gguf
from test_bpe import trained
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]


def weights(folder):
    return read_safetensors(folder / "model.safetensors")[1]


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def import_gguf(bmojo, tmp_path, fields, tensors, *flags, name="model", **options):
    write_gguf(tmp_path / f"{name}.gguf", fields, tensors)
    result = bmojo("import", tmp_path / f"{name}.gguf", "--out", tmp_path / name, *flags, **options)
    return result if options.get("code") else tmp_path / name


# --- weights and config --------------------------------------------------------------------------


@pytest.mark.parametrize("change", [
    {}, {"tie_word_embeddings": True}, {"num_key_value_heads": 6}, {"head_dim": 2},
    {"rms_norm_eps": 1e-5, "rope_theta": 100000.0}])
def test_a_llama_is_the_one_of_transformers(bmojo, tmp_path, change):
    config = LLAMA | change
    tensors = write_hugging_face(tmp_path / "hf", config)
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "theirs")
    for version in (2, 3):
        write_gguf(tmp_path / "x.gguf", llama_fields(config), llama_tensors(config, tensors), version)
        report = bmojo.json("import", tmp_path / "x.gguf", "--out", tmp_path / f"ours{version}")
        assert report["model_type"] == "llama"
        assert report["parameters"] == sum(value.size for value in tensors.values())
        for name in listing(tmp_path / "theirs"):
            ours, theirs = (tmp_path / folder / name for folder in (f"ours{version}", "theirs"))
            assert ours.read_bytes() == theirs.read_bytes(), name
    assert bmojo.json("inspect", tmp_path / "ours3", "--verify")["verified"]


@pytest.mark.parametrize("change", [{}, {"use_conv_bias": False}, {"tie_word_embeddings": False}])
def test_a_mamba_is_the_one_of_transformers(bmojo, tmp_path, change):
    config = MAMBA | change
    tensors = random_tensors(hugging_face_shapes(config))
    grid = np.linspace(-10, 10, 72, dtype="f4")  # A_log is [24, 3]
    tensors["backbone.layers.0.mixer.A_log"] = grid.reshape(24, 3)
    tensors["backbone.layers.1.mixer.A_log"] = np.log(np.arange(1, 73, dtype="f4")).reshape(24, 3)
    write_hugging_face(tmp_path / "hf", config, tensors)
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "theirs")
    folder = import_gguf(bmojo, tmp_path, mamba_fields(config), mamba_tensors(config, tensors))
    assert config_of(folder) == config_of(tmp_path / "theirs")
    ours, theirs = weights(folder), weights(tmp_path / "theirs")
    assert ours.keys() == theirs.keys()
    for name in ours:
        if not name.endswith("A_log"):
            assert ours[name] == theirs[name], name
            continue
        a, b = (np.frombuffer(side[name][2], "f4").astype("f8") for side in (ours, theirs))
        # The file holds exp(A_log) to 24 bits; numpy's own exp adds up to one bit, rounding half a
        # place of A_log.
        assert np.all(np.abs(a - b) <= 2.0**-22 + np.abs(b) * 2.0**-24), name
        assert np.array_equal(a[np.abs(b) >= 4], b[np.abs(b) >= 4]), name  # places of 2^-21
        # And A itself is the stored one to a few roundings.
        assert np.all(np.abs(np.exp(a - b) - 1) < 5e-7), name


def test_vectors_of_taps_may_have_their_size_of_one(bmojo, tmp_path):
    tensors = mamba_tensors()
    want = weights(import_gguf(bmojo, tmp_path, mamba_fields(), tensors))
    for name in tensors:
        if name.endswith("conv1d.weight"):
            tensors[name] = tensors[name][:, None, :]
    assert weights(import_gguf(bmojo, tmp_path, mamba_fields(), tensors, name="again")) == want


def test_fields_reach_the_config(bmojo, tmp_path):
    fields = llama_fields() | {
        "llama.attention.sliding_window": 7, "llama.rope.scaling.type": "none",
        "llama.rope.scaling.factor": 1.0, "llama.expert_count": 0, "llama.expert_used_count": 0,
        "general.name": "anything", "general.alignment": 32,
        "llama.block_count": (10, (2).to_bytes(8, "little"))}  # u64
    tensors = llama_tensors() | {"rope_freqs.weight": np.ones(2, "f4")}
    config = config_of(import_gguf(bmojo, tmp_path, fields, tensors))
    assert config["window"] == 7 and config["num_layers"] == 2 and config["norm_eps"] == 1e-6
    for key in ("llama.rope.freq_base", "tokenizer.ggml.bos_token_id", "llama.attention.head_count_kv",
                "tokenizer.ggml.eos_token_id", "llama.attention.sliding_window"):
        fields.pop(key)
    tensors = llama_tensors(LLAMA | {"num_key_value_heads": 6})
    config = config_of(import_gguf(bmojo, tmp_path, fields, tensors, name="defaults"))
    assert config["rope_theta"] == 10000 and config["num_kv_heads"] == 6 and config["window"] == 0
    assert config["bos_token_id"] == config["eos_token_id"] == -1


def test_types(bmojo, tmp_path):
    tensors = llama_tensors()
    tensors["blk.0.attn_q.weight"] = tensors["blk.0.attn_q.weight"].astype("f2")
    up = tensors["blk.0.ffn_up.weight"]
    tensors["blk.0.ffn_up.weight"] = (files.BF16, up.shape, (up.view("u4") >> 16).astype("u2").tobytes())
    up = (up.view("u4") & 0xFFFF0000).view("f4")
    folder = import_gguf(bmojo, tmp_path, llama_fields(), tensors)
    native = weights(folder)
    kinds = {name: dtype for name, (dtype, _, _) in native.items()}
    assert kinds.pop("layers.0.attention.q_proj.weight") == "F16"
    assert kinds.pop("layers.0.mlp.up_proj.weight") == "BF16" and set(kinds.values()) == {"F32"}
    as_f32 = weights(import_gguf(bmojo, tmp_path, llama_fields(), tensors, "--dtype", "f32", name="f32"))
    assert {dtype for dtype, _, _ in as_f32.values()} == {"F32"}
    assert as_f32["layers.0.mlp.up_proj.weight"][2] == up.tobytes()
    for dtype, kind in (("bf16", "BF16"), ("f16", "F16")):
        other = weights(import_gguf(bmojo, tmp_path, llama_fields(), tensors, "--dtype", dtype, name=dtype))
        assert {found for found, _, _ in other.values()} == {kind}
        got = np.frombuffer(other["norm.weight"][2], "u2")
        want = tensors["output_norm.weight"]
        got = got.view("f2").astype("f4") if dtype == "f16" else (got.astype("u4") << 16).view("f4")
        assert np.all(np.abs(got - want) <= np.abs(want) * 2.0**-8)
    tensors["output_norm.weight"] = np.full(12, 70000, "f4")
    assert "tensor 'output_norm.weight' must stay below 65520 for f16, got 70000; choose bf16" in (
        import_gguf(bmojo, tmp_path, llama_fields(), tensors, "--dtype", "f16", name="big", code=2))
    assert not (tmp_path / "big").exists()


def test_dtype_of_a_folder(bmojo, tmp_path):
    tensors = write_hugging_face(tmp_path / "hf", LLAMA)
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "half", "--dtype", "f16")
    native = weights(tmp_path / "half")
    assert {dtype for dtype, _, _ in native.values()} == {"F16"}
    assert native["norm.weight"][2] == tensors["model.norm.weight"].astype("f2").tobytes()


# A Llama whose rows are whole blocks of every type.
WIDE = LLAMA | {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4,
                "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 1}


def random_blocks(kind, rows, width, seed):
    """Any bytes, but half of the scales are small ones, odd ones or none."""
    draw = np.random.default_rng(seed)
    numbers, size = files.BLOCKS[kind]
    raw = draw.integers(0, 256, (rows * width // numbers, size), dtype="u1")
    odd = np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x7C00, 0x7E01, 0x2E66], "u2")
    halves = {files.Q6_K: [208], files.Q4_1: [0, 2], files.Q5_1: [0, 2], files.Q4_K: [0, 2],
              files.Q5_K: [0, 2], files.F32: [], files.BF16: []}.get(kind, [0])
    for at in halves:
        some = draw.random(len(raw)) < 0.5
        raw[some, at : at + 2] = draw.choice(odd, some.sum()).view("u1").reshape(-1, 2)
    return raw.tobytes()


def quantised(kind, seed=0):
    """The tensors of WIDE, all of two dimensions in blocks of that type."""
    tensors = llama_tensors(WIDE)
    for i, (name, value) in enumerate(sorted(tensors.items())):
        if value.ndim == 2:
            raw = random_blocks(kind, *value.shape, seed + i)
            tensors[name] = (kind, value.shape, raw)
    return tensors


DEQUANTISE = """
import sys, numpy, gguf
reader = gguf.GGUFReader(sys.argv[1])
numpy.seterr(all="ignore")
numpy.savez(sys.argv[2], **{t.name: gguf.quants.dequantize(t.data, t.tensor_type)
                            for t in reader.tensors})
"""


@pytest.mark.parametrize("kind", files.BLOCKS)
def test_values_are_those_of_the_package(bmojo, tmp_path, kind):
    folder = import_gguf(bmojo, tmp_path, llama_fields(WIDE), quantised(kind, 100 * kind), "--dtype",
                         "f32")
    subprocess.run([sys.executable, "-c", DEQUANTISE, tmp_path / "model.gguf", tmp_path / "x.npz"], check=True)
    native, theirs = weights(folder), np.load(tmp_path / "x.npz")
    names = {"embedding.weight": "token_embd.weight", "head.weight": "output.weight",
             "layers.0.attention.o_proj.weight": "blk.0.attn_output.weight",
             "layers.0.mlp.down_proj.weight": "blk.0.ffn_down.weight"}
    for ours, name in names.items():
        got, want = np.frombuffer(native[ours][2], "f4"), theirs[name].astype("f4").ravel()
        nan = np.isnan(want)
        assert np.array_equal(np.isnan(got), nan), name
        assert np.array_equal(got[~nan].view("u4"), want[~nan].view("u4")), name
    # Rows of a head, from neighbours to halves.
    got = np.frombuffer(native["layers.0.attention.k_proj.weight"][2], "u4").reshape(2, 2, 32, 256)
    want = theirs["blk.0.attn_k.weight"].astype("f4").view("u4").reshape(2, 32, 2, 256).swapaxes(1, 2)
    nan = np.isnan(want.view("f4"))
    assert np.array_equal(got[~nan], want[~nan])


def test_blocks_by_hand(bmojo, tmp_path):
    """Without the package: Q8_0 and Q4_1, which need a line each."""
    for kind in (files.Q8_0, files.Q4_1):
        tensors = quantised(kind, 7)
        native = weights(import_gguf(bmojo, tmp_path, llama_fields(WIDE), tensors, name=f"m{kind}"))
        raw = np.frombuffer(tensors["token_embd.weight"][2], "u1").reshape(-1, files.BLOCKS[kind][1])
        d = raw[:, :2].copy().view("f2").astype("f4")
        with np.errstate(all="ignore"):
            if kind == files.Q8_0:
                want = raw[:, 2:].copy().view("i1").astype("f4") * d
            else:
                q = np.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1)
                want = d * q.astype("f4") + raw[:, 2:4].copy().view("f2").astype("f4")
        got, want = np.frombuffer(native["embedding.weight"][2], "f4"), want.ravel()
        nan = np.isnan(want)
        assert nan.any() and not nan.all() and np.array_equal(np.isnan(got), nan)
        assert np.array_equal(got[~nan].view("u4"), want[~nan].view("u4"))


# --- what is refused -----------------------------------------------------------------------------

ABSENT = object()
EPS = "llama.attention.layer_norm_rms_epsilon"


@pytest.mark.parametrize("base, change, message", [
    (llama_fields, {"general.architecture": "qwen2"},
     "general.architecture must be 'llama' or 'mamba', got 'qwen2'"),
    (llama_fields, {"general.architecture": "mamba2"}, "'llama' or 'mamba', got 'mamba2'"),
    (llama_fields, {"general.architecture": ABSENT}, "'llama' or 'mamba', got none"),
    (llama_fields, {"general.architecture": 5}, "general.architecture must be a string, got 5"),
    (llama_fields, {"split.count": 2}, "split.count must be 1: a file that is whole, got 2"),
    (llama_fields, {"llama.block_count": ABSENT},
     "llama.block_count must be a whole number from 1 to 2^31, got none"),
    (llama_fields, {"llama.block_count": 0}, "llama.block_count must be a whole number from 1"),
    (llama_fields, {"llama.block_count": 2_000_000_000},
     "llama.block_count must be at most the number of tensors, 21, got 2000000000"),
    (llama_fields, {"llama.block_count": 3}, "tensor 'blk.2.attn_norm.weight' is missing"),
    (llama_fields, {"llama.block_count": 1},
     "tensor 'blk.1.attn_k.weight' is not part of a llama model with this config"),
    (llama_fields, {"llama.embedding_length": 13},
     "tensor 'token_embd.weight' must have rows of 13, got [40, 12]"),
    (llama_fields, {"llama.feed_forward_length": 21},
     "tensor 'blk.0.ffn_gate.weight' must be [21, 12], got [20, 12]"),
    (llama_fields, {"llama.feed_forward_length": [20, 20]},
     "llama.feed_forward_length must be a whole number below 2^63, got an array of i32"),
    (llama_fields, {"llama.attention.head_count": -1 & 0xFFFFFFFF}, "from 1 to 2^31, got 4294967295"),
    (llama_fields, {"llama.attention.head_count": (10, b"\xff" * 8)},
     "llama.attention.head_count must be a whole number below 2^63, got 18446744073709551615"),
    (llama_fields, {"llama.attention.value_length": 6},
     "llama.attention.value_length must be 4, got 6"),
    (llama_fields, {"llama.rope.dimension_count": 2}, "llama.rope.dimension_count must be 4, got 2"),
    (llama_fields, {"llama.rope.scaling.type": "linear"},
     "llama.rope.scaling.type must be absent or 'none', got 'linear'"),
    (llama_fields, {"llama.rope.scaling.type": "yarn\n"}, "got 'yarn\\x0a'"),
    (llama_fields, {"llama.rope.scaling.factor": 8.0},
     "llama.rope.scaling.factor must be absent or 1, got 8"),
    (llama_fields, {"llama.rope.freq_base": 0.0}, "llama.rope.freq_base must be a number above 0"),
    (llama_fields, {"llama.rope.freq_base": float("inf")}, "must be a number above 0, got inf"),
    (llama_fields, {"llama.rope.freq_base": 10000}, "must be a number of floating point, got 10000"),
    (llama_fields, {EPS: ABSENT}, EPS + " must be a number above 0, got none"),
    (llama_fields, {"llama.expert_count": 8}, "llama.expert_count must be absent or 0, got 8"),
    (llama_fields, {"llama.attention.causal": False},
     "llama.attention.causal must be absent or true, got false"),
    (llama_fields, {"llama.logit_scale": 2.0},
     "llama.logit_scale is a key that bmojo does not have, got 2"),
    (llama_fields, {"llama.vocab_size": 41}, "llama.vocab_size must be 40, got 41"),
    (llama_fields, {"tokenizer.ggml.tokens": ["a", "b"]},
     "tokenizer.ggml.tokens must be 40, as tensor 'token_embd.weight' has rows, got 2"),
    (llama_fields, {"tokenizer.ggml.eos_token_id": 40},
     "tokenizer.ggml.eos_token_id must be a token id below 40, got 40"),
    (llama_fields, {"tokenizer.chat_template": b"\xff"}, "tokenizer.chat_template must be UTF-8"),
    (llama_fields, {"general.alignment": 24}, "general.alignment must be a power of two"),
    (mamba_fields, {"mamba.ssm.dt_b_c_rms": True},
     "mamba.ssm.dt_b_c_rms must be absent or false, got true"),
    (mamba_fields, {"mamba.ssm.group_count": 1}, "mamba.ssm.group_count is a key that bmojo does not"),
    (mamba_fields, {"mamba.feed_forward_length": 20},
     "mamba.feed_forward_length must be absent or 0, got 20"),
    (mamba_fields, {"mamba.ssm.inner_size": ABSENT}, "mamba.ssm.inner_size must be a whole number"),
    (mamba_fields, {"mamba.ssm.state_size": 4},
     "tensor 'blk.0.ssm_x.weight' must be [13, 24], got [11, 24]"),
])
def test_refused_fields(bmojo, tmp_path, base, change, message):
    fields = {key: value for key, value in (base() | change).items() if value is not ABSENT}
    tensors = llama_tensors() if base is llama_fields else mamba_tensors()
    got = import_gguf(bmojo, tmp_path, fields, tensors, code=2)
    assert got.startswith(f"bmojo: {tmp_path}/model.gguf: ") and message in got
    assert listing(tmp_path) == ["model.gguf"]


@pytest.mark.parametrize("base, change, message", [
    ("llama", {"blk.0.attn_q.bias": np.zeros(24, "f4")},
     "tensor 'blk.0.attn_q.bias' is not part of a llama model with this config"),
    ("llama", {"blk.0.ffn_gate_inp.weight": np.zeros((8, 12), "f4")},
     "tensor 'blk.0.ffn_gate_inp.weight' is not part of a llama model"),
    ("llama", {"rope_freqs.weight": np.array([1, 8], "f4")},
     "tensor 'rope_freqs.weight' must be all 1: bmojo does not scale positions, got 8"),
    ("llama", {"blk.1.ffn_up.weight": ABSENT}, "tensor 'blk.1.ffn_up.weight' is missing"),
    ("llama", {"token_embd.weight": ABSENT}, "tensor 'token_embd.weight' is missing"),
    ("llama", {"output.weight": np.zeros((41, 12), "f4")},
     "tensor 'output.weight' must be [40, 12], got [41, 12]"),
    ("llama", {"blk.0.attn_v.weight": np.zeros((12, 8), "f4")},
     "tensor 'blk.0.attn_v.weight' must be [8, 12], got [12, 8]"),
    ("llama", {"blk.0.attn_v.weight": (10, (8, 256), bytes(8 * 84))},
     "tensor 'blk.0.attn_v.weight' must be of type F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
     "Q4_K, Q5_K, Q6_K, got Q2_K"),
    ("mamba", {"blk.0.ssm_a": np.zeros((24, 3), "f4")},
     "tensor 'blk.0.ssm_a' must hold numbers below 0, got 0"),
    ("mamba", {"blk.0.ssm_a": np.full((24, 3), -np.inf, "f4")}, "numbers below 0, got -inf"),
    ("mamba", {"blk.0.ssm_dt_norm.weight": np.zeros(5, "f4")},
     "tensor 'blk.0.ssm_dt_norm.weight' is not part of a mamba model"),
])
def test_refused_tensors(bmojo, tmp_path, base, change, message):
    fields, tensors = ((llama_fields(), llama_tensors()) if base == "llama" else
                       (mamba_fields(), mamba_tensors()))
    tensors = {name: value for name, value in (tensors | change).items() if value is not ABSENT}
    assert message in import_gguf(bmojo, tmp_path, fields, tensors, code=2)
    assert listing(tmp_path) == ["model.gguf"]


def test_cut_files(bmojo, tmp_path):
    write_gguf(tmp_path / "whole", llama_fields(), llama_tensors())
    whole = (tmp_path / "whole").read_bytes()
    for length in [*range(4, 40, 3), *range(40, len(whole), 1009), len(whole) - 64]:
        (tmp_path / "x.gguf").write_bytes(whole[:length])
        bmojo("import", tmp_path / "x.gguf", "--out", tmp_path / "x", code=2)
    assert listing(tmp_path) == ["whole", "x.gguf"]


def test_a_large_file_is_only_mapped(bmojo, tmp_path):
    """Half a gigabyte in f32 passes through with little memory besides the mapping."""
    if os.environ.get("BMOJO_SANITIZE"):
        pytest.skip("sanitizers take more addresses than the limit")
    config = LLAMA | {"vocab_size": 1 << 20, "hidden_size": 128, "tie_word_embeddings": True,
                      "num_hidden_layers": 1}
    tensors = {files.renamed(name, files.LLAMA_NAMES): (files.F16, shape, None)
               for name, shape in hugging_face_shapes(config).items()}
    write_gguf(tmp_path / "x.gguf", llama_fields(config), tensors)
    size = (tmp_path / "x.gguf").stat().st_size
    assert size > 1 << 28
    limit = (size + (100 << 20)) >> 10
    command = [bmojo.path, "import", tmp_path / "x.gguf", "--out", tmp_path / "x", "--dtype", "f32"]
    result = subprocess.run(["bash", "-c", f'ulimit -v {limit}; exec "$@"', "-", *command],
                            capture_output=True)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "x/model.safetensors").stat().st_size > 1 << 29


# --- tokenizer and chat template -----------------------------------------------------------------

PRES = {"gpt-2": "gpt2", "smollm": "smollm2", "starcoder": "smollm2", "refact": "smollm2",
        "olmo": "neox", "mpt": "neox", "llama-bpe": "llama3", "llama3": "llama3", "llama-v3": "llama3"}


def with_tokenizer(tokenizer, pre):
    fields = llama_fields() | files.tokenizer_fields(tokenizer, pre)
    config = LLAMA | {"vocab_size": len(fields["tokenizer.ggml.tokens"])}
    return fields | {"llama.vocab_size": config["vocab_size"]}, llama_tensors(config)


def texts():
    draw = random.Random(4)
    lines = [fuzzed_text(draw) for _ in range(2000)] + [wild_text(5000, 3)]
    return lines + ["abcd xabcx bcd", "é e\u0301 1234 12345678", "a  b   c", "don't DON'T we'll"]


@pytest.fixture(scope="module")
def small_tokenizers():
    return {kind: trained(kind) for kind in sorted(set(PRES.values()))}


@pytest.mark.parametrize("pre", PRES)
def test_ids_are_those_of_the_tokenizer(bmojo, tmp_path, small_tokenizers, pre):
    original = small_tokenizers[PRES[pre]]
    folder = import_gguf(bmojo, tmp_path, *with_tokenizer(original, pre))
    imported = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert imported.get_vocab() == original.get_vocab()
    lines = texts()
    if PRES[pre] == "neox":  # a file does not say whether a token is looked for in normalised text
        lines = [line for line in lines if "?" not in line]
    for line in lines:
        assert ids_of(imported, line) == ids_of(original, line), repr(line)
    assert_ids_are_pythons(bmojo, folder / "tokenizer.json", lines, tmp_path / "work")


@pytest.mark.parametrize("change, message", [
    ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model must be 'gpt2', got 'llama'"),
    ({"tokenizer.ggml.model": "bert\n"}, "must be 'gpt2', got 'bert\\x0a'"),
    ({"tokenizer.ggml.pre": "qwen2"},
     "tokenizer.ggml.pre must be one of gpt-2, smollm, starcoder, refact, olmo, mpt, llama-bpe, "
     "llama3, llama-v3, got 'qwen2'"),
    ({"tokenizer.ggml.pre": "default"}, "got 'default'"),
    ({"tokenizer.ggml.pre": ABSENT}, "got none"),
    ({"tokenizer.ggml.add_space_prefix": True}, "add_space_prefix must be false, got true"),
    ({"tokenizer.ggml.token_type": ABSENT}, "must have a special added token to end documents with"),
])
def test_a_tokenizer_that_bmojo_does_not_have_is_left_out(
        bmojo, tmp_path, small_tokenizers, change, message):
    fields, tensors = with_tokenizer(small_tokenizers["gpt2"], "gpt-2")
    fields = {key: value for key, value in (fields | change).items() if value is not ABSENT}
    write_gguf(tmp_path / "x.gguf", fields, tensors)
    result = subprocess.run([bmojo.path, "import", tmp_path / "x.gguf", "--out", tmp_path / "x",
                             "--quiet"], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr.startswith(f"bmojo: {tmp_path}/x.gguf: its tokenizer is not taken over: ")
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert listing(tmp_path / "x") == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("change, message", [
    ({"tokenizer.ggml.merges": ABSENT}, "tokenizer.ggml.merges must be given where"),
    ({"tokenizer.ggml.merges": "a b"}, "tokenizer.ggml.merges must be an array of string, got 'a b'"),
    ({"tokenizer.ggml.token_type": [1, 2, 3]}, "tokenizer.ggml.token_type must be "),
    ({"tokenizer.ggml.token_type": ["a"]}, "token_type must be an array of i32, got an array of"),
])
def test_a_tokenizer_that_contradicts_itself_is_refused(
        bmojo, tmp_path, small_tokenizers, change, message):
    fields, tensors = with_tokenizer(small_tokenizers["gpt2"], "gpt-2")
    fields = {key: value for key, value in (fields | change).items() if value is not ABSENT}
    assert message in import_gguf(bmojo, tmp_path, fields, tensors, code=2)


@pytest.mark.parametrize("token, kind, message", [
    (b"\xff", 1, "tokenizer.ggml.tokens must be UTF-8"), (b"a", 7, "must be from 1 to 6, got 7"),
    (b"a", 0, "must be from 1 to 6, got 0"),
    (b"b", 1, "tokenizer.ggml.tokens must differ from each other, got 'b' twice"),
])
def test_refused_tokens(bmojo, tmp_path, small_tokenizers, token, kind, message):
    fields, tensors = with_tokenizer(small_tokenizers["gpt2"], "gpt-2")
    fields["tokenizer.ggml.tokens"][-1] = token
    fields["tokenizer.ggml.token_type"][-1] = kind
    assert message in import_gguf(bmojo, tmp_path, fields, tensors, code=2)


def test_the_chat_template_goes_along(bmojo, tmp_path):
    template = "{% for message in messages %}{{ 'é' + message['content'] }}\n{% endfor %}"
    fields = llama_fields() | {"tokenizer.chat_template": template}
    folder = import_gguf(bmojo, tmp_path, fields, llama_tensors())
    assert (folder / "chat_template.jinja").read_text() == template
    bmojo("export", folder, "--out", tmp_path / "hf")
    assert (tmp_path / "hf/chat_template.jinja").read_text() == template
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "again")
    assert (tmp_path / "again/chat_template.jinja").read_text() == template


@pytest.mark.parametrize("name, pre", [("smollm2", "smollm"), ("gpt-neox", "olmo"), ("gpt2", "gpt-2"),
                                       ("llama3", "llama-bpe")])
def test_ids_of_published_tokenizers(bmojo, tmp_path, name, pre):
    if not REAL[name].exists():
        pytest.skip(f"no {REAL[name]}; BMOJO_DATA names the data's folder, and "
                    "tools/llama3_tokenizer.py makes that of Llama 3")
    original = oracle_of(REAL[name])
    folder = import_gguf(bmojo, tmp_path, *with_tokenizer(original, pre))
    imported = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for line in texts():
        assert ids_of(imported, line) == ids_of(original, line), repr(line)
