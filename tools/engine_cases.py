"""What bench_engine.py measures beside llama.cpp, and how a process that measures is read."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import engine_peers
from measure import run

THREADS = 2
ROUNDS = 10  # of a goal, which holds by no fewer; no pair of one takes over a minute
HUGE_PAGES = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"  # for a peer that does not ask for them
TOOLS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """What a process measures."""

    model: str
    phase: str
    depth: int = 0  # tokens before what is timed
    batch: int = 1
    rounds: int = ROUNDS
    tokens: int = 64  # to write
    tried_as: str = ""  # the fastest kind of the peer is taken from this case

    def flags(self):
        """Reading is timed three times, the first of which warms up. Writing at depth d comes after
        d tokens, the last of which is the prompt (at 0: it alone)."""
        if self.phase == "prefill":
            words = ["--prompt", 512, "--tokens", 1, "--depth", ",".join(3 * [str(self.depth)])]
        else:
            words = ["--prompt", 1, "--tokens", self.tokens, "--depth", max(0, self.depth - 1)]
        return [str(word) for word in [*words, "--batch", self.batch, "--threads", THREADS]]


# By name; the goals first. What a goal does not ask for is reported.
CASES = {
    "smollm2-prefill": Case("smollm2", "prefill"),
    "smollm2-decode": Case("smollm2", "decode"),
    "smollm2-decode-2k": Case("smollm2", "decode", 2048),
    "mamba-prefill": Case("mamba", "prefill"),
    "mamba-decode": Case("mamba", "decode"),
    "mamba-decode-2k": Case("mamba", "decode", 2048, tried_as="mamba-decode"),
    "smollm2-batch-decode": Case("smollm2", "decode", batch=8, tokens=32),
    "smollm2-batch-prefill": Case("smollm2", "prefill", batch=8, rounds=5),
    "mamba-batch-decode": Case("mamba", "decode", batch=8, tokens=32),
    "mamba-batch-prefill": Case("mamba", "prefill", batch=8, rounds=5, tried_as="mamba-prefill"),
    "smollm2-decode-8k": Case("smollm2", "decode", 8192, rounds=5, tokens=32,
                              tried_as="smollm2-decode-2k"),
    "smollm2-batch-decode-2k": Case("smollm2", "decode", 2048, batch=8, rounds=5, tokens=32,
                                    tried_as="smollm2-decode-2k"),
    "mamba-batch-decode-2k": Case("mamba", "decode", 2048, batch=8, rounds=5, tokens=32,
                                  tried_as="mamba-batch-decode"),
}


def kinds(model, cache):
    """(build, flash attention, mapped or read into huge pages, cache) of llama.cpp. A Mamba has
    neither attention nor cache."""
    flash = ["off", "on"] if model == "smollm2" else ["off"]
    return [(build, f, mmap, cache) for build in engine_peers.BUILDS for f in flash
            for mmap in ("on", "off")]


def speed(rows, phase):
    """Tokens a second: the median without the first, where there are more."""
    found = [row["tokens_per_second"] for row in rows if row["phase"] == phase]
    return median(found[1:] or found)


def rows_of(command, left):
    return [json.loads(line) for line in run(command, left).splitlines()]


class Engines:
    """How ours and llama.cpp are called."""

    def __init__(self, options):
        self.program = Path(options.bin) / "bmojo"
        self.reader = Path(options.bin) / "bmojo-engine-kernels"
        self.pythons, self.models = engine_peers.prepare(self.program)

    def ours(self, case):
        return [str(self.program), "bench", "--model", str(self.models[case.model][0]),
                *case.flags(), "--json", "--quiet"]

    def peer(self, case, kind):
        return [*self.llama("bench", case.model, kind), *case.flags()]

    def llama(self, verb, model, kind):
        build, flash, mmap, cache = kind
        return ["env", HUGE_PAGES, str(self.pythons[build]), str(TOOLS / "llama_peer.py"), verb,
                str(self.models[model][1]), "--flash", flash, "--mmap", mmap, "--cache", cache]
