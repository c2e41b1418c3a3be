"""import and export without torch: names, bytes, dtypes and the forms of a Hugging Face config."""

import json

import numpy as np
import pytest
from conftest import (
    LLAMA,
    MAMBA,
    MISTRAL,
    hugging_face_shapes,
    listing,
    random_tensors,
    read_safetensors,
    write_hugging_face,
    write_safetensors,
)


# What of a name differs, from the outermost part inwards.
NATIVE = {
    "backbone.embeddings.": "embedding.",
    "backbone.norm_f.": "norm.",
    "backbone.": "",
    "mixer.": "ssm.",
    "model.embed_tokens.": "embedding.",
    "model.": "",
    "input_layernorm.": "norm.",
    "post_attention_layernorm.": "mlp.norm.",
    "self_attn.": "attention.",
    "lm_head.": "head.",
}


def native_name(name):
    for theirs, ours in NATIVE.items():
        name = name.replace(theirs, ours)
    return name


def test_import_keeps_bytes_under_native_names(bmojo, tmp_path):
    for config in (MAMBA, MISTRAL, LLAMA):
        kind = config["model_type"]
        tensors = write_hugging_face(tmp_path / kind, config)
        report = bmojo.json("import", tmp_path / kind, "--out", tmp_path / f"{kind}-native")
        assert report["model_type"] == kind
        assert report["parameters"] == sum(value.size for value in tensors.values())
        _, native = read_safetensors(tmp_path / f"{kind}-native/model.safetensors")
        want = {native_name(name): value.tobytes() for name, value in tensors.items()}
        assert {name: raw for name, (_, _, raw) in native.items()} == want
        assert "layers.1.norm.weight" in native and "embedding.weight" in native
        assert bmojo.json("inspect", tmp_path / f"{kind}-native", "--verify")["verified"]


@pytest.mark.parametrize("change, expected", [
    (MAMBA | {"time_step_rank": "auto"}, {"ssm_dt_rank": 1, "pattern": "ssm", "mlp_size": 0}),
    (MAMBA | {"use_bias": True, "use_conv_bias": False}, {"ssm_bias": True,
     "ssm_conv_bias": False}),
    (MAMBA | {"eos_token_id": [3, 4], "bos_token_id": None}, {"eos_token_id": 3,
     "bos_token_id": -1}),
    (MAMBA | {"intermediate_size": 24, "rms_norm": True, "ssm_cfg": {}}, {"ssm_inner_size": 24}),
    (MISTRAL | {"head_dim": None}, {"head_size": 2, "window": 7, "norm_eps": 1e-6}),
    (MISTRAL | {"sliding_window": None}, {"window": 0, "pattern": "attention"}),
    (MISTRAL | {"rope_theta": 5e5, "rope_scaling": None}, {"rope_theta": 5e5}),
    (MISTRAL | {"rope_parameters": {"rope_type": "default",
     "rope_theta": 77.0}}, {"rope_theta": 77}),
    (MISTRAL | {"rope_scaling": {"type": "default"}, "attention_bias": False}, {"rope_theta": 1e4}),
    (MISTRAL | {"layer_types": ["sliding_attention"] * 2}, {"window": 7}),
    (LLAMA, {"window": 0, "pattern": "attention", "num_kv_heads": 2, "rope_theta": 1e4}),
    (LLAMA | {"num_key_value_heads": None, "head_dim": None}, {"num_kv_heads": 6, "head_size": 2}),
    ({key: LLAMA[key] for key in LLAMA if key != "num_key_value_heads"}, {"num_kv_heads": 6}),
    (LLAMA | {"sliding_window": None, "rope_scaling": None, "attention_bias": False,
     "rope_interleaved": False, "pretraining_tp": 1, "max_position_embeddings": 8192},
     {"window": 0}),
    (LLAMA | {"layer_types": ["full_attention"] * 2, "tie_word_embeddings": True},
     {"tied_embeddings": True}),
])  # fmt: skip
def test_import_reads_the_forms_of_a_config(bmojo, tmp_path, change, expected):
    write_hugging_face(tmp_path / "hf", change)
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert expected.items() <= config.items()


def test_import_drops_a_repeated_head_and_knows_the_older_name(bmojo, tmp_path):
    tensors = random_tensors(hugging_face_shapes(MAMBA))
    tensors["lm_head.weight"] = tensors["backbone.embeddings.weight"]
    write_hugging_face(tmp_path / "tied", MAMBA, tensors)
    bmojo("import", tmp_path / "tied", "--out", tmp_path / "a")
    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1
    write_hugging_face(tmp_path / "other", MAMBA, tensors)
    message = bmojo("import", tmp_path / "other", "--out", tmp_path / "b", code=2)
    assert "tensor 'lm_head.weight' must equal the embedding in a model with tie_word" in message
    del tensors["lm_head.weight"]
    tensors["backbone.embedding.weight"] = tensors.pop("backbone.embeddings.weight")
    write_hugging_face(tmp_path / "older", MAMBA, tensors)
    bmojo("import", tmp_path / "older", "--out", tmp_path / "c")
    same = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ac"]
    assert same[0] == same[1]
    assert not (tmp_path / "b").exists()


