"""A trained Transformer on long text, with its whole attention and with windows: `make long-text`.

SmolLM2 is read with the attention that it was trained with, and the same weights with a window (`--set
window=N`). Measured are the perplexity by position in a novel, and at several depths the memory of a
sequence, the peak memory of the process and the speed of reading and writing.

    tools/long_text.py --bin DIR [--text NOVEL.txt ...] [--windows 2048,512] [--tokens N] [--depths N,...]

An hour or more at full size: reading a long text with full attention takes most of it. What was measured is kept
in results/long-text.json after each step; the next start goes on with the rest, and tries again what
failed. Writes results/long-text.md and results/long-text.png."""

import argparse
import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import record
import smollm2
from measure import ROOT, Failed, commit, end_with_children, machine, run, run_json, table
from metrics import Mistake

DATA = Path(os.environ.get("BMOJO_DATA") or ROOT.parent / "shared/data")
FULL = 0  # the window of full attention, as in a config
WINDOWS, DEPTHS, TOKENS = [2048, 512], [0, 2048, 8192, 32768, 65536], 65536
PROMPT, WRITTEN = 512, 64  # tokens that are read and written at each depth
SHORT = 256  # positions below are one row: few tokens each
HEAD = 1.3  # time of a text whose every token is predicted, over that of reading it


def say(text):
    print(f"long-text: {text}", file=sys.stderr, flush=True)


class Text(NamedTuple):
    """The beginning of a novel."""
    name: str
    words: str
    tokens: int  # its end among them


class Cell(NamedTuple):
    """What one start of the program measures: speed behind `tokens`, or a text of as many."""
    kind: str  # "speed" or "text"
    window: int
    tokens: int
    text: str = ""  # name and digest

    def __str__(self):
        deep = f"{self.tokens:,} tokens deep"
        text = f"{name_of(self.text)}, {self.tokens:,} tokens"
        return f"{attention(self.window)}, {deep if self.kind == 'speed' else text}"


def name_of(text):
    return text.rpartition(" ")[0]


def attention(window):
    return f"window {window:,}" if window else "full attention"


def lasting(seconds):
    minutes = round(seconds / 60)
    if minutes < 1:
        return "under a minute"
    return f"about {minutes} min" if minutes < 60 else f"about {minutes // 60} h {minutes % 60} min"


# --- the texts -----------------------------------------------------------------------------------


def beginning(words, limit, count):
    """As much of a text as makes at most `limit` tokens; count(text) is their number."""
    if count(words) <= limit:
        return words
    low, high = 0, len(words)  # characters that are within the limit, and that are not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(words[:middle]) <= limit else (low, middle)
    return words[:low]


def tokenized(program, model, words, folder):
    """(number of tokens, folder of shards)."""
    files = [model / name for name in ("tokenizer.json", "tokenizer.model")]
    tokenizer = next((file for file in files if file.exists()), "bytes")
    shutil.rmtree(folder / "shards", ignore_errors=True)
    (folder / "text").write_text(words, encoding="utf-8")
    facts = run_json([str(program), "tokenize", "--tokenizer", str(tokenizer), "--out",
                      str(folder / "shards"), str(folder / "text"), "--json", "--quiet"])
    return facts["tokens"], folder / "shards"


def novels(paths):
    """Those that are named, or the longest of the data's."""
    if paths:
        return paths
    found = sorted((DATA / "books/valid").glob("*.txt"), key=lambda path: path.stat().st_size)
    if not found:
        raise Mistake(f"--text: must name a novel, got none, and there is none in {DATA}/books/valid; "
                      "BMOJO_DATA names the data's folder")
    return found[-1:]


def read_texts(program, model, options, folder):
    for path in novels(options.text):
        try:
            words = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Mistake(f"--text: must be a text in UTF-8, got {path}: {error}") from None

        def count(some):
            return tokenized(program, model, some, folder)[0] if some else 0

        whole, words = len(words), beginning(words, options.tokens, count)
        tokens, digest = count(words), hashlib.sha256(words.encode()).hexdigest()[:16]
        if tokens < options.tokens and len(words) == whole:
            say(f"{path.name} has {tokens:,} tokens of {options.tokens:,}")
        yield Text(f"{path.stem} {digest}", words, tokens)


