#!/usr/bin/env python3
"""clang-tidy over the sources that need no torch. `tools/tidy.py [BUILD]` reads
BUILD/compile_commands.json; a file whose inputs have not changed since it was clean is skipped."""

import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent.resolve()
PROCESSES = 2
TIDY = "clang-tidy-19"


def torch_sources():
    cmake = (ROOT / "CMakeLists.txt").read_text()
    program = re.search(r"add_executable\(bmojo-torch\s+([^)]*)\)", cmake)
    return {Path(source).name for source in program[1].split()} if program else set()


def sources(build):
    """(file, compile command) of what clang-tidy reads; torch's headers would take minutes."""
    skipped = torch_sources()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        folder = path.parent
        rooms = {ROOT / "src/bmojo" / name for name in ("base", "data", "library", "model")}
        if folder in rooms or (folder == ROOT / "src/bmojo/cli" and path.name not in skipped):
            yield path, entry.get("command", "")


def hash_of(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def shared_inputs():
    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    return [version, (ROOT / ".clang-tidy").read_bytes()]


def project_headers(path, seen):
    """The project's own headers that `path` includes, directly or through others."""
    for name in re.findall(r'^#include [<"](bmojo/[^>"]+)[>"]', path.read_text(), re.MULTILINE):
        for header in (ROOT / "src" / name, ROOT / "include" / name):
            if header not in seen and header.exists():
                seen.add(header)
                project_headers(header, seen)
    return seen


def tidy(path, build):
    command = [TIDY, "--quiet", "-p", str(build), str(path)]
    result = subprocess.run(command, capture_output=True, text=True)
    # Its count of suppressed warnings goes to stderr; a compile error goes to stdout.
    return result.returncode == 0, result.stdout or result.stderr


def main():
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
    cache = ROOT / "build/tidy"
    cache.mkdir(parents=True, exist_ok=True)
    shared = shared_inputs()
    todo = {}
    for path, command in sources(build):
        headers = sorted(project_headers(path, set()))
        inputs = [header.read_bytes() for header in [path, *headers]]
        stamp = cache / hash_of(str(path).encode(), command.encode(), *shared, *inputs)
        if not stamp.exists():
            todo[path] = stamp
    failed = False
    with ThreadPoolExecutor(PROCESSES) as pool:
        results = pool.map(lambda path: tidy(path, build), todo)
        for (path, stamp), (clean, text) in zip(todo.items(), results):
            if clean:
                stamp.touch()
            else:
                failed = True
                print(text.rstrip() or f"{path}: {TIDY} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
