"""`bmojo explain --realization` and its picture: the first layer is computed here once more, token
by token in double, from the weights alone."""

import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL, listing, read_safetensors
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import explain  # noqa: E402
import explain_realization  # noqa: E402

WINDOW, FADING = 8, 3  # of the small model
MEMORIES = ["eidetic", "fading", "window"]
SERIES = ["outputs", "innovations", "order_one"]
IDS = [(7 * i * i + 3 * i + i // 9) % 40 for i in range(150)]
REFUSED = 31.410432844230918  # the test of Ljung and Box: χ² with 20 degrees exceeds it in 5 %


@pytest.fixture(scope="module")
def model(bmojo, tmp_path_factory):
    """Weights far from fresh ones: attention is not uniform, and steps differ from token to token."""
    folder = tmp_path_factory.mktemp("explain") / "model"
    bmojo("init", *SMALL, "--seed", 3, "--out", folder)
    path = folder / "model.safetensors"
    metadata, tensors = read_safetensors(path)
    raw, draw = bytearray(path.read_bytes()), np.random.default_rng(1)
    end = len(raw)
    for name, (_, shape, data) in reversed(list(tensors.items())):
        old = np.frombuffer(data, "f4").reshape(shape)
        new = draw.standard_normal(shape) * (1.5 / np.sqrt(shape[-1])) if len(shape) > 1 else old
        if name.endswith("A_log"):
            new = draw.standard_normal(shape)
        raw[end - len(data):end] = new.astype("f4").tobytes()
        end -= len(data)
    path.write_bytes(raw)
    return folder


def flat(ids):
    return ",".join(map(str, ids))


@pytest.fixture(scope="module")
def told(bmojo, model):
    return bmojo.json("explain", "--model", model, "--ids", flat(IDS), "--realization")


# --- the first layer, by its definition ----------------------------------------------------------


def silu(x):
    return x / (1 + np.exp(-x))


class Layer:
    """Layer 0 of docs/model.md over IDS."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        _, tensors = read_safetensors(folder / "model.safetensors")
        self.weights = {name: np.frombuffer(raw, "f4").reshape(shape).astype("f8")
                        for name, (_, shape, raw) in tensors.items()}
        self.u = self.norm(self.weights["embedding.weight"][IDS], "norm")
        self.poles, self.y = self.ssm()

    def get(self, leaf):
        return self.weights["layers.0." + leaf]

    def norm(self, x, leaf):
        scale = np.sqrt((x**2).mean(-1, keepdims=True) + self.config["norm_eps"])
        return x / scale * self.get(leaf + ".weight")

    def linear(self, x, leaf):
        return x @ self.get(leaf + ".weight").T

    def ssm(self):
        R, N = self.config["ssm_dt_rank"], self.config["ssm_state_size"]
        x, z = np.split(self.linear(self.u, "ssm.in_proj"), 2, axis=1)
        taps = self.get("ssm.conv1d.weight")[:, 0, ::-1]
        past = [np.concatenate([np.zeros((i, x.shape[1])), x[:len(x) - i]])
                for i in range(taps.shape[1])]
        x = silu(sum(tap * each for tap, each in zip(taps.T, past)) + self.get("ssm.conv1d.bias"))
        dt, B, C = np.split(self.linear(x, "ssm.x_proj"), [R, R + N], axis=1)
        delta = np.log1p(np.exp(self.linear(dt, "ssm.dt_proj") + self.get("ssm.dt_proj.bias")))
        poles = np.exp(-delta[:, :, None] * np.exp(self.get("ssm.A_log")))
        h, read = np.zeros(poles.shape[1:]), []
        for t in range(len(x)):
            h = poles[t] * h + np.outer(delta[t] * x[t], B[t])
            read.append((h @ C[t] + self.get("ssm.D") * x[t]) * silu(z[t]))
        return poles, self.linear(np.array(read), "ssm.out_proj")

    def innovations(self):
        """y_t less the mean of the four before it, where there are four."""
        return np.array([self.y[t] - self.y[t - 4:t].mean(0) for t in range(4, len(self.y))])

    def keys(self, t, sets):
        """(memory, key, value, bias) of all that token t sees."""
        s = t // WINDOW * WINDOW
        fading = self.norm(self.y, "attention.fading_norm")
        padded = np.concatenate([np.zeros((4, self.y.shape[1])), self.y])
        error = self.y - sum(padded[4 - i:len(padded) - i] for i in (1, 2, 3, 4)) / 4
        surprise = np.log(np.sqrt((error**2).mean(1)) + 1e-6)
        held = next(each["positions"] for each in sets if each["from"] == s)
        for p in held:
            if p <= t - WINDOW:
                bias = surprise[p] - surprise[held].mean()
                yield "eidetic", self.u[p], self.get("attention.innovation_bias").item() * bias
        for p in range(max(0, s - FADING), s):
            yield "fading", fading[p], 0
        for p in range(max(0, t - WINDOW + 1), t + 1):
            yield "window", self.u[p], 0

    def attend(self, t, sets):
        """{memory: (weight, [D] what it adds to the output)}, all heads."""
        c = self.config
        H, G, d = c["num_heads"], c["num_kv_heads"], c["head_size"]
        memory, source, bias = zip(*self.keys(t, sets))
        k = self.linear(np.array(source), "attention.k_proj").reshape(-1, G, d)
        v = self.linear(np.array(source), "attention.v_proj").reshape(-1, G, d)
        q = self.linear(self.u[t], "attention.q_proj").reshape(H, d)
        head = np.arange(H) * G // H
        scores = np.einsum("hd,nhd->hn", q, k[:, head]) / np.sqrt(d) + np.array(bias)
        weight = np.exp(scores - scores.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        parts = {}
        for name in MEMORIES:
            own = np.array([each == name for each in memory])
            mixed = np.einsum("hn,nhd->hd", weight * own, v[:, head])
            parts[name] = ((weight * own).sum(1).mean(),
                           self.linear(mixed.flatten(), "attention.o_proj"))
        return parts


@pytest.fixture(scope="module")
def layer(model):
    return Layer(model)


# --- what is told --------------------------------------------------------------------------------


def test_its_shape(told):
    assert list(told) == ["task", "ids", "memory", "layers"]
    assert [(each["layer"], each["kind"]) for each in told["layers"]] == [(0, "bmojo"),
                                                                          (1, "bmojo")]
    for each in told["layers"]:
        assert list(each) == ["layer", "kind", "time_constants", "memories", "whiteness"]


def test_time_constants_are_those_of_the_poles(told, layer):
    found, tau = told["layers"][0]["time_constants"], np.sort(-1 / np.log(layer.poles).flatten())
    assert found["poles"] == tau.size == 150 * 10 * 3
    # What lies outside counts in the first and the last bin.
    counts, _ = np.histogram(np.clip(tau, found["edges"][0], found["edges"][-1]), found["edges"])
    # fp32 may put one on the other side of an edge.
    assert np.abs(counts - found["counts"]).sum() <= 4 and sum(found["counts"]) == tau.size
    assert tau[-1] > found["edges"][-1]  # so that this is seen
    assert found["least"] == pytest.approx(tau[0], rel=1e-4)
    assert found["most"] == pytest.approx(tau[-1], rel=1e-4)
    for name, share in (("tenth", 0.1), ("median", 0.5), ("nine_tenths", 0.9)):
        assert found[name] == pytest.approx(tau[int(np.ceil(share * tau.size)) - 1], rel=0.013)
    assert found["below_one"] == pytest.approx((tau < 1).mean(), abs=1e-3)
    assert found["beyond_window"] == pytest.approx((tau > WINDOW).mean(), abs=1e-3)
    assert 0.01 < found["beyond_window"] < 0.99 and 0.01 < found["below_one"] < 0.99


def test_the_parts_of_the_memories_are_the_output(bmojo, model, told, layer):
    sets = bmojo.json("explain", "--model", model, "--ids", flat(IDS))["layers"][0]["sets"]
    weight, along, energy = dict.fromkeys(MEMORIES, 0), dict.fromkeys(MEMORIES, 0), 0
    for t in range(len(IDS)):
        parts = layer.attend(t, sets)
        output = sum(part for _, part in parts.values())
        energy += output @ output
        for name, (share, part) in parts.items():
            weight[name] += share / len(IDS)
            along[name] += part @ output
    found = told["layers"][0]["memories"]
    for name in MEMORIES:
        assert found["weight"][name] == pytest.approx(weight[name], abs=1e-5)
        assert found["output"][name] == pytest.approx(along[name] / energy, abs=1e-5)
        assert weight[name] > 0.02  # so that each is seen at all
    for each in told["layers"]:
        found = each["memories"]
        assert sum(found["weight"].values()) == pytest.approx(1, abs=1e-5)
        assert sum(found["output"].values()) == pytest.approx(1, abs=1e-5)
        assert 0 <= found["error"] < 1e-5  # fp32


def ljung_box(series):
    """[n, channels] -> the statistic of each, and its autocorrelations [20, channels]."""
    n, x = len(series), series - series.mean(0)
    rho = np.array([(x[k:] * x[:n - k]).sum(0) / (x**2).sum(0) for k in range(1, 21)])
    return n * (n + 2) * (rho**2 / (n - np.arange(1, 21))[:, None]).sum(0), rho


def test_whiteness_is_that_of_outputs_and_innovations(told, layer):
    found, y = told["layers"][0]["whiteness"], layer.y[4:]
    x = y - y.mean(0)
    best = x[1:] - (x[1:] * x[:-1]).sum(0) / (x[:-1]**2).sum(0) * x[:-1]
    assert (found["channels"], found["tokens"]) == (12, 146)
    for name, series in zip(SERIES, (y, layer.innovations(), best)):
        statistic, rho = ljung_box(series)
        assert found[name]["white"] == (statistic <= REFUSED).sum()
        assert found[name]["statistic"] == pytest.approx(np.sort(statistic)[6], rel=1e-4)
        assert found[name]["autocorrelation"] == pytest.approx(np.sqrt((rho**2).mean(1)), rel=1e-3)
        variance = ((series - series.mean(0))**2).sum() / (x**2).sum()
        assert found[name]["variance"] == pytest.approx(variance, rel=1e-4)
    assert found["outputs"]["variance"] == 1
    assert len({found[name]["statistic"] for name in SERIES}) == 3


def test_a_long_sequence_is_read_in_segments(bmojo, model):
    """2,048 tokens at a time: nothing is counted twice or lost."""
    task = "mqar:pairs=12,length=2100,vocab=40,gap=2000"
    told = bmojo.json("explain", "--model", model, "--task", task, "--realization")
    assert told["task"].startswith("mqar:") and len(told["targets"]) == 2100
    for each in told["layers"]:
        assert each["time_constants"]["poles"] == 2100 * 10 * 3
        assert sum(each["memories"]["weight"].values()) == pytest.approx(1, abs=1e-5)
        assert each["memories"]["error"] < 1e-5
        assert each["whiteness"]["tokens"] == 2096


@pytest.mark.parametrize("preset, parts", [
    ("bmojo-f", [(True, True)] * 4), ("hybrid", [(True, False), (False, True)] * 2)])
def test_models_without_eidetic_memory(bmojo, tmp_path, preset, parts):
    bmojo("init", "--preset", f"{preset}-tiny", "--set", "vocab_size=40", "--set", "num_layers=4",
          "--out", tmp_path / "m")
    flags = ["explain", "--model", tmp_path / "m", "--ids", flat(IDS), "--realization"]
    told = bmojo.json(*flags, "--out", tmp_path / "a.png")
    seen = [(each["time_constants"] is not None, each["memories"] is not None)
            for each in told["layers"]]
    assert seen == parts and (tmp_path / "a.png").exists()
    for each in told["layers"]:
        assert each["whiteness"] is None
        assert each["memories"] is None or each["memories"]["output"]["eidetic"] == 0
    assert "is it white?" not in bmojo(*flags)


# --- the table -----------------------------------------------------------------------------------


def digits(x):
    return f"{x:.3g}" if x < 1000 else f"{x:.0f}"


def test_the_table(bmojo, model, told):
    text = bmojo("explain", "--model", model, "--ids", flat(IDS), "--realization")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and lines[0] == "150 tokens, layer by layer"
    rows = [line.split() for line in lines]
    for each in told["layers"]:
        number, found = str(each["layer"]), each["time_constants"]
        head = [number, "bmojo"]
        assert [*head, f"{found['poles']:,}", *(digits(found[key]) for key in
                ("tenth", "median", "nine_tenths")), *f"{100 * found['below_one']:.1f} %".split(),
                *f"{100 * found['beyond_window']:.1f} %".split()] in rows
        found = each["memories"]
        shares = [found[key][name] for key in ("weight", "output") for name in MEMORIES]
        row = next(row for row in rows if row[:2] == head and row.count("%") == 6)
        assert row[2:-1] == [word for share in shares for word in f"{100 * share:.1f} %".split()]
        assert float(row[-1]) == pytest.approx(found["error"], rel=0.5)
        found = each["whiteness"]["innovations"]
        assert ["innovations", f"{found['white']}", "of", "12", digits(found["variance"]),
                digits(found["statistic"]), digits(found["autocorrelation"][0]),
                digits(found["autocorrelation"][3])] in rows


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags, says", [
    (["--ids", flat(IDS[:63])], "explain: --realization needs at least 64 tokens, got 63"),
    (["--ids", flat(IDS), "--layer", "0"],
     "explain: --layer cannot be given with --realization; it shows every layer"),
    ([], "explain: --task or --ids is needed, got neither"),
    (["--ids", flat(IDS), "--out", "a.pdf"], "explain: a.pdf: must end in .png"),
])
def test_mistakes(bmojo, model, tmp_path, flags, says):
    assert says in bmojo("explain", "--model", model, "--realization", *flags, code=2, cwd=tmp_path)
    assert listing(tmp_path) == []


@pytest.mark.parametrize("preset, kind", [("mamba", "ssm"), ("transformer", "attention")])
def test_models_that_lack_a_part_are_refused(bmojo, tmp_path, preset, kind):
    bmojo("init", "--preset", f"{preset}-tiny", "--set", "vocab_size=40", "--out", tmp_path / "m")
    message = bmojo("explain", "--model", tmp_path / "m", "--ids", flat(IDS), "--realization",
                    code=2)
    assert ("explain: --realization needs a model with an SSM and with attention, got layers "
            f"{kind}") in message


def test_weights_that_are_no_numbers(bmojo, model, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-4:] = b"\xff\xff\xff\x7f"  # NaN, in the last tensor of the file
    path.write_bytes(raw)
    message = bmojo("explain", "--model", tmp_path / "m", "--ids", flat(IDS), "--realization",
                    code=1)
    assert "explain: hidden states must be finite, got NaN or infinity" in message


def test_help_fits_80_columns(bmojo):
    text = bmojo("explain", "--help")
    assert max(map(len, text.splitlines())) <= 80 and text.isascii() and "--realization" in text


# --- pictures ------------------------------------------------------------------------------------


def pixels(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def count(picture, colour):
    wanted = [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
    return int((picture == wanted).all(-1).sum())


def test_a_picture(bmojo, model, told, tmp_path):
    out = tmp_path / "a.png"
    text = bmojo("explain", "--model", model, "--ids", flat(IDS), "--realization", "--out", out)
    assert text.endswith(f"\n\n{out}: every layer\n") and listing(tmp_path) == ["a.png"]
    picture = pixels(out)
    height = sum((explain_realization.TOP, explain_realization.HEIGHT, explain_realization.BOTTOM))
    assert picture.shape == (height, explain_realization.WIDTH, 3)
    for colour in (*explain.MEMORIES.values(), *explain_realization.colours_of(2)):
        assert count(picture, colour) > 100, colour
    again = bmojo.json("explain", "--model", model, "--ids", flat(IDS), "--realization", "--out",
                       out)
    assert again == told and np.array_equal(pixels(out), picture)


def test_many_layers_and_parts_that_are_no_numbers(monkeypatch, told, tmp_path):
    layers = [told["layers"][0] | {"layer": i} for i in range(12)]
    nothing = dict.fromkeys(MEMORIES)
    layers[3] = layers[3] | {"memories": {"weight": nothing, "output": nothing, "error": None}}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(told | {"layers": layers})))
    assert explain.main(["--out", str(tmp_path / "a.png"), "--realization"]) == 0
    assert pixels(tmp_path / "a.png").shape[1] == explain_realization.WIDTH
