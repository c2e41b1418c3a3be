"""Recipes of small trainings, and how their folders are read."""

import json
import subprocess

MODEL = """hidden_size=16 num_layers=2 ssm_inner_size=12 ssm_state_size=3 ssm_dt_rank=2 num_heads=2
num_kv_heads=1 head_size=8 window=16 fading_tokens=3 eidetic_tokens=6 mlp_size=20"""
TINY = ["--preset", "bmojo-tiny", *(w for f in MODEL.split() for w in ("--set", f))]
TASK = ["--task", "mqar:pairs=4,length=48,vocab=40,gap=8"]
RECIPE = [*TINY, *TASK, "--batch-tokens", 8 * 48, "--lr", 1e-2, "--ssm-lr", 1e-2, "--quiet"]
OVERHEADS = ("read_seconds", "log_seconds", "save_seconds")
# Activations of many tokens, far above what the program holds anyway.
WIDE = """hidden_size=256 num_layers=2 ssm_inner_size=256 ssm_dt_rank=16 num_heads=4 num_kv_heads=2
head_size=64 window=64 mlp_size=512"""


def but(recipe, *changes):
    """The recipe with some flags, and fields of --set, said anew: `train` takes each once."""
    def name(pair):
        return pair[:1] if pair[0] != "--set" else (pair[0], str(pair[1]).split("=")[0])

    def pairs(words):
        at = [i for i, word in enumerate(words) if str(word).startswith("--")] + [len(words)]
        return [tuple(words[i:j]) for i, j in zip(at, at[1:])]

    later = pairs(changes)
    stay = [pair for pair in pairs(recipe) if name(pair) not in map(name, later)]
    return [word for pair in [*stay, *later] for word in pair]


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run):
    return [(row["step"], row["loss"]) for row in metrics(run)]


def weights(run):
    return (run / "latest/model.safetensors").read_bytes()


def carried(run):
    return (run / "latest/state-0.safetensors").read_bytes()


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def messages(bmojo, *flags):
    """What `train` says beside its result."""
    result = subprocess.run([bmojo.path, "train", *map(str, flags)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stderr


def streams(text):
    """Memories carried without end, gradients through two segments, accumulation."""
    return [*TINY, "--data", text, "--val-fraction", 0.1, "--segment", 24, "--bptt", 2, "--context",
            0, "--batch-tokens", 6 * 48, "--micro-batch", 3, "--lr", 1e-2, "--ssm-lr", 1e-2,
            "--eval-tokens", 512, "--quiet"]