def bf16(values):
    bits = values.view("u4").astype("u8")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("u2").tobytes()


def test_import_reads_shards_and_keeps_each_dtype(bmojo, tmp_path):
    tensors = random_tensors(hugging_face_shapes(MISTRAL))
    stored = {}
    for number, (name, value) in enumerate(tensors.items()):
        half = value.astype("f2").tobytes()
        forms = [("F32", value.tobytes()), ("BF16", bf16(value)), ("F16", half)]
        dtype, raw = forms[number % 3]
        stored[name] = (dtype, value.shape, raw)
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MISTRAL))
    names = list(stored)
    index = {name: f"model-{1 + i % 2}.safetensors" for i, name in enumerate(names)}
    for file in set(index.values()):
        part = {name: stored[name] for name in names if index[name] == file}
        write_safetensors(folder / file, part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    bmojo("import", folder, "--out", tmp_path / "out")
    _, native = read_safetensors(tmp_path / "out/model.safetensors")
    assert sorted(native.values()) == sorted(stored.values())
    assert bmojo.json("inspect", tmp_path / "out")["dtypes"].keys() == {"F32", "BF16", "F16"}
    # And back: every value widened to f32.
    bmojo("export", tmp_path / "out", "--out", tmp_path / "back")
    _, back = read_safetensors(tmp_path / "back/model.safetensors")
    assert back.keys() == stored.keys() and {dtype for dtype, _, _ in back.values()} == {"F32"}


@pytest.mark.parametrize("args", [
    ["--preset", "mamba-tiny"],
    ["--preset", "mamba-tiny", "--set", "ssm_inner_size=150", "--set", "ssm_bias=true"],
    ["--preset", "transformer-tiny"],
    ["--preset", "transformer-tiny", "--set", "window=9", "--set", "tied_embeddings=false"],
])  # fmt: skip
def test_export_then_import_gives_the_same_bits(bmojo, tmp_path, args):
    bmojo("init", *args, "--set", "vocab_size=100", "--out", tmp_path / "a")
    carried = ["tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json",
               "merges.txt"]  # fmt: skip
    for name in [*carried, "README.md"]:
        (tmp_path / "a" / name).write_text(name)
    report = bmojo.json("export", tmp_path / "a", "--out", tmp_path / "hf")
    kind = "mamba" if "mamba-tiny" in args else "mistral"
    assert report == {"out": str(tmp_path / "hf"), "model_type": kind, "dtype": "f32"}
    assert read_safetensors(tmp_path / "hf/model.safetensors")[0]["format"] == "pt"
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["model_type"] == kind and config["torch_dtype"] == "float32"
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "b")
    for name in listing(tmp_path / "b"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert len(listing(tmp_path / "b")) == 2 + len(carried)  # all but README.md


def test_export_of_a_model_of_our_own_stays_native(bmojo, tmp_path, small):
    text = bmojo("export", small, "--out", tmp_path / "f32")
    assert text == f"{tmp_path}/f32: f32, native (no Hugging Face model is exactly this config)\n"
    for name in listing(small):
        assert (small / name).read_bytes() == (tmp_path / "f32" / name).read_bytes()
    for dtype, convert in [("bf16", bf16), ("f16", lambda values: values.astype("f2").tobytes())]:
        report = bmojo.json("export", small, "--dtype", dtype, "--out", tmp_path / dtype)
        assert report["model_type"] == "bmojo"
        _, before = read_safetensors(small / "model.safetensors")
        _, after = read_safetensors(tmp_path / dtype / "model.safetensors")
        assert list(before) == list(after)
        for name, (_, shape, raw) in before.items():
            want = (dtype.upper(), shape, convert(np.frombuffer(raw, "f4")))
            assert after[name] == want, name
        assert bmojo.json("inspect", tmp_path / dtype, "--verify")["verified"]


def test_export_refuses_what_f16_cannot_hold(bmojo, tmp_path):
    tensors = random_tensors(hugging_face_shapes(MAMBA))
    tensors["backbone.norm_f.weight"][3] = 65520
    write_hugging_face(tmp_path / "hf", MAMBA, tensors)
    bmojo("import", tmp_path / "hf", "--out", tmp_path / "a")
    message = bmojo("export", tmp_path / "a", "--dtype", "f16", "--out", tmp_path / "b", code=2)
    assert "tensor 'backbone.norm_f.weight' must stay below 65520 for f16, got 65520" in message
    assert listing(tmp_path) == ["a", "hf"]
    bmojo("export", tmp_path / "a", "--dtype", "bf16", "--out", tmp_path / "b")
