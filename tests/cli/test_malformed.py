"""What must be refused: exit 2, one line that names the fault, nothing written."""

import json
import os
import shutil

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

ABSENT = object()


# --- native configs ------------------------------------------------------------------------------


@pytest.mark.parametrize("fields, message", [
    ("window=0", "window must be at least 1 with fading or eidetic tokens, got 0 (unlimited)"),
    ("predictor_taps=0", "predictor_taps must be at least 1 with eidetic tokens, got 0"),
    ("fading_tokens=0 eidetic_tokens=0 fading_residual=false",
     "needs fading_tokens, eidetic_tokens or"),
    ("num_heads=5 num_kv_heads=2", "num_heads must be a multiple of num_kv_heads = 2, got 5"),
    ("rope_theta=10000 head_size=7", "head_size must be even with rope_theta, got 7"),
    ("vocab_size=0", "vocab_size must be from 1 to"),
    ("vocab_size=-3", "vocab_size must be from 1 to"),
    ("hidden_size=99999999999", "hidden_size must be from 1 to"),
    ("num_layers=0", "num_layers must be from 1 to"),
    ("pattern=", "pattern must list bmojo, ssm or attention, got ''"),
    ("pattern=ssm,,attention", "pattern must list bmojo, ssm or attention, got 'ssm,,attention'"),
    ("pattern=lstm", "pattern must list bmojo, ssm or attention, got 'lstm'"),
    ("eidetic_rule=last", "eidetic_rule must be one of innovation, first, recent, random, oracle, "
                          "got 'last'"),
    ("fading_mode=slow", "fading_mode must be chunk or sliding, got 'slow'"),
    ("ssm_state_size=0", "ssm_state_size must be from 1 to"),
    ("ssm_conv_taps=0", "ssm_conv_taps must be from 1 to"),
    ("head_size=0", "head_size must be from 1 to"),
    ("num_kv_heads=0", "num_kv_heads must be from 1 to"),
    ("norm_eps=0", "norm_eps must be above 0, got 0"),
    ("rope_theta=-1", "rope_theta must be 0 (none) or above, got -1"),
    ("predictor_decay=1.5", "predictor_decay must be above 0 and at most 1, got 1.5"),
    ("eos_token_id=32000", "eos_token_id must be from -1 to 31999, got 32000"),
    ("bos_token_id=-2", "bos_token_id must be from -1 to"),
])  # fmt: skip
def test_impossible_combinations(bmojo, tmp_path, fields, message):
    sets = [word for field in fields.split() for word in ("--set", field)]
    assert message in bmojo("config", "--preset", "bmojo-tiny", *sets, code=2)
    out = tmp_path / "x"
    assert message in bmojo("init", "--preset", "bmojo-tiny", *sets, "--out", out, code=2)
    assert listing(tmp_path) == []


