"""Packed checkpoints: `export --packed`, who takes them and who refuses them; and memory that does
not suffice."""

import json

import pytest
from conftest import listing, read_safetensors, write_sparse_safetensors

PROMPT = ["--ids", "1,2,3", "--max-tokens", 20, "--seed", 5]


@pytest.fixture
def packed(bmojo, small, tmp_path):
    """packed(dtype): small, packed."""

    def make(dtype="f32"):
        out = tmp_path / f"packed-{dtype}"
        if not out.exists():
            bmojo("export", small, "--packed", "--dtype", dtype, "--out", out)
        return out

    return make


def generate(bmojo, model, *flags):
    return bmojo.json("generate", "--model", model, *flags)


def test_report_names_the_type(bmojo, small, tmp_path):
    report = bmojo.json("export", small, "--packed", "--out", tmp_path / "a")
    assert report == {"out": str(tmp_path / "a"), "model_type": "bmojo", "dtype": "f32"}
    text = bmojo("export", small, "--packed", "--dtype", "bf16", "--out", tmp_path / "b")
    assert text == f"{tmp_path}/b: bf16, packed for the engine\n"
    # Weights that are bf16 stay so, as in the engine.
    bmojo("export", small, "--dtype", "bf16", "--out", tmp_path / "half")
    assert bmojo.json("export", tmp_path / "half", "--packed",
                      "--out", tmp_path / "c")["dtype"] == "bf16"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_same_text_and_numbers_as_plain(bmojo, small, packed, tmp_path, dtype):
    plain = [small, "--dtype", dtype]
    assert generate(bmojo, packed(dtype), *PROMPT) == generate(bmojo, *plain, *PROMPT)
    (tmp_path / "ids.jsonl").write_text('{"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}\n')
    for number, model in enumerate(([packed(dtype)], plain)):
        bmojo("score", "--model", *model, "--ids", tmp_path / "ids.jsonl",
              "--logits", tmp_path / f"{number}.safetensors")
    same = [read_safetensors(tmp_path / f"{number}.safetensors")[1] for number in (0, 1)]
    assert same[0] == same[1]
    rows = bmojo("bench", "--model", packed(dtype), "--prompt", 4, "--tokens", 2, "--json")
    assert {json.loads(row)["dtype"] for row in rows.splitlines()} == {dtype}
    # Sizes of the memories are set at load, as for any checkpoint.
    changed = ["--set", "window=4", *PROMPT]
    assert generate(bmojo, packed(dtype), *changed) == generate(bmojo, *plain, *changed)


def test_states_go_from_one_to_the_other(bmojo, small, packed, tmp_path):
    whole = generate(bmojo, small, "--ids", "1,2,3", "--max-tokens", 20)["ids"]
    for number, (first, second) in enumerate([(small, packed()), (packed(), small)]):
        state = tmp_path / f"{number}.state"
        begun = generate(bmojo, first, "--ids", "1,2,3", "--max-tokens", 9, "--state-out", state)
        rest = generate(bmojo, second, "--max-tokens", 11, "--state-in", state)
        assert begun["ids"] + rest["ids"] == whole
        assert bmojo.json("inspect", state, "--model", second)["position"] == 3 + 9
    message = bmojo("generate", "--model", packed("bf16"), "--state-in", state, code=2)
    assert "must be a state of weights as bf16, got f32" in message


def test_inspect(bmojo, small, packed):
    plain = bmojo.json("inspect", small)
    got = bmojo.json("inspect", packed("bf16"), "--verify")
    assert got["packed"] == "bf16" and got["verified"] and "packed" not in plain
    for name in ("parameters", "config", "memory_bytes"):
        assert got[name] == plain[name]
    assert f"bf16, from {plain['files'][0]['digest']}" in bmojo("inspect", packed("bf16"))
    metadata, tensors = read_safetensors(packed("bf16") / "model.safetensors")
    assert metadata["bmojo.packed_from"] == plain["files"][0]["digest"]
    assert metadata["bmojo.layout"] == "panels" and metadata["bmojo.layout_version"] == "1"
    # x, z and queries: 10 + 10 + 24 rows of 12, in panels of 32.
    assert tensors["layers.0.xzq"][:2] == ("BF16", (2, 12, 32))


