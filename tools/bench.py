"""Training steps of ours and of peers, side by side: `make bench`.

One driver alternates the programs in separate processes, one round after the other; a process makes
two warm-up steps and times the next ones; the best over all rounds counts. Same width, depth,
vocabulary, batch and length on both sides, parameters within 1 %. Memory is the peak RSS less the
RSS before the model was built. Writes results/bench.json and prints a Markdown table.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LENGTH, VOCABULARY, WIDTH = 2048, 4096, 512

# Ours, as changes to a preset. 17 M parameters, but for Mamba: 8 layers as its peer has.
COMMON = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "ssm_dt_rank": 32}
HEADS = {"num_heads": 8, "num_kv_heads": 2, "head_size": 64}
OURS = {
    "bmojo": ("bmojo-tiny", {"num_layers": 4, "ssm_inner_size": 512, "mlp_size": 1440, **HEADS}),
    "mamba": ("mamba-tiny", {"num_layers": 8, "ssm_inner_size": 1024}),
}
ROWS = [("mamba", "mambapy"), ("bmojo", "mistral")]


def rss():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def peer(name, repeat):
    """One peer in this process; prints what `bmojo bench --json` prints."""
    import torch
    from mambapy.mamba import Mamba, MambaConfig, RMSNorm
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    before = rss()
    if name == "mambapy":
        body = Mamba(MambaConfig(d_model=WIDTH, n_layers=8, d_state=16, d_conv=4, dt_rank=32))
        table = torch.nn.Embedding(VOCABULARY, WIDTH)
        norm = RMSNorm(WIDTH)
        parameters = [*body.parameters(), *table.parameters(), *norm.parameters()]

        def logits(ids):
            return norm(body(table(ids))) @ table.weight.T
    else:
        model = MistralForCausalLM(MistralConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=1984, num_hidden_layers=4,
            num_attention_heads=8, num_key_value_heads=2, head_dim=64, sliding_window=None,
            tie_word_embeddings=True, attn_implementation="sdpa"))
        parameters = list(model.parameters())

        def logits(ids):
            return model(ids, use_cache=False).logits

    ids = torch.randint(VOCABULARY, (1, LENGTH + 1))
    times = []
    for _ in range(2 + repeat):
        start = time.perf_counter()
        for parameter in parameters:
            parameter.grad = None
        out = logits(ids[:, :-1])
        torch.nn.functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten()).backward()
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds_per_step": min(times[2:]), "peak_rss_bytes": peak - before,
                      "parameters": sum(p.numel() for p in parameters)}))


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))}: {result.stderr.strip()[-500:]}")
    return json.loads(result.stdout)


def ours_command(bin_folder, name, repeat):
    preset, changes = OURS[name]
    sets = [word for key, value in {**COMMON, **changes}.items()
            for word in ("--set", f"{key}={value}")]
    return [Path(bin_folder) / "bmojo", "bench", "--train", "--preset", preset, *sets, "--length",
            str(LENGTH), "--repeat", str(repeat), "--json", "--quiet"]


def best(results):
    return {key: min(r[key] for r in results)
            for key in ("seconds_per_step", "peak_rss_bytes", "parameters")}


def machine():
    with open("/proc/cpuinfo") as info:
        lines = info.read().splitlines()
    model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    flags = next(line for line in lines if line.startswith("flags")).split()
    simd = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "neither AVX"
    return f"{model}, {sum(line.startswith('processor') for line in lines)} cores, {simd}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=2, help="timed steps a process")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options.peer, options.repeat)

    measured = {}
    for _ in range(options.rounds):
        for ours, theirs in ROWS:
            print(f"bench: {ours} and {theirs}", file=sys.stderr)
            measured.setdefault(ours, []).append(
                run(ours_command(options.bin, ours, options.repeat)))
            measured.setdefault(theirs, []).append(
                run([sys.executable, __file__, "--peer", theirs, "--repeat", str(options.repeat)]))
    measured = {name: best(results) for name, results in measured.items()}
    for ours, theirs in ROWS:
        sizes = [measured[name]["parameters"] for name in (ours, theirs)]
        if max(sizes) > 1.01 * min(sizes):
            sys.exit(f"bench: {ours} and {theirs} must be within 1 %, got {sizes}")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"],
                            capture_output=True, text=True).stdout.strip()
    report = {"command": "make bench", "commit": commit, "machine": machine(),
              "python": platform.python_version(), "length": LENGTH, "batch": 1, "width": WIDTH,
              "vocabulary": VOCABULARY, "measured": measured}
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results/bench.json").write_text(json.dumps(report, indent=2) + "\n")

    print("| training step, length 2,048 | parameters | seconds | memory | time, ours / peer |")
    print("|---|---|---|---|---|")
    for ours, theirs in ROWS:
        for name in (ours, theirs):
            row = measured[name]
            ratio = row["seconds_per_step"] / measured[theirs]["seconds_per_step"]
            label = f"bmojo, {name}" if name == ours else name
            print(f"| {label} | {row['parameters'] / 1e6:.1f} M | {row['seconds_per_step']:.2f} | "
                  f"{row['peak_rss_bytes'] / 1e9:.1f} GB | {f'{ratio:.2f}' if name == ours else ''} |")


if __name__ == "__main__":
    main()