@pytest.mark.parametrize("change, message", [
    (lambda text: text.replace('"window": 8', '"window": 8, "window": 9'),
     "'window' must appear once"),
    (lambda text: text.replace('"window": 8', '"windows": 8'), "field 'windows' is not known"),
    (lambda text: text.replace('"window": 8,', ""), "field window is missing; add it"),
    (lambda text: text.replace('"eidetic_rule": "innovation",', ""),
     'field eidetic_rule is missing; for a model saved before there were rules, add '
     '"eidetic_rule": "innovation"'),
    (lambda text: text.replace('"window": 8', '"window": "8"'),
     'window must be a whole number, got "8"'),
    (lambda text: text.replace('"window": 8', '"window": 8.5'),
     "window must be a whole number, got 8.5"),
    (lambda text: text.replace('"window": 8', '"window": null'),
     "must be a whole number, got null"),
    (lambda text: text.replace('"window": 8', '"window": [8]'), "must be a whole number, got [8]"),
    (lambda text: text.replace('"window": 8', '"window": 99999999999999999999'),
     "window must be a whole"),
    (lambda text: text.replace('"window": 8', '"window": 1e400'), "must be valid JSON"),
    (lambda text: text.replace('"window": 8', '"win\\ndow": 8'),
     r"field 'win\x0adow' is not known"),
    (lambda text: text.replace('"chunk"', "true"), "fading_mode must be text, got true"),
    (lambda text: text.replace('"fading_tied": true', '"fading_tied": 1'),
     "must be true or false, got 1"),
    (lambda text: text.replace('"bmojo",', '"mamba",', 1),
     'model_type must be "bmojo", got "mamba"'),
    (lambda text: text[:-3], "must be valid JSON"),
    (lambda text: text + "{}", "must be valid JSON"),
    (lambda text: "", "must be valid JSON"),
    (lambda text: "[1, 2]", "config must be a JSON object, got array"),
    (lambda text: "[" * 100, "must nest at most 64 deep"),
    (lambda text: text.replace("chunk", "\udcff"), "must be valid JSON"),
    (lambda text: text.replace('"hidden_size": 12', '"hidden_size": 13'),
     "must be [40, 13], got [40, 12]"),
])  # fmt: skip
def test_malformed_config_files(bmojo, tmp_path, small, change, message):
    file = small / "config.json"
    text = change(file.read_text())
    assert text != file.read_text()
    file.write_text(text, errors="surrogateescape")
    assert message in bmojo("inspect", small, code=2)
    assert message in bmojo("export", small, "--out", tmp_path / "x", code=2)
    assert listing(tmp_path) == ["small"]


def test_a_config_may_set_what_is_refused_only_for_bmojo_layers(bmojo):
    for pattern in ("ssm", "attention"):
        sets = ["--set", f"pattern={pattern}", "--set", "window=0"]
        bmojo("config", "--preset", "bmojo-tiny", *sets)


# --- native folders ------------------------------------------------------------------------------


def shard(folder, *, weight_map=None, drop=(), twice=()):
    """Splits model.safetensors in two with an index, faultily where asked."""
    metadata, tensors = read_safetensors(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(tensors)}
    for file in sorted(set(index.values())):
        part = {name: tensors[name] for name in tensors if index[name] == file or name in twice}
        write_safetensors(folder / file, {name: part[name] for name in part if name not in drop})
    index.update(weight_map or {})
    index = {name: file for name, file in index.items() if file is not ABSENT}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def replace_tensor(folder, name, value):
    metadata, tensors = read_safetensors(folder / "model.safetensors")
    tensors.pop(name, None) if value is ABSENT else tensors.update({name: value})
    write_safetensors(folder / "model.safetensors", tensors, metadata)


def write_index(folder, text):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)


def truncate(folder):
    raw = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(raw[:-1])


def pipe(path):
    path.unlink()
    os.mkfifo(path)


NORM = "layers.1.norm.weight"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:3f1c\nsize 1234\n"
PAGE = b"\n <!doctype HTML>\n<html><body>Sign in</body></html>\n"


