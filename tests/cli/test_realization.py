"""bmojo-realization, its figures, and that docs/realization.md says what it prints."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import realization  # noqa: E402

PAGE = (ROOT / "docs/realization.md").read_text()


@pytest.fixture(scope="module")
def printed(bmojo):
    def run(*words):
        return subprocess.run([bmojo.folder / "bmojo-realization", *words], capture_output=True,
                              text=True, check=True).stdout
    return run


def test_the_table_fits_a_terminal(printed):
    lines = printed().splitlines()
    assert max(map(len, lines)) <= 80 and not any(line.endswith("*") for line in lines)
    assert {line[0] for line in lines[1:] if line[0] != " "} == set("1234567")


def test_json_has_every_claim(printed):
    found = json.loads(printed("--json"))
    assert len(found["claims"]) == len(printed().splitlines()) - 1
    assert all(claim["holds"] for claim in found["claims"])


def columns(line):
    """(part and claim, measured, must be)"""
    return line[:54].rstrip(), line[54:64].strip(), line[66:].strip()


def same(shown, measured):
    """What rounding leaves differs from machine to machine, and so do tiny chances; there only the
    bound is promised, which the program checks."""
    return float(shown) == pytest.approx(float(measured), rel=0.02, abs=1e-9)


NOT_COMPARED = "N = 16, poles 0.90 … 0.99: error"  # nothing but rounding, made large


def test_the_page_shows_what_is_printed(printed):
    shown = "".join(re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)).splitlines()
    lines = printed().splitlines()[1:]
    assert len(shown) == len(lines)
    for ours, theirs in zip(map(columns, shown), map(columns, lines)):
        assert (ours[0], ours[2]) == (theirs[0], theirs[2])
        assert ours[0].endswith(NOT_COMPARED) or same(ours[1], theirs[1]), (ours, theirs)


def test_functions_named_on_the_page_are_where_it_says():
    checked = 0
    for paragraph in re.findall(r"^Code: (.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE):
        for names, path in re.findall(r"([^\[\]]*)\[\w+\.h\]\(\.\./(src/\S+?)\)", paragraph):
            for function in re.findall(r"`(\w+)`", names):
                assert re.search(rf"\b{function}\(", (ROOT / path).read_text()), (function, path)
                checked += 1
    assert checked >= 15


def test_figures_are_drawn(printed, tmp_path):
    found = json.loads(printed("--json"))
    paths = realization.draw(found, tmp_path)
    assert [path.name for path in paths] == re.findall(r"\((realization-\w+\.svg)\)", PAGE)
    for path in paths:
        assert path.stat().st_size > 5000 and (ROOT / "docs" / path.name).exists()
    again = tmp_path / "again"
    again.mkdir()
    for path, other in zip(paths, realization.draw(found, again)):
        assert path.read_bytes() == other.read_bytes()
