"""What the command-line tests share. BMOJO_BIN names the folder of the programs."""

import io
import json
import os
import resource
import signal
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

# A shell that runs the tests in the background may have these ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A B'MOJO of a few kilobytes, as flags.
FIELDS = """vocab_size=40 hidden_size=12 num_layers=2 ssm_inner_size=10 ssm_state_size=3
ssm_dt_rank=5 num_heads=4 num_kv_heads=2 head_size=6 window=8 fading_tokens=3
eidetic_tokens=5 mlp_size=20"""
SMALL = ["--preset", "bmojo-tiny", *(word for field in FIELDS.split() for word in ("--set", field))]


class Bmojo:
    """Runs the program. A failure must be one line with the prefix, and nothing on stdout."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.path = self.folder / "bmojo"

    def __call__(self, *args, code=0, file_limit=None, **options):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

        result = subprocess.run(
            [self.path, *map(str, args)],
            capture_output=True,
            preexec_fn=limit if file_limit is not None else None,
            **options,
        )
        out, err = result.stdout.decode(), result.stderr.decode(errors="replace")
        assert result.returncode == code, f"exit {result.returncode}, expected {code}: {err}{out}"
        if code != 0:
            assert err.startswith("bmojo: ") and err.endswith("\n"), err
            assert err[:-1].isprintable(), repr(err)  # also: no line break inside
            assert out == "", out
            return err[:-1]
        return out

    def json(self, *args):
        out = self(*args, "--json")
        assert out.count("\n") == 1
        return json.loads(out)


@pytest.fixture(scope="session")
def bmojo():
    folder = os.environ.get("BMOJO_BIN")
    if not folder:
        pytest.fail("BMOJO_BIN must name the folder of the bmojo programs, got none")
    if not (Path(folder) / "bmojo").exists():
        pytest.fail(f"BMOJO_BIN must hold the program bmojo, got {folder}")
    return Bmojo(folder)


FIGURES = []  # lines for those who run the tests to see a number


@pytest.fixture(scope="session")
def figures():
    return FIGURES


def pytest_terminal_summary(terminalreporter):
    for line in FIGURES:
        terminalreporter.write_line(line)


@pytest.fixture
def small(bmojo, tmp_path):
    """Its checkpoint."""
    bmojo("init", *SMALL, "--out", tmp_path / "small")
    return tmp_path / "small"


@pytest.fixture
def text(bmojo, tmp_path):
    """Token shards of some text."""
    (tmp_path / "text").mkdir()
    for i in range(5):
        words = " ".join(f"word{(i * 7 + j * j) % 97}" for j in range(900))
        (tmp_path / "text" / f"{i}.txt").write_text(words)
    bmojo("tokenize", "--tokenizer", "bytes", "--out", tmp_path / "tokens", tmp_path / "text")
    return tmp_path / "tokens"


@pytest.fixture(scope="module")
def pieces(bmojo, tmp_path_factory):
    """text.txt, a SentencePiece model of it, and tokens/, its shards."""
    folder = tmp_path_factory.mktemp("pieces")
    words = [f"word{i * i % 89} und so weiter" for i in range(3000)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words), model_writer=model, vocab_size=120, model_type="bpe",
        minloglevel=2, num_threads=1, hard_vocab_limit=False)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    (folder / "text.txt").write_text(" ".join(words))
    bmojo("tokenize", "--tokenizer", folder / "tokenizer.model", "--out", folder / "tokens",
          folder / "text.txt")
    return folder


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def write_safetensors(path, tensors, metadata=None):
    """tensors: {name: numpy array, or (dtype, shape, bytes)}."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, value in tensors.items():
        if isinstance(value, np.ndarray):
            value = ({"f4": "F32", "f2": "F16"}[value.dtype.str[1:]], value.shape, value.tobytes())
        dtype, shape, raw = value
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """(metadata, {name: (dtype, shape, bytes)}) in file order."""
    raw = Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + size :]
    return metadata, {
        name: (info["dtype"], tuple(info["shape"]), data[slice(*info["data_offsets"])])
        for name, info in header.items()
    }


def write_sparse_safetensors(path, tensors):
    """Zeros that take no disk: {name: shape}, all F32."""
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + end)


MAMBA = {
    "model_type": "mamba",
    "vocab_size": 40,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "state_size": 3,
    "conv_kernel": 4,
    "expand": 2,
    "time_step_rank": 5,
    "layer_norm_epsilon": 1e-5,
    "use_bias": False,
    "use_conv_bias": True,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MISTRAL = {
    "model_type": "mistral",
    "vocab_size": 40,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "intermediate_size": 20,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "sliding_window": 7,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA = {key: MISTRAL[key] for key in MISTRAL if key != "sliding_window"} | {"model_type": "llama"}


def hugging_face_shapes(config):
    """Every tensor of such a model, under transformers' names."""
    D, V = config["hidden_size"], config["vocab_size"]
    shapes = {}
    if config["model_type"] == "mamba":
        E, N, K = config["expand"] * D, config["state_size"], config["conv_kernel"]
        R = config["time_step_rank"]
        R = -(-D // 16) if R == "auto" else R
        shapes["backbone.embeddings.weight"] = (V, D)
        for i in range(config["num_hidden_layers"]):
            at = f"backbone.layers.{i}."
            shapes[at + "norm.weight"] = (D,)
            at += "mixer."
            shapes |= {at + "A_log": (E, N), at + "D": (E,), at + "conv1d.weight": (E, 1, K)}
            shapes |= {at + "in_proj.weight": (2 * E, D), at + "x_proj.weight": (R + 2 * N, E)}
            shapes |= {at + "dt_proj.weight": (E, R), at + "dt_proj.bias": (E,)}
            shapes[at + "out_proj.weight"] = (D, E)
            if config["use_conv_bias"]:
                shapes[at + "conv1d.bias"] = (E,)
            if config["use_bias"]:
                shapes |= {at + "in_proj.bias": (2 * E,), at + "out_proj.bias": (D,)}
        shapes["backbone.norm_f.weight"] = (D,)
    else:
        F, H, G = (config.get(k) or config["num_attention_heads"] for k in
                   ("intermediate_size", "num_attention_heads", "num_key_value_heads"))
        d = config.get("head_dim") or D // H
        shapes["model.embed_tokens.weight"] = (V, D)
        for i in range(config["num_hidden_layers"]):
            at = f"model.layers.{i}."
            shapes |= {at + "input_layernorm.weight": (D,)}
            shapes |= {at + "post_attention_layernorm.weight": (D,)}
            shapes |= {at + "self_attn.q_proj.weight": (H * d, D)}
            shapes |= {at + f"self_attn.{x}_proj.weight": (G * d, D) for x in "kv"}
            shapes |= {at + "self_attn.o_proj.weight": (D, H * d)}
            shapes |= {at + f"mlp.{x}_proj.weight": (F, D) for x in ("gate", "up")}
            shapes |= {at + "mlp.down_proj.weight": (D, F)}
        shapes["model.norm.weight"] = (D,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (V, D)
    return shapes


def random_tensors(shapes, seed=0):
    draw = np.random.default_rng(seed)
    return {name: draw.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


def write_hugging_face(folder, config, tensors=None):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tensors = random_tensors(hugging_face_shapes(config)) if tensors is None else tensors
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    return tensors