@pytest.mark.parametrize("damage, message", [
    (lambda f: replace_tensor(f, NORM, ABSENT), f"small: tensor '{NORM}' is missing"),
    (lambda f: replace_tensor(f, "extra", np.zeros(3, "f4")),
     "tensor 'extra' is not part of this config"),
    (lambda f: replace_tensor(f, NORM, np.zeros((3, 4), "f4")),
     f"'{NORM}' must be [12], got [3, 4]"),
    (lambda f: replace_tensor(f, NORM, ("I32", (12,), bytes(48))),
     "must be F32, BF16 or F16, got I32"),
    (lambda f: replace_tensor(f, NORM, ("F64", (12,), bytes(96))),
     "must be F32, BF16 or F16, got F64"),
    (lambda f: replace_tensor(f, NORM, ("Q8", (12,), bytes(12))), "Q8"),
    (truncate, "bytes for its tensors, got "),
    (truncate, "; the file is cut off"),
    (lambda f: (f / "model.safetensors").write_bytes(LFS),
     "model.safetensors: must be a safetensors file, got a Git LFS pointer; fetch the file itself "
     "(git lfs pull)"),
    (lambda f: (f / "model.safetensors").write_bytes(PAGE),
     "model.safetensors: must be a safetensors file, got a web page; download the file itself"),
    (lambda f: os.truncate(f / "model.safetensors", 100), "bytes, as the file says, got 92; the "),
    (lambda f: (f / "config.json").write_bytes(LFS),
     "config.json: must be valid JSON, got a Git LFS pointer; fetch the file itself"),
    (lambda f: (f / "config.json").write_bytes(PAGE),
     "config.json: must be valid JSON, got a web page; download the file itself"),
    (lambda f: pipe(f / "model.safetensors"), "must be a regular file, got a device or pipe"),
    (lambda f: pipe(f / "config.json"),
     "config.json: must be a regular file, got a device or pipe"),
    (lambda f: (write_index(f, ""), pipe(f / "model.safetensors.index.json")),
     "index.json: must be a regular file, got a device or pipe"),
    (lambda f: (f / "model.safetensors").write_bytes(b"no header"), "model.safetensors"),
    (lambda f: (f / "model.safetensors").unlink(), "must hold model.safetensors or"),
    (lambda f: (f / "config.json").unlink(),
     "config.json: cannot be read: No such file"),
    (lambda f: shard(f, weight_map={NORM: "../part-0.safetensors"}),
     "a name inside the folder, got '../"),
    (lambda f: shard(f, weight_map={NORM: "/etc/passwd"}),
     "a name inside the folder, got '/etc/passwd'"),
    (lambda f: shard(f, weight_map={NORM: ".."}), "a name inside the folder, got '..'"),
    (lambda f: shard(f, weight_map={NORM: 3}), f"tensor '{NORM}': file must be text, got 3"),
    (lambda f: shard(f, weight_map={NORM: "part-7.safetensors"}),
     "part-7.safetensors: cannot be read"),
    (lambda f: shard(f, weight_map={NORM: ABSENT}), f"tensor '{NORM}' of part-"),
    (lambda f: shard(f, weight_map={"ghost": "part-0.safetensors"}),
     "tensor 'ghost' must stand in part-0"),
    (lambda f: shard(f, drop=[NORM]), f"tensor '{NORM}' must stand in part-"),
    (lambda f: shard(f, twice=[NORM]), f"tensor '{NORM}' must stand in one shard, got two"),
    (lambda f: write_index(f, '{"weight_map": []}'), "must hold an object weight_map"),
    (lambda f: write_index(f, "[]"), "must hold an object weight_map"),
    (lambda f: write_index(f, '{"weight_map": {"a": "x", "a": "y"}}'), "'a' must appear once"),
    (lambda f: write_index(f, '{"weight_map": {}}'), "weight_map must name a tensor"),
])  # fmt: skip
def test_malformed_folders(bmojo, tmp_path, small, damage, message):
    damage(small)
    assert message in bmojo("inspect", small, code=2)
    assert message in bmojo("export", small, "--out", tmp_path / "x", code=2)
    assert listing(tmp_path) == ["small"]


def test_a_sharded_folder_is_read(bmojo, small):
    whole = bmojo.json("inspect", small)
    shard(small)
    split = bmojo.json("inspect", small, "--verify")
    assert split["parameters"] == whole["parameters"] and split["tensors"] == whole["tensors"]
    assert len(split["files"]) == 2 and split["verified"] is False


def test_things_that_are_not_checkpoints(bmojo, tmp_path, small):
    (tmp_path / "note.txt").write_text("hello, this is not a tensor file")
    assert "note.txt" in bmojo("inspect", tmp_path / "note.txt", code=2)
    (tmp_path / "empty").write_bytes(b"")
    assert "empty" in bmojo("inspect", tmp_path / "empty", code=2)
    assert "must be a regular file" in bmojo("inspect", "/dev/zero", code=2)
    shutil.rmtree(small)
    small.mkdir()
    assert "config.json: cannot be read" in bmojo("inspect", small, code=2)
    wanted = "must be a folder with config.json and safetensors, or a GGUF file, got another file"
    assert wanted in bmojo(
        "import", tmp_path / "note.txt", "--out", tmp_path / "x", code=2)


# --- Hugging Face folders ------------------------------------------------------------------------


