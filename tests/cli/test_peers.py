"""What ours is measured against: that it computes the same, how it is timed, and how compiling
ends. tools/peers.py runs in a process of its own, since it loads torch."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def python(code, *words, text="", **variables):
    result = subprocess.run([sys.executable, *(("-c", code) if code else (TOOLS / "peers.py",)),
                             *words], input=text, capture_output=True, text=True, cwd=TOOLS,
                            env={**os.environ, **variables})
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_peers_compute_what_ours_does():
    python("""
import torch, torch.nn.functional as F
import peers

def outputs(name, shapes):
    for label, function, inputs in peers.KERNELS[name](shapes, "a"):
        yield label, inputs, function(*inputs)

close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
found = list(outputs("innovation", [[2, 9, 5], [2, 3, 5]]))
assert [label for label, _, _ in found] == ["shifts", "conv1d"]
for label, (y, tail), (epsilon, after) in found:
    past = torch.cat((tail, y), 1)
    for b in range(2):
        for t in range(9):
            guess = sum(0.5 * 0.7 ** (i - 1) * past[b, 3 + t - i] for i in (1, 2, 3))
            close(epsilon[b, t], (y[b, t] - guess).square().mean().sqrt())
    close(after, y[:, 6:])

length = 2 * peers.WINDOW + 100
found = list(outputs("selection", [[2, length]]))
assert len(found) == 2
for label, (scores,), kept in found:
    assert len(kept) == 3
    for chunk, places in enumerate(kept):
        seen = scores[:, :min(length, (chunk + 1) * peers.WINDOW)]
        best = seen.argsort(1, descending=True)[:, :peers.EIDETIC]
        assert torch.equal(places.sort().values, best.sort().values), label

(_, (gain, x), y), = outputs("rms_norm", [[2, 3, 8], [8]])
close(y, gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())
(_, (gain, a, b), (y, x)), = outputs("add_rms_norm", [[2, 3, 8], [2, 3, 8], [8]])
close(x, a + b)
close(y, gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())

found = list(outputs("causal_conv1d_silu", [[2, 9, 6], [6, 1, 4], [6], [2, 3, 6]]))
assert len(found) == 2
for label, (x, weight, bias), y in found:
    for t in range(9):
        taps = bias + sum(weight[:, 0, 3 - i] * x[:, t - i] for i in range(4) if t >= i)
        close(y[:, t], taps * taps.sigmoid())

shapes = [[2, 9, 5]] * 3 + [[2, 9, 3]] * 2 + [[5, 3], [5], [5], [2, 5, 3]]
(_, (x, dt, z, B, C, A, D, bias), y), = outputs("selective_scan", shapes)
h = torch.zeros(2, 5, 3)
for t in range(9):
    step = F.softplus(dt[:, t] + bias)[..., None]
    h = (step * A).exp() * h + step * B[:, t, None] * x[:, t, :, None]
    out = (h * C[:, t, None]).sum(-1) + D * x[:, t]
    close(y[:, t], out * z[:, t] * z[:, t].sigmoid())

