"""A writer of GGUF files for the tests, and small models in them."""

import json
import math
import struct
from pathlib import Path

import numpy as np
from conftest import LLAMA, MAMBA, hugging_face_shapes, random_tensors

F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16 = 0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 30
# Numbers and bytes of a block.
BLOCKS = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q8_0: (32, 34), Q4_0: (32, 18), Q4_1: (32, 20),
          Q5_0: (32, 22), Q5_1: (32, 24), Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210)}
ALIGNMENT = 32

LLAMA_NAMES = {
    "embed_tokens": "token_embd", "lm_head": "output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "model.norm": "output_norm",
}
MAMBA_NAMES = {
    "backbone.embeddings": "token_embd", "lm_head": "output", "backbone.norm_f": "output_norm",
    "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d", "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt", "mixer.A_log": "ssm_a", "mixer.D": "ssm_d",
    "mixer.out_proj": "ssm_out", ".norm.": ".attn_norm.",
}


def string(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value):
    """bool, int (u32), float (f32), str or bytes, a list of str or of int (i32); or (kind, bytes)."""
    if isinstance(value, tuple):
        return struct.pack("<I", value[0]) + value[1]
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, (str, bytes)):
        return struct.pack("<I", 8) + string(value)
    if value and isinstance(value[0], int):
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))


def write_gguf(path, fields, tensors, version=3):
    """tensors: {name: array of f32 or f16, or (type, shape, bytes)}; None for bytes: zeros that take
    no disk."""
    infos, parts, end = b"", [], 0
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            tensor = ({"f4": F32, "f2": F16}[tensor.dtype.str[1:]], tensor.shape, tensor.tobytes())
        kind, shape, raw = tensor
        infos += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        infos += struct.pack("<IQ", kind, end)
        if raw is not None:
            parts.append((end, raw))
        size = math.prod(shape) // BLOCKS[kind][0] * BLOCKS[kind][1] if raw is None else len(raw)
        end += size + -size % ALIGNMENT
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(fields))
    header += b"".join(string(key) + value_bytes(value) for key, value in fields.items()) + infos
    header += bytes(-len(header) % ALIGNMENT)
    with Path(path).open("wb") as file:
        file.write(header)
        for begin, raw in parts:
            file.seek(len(header) + begin)
            file.write(raw)
        file.truncate(len(header) + end)


def pairs(weight, heads):
    """Rows of a head as llama.cpp turns them: neighbours, not halves."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def renamed(name, names):
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name.replace("model.", "").replace("backbone.", "").replace("layers.", "blk.")


def llama_fields(config=LLAMA):
    return {
        "general.architecture": "llama",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": 8192,
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.key_length": config["head_dim"],
        "llama.attention.value_length": config["head_dim"],
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.rope.freq_base": config["rope_theta"],
        "llama.rope.dimension_count": config["head_dim"],
        "llama.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "none",
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
    }


def llama_tensors(config=LLAMA, tensors=None):
    """Those of transformers as llama.cpp has them."""
    tensors = random_tensors(hugging_face_shapes(config)) if tensors is None else tensors
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    out = {}
    for name, value in tensors.items():
        part = name.split(".")[-2]
        out[renamed(name, LLAMA_NAMES)] = pairs(value, heads[part]) if part in heads else value
    return out


def mamba_fields(config=MAMBA):
    return {
        "general.architecture": "mamba",
        "mamba.context_length": 1 << 20,
        "mamba.embedding_length": config["hidden_size"],
        "mamba.feed_forward_length": 0,
        "mamba.attention.head_count": 0,
        "mamba.block_count": config["num_hidden_layers"],
        "mamba.ssm.conv_kernel": config["conv_kernel"],
        "mamba.ssm.inner_size": config["expand"] * config["hidden_size"],
        "mamba.ssm.state_size": config["state_size"],
        "mamba.ssm.time_step_rank": config["time_step_rank"],
        "mamba.ssm.dt_b_c_rms": False,
        "mamba.attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"],
        "tokenizer.ggml.model": "none",
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
    }


def mamba_tensors(config=MAMBA, tensors=None):
    tensors = random_tensors(hugging_face_shapes(config)) if tensors is None else tensors
    out = {}
    for name, value in tensors.items():
        if name.endswith("A_log"):
            value = -np.exp(value)
        if name.endswith("conv1d.weight"):
            value = value.squeeze(1)
        out[renamed(name, MAMBA_NAMES)] = value
    return out


# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def tokenizer_fields(tokenizer, pre):
    """Of one of Python's `tokenizers`: what a converter writes."""
    model = json.loads(tokenizer.to_str())["model"]
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder()
    tokens = sorted(vocab, key=vocab.get)
    types = [(CONTROL if added[i].special else USER_DEFINED) if i in added else NORMAL
             for i in range(len(tokens))]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": merges}