@pytest.mark.parametrize("base, change, message", [
    (MAMBA, {"model_type": "mamba2"},
     'model_type must be "mamba", "mistral" or "llama", got "mamba2"'),
    (MAMBA, {"model_type": "gpt2"}, 'model_type must be "mamba", "mistral" or "llama", got "gpt2"'),
    (MAMBA, {"model_type": ABSENT}, 'model_type must be "mamba", "mistral" or "llama", got none'),
    (MAMBA, {"model_type": "bmojo"}, "it needs no import"),
    (MAMBA, {"vocab_size": ABSENT}, "vocab_size must be a whole number of at least 1, got none"),
    (MAMBA, {"vocab_size": "40"}, 'vocab_size must be a whole number of at least 1, got "40"'),
    (MAMBA, {"hidden_size": 12.5}, "hidden_size must be a whole number of at least 1, got 12.5"),
    (MAMBA, {"num_hidden_layers": 0},
     "num_hidden_layers must be a whole number of at least 1, got 0"),
    (MAMBA, {"state_size": True}, "state_size must be a whole number of at least 1, got true"),
    (MAMBA, {"expand": 1 << 70}, "expand must be a whole number of at least 1, got"),
    (MAMBA, {"conv_kernel": -4}, "conv_kernel must be a whole number of at least 1, got -4"),
    (MAMBA, {"time_step_rank": "many"},
     'time_step_rank must be a whole number of at least 1, got "many"'),
    (MAMBA, {"hidden_act": "gelu"}, 'hidden_act must be "silu", got "gelu"'),
    (MAMBA, {"layer_norm_epsilon": "small"},
     'layer_norm_epsilon must be a number above 0, got "small"'),
    (MAMBA, {"use_bias": 1}, "use_bias must be true or false, got 1"),
    (MAMBA, {"tie_word_embeddings": "yes"}, 'tie_word_embeddings must be true or false, got "yes"'),
    (MAMBA, {"eos_token_id": "end"}, "eos_token_id must be a token id, a list of them or null"),
    (MAMBA, {"eos_token_id": 41}, "eos_token_id must be from -1 to 39, got 41"),
    (MAMBA, {"quantization_config": {"bits": 4}}, "quantization_config must be absent or false"),
    (MAMBA, {"per_layer_config": {"0": {}}}, "per_layer_config must be absent or false"),
    (MISTRAL, {"num_attention_heads": 0},
     "num_attention_heads must be a whole number of at least 1"),
    (MISTRAL, {"num_attention_heads": 5},
     "num_heads must be a multiple of num_kv_heads = 2, got 5"),
    (MISTRAL, {"intermediate_size": ABSENT},
     "intermediate_size must be a whole number of at least 1"),
    (MISTRAL, {"head_dim": 3}, "head_size must be even with rope_theta, got 3"),
    (MISTRAL, {"sliding_window": 0}, "sliding_window must be a whole number of at least 1, got 0"),
    (MISTRAL, {"sliding_window": "7"},
     'sliding_window must be a whole number of at least 1, got "7"'),
    (MISTRAL, {"rope_theta": 0}, "rope_theta must be a number above 0, got 0"),
    (MISTRAL, {"rope_scaling": {"type": "linear", "factor": 2}},
     'rope_scaling: type must be "default"'),
    (MISTRAL, {"rope_parameters": {"rope_type": "yarn"}},
     'rope_parameters: rope_type must be "default"'),
    (MISTRAL, {"rope_parameters": 3}, "rope_parameters must be an object or null, got 3"),
    (MISTRAL, {"rope_parameters": {"full_attention": {}}},
     "full_attention must be the same for every layer"),
    (MISTRAL, {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1, got 0.5"),
    (MISTRAL, {"attention_bias": True}, "attention_bias must be absent or false, got true"),
    (MISTRAL, {"mlp_bias": True}, "mlp_bias must be absent or false, got true"),
    (MISTRAL, {"layer_types": ["full_attention"] * 2},
     "layer_types must be sliding_attention in every"),
    (MISTRAL, {"hidden_act": 3}, 'hidden_act must be "silu", got 3'),
    (LLAMA, {"sliding_window": 7}, "sliding_window must be absent or false, got 7"),
    (LLAMA, {"attention_bias": True}, "attention_bias must be absent or false, got true"),
    (LLAMA, {"mlp_bias": True}, "mlp_bias must be absent or false, got true"),
    (LLAMA, {"rope_interleaved": True}, "rope_interleaved must be absent or false, got true"),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0}},
     'rope_scaling: type must be "default", got "linear"'),
    (LLAMA, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
     'rope_scaling: rope_type must be "default", got "llama3"'),
    (LLAMA, {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
     'rope_parameters: rope_type must be "default", got "dynamic"'),
    (LLAMA, {"layer_types": ["sliding_attention"] * 2},
     "layer_types must be full_attention in every"),
])  # fmt: skip
def test_refused_hugging_face_configs(bmojo, tmp_path, base, change, message):
    write_hugging_face(tmp_path / "hf", base)
    config = {key: value for key, value in (base | change).items() if value is not ABSENT}
    (tmp_path / "hf/config.json").write_text(json.dumps(config))
    assert message in bmojo("import", tmp_path / "hf", "--out", tmp_path / "x", code=2)
    assert listing(tmp_path) == ["hf"]


