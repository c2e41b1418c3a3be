"""What ours is measured against, in Python on torch. Each command prints JSON.

    peers.py limits           sgemm and read bandwidth of this machine
    peers.py train NAME       a training step of a public model: width 512, vocabulary 4,096
    peers.py kernels          for each line of bmojo-kernels on stdin, the same by torch itself
    peers.py compiled         the part of `kernels` that torch.compile does
"""

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.nn.functional as F
from measure import (EIDETIC, HEAD, STATES, TAPS, VOCABULARY, WIDTH, WINDOW, linear_layers,
                     parameters)


def status_bytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


def best_of(repeat, work, warm_ups=2):
    """Seconds."""
    best = float("inf")
    for i in range(-warm_ups, repeat):
        start = time.perf_counter()
        work()
        if i >= 0:
            best = min(best, time.perf_counter() - start)
    return best


# limits

def limits(sizes=(1024, 2048, 4096), gibibytes=1.0):
    sgemm = 0.0
    for n in sizes:
        a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
        seconds = best_of(max(3, 20 * 1024**3 // n**3), lambda: torch.mm(a, b, out=out))
        sgemm = max(sgemm, 2 * n**3 / seconds)
    x = torch.ones(int(gibibytes * 2**28))
    # Two ways to read it once; which one is nearer to the memory's speed differs by machine.
    seconds = min(best_of(5, lambda: x.sum()), best_of(5, lambda: torch.dot(x, x)))
    return {"sgemm": sgemm, "bandwidth": x.nbytes / seconds, "threads": torch.get_num_threads()}


# train

def mistral(sliding):
    from transformers import MistralConfig, MistralForCausalLM

    model = MistralForCausalLM(MistralConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=1984, num_hidden_layers=4,
        num_attention_heads=WIDTH // HEAD, num_key_value_heads=2, head_dim=HEAD,
        sliding_window=WINDOW if sliding else None, max_position_embeddings=1 << 16,
        tie_word_embeddings=True, attn_implementation="sdpa"))
    return list(model.parameters()), lambda ids: model(ids, use_cache=False).logits


def mambapy():
    from mambapy.mamba import Mamba, MambaConfig, RMSNorm

    body = Mamba(MambaConfig(d_model=WIDTH, n_layers=8, d_state=STATES, d_conv=TAPS, dt_rank=32))
    table, norm = torch.nn.Embedding(VOCABULARY, WIDTH), RMSNorm(WIDTH)
    parameters = [*body.parameters(), *table.parameters(), *norm.parameters()]
    return parameters, lambda ids: norm(body(table(ids))) @ table.weight.T


def transformers_mamba():
    from transformers import MambaConfig, MambaForCausalLM

    model = MambaForCausalLM(MambaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, state_size=STATES, num_hidden_layers=8, expand=2,
        conv_kernel=TAPS, time_step_rank=32, tie_word_embeddings=True))
    return list(model.parameters()), lambda ids: model(ids, use_cache=False).logits


# Of each: the modules it needs, how it is made.
MISTRAL = ["transformers.models.mistral.modeling_mistral"]
MODELS = {
    "mistral": (MISTRAL, lambda: mistral(sliding=False)),
    "mistral-sliding": (MISTRAL, lambda: mistral(sliding=True)),
    "mambapy": (["mambapy.mamba"], mambapy),
    "transformers-mamba": (["transformers.models.mamba.modeling_mamba", "mambapy.pscan"],
                           transformers_mamba),
}
COMPILED = "-compiled"  # behind a name: the same under torch.compile
LINEARS = "bmojo-linears"  # what no model of this shape on torch can be faster than


