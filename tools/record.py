"""What a result is of (the commit, what differs from it, a digest of the sources), and how it is
kept."""

import hashlib
import json
import os
import subprocess

from measure import ROOT, machine

# What a fault of mutants.py is tried on. Pages and results are left out: some tests read them, but
# none of those that are to notice a fault.
WATCHED = (".", ":!docs", ":!results", ":!*.md")


def git(*words):
    command = ["git", "-C", ROOT, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def head():
    return git("rev-parse", "--short=12", "HEAD").strip()


def changes(watched=WATCHED):
    """The watched files that are not as committed, new ones among them."""
    lines = git("status", "--porcelain", "--untracked-files=all", "--", *watched).splitlines()
    return [line[3:] for line in lines]


def names():
    """The watched files, but those that git ignores."""
    listed = git("ls-files", "-co", "--exclude-standard", "-z", "--", *WATCHED).split("\0")
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def digest(chosen):
    whole = hashlib.sha256()
    for name in chosen:
        whole.update(name.encode() + b"\0")
        whole.update(hashlib.sha256((ROOT / name).read_bytes()).digest())
    return whole.hexdigest()[:16]


def some(changed):
    """Names some of the files, for a message."""
    return ", ".join(changed[:3]) + (" …" if changed[3:] else "")


def store(path, command, outcomes, **facts):
    """As of this commit and machine; whole or not at all; a line an outcome."""
    facts = {"command": command, "commit": head(), "machine": machine(), **facts}
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in outcomes)
    part = path.with_name(path.name + ".part")
    part.write_text(f'{json.dumps(facts)[:-1]}, "outcomes": [\n{lines}\n]}}\n')
    os.replace(part, path)