MIXER = "backbone.layers.0.mixer."


@pytest.mark.parametrize("base, name, value, message", [
    (MAMBA, MIXER + "A_log", ABSENT, f"tensor '{MIXER}A_log' is missing"),
    (MAMBA, MIXER + "conv1d.weight", np.zeros((24, 4), "f4"), "must be [24, 1, 4], got [24, 4]"),
    (MAMBA, MIXER + "in_proj.bias", np.zeros(48, "f4"),
     "in_proj.bias' is not part of a mamba model"),
    (MAMBA, "backbone.layers.2.norm.weight", np.zeros(12, "f4"),
     "layers.2.norm.weight' is not part of"),
    (MAMBA, "lm_head.weight", np.zeros((40, 12), "f2"),
     "'lm_head.weight' must equal the embedding"),
    (MAMBA, "lm_head.weight", np.zeros((41, 12), "f4"),
     "'lm_head.weight' must be [40, 12], got [41, 12]"),
    (MAMBA, "backbone.embeddings.weight", ("I64", (40, 12), bytes(3840)),
     "must be F32, BF16 or F16"),
    (MAMBA, "backbone.embedding.weight", np.zeros((40, 12), "f4"),
     "embedding.weight' is not part of"),
    (MISTRAL, "lm_head.weight", ABSENT, "tensor 'lm_head.weight' is missing"),
    (MISTRAL, "model.norm.weight", np.zeros(11, "f4"),
     "'model.norm.weight' must be [12], got [11]"),
    (MISTRAL, "model.layers.0.self_attn.q_proj.bias", np.zeros(24, "f4"),
     "q_proj.bias' is not part of a"),
    (LLAMA, "model.layers.1.self_attn.o_proj.bias", np.zeros(12, "f4"),
     "o_proj.bias' is not part of a llama model"),
    (MISTRAL, "bad\nname", np.zeros(1, "f4"),
     r"tensor 'bad\x0aname' is not part of a mistral model"),
])  # fmt: skip
def test_refused_hugging_face_tensors(bmojo, tmp_path, base, name, value, message):
    tensors = random_tensors(hugging_face_shapes(base))
    tensors.pop(name, None) if value is ABSENT else tensors.update({name: value})
    write_hugging_face(tmp_path / "hf", base, tensors)
    assert message in bmojo("import", tmp_path / "hf", "--out", tmp_path / "x", code=2)
    assert listing(tmp_path) == ["hf"]


def test_import_does_not_write_into_its_source(bmojo, tmp_path):
    write_hugging_face(tmp_path / "hf", MAMBA)
    message = bmojo("import", tmp_path / "hf", "--out", tmp_path / "hf", code=2)
    assert "out: folder must be new or empty" in message
    assert listing(tmp_path / "hf") == ["config.json", "model.safetensors"]