# --- measuring -----------------------------------------------------------------------------------


class Programs:
    """The programs and the model that they run."""

    def __init__(self, options):
        self.program = options.bin / "bmojo"
        self.model = options.model or smollm2.checkpoint(self.program, say)
        self.threads = ["--threads", str(options.threads)] if options.threads else []

    def run(self, verb, window, *words):
        command = [str(self.program), verb, "--model", str(self.model), "--set", f"window={window}",
                   *map(str, words), *self.threads, "--json", "--quiet"]
        # As a user starts it: nothing is said to the allocator.
        return [json.loads(line) for line in run(command, tuned=False).splitlines()]

    def inspected(self, window):
        return run_json([str(self.program), "inspect", str(self.model), "--set", f"window={window}",
                         "--json"])

    def speed(self, cell):
        rows = {row["phase"]: row for row in self.run(
            "bench", cell.window, "--prompt", PROMPT, "--tokens", WRITTEN, "--depth", cell.tokens)}
        told = self.inspected(cell.window)
        # Without a limit a sequence grows with each token: as it is where writing begins.
        memory = told["memory_bytes"]["total"] + told["window_bytes_per_token"] * (cell.tokens + PROMPT)
        return {"memory_bytes": memory, "peak_rss_bytes": rows["decode"]["peak_rss_bytes"],
                "read_per_second": rows["prefill"]["tokens_per_second"],
                "written_per_second": rows["decode"]["tokens_per_second"]}

    def text(self, cell, words):
        with tempfile.TemporaryDirectory(prefix="bmojo-long-text-") as folder:
            _, shards = tokenized(self.program, self.model, words, Path(folder))
            told, = self.run("eval", cell.window, "--data", shards)
        return {name: told[name] for name in ("loss", "bits_per_byte", "by_position")}


def cells_of(options, texts):
    """The short ones first: they tell how long the others take."""
    windows = [FULL, *options.windows]
    yield from (Cell("speed", window, depth) for depth in sorted(options.depths) for window in windows)
    for text in texts:
        yield from (Cell("text", window, text.tokens, text.name) for window in reversed(windows))


def seen(window, position):
    """Tokens that a query sees, about."""
    return min(window or math.inf, position)


def pace(rows):
    """(a, b): reading a token that sees n tokens takes about a + b n seconds; None where too little
    was measured. Through what saw least and what saw most."""
    known = sorted((seen(cell.window, cell.tokens + PROMPT / 2), 1 / row["read_per_second"])
                   for cell, row in rows.items() if cell.kind == "speed" and "failed" not in row)
    if not known or known[0][0] == known[-1][0]:
        return None
    (least, fast), (most, slow) = known[0], known[-1]
    b = max(0.0, (slow - fast) / (most - least))
    return max(0.0, fast - b * least), b


def expected(cell, rows):
    """Seconds, or None."""
    found = pace(rows)
    if found is None:
        return None
    tokens = cell.tokens + (PROMPT if cell.kind == "speed" else 0)
    full = seen(cell.window, tokens)  # tokens until the window is full
    seconds = found[0] * tokens + found[1] * (full * full / 2 + full * (tokens - full))
    return seconds * (HEAD if cell.kind == "text" else 1)


def announce(cell, left, rows, at, count):
    known = [expected(each, rows) for each in left]
    when = "" if None in known else f"; {lasting(known[0])}, all that is left: {lasting(sum(known))}"
    say(f"{at} of {count}: {cell}{when}")