def train_linears(length, batch, repeat, warm_ups):
    """Every linear layer of our B'MOJO, forward and backward, and nothing else."""
    before = status_bytes("VmRSS")
    shapes = [*linear_layers("bmojo"), (WIDTH, VOCABULARY)]
    inputs = {n: torch.randn(batch, length, n, requires_grad=True) for n in {i for i, _ in shapes}}
    grads = {n: torch.randn(batch, length, n) for n in {o for _, o in shapes}}
    weights = [torch.randn(o, i, requires_grad=True) for i, o in shapes]

    def step():
        for (i, o), weight in zip(shapes, weights):
            torch.autograd.grad(F.linear(inputs[i], weight), (inputs[i], weight), grads[o])

    return {"phase": "train", "length": length, "batch": batch,
            "seconds_per_step": best_of(repeat, step, warm_ups),
            "peak_rss_bytes": status_bytes("VmHWM") - before, "parameters": parameters("bmojo")[1],
            "threads": torch.get_num_threads()}


def train(name, length, batch, repeat, warm_ups):
    if name == LINEARS:
        return train_linears(length, batch, repeat, warm_ups)
    compiled = name.endswith(COMPILED)
    if compiled:
        importlib.import_module("torch._inductor.compile_fx")  # the compiler is not the model's
    modules, make = MODELS[name.removesuffix(COMPILED)]
    for module in modules:
        importlib.import_module(module)  # memory, nor is the library

    torch.manual_seed(0)
    before = status_bytes("VmRSS")
    weights, logits = make()

    def loss(inputs, targets):
        return F.cross_entropy(logits(inputs).flatten(0, 1), targets.flatten())

    if compiled:
        loss = torch.compile(loss)
    ids = torch.randint(VOCABULARY, (batch, length + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step():
        for weight in weights:
            weight.grad = None
        loss(inputs, targets).backward()

    best_of(0, step, warm_ups)
    if compiled:
        forget_peak()  # what compiling took is not what training takes
    seconds = best_of(repeat, step, warm_ups=0)
    return {"phase": "train", "length": length, "batch": batch, "seconds_per_step": seconds,
            "peak_rss_bytes": status_bytes("VmHWM") - before,
            "parameters": sum(weight.numel() for weight in weights), "threads": torch.get_num_threads()}


def forget_peak():
    try:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    except OSError:
        pass  # not allowed here: the peak then includes the compiler


# kernels: from the shapes of a case to torch's ways of computing it, as (label, function, inputs)

def leaf(shape, scale=1.0):
    return (torch.randn(shape) * scale).requires_grad_(True)


def scan_peers(shapes, name):
    """torch has no selective scan: the public composition is mambapy's, which starts from 0."""
    from mambapy.pscan import pscan

    def scan(x, dt, z, B, C, A, D, bias):
        dt = F.softplus(dt + bias)
        decay = torch.exp(dt.unsqueeze(-1) * A)
        h = pscan(decay, dt.unsqueeze(-1) * B.unsqueeze(2) * x.unsqueeze(-1))
        return ((h @ C.unsqueeze(-1)).squeeze(3) + D * x) * F.silu(z)

    inputs = [leaf(shape) for shape in shapes[:8]]
    with torch.no_grad():
        inputs[5].copy_(-torch.arange(1.0, shapes[5][1] + 1).expand(shapes[5]))
        inputs[7].sub_(3)  # steps of the size that models begin with
    yield "mambapy pscan", scan, inputs


def added(visible):
    """As SDPA adds it to the scores; of booleans it makes this at every call."""
    return torch.zeros(visible.shape).masked_fill(~visible, -float("inf"))


def blocks_of(block, window):
    """Windowed attention as one batch of SDPA: `block` queries with the keys they may see."""
    @functools.cache
    def mask(count):
        key, query = torch.arange(window + block) - window, torch.arange(block)[:, None]
        visible = (key <= query) & (query - key < window)
        return added(visible & (key + block * torch.arange(count)[:, None, None] >= 0)).unsqueeze(1)

    def attention(q, k, v):
        length = q.size(2)
        count = -(-length // block)
        behind = count * block - length

        def cut(x):  # [1, G, L, d] to [count, G, window + block, d]
            x = F.pad(x, (0, 0, window, behind)).unfold(2, window + block, block)
            return x[0].permute(1, 0, 3, 2)

        blocks = F.pad(q, (0, 0, 0, behind))[0].unflatten(1, (count, block)).transpose(0, 1)
        y = F.scaled_dot_product_attention(blocks, cut(k), cut(v), attn_mask=mask(count),
                                           enable_gqa=True)
        return y.transpose(0, 1).flatten(1, 2)[None, :, :length]

    return attention


def attention_peers(shapes, name):
    """Queries [T, H, d], then rows of keys and values [R, 2, G, d]. Visible are the last WINDOW
    keys, or all in the `full` cases; torch has no other memories to attend to."""
    (length, heads, head), groups = shapes[0], shapes[1][2]
    window = length if name.startswith("full") else WINDOW
    q = leaf((1, heads, length, head))
    k, v = leaf((1, groups, length, head)), leaf((1, groups, length, head))
    t = torch.arange(length)
    mask = added((t[:, None] >= t) & (t[:, None] - t < window))
    ways = {"causal": {"is_causal": True}} if window == length else {}
    for way, words in (ways | {"mask": {"attn_mask": mask}}).items():
        yield (f"SDPA, {way}", lambda q, k, v, words=words: F.scaled_dot_product_attention(
            q, k, v, enable_gqa=True, **words), [q, k, v])
        # The same with keys and values repeated per head, which reaches other code inside torch.
        yield (f"SDPA, {way}, repeated", lambda q, k, v, words=words:
               F.scaled_dot_product_attention(
                   q, k.repeat_interleave(heads // groups, 1),
                   v.repeat_interleave(heads // groups, 1), **words), [q, k, v])
    if window < length:
        for block in (window // 4, window // 2, window):
            yield f"SDPA, blocks of {block}", blocks_of(block, window), [q, k, v]
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    blocks = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < window), None, None, length,
                               length, device="cpu")
    flex = torch.compile(flex_attention)
    yield ("flex_attention", lambda q, k, v: flex(q, k, v, block_mask=blocks, enable_gqa=True),
           [q, k, v])


def norm_peers(shapes, name):
    """With two inputs of a width, their sum is normalised and handed on as well."""
    width = shapes[0][-1]
    wide = [leaf(shape) for shape in shapes if len(shape) > 1 and shape[-1] == width][:2]

    def norm(gain, *wide):
        x = wide[0] + wide[1] if len(wide) > 1 else wide[0]
        y = F.rms_norm(x, (width,), gain, 1e-5)
        return (y, x) if len(wide) > 1 else y

    yield "rms_norm", norm, [leaf((width,)), *wide]


def swiglu_peers(shapes, name):
    yield "silu(g) * u", lambda g, u: F.silu(g) * u, [leaf(shapes[0]), leaf(shapes[1])]


def linears_peers(shapes, name):
    """Maps of one input: each by itself, or all at once and cut up."""
    inputs = [leaf(shape) for shape in shapes]
    widths = [shape[0] for shape in shapes[1:]]
    yield "linear, each", lambda x, *w: tuple(F.linear(x, each) for each in w), inputs
    if len(widths) > 1:
        yield ("linear, joined", lambda x, *w: F.linear(x, torch.cat(w)).split(widths, -1), inputs)


def conv_peers(shapes, name):
    (batch, length, channels) = shapes[0]
    taps = next(s[-1] for s in shapes[1:] if s[0] == channels and len(s) > 1)
    inputs = [leaf(shapes[0]), leaf((channels, 1, taps)), leaf((channels,))]

    def conv(x, weight, bias):
        y = F.conv1d(x.transpose(1, 2), weight, bias, padding=taps - 1, groups=channels)
        return F.silu(y[..., :length]).transpose(1, 2)

    def shifts(x, weight, bias):
        past = F.pad(x, (0, 0, taps - 1, 0))
        y = bias
        for i in range(taps):
            y = y + weight[:, 0, i] * past[:, i:i + length]
        return F.silu(y)

    yield "conv1d, silu", conv, inputs
    yield "shifts, silu", shifts, inputs


def innovation_peers(shapes, name):
    """√mean((y_t - Σ c_i y_{t-i})²) over channels, and the tail of the next call."""
    (_, length, channels), taps = shapes[0], shapes[1][1]
    c = [0.5 * 0.7**i for i in range(taps)]
    weight = torch.tensor([-x for x in reversed(c)] + [1.0]).expand(channels, 1, -1).contiguous()

    def shifts(y, tail):
        past = torch.cat((tail, y), 1)
        error = y
        for i in range(1, taps + 1):
            error = error - c[i - 1] * past[:, taps - i:taps - i + length]
        return error.square().mean(-1).sqrt(), past[:, length:]

    def conv(y, tail):
        past = torch.cat((tail, y), 1)
        error = F.conv1d(past.transpose(1, 2), weight, groups=channels)
        return error.square().mean(1).sqrt(), past[:, length:]

    inputs = [leaf(shapes[0]), leaf(shapes[1])]
    yield "shifts", shifts, inputs
    yield "conv1d", conv, inputs


def selection_peers(shapes, name):
    """The EIDETIC largest of all so far, after each chunk of WINDOW tokens; in no order, where ours
    are in that of time."""
    length = shapes[0][1]
    ends = [min(start + WINDOW, length) for start in range(0, length, WINDOW)]
    places = torch.arange(length).expand(shapes[0])

    def whole(scores):
        return tuple(scores[:, :end].topk(min(EIDETIC, end), sorted=False).indices for end in ends)

    def running(scores):
        held, at, kept, start = scores[:, :0], places[:, :0], [], 0
        for end in ends:
            held = torch.cat((held, scores[:, start:end]), 1)
            at = torch.cat((at, places[:, start:end]), 1)
            held, best = held.topk(min(EIDETIC, end), sorted=False)
            at = at.gather(1, best)
            kept.append(at)
            start = end
        return tuple(kept)

    scores = torch.rand(shapes[0])
    yield "topk of all", whole, [scores]
    yield "topk of the kept and a chunk", running, [scores]


def cross_entropy_peers(shapes, name):
    """Every position is scored; x comes first, the weights second."""
    x, weight = leaf(shapes[0]), leaf(shapes[1], shapes[1][-1] ** -0.5)
    targets = torch.randint(shapes[1][0], (x.numel() // shapes[0][-1],))
    yield ("linear, cross_entropy",
           lambda x, w: F.cross_entropy(F.linear(x, w).flatten(0, -2), targets), [x, weight])
    # torch's own makes the gradients in the forward pass, as ours does; with what it finds best in
    # chunks, with none, and with chunks of 512.
    for way, words in (("", {}), (", whole", {"chunking_method": None}),
                       (", chunks of 512", {"chunking_method": None, "batch_chunk_size": 512})):
        def fused(x, w, words=words):
            return F.linear_cross_entropy(x.flatten(0, -2), w, targets,
                                          options=torch.nn.LinearCrossEntropyOptions(**words))

        yield "linear_cross_entropy" + way, fused, [x, weight]


def rotary_peers(shapes, name):
    """cos and sin are given: models compute them once a step."""
    (_, length, _, head) = shape = next(s for s in shapes if len(s) == 4)
    angle = torch.arange(length)[:, None, None] * 1e4 ** (-torch.arange(head // 2) / (head // 2))
    cos, sin = (f(angle).repeat(1, 1, 2) for f in (torch.cos, torch.sin))

    def rotate(x):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    yield "composed", rotate, [leaf(shape)]


KERNELS = {
    "selective_scan": scan_peers,
    "memory_attention": attention_peers,
    "rms_norm": norm_peers,
    "add_rms_norm": norm_peers,
    "swiglu": swiglu_peers,
    "linears": linears_peers,
    "causal_conv1d_silu": conv_peers,
    "innovation": innovation_peers,
    "selection": selection_peers,
    "rotary": rotary_peers,
    "linear_cross_entropy": cross_entropy_peers,
}
# Whose peers are timed under torch.compile as well: what it can fuse.
ELEMENTWISE = {"rms_norm", "add_rms_norm", "swiglu", "causal_conv1d_silu", "innovation", "rotary"}

SC_LEVEL3_CACHE_SIZE = 194  # glibc's; Python has no name for it
PATIENCE = 4.0  # seconds a kernel's peer may be repeated for
COMPILE_SECONDS = 150.0  # that compiling may take, one kernel at most a fifth of it


@functools.cache
def larger_than_caches():
    """As much as in bmojo-kernels: twice the last cache, of which not every system tells the size,
    and some the sum of all."""
    size = min(max(2 * os.sysconf(SC_LEVEL3_CACHE_SIZE), 1 << 26), 1 << 29)
    return torch.zeros(size // 4)


def flush_caches():
    """As bmojo-kernels does before each timed pass."""
    larger_than_caches().add_(1)


def reason(error):
    lines = [line for line in str(error).strip().splitlines() if not line.endswith("raised:")]
    return (lines or [type(error).__name__])[0][:160]


def best_passes(repeat, inputs, *passes):
    """Seconds of each pass, given what the one before it returned, first the inputs. Two warm-ups;
    after three repeats, only as long as PATIENCE has not passed."""
    best, begin = [float("inf")] * len(passes), time.perf_counter()
    for i in range(-2, repeat):
        if i >= 3 and time.perf_counter() - begin > PATIENCE:
            break
        result = inputs
        for which, work in enumerate(passes):
            if i >= 0:
                flush_caches()
            start = time.perf_counter()
            result = work(result)
            if i >= 0:
                best[which] = min(best[which], time.perf_counter() - start)
    return dict(zip(("forward", "backward"), best))


def time_kernel(label, function, inputs, repeat):
    """Seconds forward and backward, the loss not timed; or why torch does not offer one of them."""
    def forward(inputs):
        return function(*inputs)

    if not any(x.requires_grad for x in inputs):
        return {"label": label, **best_passes(repeat, inputs, forward)}
    try:
        outputs = forward(inputs)
        weights = [torch.randn_like(y) for y in (outputs if type(outputs) is tuple else [outputs])]
        return {"label": label, **best_passes(
            repeat, inputs, forward, lambda y: torch.autograd.grad(y, inputs, weights))}
    except Exception as error:
        refused = {"label": label, "error": "no backward: " + reason(error)}
    try:
        return refused | best_passes(repeat, [x.detach() for x in inputs], forward)
    except Exception as error:
        return refused | {"error": reason(error)}


def peers_of(case):
    return KERNELS.get(case["kernel"], lambda shapes, name: [])(case["inputs"], case["name"])


READY = "ready"
STARTING_SECONDS = 120.0  # of a compiling process: Python and torch


def end_group(leader):
    """With the C++ compiler that it may have started, which on SIGTERM leaves no half-written file
    in the cache."""
    for end in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, end)
        time.sleep(1 if end == signal.SIGTERM else 0)


def compiled(repeat):
    """For every case and the number of one of its peers: a line when it is compiled, a line when it
    is timed."""
    importlib.import_module("torch._inductor.config").compile_threads = 1  # ends when told to
    parent = os.getppid()

    def end_with_parent():
        while os.getppid() == parent:
            time.sleep(0.5)
        end_group(os.getpid())

    if os.getpgrp() == os.getpid():
        threading.Thread(target=end_with_parent, daemon=True).start()
    print(READY, flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        label, function, inputs = next(itertools.islice(peers_of(case), case["peer"], None))
        torch._dynamo.reset()  # else the second shape is compiled for every shape
        function = torch.compile(function, dynamic=False)
        try:
            outputs = function(*inputs)
            outputs = outputs if type(outputs) is tuple else (outputs,)
            torch.autograd.grad(outputs, inputs, [torch.ones_like(y) for y in outputs])
        except Exception as error:
            print(json.dumps({"case": case, "error": reason(error)}), flush=True)
            continue
        print(json.dumps({"case": case}), flush=True)
        print(json.dumps({"case": case} | time_kernel(label, function, inputs, repeat)), flush=True)


class Compiler:
    """torch.compile, with a limit to the time it may take for all kernels. It has a process of its
    own: nothing less can be ended in the middle and leave torch whole."""

    def __init__(self, seconds, repeat):
        self.left, self.most, self.repeat = seconds, seconds / 5, repeat
        self.worker = None
        self.broken = None  # why it never starts

    def close(self):
        if self.worker is not None:
            end_group(self.worker.pid)
            self.worker.communicate()
            self.worker = None

    def command(self):
        return [sys.executable, __file__, "compiled", "--repeat", str(self.repeat)]

    def start(self):
        if self.broken:
            raise ValueError(self.broken)
        self.worker = subprocess.Popen(self.command(), stdin=subprocess.PIPE, text=True,
                                       stdout=subprocess.PIPE, start_new_session=True)
        if not self.speaks_within(STARTING_SECONDS) or self.worker.stdout.readline() != READY + "\n":
            self.broken = "it did not start"  # nor will it the next time
            raise ValueError(self.broken)

    def speaks_within(self, seconds):
        return bool(select.select([self.worker.stdout], [], [], seconds)[0])

    def answer(self, case):
        line = self.worker.stdout.readline()
        if not line:
            raise ValueError("its process is gone")
        found = json.loads(line)
        if not isinstance(found, dict) or found.pop("case", None) != case:
            raise ValueError("it spoke of another kernel")
        return found

    def result(self, case):
        if self.worker is None:
            self.start()
        seconds, start = min(self.left, self.most), time.perf_counter()
        self.worker.stdin.write(json.dumps(case) + "\n")
        self.worker.stdin.flush()
        in_time = self.speaks_within(seconds)
        self.left -= time.perf_counter() - start
        if not in_time:
            self.close()
            return {"error": f"not compiled in {seconds:.2g} s"}
        return self.answer(case) or self.answer(case)

    def time_kernel(self, case, peer, label):
        label += ", compiled"
        if self.left <= 0:
            return {"label": label, "error": "the time for compiling is over"}
        try:
            return self.result(case | {"peer": peer}) | {"label": label}
        except (OSError, ValueError) as error:
            self.close()
            return {"label": label, "error": "torch.compile failed: " + reason(error)}


def kernels(repeat, compile_seconds):
    with contextlib.closing(Compiler(compile_seconds, repeat)) as compiler:
        for line in sys.stdin:
            case = json.loads(line)
            found = []
            try:
                for number, peer in enumerate(peers_of(case)):
                    found.append(time_kernel(*peer, repeat))
                    if case["kernel"] in ELEMENTWISE:
                        found.append(compiler.time_kernel(case, number, peer[0]))
            except Exception as error:  # one peer that cannot be made leaves the others
                found.append({"label": "torch", "error": reason(error)})
            yield {"kernel": case["kernel"], "name": case["name"], "peers": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("limits")
    verb.add_argument("--small", action="store_true", help="only try it")
    verb = verbs.add_parser("train")
    verb.add_argument("name", choices=[LINEARS, *(n + c for n in MODELS for c in ("", COMPILED))])
    verb.add_argument("--length", type=int, default=2048)
    verb.add_argument("--batch", type=int, default=1)
    verb.add_argument("--repeat", type=int, default=3)
    verb.add_argument("--warm-ups", type=int, default=2)
    verb = verbs.add_parser("kernels")
    verb.add_argument("--repeat", type=int, default=5)
    verb.add_argument("--compile-seconds", type=float, default=COMPILE_SECONDS)
    verb = verbs.add_parser("compiled")
    verb.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    if options.verb == "limits":
        print(json.dumps(limits((256,), 0.01) if options.small else limits()))
    elif options.verb == "train":
        print(json.dumps(train(options.name, options.length, options.batch, options.repeat,
                               options.warm_ups)))
    elif options.verb == "compiled":
        compiled(options.repeat)
    else:
        for result in kernels(options.repeat, options.compile_seconds):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
