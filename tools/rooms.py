#!/usr/bin/env python3
"""Keeps the rooms of src/bmojo apart: includes and CMake links go along the arrows only, torch stays
in nn/, train/ and in the files of bmojo-torch, and the public header in include/ sees the standard
library alone. What a room declares lies in the namespace of its name. Prints file:line for each
fault; exits 1 on any."""

import re
import sys
from pathlib import Path

ARROWS = {
    "base": set(),
    "kernels": {"base"},
    "model": {"base"},
    "memory": {"model", "kernels", "base"},
    "data": {"base"},
    "eval": {"data", "model", "kernels", "base"},
    "infer": {"eval", "memory", "kernels", "model", "base"},
    "library": {"infer", "eval", "kernels", "data", "model", "base"},
    "realization": set(),
    "nn": {"kernels", "memory", "eval", "model", "base"},
    "train": {"nn", "kernels", "memory", "eval", "data", "model", "base"},
    "cli": {"kernels", "memory", "eval", "infer", "model", "base", "data", "realization", "nn", "train"},
}
TORCH_ROOMS = {"nn", "train"}
PUBLIC = "bmojo/bmojo.h"  # in include/; the room `library` is what lies behind it
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
NAMESPACE = re.compile(r"^namespace (bmojo(?:::\w+)*) \{")
ROOM = re.compile(r"^\s*room\((\w+)(?:\s+LINKS\s+([^)]*))?\)", re.MULTILINE)
TORCH_PROGRAM = re.compile(r"add_executable\(bmojo-torch\s+([^)]*)\)")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def torch_free(root, cmake):
    """The cli files that must not see torch: the sources outside bmojo-torch and their headers."""
    program = TORCH_PROGRAM.search(cmake)
    torch = {Path(source).name for source in program[1].split()} if program else set()
    todo = [path for path in (root / "src/bmojo/cli").glob("*.cpp") if path.name not in torch]
    reached = set()
    while todo:
        path = todo.pop()
        if path in reached or not path.exists():
            continue
        reached.add(path)
        found = map(INCLUDE.match, path.read_text().splitlines())
        todo += [root / "src" / each[1] for each in found if each and "bmojo/cli/" in each[1]]
    return reached


def check_includes(root, without_torch):
    source = root / "src"
    for path in sorted(source.rglob("*")):
        if path.suffix not in {".cpp", ".h"}:
            continue
        room = path.relative_to(source / "bmojo").parts[0]
        sees_torch = room in TORCH_ROOMS or (room == "cli" and path not in without_torch)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not (include := INCLUDE.match(line)):
                continue
            where, target = f"{path.relative_to(root)}:{number}", include[1]
            if TORCH_HEADER.match(target) and not sees_torch:
                yield f"{where}: {target} must stay in nn/, train/ and bmojo-torch"
            if not target.startswith("bmojo/"):
                continue
            if target == PUBLIC:
                if room != "library":
                    yield f"{where}: {target} is for users and for library/"
                continue
            other = target.split("/")[1]
            if room not in ARROWS:
                yield f"{where}: room {room} has no arrows; add them to tools/rooms.py"
            elif other != room and other not in ARROWS[room]:
                yield f"{where}: {room} must not include {target}"
            elif other in TORCH_ROOMS and not sees_torch:
                yield f"{where}: {target} brings torch, which must stay in bmojo-torch"


def check_namespaces(root):
    """What a room declares lies in the namespace of its name; the library is its users' namespace."""
    for path in sorted((root / "src/bmojo").rglob("*")):
        if path.suffix not in {".cpp", ".h"}:
            continue
        room = path.relative_to(root / "src/bmojo").parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            opened = NAMESPACE.match(line)
            if opened and room != "library" and not f"{opened[1]}::".startswith(f"bmojo::{room}::"):
                yield (f"{path.relative_to(root)}:{number}: namespace must be bmojo::{room}, got "
                       f"{opened[1]}")


def check_public(root):
    for path in sorted((root / "include").rglob("*")):
        for number, line in enumerate(path.read_text().splitlines() if path.is_file() else [], 1):
            include = INCLUDE.match(line)
            if include and not re.fullmatch(r"[a-z_]+", include[1]):
                yield f"{path.relative_to(root)}:{number}: {include[1]} is not of the C++ library"


def check_links(root, cmake):
    rooms = {}
    for found in ROOM.finditer(cmake):
        where = f"CMakeLists.txt:{line_of(cmake, found.start())}"
        name, links = found[1], (found[2] or "").split()
        rooms[name] = {link.removeprefix("bmojo_") for link in links if link.startswith("bmojo_")}
        for other in sorted(rooms[name] - ARROWS.get(name, set())):
            yield f"{where}: {name} must not link {other}"
        if any("torch" in link.lower() for link in links) and name not in TORCH_ROOMS:
            yield f"{where}: {name} must not link torch"
    for folder in sorted((root / "src" / "bmojo").iterdir()):
        # cli has its own lines: two programs over one library.
        if folder.is_dir() and folder.name != "cli" and folder.name not in rooms:
            yield f"CMakeLists.txt:1: src/bmojo/{folder.name} has no room() line"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    cmake = (root / "CMakeLists.txt").read_text()
    faults = [*check_links(root, cmake), *check_includes(root, torch_free(root, cmake)),
              *check_namespaces(root), *check_public(root)]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