peers.WINDOW = 8
for name, length, labels in (("window_2k", 21, 5), ("full_2k", 21, 4)):
    tried = 0
    for label, function, (q, k, v) in peers.KERNELS["memory_attention"](
            [[length, 4, 6], [30, 2, 2, 6]], name):
        if label == "flex_attention":
            continue
        tried += 1
        y = function(q, k, v)
        for t in range(length):
            first = 0 if name == "full_2k" else max(0, t - 7)
            for head in range(4):
                keys, values = (x[0, head // 2, first:t + 1] for x in (k, v))
                weights = (keys @ q[0, head, t] / 6 ** 0.5).softmax(0)
                close(y[0, head, t], weights @ values)
    assert tried == labels, (name, tried)

for label, (gate, up), y in outputs("swiglu", [[2, 3, 5], [2, 3, 5]]):
    close(y, gate * gate.sigmoid() * up)
found = list(outputs("linears", [[2, 3, 5], [4, 5], [7, 5]]))
assert [label for label, *_ in found] == ["linear, each", "linear, joined"]
for label, (x, a, b), (y, z) in found:
    close(y, torch.einsum("bli,oi->blo", x, a))
    close(z, torch.einsum("bli,oi->blo", x, b))
for label, (x,), y in outputs("rotary", [[2, 7, 3, 6]]):
    turned = torch.view_as_complex(torch.stack(x.chunk(2, -1), -1)) * torch.polar(
        torch.ones(7, 1, 3), torch.arange(7.0)[:, None, None] * 1e4 ** (-torch.arange(3) / 3))
    close(y, torch.cat((turned.real, turned.imag), -1))

found = []
for label, function, (x, weight) in peers.KERNELS["linear_cross_entropy"]([[2, 700, 8], [30, 8]], "a"):
    loss = function(x, weight)
    found.append((label, loss, *torch.autograd.grad(loss, (x, weight))))
assert [label for label, *_ in found] == [
    "linear, cross_entropy", "linear_cross_entropy", "linear_cross_entropy, whole",
    "linear_cross_entropy, chunks of 512"]
# Each draws inputs once: the plain one is the formula, the others must equal it.
for label, *values in found[1:]:
    for value, plain in zip(values, found[0][1:]):
        close(value, plain)
""")


@pytest.mark.parametrize("name", ["mistral", "mambapy", "transformers-mamba"])
def test_a_peers_memory_is_without_its_library(name):
    """Modules that come with the model would be counted as the model's."""
    python(f"""
import sys, torch, peers
peers.WIDTH, peers.VOCABULARY, peers.HEAD = 128, 50, 64
peers.status_bytes = lambda field: loaded.append(len(sys.modules)) or 0
loaded = []
result = peers.train({name!r}, 16, 1, 1, 1)
assert loaded[0] == loaded[1], loaded
""")


def test_one_number_is_normed_without_a_sum():
    # sum() would begin with 0 + x: a pass over memory that is not the peer's.
    python("""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
import peers

class Adds(TorchDispatchMode):
    count = 0
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        large = any(isinstance(x, torch.Tensor) and x.numel() > 100 for x in args)
        self.count += large and op.overloadpacket is torch.ops.aten.add
        return op(*args, **(kwargs or {}))

for shapes, wanted in (([[40, 8], [8]], 0), ([[40, 8], [40, 8], [8]], 1)):
    (_, norm, inputs), = peers.norm_peers(shapes, "a")
    with Adds() as adds, torch.no_grad():
        norm(*inputs)
    assert adds.count == wanted, adds.count
""")


def test_caches_are_flushed_before_each_timed_pass():
    python("""
import torch
import peers

calls = []
peers.flush_caches = lambda: calls.append("flush")

class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        calls.append("forward")
        return 2 * x
    @staticmethod
    def backward(context, grad):
        calls.append("backward")
        return 2 * grad

found = peers.time_kernel("double", Double.apply, [torch.ones(3, requires_grad=True)], 2)
assert found.keys() == {"label", "forward", "backward"}, found
warm, timed = ["forward", "backward"], ["flush", "forward", "flush", "backward"]
assert calls == ["forward", *2 * warm, *2 * timed], calls
""")


def test_what_is_compiled_is_timed(tmp_path):
    case = {"kernel": "swiglu", "name": "a", "inputs": [[2, 8], [2, 8]]}
    line = python(None, "kernels", "--repeat", "1", "--compile-seconds", "3000",
                  text=json.dumps(case), TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    found = json.loads(line)["peers"]
    assert [peer["label"] for peer in found] == ["silu(g) * u", "silu(g) * u, compiled"]
    assert found[0].keys() == found[1].keys() == {"label", "forward", "backward"}


# A compiling process that runs another script; `found` asks it for a kernel.
FAKE_COMPILER = r"""
import sys
import peers

class Fake(peers.Compiler):
    def command(self):
        return [sys.executable, "-c", self.script]

def found(body, ready=peers.READY):
    fake.script = "\n".join([f"print('{ready}', flush=True)", "import json, sys",
                             "for line in sys.stdin:", " case = json.loads(line)", " " + body])
    return fake.time_kernel({"kernel": "k"}, 1, "a")

fake = Fake(600, 1)
say = "print(json.dumps(%s), flush=True)"
failed = "torch.compile failed: "
"""


def test_a_compiler_that_fails_is_said_and_another_started():
    python(FAKE_COMPILER + """
error = found("break")["error"]
assert error == failed + "its process is gone", error
for other in ("{'case': {'kernel': 'other', 'peer': 1}}", "3", "None"):
    error = found(say % other)["error"]
    assert error == failed + "it spoke of another kernel", error
assert found("print('no JSON', flush=True)")["error"].startswith(failed)
right = found(say % "{'case': case}" + "; " + say % "{'case': case, 'forward': 2.0}")
assert right == {"label": "a, compiled", "forward": 2.0}, right
refused = found(say % "{'case': case, 'error': 'no'}")
assert refused == right, "the same process goes on"
fake.close()
""")


def test_a_compiler_that_does_not_start_is_not_said_to_lack_time():
    python(FAKE_COMPILER + """
for _ in range(2):
    error = found("pass", ready="unready")["error"]
    assert error == failed + "it did not start", error
""")


def test_at_its_deadline_a_compiler_ends_with_what_it_started():
    start = time.monotonic()
    python("""
import peers

class Stuck(peers.Compiler):
    def command(self):
        return ["sh", "-c", f"echo {peers.READY}; sleep 600 & wait"]

stuck = Stuck(5, 1)
assert stuck.time_kernel({"kernel": "k"}, 1, "a")["error"] == "not compiled in 1 s"
""")
    # `sleep` has our standard error: while it lives, `python` waits.
    assert time.monotonic() - start < 300


def test_a_compiler_ends_with_its_parent():
    # The pipe that it reads from stays open here: only the parent's end can tell it.
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, 'peers.py', "
         "'compiled'], start_new_session=True)"], cwd=TOOLS,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    assert select.select([parent.stdout], [], [], 60)[0] and parent.stdout.read() == ""
    parent.communicate()


def test_compiling_has_a_deadline_and_its_end_is_printed():
    cases = [{"kernel": "swiglu", "name": "a", "inputs": [[2, 8], [2, 8]]},
             {"kernel": "rotary", "name": "a", "inputs": [[1, 5, 2, 4]]},
             {"kernel": "selection", "name": "a", "inputs": [[1, 100]]},
             {"kernel": "unheard_of", "name": "a", "inputs": []}]
    lines = python(None, "kernels", "--repeat", "1", "--compile-seconds", "1",
                   text="\n".join(map(json.dumps, cases)))
    swiglu, rotary, selection, other = [json.loads(line)["peers"] for line in lines.splitlines()]
    assert swiglu[0].keys() == rotary[0].keys() == {"label", "forward", "backward"}
    assert swiglu[1]["label"] == "silu(g) * u, compiled" and "forward" not in swiglu[1]
    assert swiglu[1]["error"].endswith("not compiled in 0.2 s")
    assert rotary[1]["error"].endswith("not compiled in 0.2 s")
    assert [peer.keys() for peer in selection] == 2 * [{"label", "forward"}]
    assert other == []
    lines = python(None, "kernels", "--repeat", "1", "--compile-seconds", "0",
                   text=json.dumps(cases[1]))
    assert json.loads(lines)["peers"][1] == {"label": "composed, compiled",
                                             "error": "the time for compiling is over"}
