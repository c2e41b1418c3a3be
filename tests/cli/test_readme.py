"""The tour of README.md, pasted into a shell in a fresh copy of the project: every command ends
well and prints what the README shows."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The one command that takes minutes. Its text is followed by --steps 2; all others run as they are.
RECIPE = "bmojo train --preset"


def read_tour(text):
    """[(command, what the README shows of its output or None)]: `sh` blocks hold commands, a `text`
    block what the last of them prints."""
    tour = text[text.index("\n## A tour\n"):]
    tour = tour[:tour.index("\n## ", 1)]
    steps = []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", tour, re.MULTILINE | re.DOTALL):
        if kind == "sh":
            steps += [(command, None) for command in re.split(r"(?<!\\)\n", block.rstrip("\n"))]
        else:
            assert kind == "text" and steps[-1][1] is None, block
            steps[-1] = (steps[-1][0], block)
    return steps


def pattern(shown):
    """… stands for any text in a line, and for any lines where it stands alone."""
    lines = []
    for line in shown.splitlines():
        part = ".*".join(map(re.escape, line.split("…")))
        lines.append(r"(?:.*\n)*" if line == "…" else part + r"\n")
    return "".join(lines)


def test_what_elisions_stand_for():
    assert re.fullmatch(pattern("a …, b\n…\nend\n"), "a 12, b\nx\ny\nend\n")
    assert not re.fullmatch(pattern("a …\nend\n"), "a 12\nx\nend\n")
    assert not re.fullmatch(pattern("a.\n"), "ab\n")


@pytest.fixture(scope="module")
def clone(bmojo, tmp_path_factory):
    """The project as somebody has it who has just built it."""
    folder = tmp_path_factory.mktemp("clone") / "bmojo"
    shutil.copytree(ROOT, folder, ignore=lambda path, names: (
        {".git", ".venv", "build"} & set(names) if Path(path) == ROOT else {"__pycache__"}))
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/bin").symlink_to(bmojo.folder.resolve())
    return folder


def test_the_tour_runs_and_prints_what_is_shown(clone, tmp_path):
    steps = read_tour((clone / "README.md").read_text())
    # Minutes of training are cut to two steps; everything else is as it stands there.
    commands = [re.sub(r" --steps \d+ ", " --steps 2 ", command) if command.startswith(RECIPE)
                else command for command, _ in steps]
    assert sum(" --steps 2 " in command for command in commands) == 1
    # One shell for all: the tour sets PATH and changes its folder.
    script = "".join(f"{{ {command}\n}} >{tmp_path}/{i}.out 2>{tmp_path}/{i}.err\n"
                     f"echo $? >{tmp_path}/{i}.code\n" for i, command in enumerate(commands))
    subprocess.run(["bash", "-o", "pipefail", "-c", script], stdin=subprocess.DEVNULL, cwd=clone,
                   check=True)
    for i, (command, shown) in enumerate(steps):
        out, err, code = ((tmp_path / f"{i}.{part}").read_text(errors="replace")
                          for part in ("out", "err", "code"))
        assert code == "0\n", f"{command}\n{err}"
        assert shown is None or re.fullmatch(pattern(shown), out), f"{command}\n{out}\nnot\n{shown}"


def test_links_lead_somewhere():
    """Between the pages, and to their headings."""
    def anchors(page):
        headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    assert len(pages) >= 9
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if link.startswith("https://"):
                continue
            name, _, anchor = link.partition("#")
            target = page if not name else page.parent / name
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.name}: {link}"
