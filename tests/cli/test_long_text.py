"""`make long-text`: how a novel is cut, what is gone on with, how long it takes and what is shown;
with a tiny model from end to end."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import long_text  # noqa: E402
from long_text import FULL, Cell, Failed, Mistake, Text  # noqa: E402


def test_no_torch_is_loaded():
    assert "torch" not in sys.modules and "matplotlib" not in sys.modules


# --- parts ---------------------------------------------------------------------------------------


def test_a_text_is_cut_at_the_limit():
    calls = []

    def count(words):  # a token a pair of characters, and the end
        calls.append(words)
        return (len(words) + 1) // 2 + 1

    words = "abcdefghij" * 100
    assert long_text.beginning(words, 11, count) == words[:20]
    assert len(calls) < 15
    assert long_text.beginning(words, 501, count) == words
    assert long_text.beginning(words, 500, count) == words[:998]


def speed(seconds_a_token, **more):
    return {"read_per_second": 1 / seconds_a_token, "written_per_second": 7.25, "memory_bytes": 2_340_000,
            "peak_rss_bytes": 1_000_000_000, "commit": "abc", "seconds": 1.0, **more}


def test_time_is_foretold_by_what_was_measured():
    def a_token(sees):
        return 0.01 + 1e-5 * sees

    rows = {Cell("speed", FULL, 0): speed(a_token(256))}
    assert long_text.expected(Cell("speed", FULL, 1000), rows) is None
    rows[Cell("speed", 512, 4096)] = {"failed": "no memory"}
    assert long_text.expected(Cell("speed", FULL, 1000), rows) is None
    rows[Cell("speed", FULL, 2048)] = speed(a_token(2304))
    for cell in (Cell("speed", FULL, 5000), Cell("speed", 700, 5000), Cell("speed", 700, 100)):
        tokens = range(cell.tokens + long_text.PROMPT)
        whole = sum(a_token(min(t, cell.window or math.inf)) for t in tokens)
        assert long_text.expected(cell, rows) == pytest.approx(whole, rel=1e-3)
    text = long_text.expected(Cell("text", FULL, 5512, "x"), rows)
    assert text == pytest.approx(long_text.HEAD * long_text.expected(Cell("speed", FULL, 5000), rows))


def test_no_time_is_negative():
    rows = {Cell("speed", FULL, 0): speed(0.02), Cell("speed", FULL, 2048): speed(0.01)}  # noise
    assert long_text.expected(Cell("speed", FULL, 8192), rows) > 0


@pytest.mark.parametrize("seconds, said", [(5, "under a minute"), (40, "about 1 min"), (3540, "about 59 min"),
                                           (3600, "about 1 h 0 min"), (9000, "about 2 h 30 min")])
def test_times_are_for_people(seconds, said):
    assert long_text.lasting(seconds) == said


def text_row(*losses):
    """Positions 0 … 127, 128 … 255, 256 … 511, …: a token for each position."""
    places = [(0, 128)] + [(128 << i, 256 << i) for i in range(len(losses) - 1)]
    return {"loss": 0, "bits_per_byte": 1, "commit": "abc", "by_position": [
        {"from": low, "to": high, "loss": loss, "tokens": high - low}
        for (low, high), loss in zip(places, losses, strict=True)]}


FACTS = {"machine": "a machine", "setting": {"model": "m", "parameters": 1234567, "types": ["BF16"],
                                             "prompt": 512, "written": 64, "threads": 2}}


def cells_of_table(text, start):
    lines = text.split(start)[1].split("\n\n|", 1)[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in ("|" + line if i == 0 else line)[1:-1].split("|")]
            for i, line in enumerate(lines) if i != 1]


def test_perplexities_are_of_the_mean_of_a_position():
    rows = {Cell("text", FULL, 512, "a b 1"): text_row(math.log(2), math.log(8), math.log(3)),
            Cell("text", 64, 512, "a b 1"): text_row(math.log(2), math.log(8), math.log(30_000)),
            Cell("text", FULL, 512, "c 2"): text_row(math.log(50), math.log(50), math.log(12)),
            Cell("text", 64, 512, "c 2"): text_row(math.log(50), math.log(50), math.log(30_000)),
            Cell("text", FULL, 512, "d 3"): text_row(9, 9, 9),  # the window has not read it
            Cell("text", 64, 512, "d 3"): {"failed": "no memory", "commit": "abc"}}
    page = long_text.page(FACTS, rows)
    assert "Of a b (512 tokens), c (512 tokens)." in page
    head, *found = cells_of_table(page, "## Perplexity by position")
    assert head == ["position", "tokens", "full attention", "window 64"]
    # √(4 · 50), the geometric mean; √(3 · 12).
    assert found[0] == ["0 to 255", "512", f"{200 ** 0.5:.2f}", f"{200 ** 0.5:.2f}"]
    assert found[1] == ["256 to 511", "512", "6.00", "30,000"]
    assert found[2] == ["all", "1,024", f"{(200 ** 0.5 * 6) ** 0.5:.2f}", f"{(200 ** 0.5 * 30_000) ** 0.5:.2f}"]


def test_speeds_are_listed_by_depth():
    rows = {Cell("speed", 512, 65536): speed(0.001), Cell("speed", 2048, 0): speed(0.002),
            Cell("speed", FULL, 65536): {"failed": "stopped", "commit": "abd"},
            Cell("speed", FULL, 0): speed(0.004)}
    page = long_text.page(FACTS, rows)
    assert "No text has been read yet." in page
    assert "**Warning: cells come from 2 commits; compare with care.**" in page
    _, *found = cells_of_table(page, "## Memory and speed")
    assert found == [["0", "full attention", "2.3 MB", "1,000.0 MB", "250.0", "7.2"],
                     ["0", "window 2,048", "2.3 MB", "1,000.0 MB", "500.0", "7.2"],
                     ["65,536", "full attention", "failed: stopped", "", "", ""],
                     ["65,536", "window 512", "2.3 MB", "1,000.0 MB", "1,000.0", "7.2"]]


class Programs:
    """Answers at once; what fails, fails once."""

    def __init__(self, *failing):
        self.failing, self.asked = set(failing), []

    def speed(self, cell):
        self.asked.append(cell)
        if cell in self.failing:
            self.failing.remove(cell)
            raise Failed("no memory")
        return speed(0.001)

    def text(self, cell, words):
        self.asked.append(cell)
        assert words == "words"
        return text_row(1)


def test_what_was_measured_is_kept_and_what_failed_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(long_text, "commit", lambda: "abc")
    texts = [Text("a 1", "words", 40)]
    options = type("Options", (), {"windows": [8], "depths": [64, 0]})
    cells = list(long_text.cells_of(options, texts))
    assert cells == [Cell("speed", FULL, 0), Cell("speed", 8, 0), Cell("speed", FULL, 64), Cell("speed", 8, 64),
                     Cell("text", 8, 40, "a 1"), Cell("text", FULL, 40, "a 1")]
    path, setting = tmp_path / "x.json", {"model": "m"}

    def measure(programs):
        return long_text.measure_all(programs, cells, texts, long_text.load_own(path, setting),
                                     lambda rows: long_text.keep(path, setting, rows))

    first = Programs(cells[2])
    assert measure(first) == 1 and first.asked == cells
    again = Programs()
    assert measure(again) == 0 and again.asked == [cells[2]]
    assert measure(nothing := Programs()) == 0 and nothing.asked == []
    assert {*long_text.load(path)[1]} == {*cells}
    with pytest.raises(Mistake, match="must hold results of this machine, model and number of threads"):
        long_text.load_own(path, {"model": "other"})
    monkeypatch.setattr(long_text, "machine", lambda: "another")
    with pytest.raises(Mistake, match="remove it or name another --out"):
        long_text.load_own(path, setting)


# --- from end to end -----------------------------------------------------------------------------

SIZES = dict(vocab_size=257, hidden_size=16, num_layers=2, num_heads=4, num_kv_heads=2, head_size=4,
             mlp_size=24)
ROW = 2 * 2 * 4 * 4  # bytes of a token's key and value in a layer: 2 heads of 4 numbers, f32


@pytest.fixture
def tiny(bmojo, tmp_path):
    """Runs the tool on a Transformer of bytes and a short text."""
    sets = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]
    bmojo("init", "--preset", "transformer-tiny", *sets, "--out", tmp_path / "model")
    (tmp_path / "a novel.txt").write_text("Es war einmal. Ünd dann? " * 40)

    def run(*flags, code=0):
        command = [sys.executable, ROOT / "tools/long_text.py", "--bin", bmojo.folder, "--model",
                   tmp_path / "model", "--text", tmp_path / "a novel.txt", "--out", tmp_path / "results",
                   "--threads", "1", *map(str, flags)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done

    return run


def test_a_tiny_model_from_end_to_end(bmojo, tiny, tmp_path):
    flags = ["--tokens", 600, "--windows", "64,16", "--depths", "0,100"]
    done = tiny(*flags)
    assert "long-text: 1 of 9: full attention, 0 tokens deep\n" in done.stderr
    assert "long-text: 9 of 9: full attention, a novel, 600 tokens; under a minute, all that is left: under " \
           "a minute\n" in done.stderr
    out = tmp_path / "results"
    assert (out / "long-text.md").read_text() == done.stdout
    assert (out / "long-text.png").read_bytes().startswith(b"\x89PNG")
    facts, rows = long_text.load(out / "long-text.json")
    assert facts["command"] == "make long-text" and facts["setting"]["threads"] == 1 and len(rows) == 9
    for window in (FULL, 64, 16):
        for depth in (0, 100):
            row = rows[Cell("speed", window, depth)]
            assert row["memory_bytes"] == 2 * ROW * (window or depth + long_text.PROMPT)
            assert min(row["read_per_second"], row["written_per_second"]) > 0
            assert row["peak_rss_bytes"] > 1e6
    check_losses(bmojo, rows, tmp_path)
    assert tiny("--draw").stdout == done.stdout
    more = tiny(*flags[:-1], "0,100,200").stderr
    assert "10 of 12: full attention, 200 tokens deep; under a minute" in more and "9 of 12" not in more
    again = long_text.load(out / "long-text.json")[1]
    assert len(again) == 12 and {cell: again[cell] for cell in rows} == rows


def check_losses(bmojo, rows, folder):
    """Of the beginning of the text, as `score` has them, by position."""
    text = (folder / "a novel.txt").read_bytes()[:599]  # and the token that ends it
    ids = [*text, 256]
    (folder / "ids").write_text(json.dumps({"ids": ids}))
    for (kind, window, tokens, _), row in rows.items():
        if kind == "text":
            told = json.loads(bmojo("score", "--model", folder / "model", "--set", f"window={window}", "--ids",
                                    folder / "ids"))["logprobs"]
            assert tokens == len(ids) and sum(each["tokens"] for each in row["by_position"]) == 599
            for each in row["by_position"]:
                own = told[each["from"] + 1:each["to"] + 1]
                assert each["loss"] == pytest.approx(-sum(own) / len(own), rel=1e-6)
    long = [row["loss"] for cell, row in rows.items() if cell.kind == "text"]
    assert len({*long}) == 3  # each window reads another text


def test_mistakes_are_one_line(tiny, tmp_path):
    def said(*flags):
        done = tiny("--tokens", 60, "--depths", "0", *flags, code=2)
        assert done.stderr.splitlines()[-1].count(": ") >= 1
        return done.stderr.splitlines()[-1]

    assert said("--windows", "0,8") == "long-text: --windows: must be above 0, got 0; full attention is always measured"
    assert said("--windows", "8,x").endswith("must be different whole numbers like 512,2048, got '8,x'")
    assert said("--windows", "8,8").endswith("must be different whole numbers like 512,2048, got '8,8'")
    assert said("--tokens", "1") == "long-text: --tokens: must be 2 or more, got 1"
    assert said("--text", tmp_path / "none").startswith("long-text: --text: must be a text in UTF-8, got ")
    assert said("--draw").endswith("long-text.json: must hold results, got none")


def test_without_a_novel_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(long_text, "DATA", tmp_path)
    with pytest.raises(Mistake, match="--text: must name a novel, got none, .*; BMOJO_DATA names"):
        long_text.novels(None)
    (tmp_path / "books/valid").mkdir(parents=True)
    for name, size in (("a", 5), ("b", 9), ("c", 7)):
        (tmp_path / f"books/valid/{name}.txt").write_text(size * "x")
    assert long_text.novels(None) == [tmp_path / "books/valid/b.txt"]
    assert long_text.novels([Path("mine")]) == [Path("mine")]


def test_the_page_says_whether_it_was_run():
    facts, rows = long_text.load(ROOT / "results/long-text.json")
    windows = 1 + len(long_text.WINDOWS)
    whole = len(rows) >= windows * (len(long_text.DEPTHS) + 1)  # and not stopped in the middle
    page = (ROOT / "docs/evaluation.md").read_text()
    section = page.split("## Long text, with and without a window\n")[1].split("\n## ")[0]
    assert ("Not yet run" in section) != whole
    if whole:
        assert (ROOT / "results/long-text.md").read_text() == long_text.page(facts, rows) + "\n"
        assert not [cell for cell, row in rows.items() if "failed" in row]