def test_damage_is_found(bmojo, packed):
    file = packed() / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)
    assert "the file is damaged" in bmojo("inspect", packed(), "--verify", code=2)
    file.write_bytes(raw[:-7])
    assert "the file is cut off" in bmojo("generate", "--model", packed(), *PROMPT, code=2)


def test_the_tokenizer_comes_along(bmojo, small, tmp_path):
    (small / "tokenizer.json").write_text("tokenizer.json")
    bmojo("export", small, "--packed", "--out", tmp_path / "a")
    assert listing(tmp_path / "a") == ["config.json", "model.safetensors", "tokenizer.json"]


def test_who_refuses_it(bmojo, small, packed, tmp_path):
    plain = "must be a plain checkpoint, got one that is packed for the engine; use the folder"
    for flags in ([], ["--packed"]):
        assert plain in bmojo("export", packed(), *flags, "--out", tmp_path / "x", code=2)
    assert "it needs no import" in bmojo("import", packed(), "--out", tmp_path / "x", code=2)
    message = bmojo("export", small, "--packed", "--dtype", "f16", "--out", tmp_path / "x", code=2)
    assert message == "bmojo: --dtype: must be f32 or bf16 with --packed, got 'f16'"
    message = bmojo("generate", "--model", packed(), "--dtype", "bf16", *PROMPT, code=2)
    assert "--dtype: must be f32 as the weights of" in message
    if (bmojo.folder / "bmojo-torch").exists():
        assert plain in bmojo("generate", "--model", packed(), "--engine", "torch", *PROMPT, code=2)
        task = f"mqar:pairs=4,length=32,vocab={bmojo.json('inspect', small)['config']['vocab_size']}"
        assert plain in bmojo("train", "--init-from", packed(), "--task", task, "--steps", 1,
                              "--out", tmp_path / "x", code=2)
    assert not (tmp_path / "x").exists()


def test_weights_that_do_not_fit_are_refused_before_loading(bmojo, tmp_path):
    # Zeros of 4.4 TB, which take no disk.
    V, D, model = 1 << 24, 1 << 16, tmp_path / "model"
    sizes = {"vocab_size": V, "hidden_size": D, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1,
             "head_size": 2, "mlp_size": 0}  # fmt: skip
    flags = [word for field in sizes.items() for word in ("--set", "=".join(map(str, field)))]
    model.mkdir()
    (model / "config.json").write_text(bmojo("config", "--preset", "transformer-tiny", *flags))
    shapes = {"embedding.weight": (V, D), "layers.0.norm.weight": (D,), "norm.weight": (D,)}
    shapes |= {f"layers.0.attention.{x}_proj.weight": (2, D) for x in "qkv"}
    shapes["layers.0.attention.o_proj.weight"] = (D, 2)
    write_sparse_safetensors(model / "model.safetensors", shapes)
    prompt = ["--model", model, "--ids", "1", "--max-tokens", 1]
    message = bmojo("generate", *prompt, code=1)
    assert message.startswith(f"bmojo: {model}: weights and memories need 4.40 TB of memory, got ")
    assert message.endswith("; choose bf16 weights, a smaller model or fewer sequences")
    message = bmojo("generate", *prompt, "--dtype", "bf16", code=1)
    assert "need 2.20 TB of memory, got" in message and message.endswith("; choose a smaller model or "
                                                                        "fewer sequences")


def test_memories_that_do_not_fit_are_refused_before_loading(bmojo, small, tmp_path):
    flags = ["--set", "eidetic_tokens=16777216", "--batch", "1048576"]
    message = bmojo("bench", "--model", small, *flags, "--prompt", 1, "--tokens", 1, code=1)
    assert "weights and memories need" in message and "fewer sequences" in message
    # Of lines that are not read yet nobody knows how many there are.
    (tmp_path / "ids.jsonl").write_text('{"ids": [1, 2, 3]}\n')
    bmojo("score", "--model", small, "--ids", tmp_path / "ids.jsonl", "--batch", "1048576")