def measure_all(programs, cells, texts, rows, keep):
    """Into `rows`, kept after each cell; the number that failed."""
    words = {text.name: text.words for text in texts}
    left = [cell for cell in cells if cell not in rows or "failed" in rows[cell]]
    failures = 0
    for at, cell in enumerate(left):
        announce(cell, left[at:], rows, len(cells) - len(left) + at + 1, len(cells))
        start = time.monotonic()
        try:
            row = programs.speed(cell) if cell.kind == "speed" else programs.text(cell, words[cell.text])
        except Failed as failed:
            row, failures = {"failed": str(failed)}, failures + 1
            say(f"{cell}: {failed}")
        rows[cell] = row | {"seconds": round(time.monotonic() - start, 1), "commit": commit()}
        keep(rows)
    return failures


# --- what is kept --------------------------------------------------------------------------------


def setting_of(programs, options):
    """What all cells of a file have in common."""
    told = programs.inspected(FULL)
    return {"model": options.model.resolve().name if options.model else smollm2.SMOLLM2,
            "weights": [file["digest"] for file in told["files"]], "types": sorted(told["dtypes"]),
            "parameters": told["parameters"], "prompt": PROMPT, "written": WRITTEN,
            "threads": options.threads or os.cpu_count()}


def load(path):
    """(facts, {cell: row})."""
    if not path.exists():
        return None, {}
    facts = json.loads(path.read_text())
    rows = {Cell(*(row.pop(name) for name in Cell._fields)): row for row in facts.pop("outcomes")}
    return facts, rows


def load_own(path, setting):
    """The rows to go on with: of this machine and setting alone."""
    facts, rows = load(path)
    if facts and (facts["machine"], facts["setting"]) != (machine(), setting):
        raise Mistake(f"{path}: must hold results of this machine, model and number of threads, "
                      "got others; remove it or name another --out")
    return rows


def keep(path, setting, rows):
    outcomes = [cell._asdict() | row for cell, row in sorted(rows.items())]
    record.store(path, "make long-text", outcomes, setting=setting)


# --- what is shown -------------------------------------------------------------------------------


def windows_of(rows):
    """Full attention first, then the widest."""
    return sorted({cell.window for cell in rows}, key=lambda window: -(window or math.inf))


def by_position(rows):
    """{window: {first position: (nats, tokens)}} of the texts that every window has read."""
    texts = {cell: row for cell, row in rows.items() if cell.kind == "text" and "failed" not in row}
    read = defaultdict(set)
    for cell in texts:
        read[cell.window].add((cell.text, cell.tokens))
    common = set.intersection(*read.values()) if read else set()
    found = {window: defaultdict(lambda: (0.0, 0)) for window in read}
    for cell, row in texts.items():
        if (cell.text, cell.tokens) not in common:
            continue
        for each in row["by_position"]:
            first = each["from"] if each["from"] >= SHORT else 0
            nats, tokens = found[cell.window][first]
            found[cell.window][first] = nats + each["loss"] * each["tokens"], tokens + each["tokens"]
    return found, sorted(common)


def perplexity(nats, tokens):
    value = math.exp(min(nats / tokens, 700)) if tokens else math.nan
    return f"{value:.2f}" if value < 1000 else f"{value:,.0f}"


def text_table(rows):
    found, texts = by_position(rows)
    if not texts:
        return "No text has been read yet."
    windows = [window for window in windows_of(rows) if window in found]
    firsts = sorted(found[windows[0]])
    # Positions of a text are cut in two halves again and again.
    shown = [[f"{first:,} to {max(2 * first, SHORT) - 1:,}", f"{found[windows[0]][first][1]:,}",
              *(perplexity(*found[window][first]) for window in windows)] for first in firsts]
    totals = [[sum(part) for part in zip(*found[window].values())] for window in windows]
    shown.append(["all", f"{totals[0][1]:,}", *(perplexity(*total) for total in totals)])
    names = ", ".join(f"{name_of(text)} ({tokens:,} tokens)" for text, tokens in texts)
    return f"Of {names}.\n\n" + table(["position", "tokens", *map(attention, windows)], shown)


