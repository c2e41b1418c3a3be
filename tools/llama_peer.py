"""llama.cpp through llama-cpp-python, as `bmojo bench` measures ours. Runs in that package's venv.

    llama_peer.py bench MODEL.gguf    reading and writing: JSON lines as of `bmojo bench --json`
    llama_peer.py logits MODEL.gguf   {"ids": [...]}, or {"text": "...", "count": N}, on stdin: all
                                      logits as .npy, and what it writes after them, greedily
    llama_peer.py text MODEL.gguf     [[ids], ...] on stdin: the text of each
"""

import argparse
import ctypes
import json
import os
import random
import sys
import time

import llama_cpp as llama
import numpy as np

PART = 512  # tokens of a call, as in `bmojo bench`
CACHES = {"f32": llama.GGML_TYPE_F32, "f16": llama.GGML_TYPE_F16}


def status_bytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


class Model:
    """One model and one context of `batch` sequences, each of at most `length` tokens."""

    def __init__(self, path, length, batch, options):
        self.before = status_bytes("VmRSS")
        model_params = llama.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_mmap = options.mmap == "on"
        self.model = llama.llama_model_load_from_file(str(path).encode(), model_params)
        params = llama.llama_context_default_params()
        params.n_ctx = batch * -(-length // 256) * 256
        params.n_batch, params.n_ubatch = PART * batch, PART
        params.n_seq_max = batch
        params.n_threads = params.n_threads_batch = options.threads
        params.type_k = params.type_v = CACHES[options.cache]
        params.flash_attn_type = int(options.flash == "on")
        params.offload_kqv = params.op_offload = False
        params.no_perf = True
        self.context = self.model and llama.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"llama_peer: {path}: cannot be loaded")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.room = llama.llama_batch_init(PART * batch, 0, 1)
        self.positions = [0] * batch

    def decode(self, ids, every=False):
        """ids[b] go on in sequence b. Seconds of the call alone, with the last logits of each
        sequence or, where `every`, with all of them."""
        batch, at = self.room, 0
        for sequence, part in enumerate(ids):
            for i, token in enumerate(part):
                batch.token[at], batch.pos[at] = token, self.positions[sequence] + i
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
                batch.logits[at] = every or i + 1 == len(part)
                at += 1
            self.positions[sequence] += len(part)
        batch.n_tokens = at
        start = time.perf_counter()
        code = llama.llama_decode(self.context, batch)
        llama.llama_synchronize(self.context)
        seconds = time.perf_counter() - start
        if code != 0:
            sys.exit(f"llama_peer: llama_decode failed with code {code}")
        return seconds

    def logits(self, rows):
        """Of the last call, [rows, vocabulary]."""
        data = llama.llama_get_logits(self.context)
        return np.ctypeslib.as_array(
            ctypes.cast(data, ctypes.POINTER(ctypes.c_float)), (rows, self.vocabulary)).copy()

    def ids_of(self, text):
        raw = text.encode()
        room = (llama.llama_token * len(raw))()
        vocabulary = llama.llama_model_get_vocab(self.model)
        count = llama.llama_tokenize(vocabulary, raw, len(raw), room, len(raw), False, False)
        return room[:count]

    def text_of(self, ids):
        vocabulary, room, out = llama.llama_model_get_vocab(self.model), bytes(256), b""
        for token in ids:
            size = llama.llama_token_to_piece(vocabulary, token, room, len(room), 0, True)
            out += room[:max(0, size)]
        return out.decode(errors="replace")

    def forget(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)
        self.positions = [0] * len(self.positions)


def read(model, count, draw):
    """`count` tokens of every sequence, 512 at a time. Seconds."""
    seconds = 0.0
    for done in range(0, count, PART):
        part = draw.choices(range(model.vocabulary), k=min(PART, count - done))
        seconds += model.decode([part] * len(model.positions))
    return seconds


def bench(options):
    depths = [int(depth) for depth in options.depth.split(",")]
    length = max(depths) + options.prompt + options.tokens + 1
    model, draw = Model(options.model, length, options.batch, options), random.Random(0)

    def show(phase, depth, count, seconds):
        print(json.dumps({"phase": phase, "batch": options.batch, "depth": depth, "tokens": count,
                          "tokens_per_second": count * options.batch / seconds,
                          "peak_rss_bytes": status_bytes("VmHWM") - model.before}), flush=True)

    for depth in depths:
        model.forget()
        read(model, depth, draw)
        show("prefill", depth, options.prompt, read(model, options.prompt, draw))
        read(model, 1, draw)  # the first one finds memory and caches cold
        seconds = sum(read(model, 1, draw) for _ in range(options.tokens))
        show("decode", depth + options.prompt, options.tokens, seconds)


def logits(options):
    asked, rows = json.loads(sys.stdin.readline()), []
    length = len(asked.get("ids", [])) or asked["count"]
    model = Model(options.model, length + options.tokens, 1, options)
    ids = asked.get("ids") or model.ids_of(asked["text"])[:length]
    for done in range(0, len(ids), PART):
        part = ids[done:done + PART]
        model.decode([part], every=True)
        rows.append(model.logits(len(part)))
    np.save(options.out, np.concatenate(rows))
    written, last = [], rows[-1][-1]
    for _ in range(options.tokens):
        written.append(int(last.argmax()))
        model.decode([written[-1:]])
        last = model.logits(1)[0]
    print(json.dumps({"ids": ids, "written": written}))


def text(options):
    model = Model(options.model, 1, 1, options)
    print(json.dumps([model.text_of(ids) for ids in json.loads(sys.stdin.readline())]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["bench", "logits", "text"])
    parser.add_argument("model")
    parser.add_argument("--cache", choices=CACHES, default="f32")
    parser.add_argument("--flash", choices=["on", "off"], default="off")
    parser.add_argument("--mmap", choices=["on", "off"], default="on")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--depth", default="0")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--out")
    options = parser.parse_args()
    {"bench": bench, "logits": logits, "text": text}[options.verb](options)


if __name__ == "__main__":
    main()
