"""The same weights for our engine and for llama.cpp, in f32. Needs numpy, gguf and safetensors.

    llama_weights.py smollm2 IN.gguf HF_FOLDER OUT.gguf   a Llama, dequantised: for import, and GGUF
    llama_weights.py mamba HF_FOLDER OUT.gguf             a Mamba in transformers' names, as GGUF
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from llama_folder import halves, write_folder

# transformers' names of a layer's tensors by GGUF's.
LLAMA_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LLAMA_REST = {"token_embd.weight": "model.embed_tokens.weight",
              "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
# GGUF's names of a Mamba layer's tensors by transformers'.
MAMBA_LAYER = {
    "norm.weight": "attn_norm.weight", "mixer.in_proj.weight": "ssm_in.weight",
    "mixer.conv1d.weight": "ssm_conv1d.weight", "mixer.conv1d.bias": "ssm_conv1d.bias",
    "mixer.x_proj.weight": "ssm_x.weight", "mixer.dt_proj.weight": "ssm_dt.weight",
    "mixer.dt_proj.bias": "ssm_dt.bias", "mixer.A_log": "ssm_a", "mixer.D": "ssm_d",
    "mixer.out_proj.weight": "ssm_out.weight",
}
MAMBA_REST = {"backbone.embeddings.weight": "token_embd.weight",
              "backbone.norm_f.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
F32 = gguf.LlamaFileType.ALL_F32


def fields_of(reader):
    """The metadata of a GGUF file, but what its writer puts there itself."""
    own = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")
    return {name: field for name, field in reader.fields.items() if not name.startswith(own)}


def tensors_of(reader):
    """{name: array of f32}, shapes as numpy has them."""
    return {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
            for t in reader.tensors}


def llama_config(value):
    """As transformers writes it. Under Mistral's name, which is the same model without a window."""
    heads = value("llama.attention.head_count")
    width = value("llama.embedding_length")
    return {
        "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None,
        "vocab_size": value("llama.vocab_size"), "hidden_size": width,
        "num_hidden_layers": value("llama.block_count"),
        "intermediate_size": value("llama.feed_forward_length"), "num_attention_heads": heads,
        "num_key_value_heads": value("llama.attention.head_count_kv"), "head_dim": width // heads,
        "rope_theta": value("llama.rope.freq_base"),
        "rms_norm_eps": float(f"{value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "hidden_act": "silu", "max_position_embeddings": value("llama.context_length"),
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"), "torch_dtype": "float32"}


def llama_tensors(tensors, config):
    """Under transformers' names and in its order of rows."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, array in tensors.items():
        if name in LLAMA_REST:
            yield LLAMA_REST[name], array
        else:
            _, layer, part, kind = name.split(".")
            if part in heads:
                array = halves(array, heads[part])
            yield f"model.layers.{layer}.{LLAMA_LAYER[part]}.{kind}", np.ascontiguousarray(array)


def write_gguf(path, architecture, tensors, add_fields):
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_file_type(F32)
    add_fields(writer)
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def smollm2(source, folder, out):
    reader = gguf.GGUFReader(source)
    tensors = tensors_of(reader)

    def value(name):
        return reader.fields[name].contents()

    def add_fields(writer):
        for name, field in fields_of(reader).items():
            kind, *rest = field.types
            writer.add_key_value(name, field.contents(), kind, rest[0] if rest else None)

    write_gguf(out, "llama", tensors, add_fields)
    config = llama_config(value)
    config["tie_word_embeddings"] = "output.weight" not in tensors
    write_folder(folder, config, dict(llama_tensors(tensors, config)))


def mamba_tensors(tensors):
    """Under GGUF's names: A = -exp(A_log) itself, and the taps of a channel as a row."""
    for name, array in tensors.items():
        if name in MAMBA_REST:
            yield MAMBA_REST[name], array
            continue
        layer, part = name.removeprefix("backbone.layers.").split(".", 1)
        if part == "mixer.A_log":
            array = -np.exp(array)
        elif part == "mixer.conv1d.weight":
            array = array.squeeze(1)
        yield f"blk.{layer}.{MAMBA_LAYER[part]}", array


def mamba(folder, out):
    config = json.loads((folder / "config.json").read_text())
    width = config["hidden_size"]
    rank = config["time_step_rank"]

    def add_fields(writer):
        writer.add_context_length(1 << 20)
        writer.add_embedding_length(width)
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_ssm_conv_kernel(config["conv_kernel"])
        writer.add_ssm_inner_size(config.get("intermediate_size", config["expand"] * width))
        writer.add_ssm_state_size(config["state_size"])
        writer.add_ssm_time_step_rank(-(-width // 16) if rank == "auto" else rank)
        writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
        writer.add_vocab_size(config["vocab_size"])
        writer.add_tokenizer_model("none")  # ids alone

    tensors = load_file(folder / "model.safetensors")
    write_gguf(out, "mamba", dict(mamba_tensors(tensors)), add_fields)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, words in (("smollm2", ("source", "folder", "out")), ("mamba", ("folder", "out"))):
        verb = verbs.add_parser(name)
        for word in words:
            verb.add_argument(word, type=Path)
    options = vars(parser.parse_args())
    {"smollm2": smollm2, "mamba": mamba}[options.pop("verb")](**options)


if __name__ == "__main__":
    main()