def speed_table(rows):
    order = windows_of(rows)
    cells = sorted((cell for cell in rows if cell.kind == "speed"),
                   key=lambda cell: (cell.tokens, order.index(cell.window)))
    shown = []
    for cell in cells:
        row = rows[cell]
        found = [f"failed: {row['failed']}", "", "", ""] if "failed" in row else [
            f"{row['memory_bytes'] / 1e6:,.1f} MB", f"{row['peak_rss_bytes'] / 1e6:,.1f} MB",
            f"{row['read_per_second']:,.1f}", f"{row['written_per_second']:,.1f}"]
        shown.append([f"{cell.tokens:,}", attention(cell.window), *found])
    return table(["tokens before", "attention", "memory of the sequence", "peak of the process",
                  "read a second", "written a second"], shown)


def page(facts, rows):
    setting = facts["setting"]
    commits = sorted({row["commit"] for row in rows.values()})
    lines = [f"`make long-text` at {', '.join(commits)} on {facts['machine']},",
             f"{setting['threads']} threads. Model: {setting['model']}, {setting['parameters']:,} "
             f"parameters, {', '.join(setting['types'])}."]
    if len(commits) > 1:
        lines.append(f"\n**Warning: cells come from {len(commits)} commits; compare with care.**")
    return "\n".join([
        *lines, "", "![Perplexity, memory and speed against length](long-text.png)", "",
        "## Perplexity by position", "", text_table(rows), "",
        "## Memory and speed", "",
        f"Behind the tokens before, {setting['prompt']} are read and then {setting['written']} written, "
        "once. The memory of\nthe sequence is as it stands where writing begins; the process also holds "
        "the weights.", "",
        speed_table(rows)])


def numbers(text):
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 0 or len({*found}) != len(found):
        raise argparse.ArgumentTypeError(f"must be different whole numbers like 512,2048, got '{text}'")
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin",
                        help="folder of the program")
    parser.add_argument("--text", type=Path, nargs="+", metavar="FILE",
                        help="novels; by default the longest of BMOJO_DATA's books/valid")
    parser.add_argument("--windows", type=numbers, default=WINDOWS, metavar="N,...")
    parser.add_argument("--depths", type=numbers, default=DEPTHS, metavar="N,...")
    parser.add_argument("--tokens", type=int, default=TOKENS, metavar="N", help="of each novel, at most")
    parser.add_argument("--model", type=Path, metavar="DIR", help="another checkpoint than SmolLM2")
    parser.add_argument("--threads", type=int, default=0, metavar="N")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the results")
    parser.add_argument("--draw", action="store_true", help="only table and figure")
    options = parser.parse_args()
    if FULL in options.windows:
        raise Mistake("--windows: must be above 0, got 0; full attention is always measured")
    if options.tokens < 2:
        raise Mistake(f"--tokens: must be 2 or more, got {options.tokens}")
    return options


def measured(options, path):
    """The number of cells that failed."""
    programs = Programs(options)
    setting = setting_of(programs, options)
    rows = load_own(path, setting)
    with tempfile.TemporaryDirectory(prefix="bmojo-long-text-") as folder:
        texts = list(read_texts(programs.program, programs.model, options, Path(folder)))
    cells = list(cells_of(options, texts))
    return measure_all(programs, cells, texts, rows, lambda rows: keep(path, setting, rows))


def main():
    options = parse()
    options.out.mkdir(exist_ok=True, parents=True)
    path = options.out / "long-text.json"
    failures = 0 if options.draw else measured(options, path)
    facts, rows = load(path)
    if not rows:
        raise Mistake(f"{path}: must hold results, got none")
    (options.out / "long-text.md").write_text(page(facts, rows) + "\n")
    print(page(facts, rows))
    from long_text_figure import draw  # matplotlib only now

    draw(rows, by_position(rows)[0], options.out / "long-text.png")
    if failures:
        sys.exit(f"long-text: {failures} failed; the next start tries them again")


if __name__ == "__main__":
    end_with_children()
    try:
        main()
    except Mistake as mistake:
        print(f"long-text: {mistake}", file=sys.stderr)
        sys.exit(2)
    except Failed as failed:
        sys.exit(f"long-text: {failed}")
    except KeyboardInterrupt:
        print("long-text: stopped; the next start goes on", file=sys.stderr)
        sys.exit(130)
