#!/usr/bin/env python3
"""A model of llama2.c as a Hugging Face folder of a Llama, which `bmojo import` reads.

    tools/llama2c.py MODEL.bin TOKENIZER.bin OUT
    bmojo import OUT --out DIR

MODEL.bin is what llama2.c's run.c reads (its format 0, all f32), TOKENIZER.bin its vocabulary with
scores. The tokenizer becomes a SentencePiece model of the same pieces and ids."""

import argparse
import struct
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from llama_folder import halves, write_folder
from metrics import Mistake, printable

# What run.c has in its code and not in the file.
NORM_EPS, ROPE_THETA = 1e-5, 10000.0
UNKNOWN, BEGIN, END = 0, 1, 2  # ids of these pieces
OTHER_FORMAT = 0x616B3432  # "ak42": how formats 1 and 2 begin


class Header(NamedTuple):
    """Seven int32."""
    width: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int  # negative where the head has weights of its own
    length: int  # of the longest text: as many rows of rotary tables

    @property
    def head_size(self):
        return self.width // self.heads

    def check(self, path):
        names = [*self._fields]
        for name, value in zip(names, self):
            if not 0 < (abs(value) if name == "vocabulary" else value) <= 1 << 24:
                raise Mistake(f"{path}: {name} must be from 1 to 2^24, got {value}")
        if self.width % (2 * self.heads) or self.heads % self.kv_heads:
            raise Mistake(f"{path}: heads must divide half the width = {self.width / 2:g}, and "
                          f"kv_heads the heads, got {self.heads} and {self.kv_heads}")

    def shapes(self):
        """(name, shape) of all that follows, in its order; a layer's of all layers together."""
        L, D, F, V, d = self.layers, self.width, self.mlp, abs(self.vocabulary), self.head_size
        keys, table = self.kv_heads * d, (self.length, d // 2)
        yield from [("embed_tokens", (V, D)), ("input_layernorm", (L, D)),
                    ("self_attn.q_proj", (L, D, D)), ("self_attn.k_proj", (L, keys, D)),
                    ("self_attn.v_proj", (L, keys, D)), ("self_attn.o_proj", (L, D, D)),
                    ("post_attention_layernorm", (L, D)), ("mlp.gate_proj", (L, F, D)),
                    ("mlp.down_proj", (L, D, F)), ("mlp.up_proj", (L, F, D)), ("norm", (D,)),
                    ("cosines", table), ("sines", table)]
        if self.vocabulary < 0:
            yield "lm_head", (V, D)

    def config(self):
        """As transformers writes it. llama2.c ends a text where the next one would begin."""
        return {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": abs(self.vocabulary), "hidden_size": self.width,
            "num_hidden_layers": self.layers, "intermediate_size": self.mlp,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size, "rope_theta": ROPE_THETA, "rms_norm_eps": NORM_EPS,
            "hidden_act": "silu", "max_position_embeddings": self.length,
            "tie_word_embeddings": self.vocabulary > 0, "bos_token_id": BEGIN,
            "eos_token_id": BEGIN, "torch_dtype": "float32"}


def read_model(path):
    """(header, {name: array}), layers still together."""
    size = path.stat().st_size
    if size < 28:
        raise Mistake(f"{path}: must begin with a header of 28 bytes, got {size} bytes")
    with open(path, "rb") as file:
        header = Header(*struct.unpack("<7i", file.read(28)))
    if header.width == OTHER_FORMAT:
        raise Mistake(f"{path}: must be of llama2.c's format 0, got format {header.mlp}")
    header.check(path)
    shapes = dict(header.shapes())
    wanted = 28 + 4 * sum(np.prod(shape, dtype=object) for shape in shapes.values())
    if size != wanted:
        raise Mistake(f"{path}: must have {wanted} bytes as its header says, got {size}")
    values, tensors, at = np.memmap(path, "<f4", "r", 28), {}, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        tensors[name] = values[at:at + count].reshape(shape)
        at += count
    return header, tensors


def named(header, tensors):
    """Under transformers' names and in its order of rows. The rotary tables follow from theta."""
    heads = {"self_attn.q_proj": header.heads, "self_attn.k_proj": header.kv_heads}
    for name, array in tensors.items():
        if name == "lm_head":
            yield "lm_head.weight", np.array(array)
        elif name in ("embed_tokens", "norm"):
            yield f"model.{name}.weight", np.array(array)
        elif name not in ("cosines", "sines"):
            for layer, own in enumerate(array):
                own = halves(own, heads[name]) if name in heads else own
                yield f"model.layers.{layer}.{name}.weight", np.array(own)


def read_pieces(path, count):
    """[(text, score)]. The file holds an int32, the longest piece's bytes; then of each piece its
    score (f32), its length (int32) and its bytes."""
    raw, at, pieces = path.read_bytes(), 4, []
    while at < len(raw):
        if at + 8 > len(raw):
            raise Mistake(f"{path}: piece {len(pieces)} must have a score and a length, got the end")
        score, length = struct.unpack_from("<fi", raw, at)
        text, at = raw[at + 8:at + 8 + max(length, 0)], at + 8 + length
        if length < 0 or at > len(raw):
            raise Mistake(f"{path}: piece {len(pieces)} must lie in the file, got {length} bytes")
        try:
            pieces.append((text.decode(), score))
        except UnicodeDecodeError:
            raise Mistake(f"{path}: piece {len(pieces)} must be UTF-8, got other bytes") from None
    if len(pieces) != count:
        raise Mistake(f"{path}: must hold the model's {count} pieces, got {len(pieces)}")
    return pieces


# SentencePiece's model file is a protobuf message; field numbers are those of its
# sentencepiece_model.proto.
CONTROL, BYTE = 3, 6  # types of a piece; 1 is an ordinary one, 2 the unknown one
BPE = 2


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def spelled(text):
    """As SentencePiece has a piece of llama2.c's file, where marks stand in lines of their own."""
    return text.strip("\n") if text in ("\n<s>\n", "\n</s>\n") else text.replace(" ", "\u2581")


def sentencepiece_model(pieces, path):
    """What run.c does: a blank before the text, then neighbours merge, the best score first;
    characters that are no piece become their bytes. Blanks are kept, all of them."""
    texts = [spelled(text) for text, _ in pieces]
    marks = {UNKNOWN: "<unk>", BEGIN: "<s>", END: "</s>"}
    for i, mark in marks.items():
        if texts[i:i + 1] != [mark]:
            raise Mistake(f"{path}: piece {i} must be {mark}, got '{printable(''.join(texts[i:i + 1]))}'")
    if texts[3:259] != [f"<0x{byte:02X}>" for byte in range(256)]:
        raise Mistake(f"{path}: pieces 3 to 258 must be the bytes, got others")
    if len({*texts}) != len(texts):
        raise Mistake(f"{path}: pieces must be different, got one twice")
    model = b""
    for i, (text, (_, score)) in enumerate(zip(texts, pieces)):
        kind = 2 if i == UNKNOWN else CONTROL if i in marks else BYTE if i < 259 else 1
        model += field(1, field(1, text.encode()) + field(2, float(score)) + field(3, kind))
    trainer = field(3, BPE) + field(4, len(pieces)) + field(35, 1)  # falls back to bytes
    normalizer = field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1)
    return model + field(2, trainer) + field(3, normalizer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, metavar="MODEL.bin")
    parser.add_argument("tokenizer", type=Path, metavar="TOKENIZER.bin")
    parser.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    options = parser.parse_args()
    if options.out.exists():
        raise Mistake(f"{options.out}: must be a new folder, got one that is there")
    header, tensors = read_model(options.model)
    pieces = read_pieces(options.tokenizer, abs(header.vocabulary))
    tokenizer = sentencepiece_model(pieces, options.tokenizer)
    write_folder(options.out, header.config(), dict(named(header, tensors)))
    (options.out / "tokenizer.model").write_bytes(tokenizer)


if __name__ == "__main__":
    try:
        main()
    except (Mistake, OSError) as mistake:
        print(f"llama2c: {mistake}", file=sys.stderr)
        sys.exit(2)
