"""What bench_engine.py measures, in which order and about how long that takes; and how a process
that measures is read."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import engine_peers
from measure import run

THREADS = 2
ROUNDS = 10  # of a goal, which holds by no fewer; no pair of one takes over a minute
SHORT, LONG = 2048, 131072  # depths of B'MOJO's goals
HUGE_PAGES = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"  # for a peer that does not ask for them
TOOLS = Path(__file__).resolve().parent
# For a guess of the time: about what results/bench-engine.json has, in tokens a second; and seconds
# of a process before it measures, and of all that is no case (answers, bandwidth, start-up).
READS, WRITES = {"ours": 800, "peer": 250}, {"ours": 45, "peer": 35}
LOADING, CHECKS = 1.5, 150


@dataclass(frozen=True)
class Case:
    """What a process measures."""

    model: str
    phase: str
    depth: int = 0  # tokens before what is timed
    batch: int = 1
    tokens: int = 64  # to write
    cache: str = "f32"  # of llama.cpp: as ours. f16 is its default
    tried_as: str = ""  # the fastest kind of the peer is taken from this case

    def flags(self):
        """Reading is timed three times, the first of which warms up. Writing at depth d comes after
        d tokens, the last of which is the prompt (at 0: it alone)."""
        if self.phase == "prefill":
            words = ["--prompt", 512, "--tokens", 1, "--depth", ",".join(3 * [str(self.depth)])]
        else:
            words = ["--prompt", 1, "--tokens", self.tokens, "--depth", max(0, self.depth - 1)]
        return [str(word) for word in [*words, "--batch", self.batch, "--threads", THREADS]]

    def seconds(self, side):
        """Of a process, about. A step of a batch takes two of one sequence."""
        reading = 3 * (self.depth + 512) if self.phase == "prefill" else self.depth
        steps = (6 if self.phase == "prefill" else self.tokens) * min(self.batch, 2)
        return LOADING + reading * self.batch / READS[side] + steps / WRITES[side]


@dataclass(frozen=True)
class Part:
    """What is measured before anything of the next part is."""

    cases: dict  # beside the peer
    rounds: int
    tries: int  # of each kind of the peer
    depths: dict  # of B'MOJO, by the type of its weights
    batches: dict  # by depth: B'MOJO's one sequence and its batch of 8
    starts: dict  # model by name

    def seconds(self):
        """Of all of it, about."""
        tries = [len(kinds(case)) * self.tries * case.seconds("peer")
                 for case in self.cases.values() if not case.tried_as]
        pairs = [self.rounds * (case.seconds("ours") + case.seconds("peer"))
                 for case in self.cases.values()]
        batches = [self.rounds * case.seconds("ours")
                   for pair in self.batches.values() for case in pair]
        long = [LOADING + sum(depths) / READS["ours"]
                + 32 * (self.rounds + 1) * len(depths) / WRITES["ours"]
                for depths in self.depths.values()]
        return sum([*tries, *pairs, *batches, *long])


GOALS = Part(
    cases={
        "smollm2-prefill": Case("smollm2", "prefill"),
        "smollm2-decode": Case("smollm2", "decode"),
        "smollm2-decode-2k": Case("smollm2", "decode", 2048),
        "mamba-prefill": Case("mamba", "prefill"),
        "mamba-decode": Case("mamba", "decode"),
        "mamba-decode-2k": Case("mamba", "decode", 2048, tried_as="mamba-decode"),
    },
    rounds=ROUNDS, tries=2, depths={"f32": [SHORT, LONG], "bf16": [SHORT]},
    batches={depth: tuple(Case("bmojo", "decode", depth, batch, tokens=32) for batch in (1, 8))
             for depth in (0, SHORT)},
    starts={"packed": "smollm2"})
MORE = {
    "smollm2-batch-decode": Case("smollm2", "decode", batch=8, tokens=32),
    "smollm2-batch-prefill": Case("smollm2", "prefill", batch=8),
    "smollm2-decode-8k": Case("smollm2", "decode", 8192, tokens=32, tried_as="smollm2-decode-2k"),
    "smollm2-batch-decode-2k": Case("smollm2", "decode", 2048, batch=8, tokens=32,
                                    tried_as="smollm2-decode-2k"),
    "mamba-batch-decode": Case("mamba", "decode", batch=8, tokens=32),
    "mamba-batch-prefill": Case("mamba", "prefill", batch=8, tried_as="mamba-prefill"),
    "mamba-decode-8k": Case("mamba", "decode", 8192, tokens=32, tried_as="mamba-decode"),
    "mamba-batch-decode-2k": Case("mamba", "decode", 2048, batch=8, tokens=32,
                                  tried_as="mamba-batch-decode"),
}


def half_cache(cases):
    """Those with keys and values, beside llama.cpp's default cache. A Mamba's memory is f32."""
    return {f"{name}-f16": replace(case, cache="f16",
                                   tried_as=case.tried_as and f"{case.tried_as}-f16")
            for name, case in cases.items() if case.model == "smollm2"}


REPORTED = Part(
    cases=MORE | half_cache(GOALS.cases | MORE), rounds=5, tries=1,
    depths={"f32": [0, 8192, 32768], "bf16": [0, 8192, 32768, LONG]}, batches={},
    starts={"plain": "smollm2-plain", "bmojo-f32": "bmojo", "bmojo-bf16": "bmojo-bf16"})


def parts(options):
    """What is asked for, the goals first."""
    def asked(name):
        return not options.only or any(name.startswith(only) for only in options.only)

    for part in (GOALS,) if options.goals else (GOALS, REPORTED):
        part = replace(part, rounds=min(options.rounds, part.rounds), cases={
            name: case for name, case in part.cases.items() if asked(name)})
        if asked("bmojo"):
            yield replace(part, depths={
                dtype: [depth for depth in depths if depth <= options.longest]
                for dtype, depths in part.depths.items()})
        else:
            yield replace(part, depths={}, batches={}, starts={})


def kinds(case):
    """(build, flash attention, mapped or read into huge pages, cache) of llama.cpp. A Mamba has
    neither attention nor cache."""
    flash = ["off", "on"] if case.model == "smollm2" else ["off"]
    return [(build, f, mmap, case.cache) for build in engine_peers.BUILDS for f in flash
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
