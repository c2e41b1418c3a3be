"""What make builds for each of its targets."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("target, programs", [
    ("demo", {"bmojo", "bmojo-torch"}), ("bench-full", {"bmojo", "bmojo-torch"}),
    ("bench-train", {"bmojo", "bmojo-torch"}),
    ("bench", {"bmojo", "bmojo-torch", "bmojo-kernels"}), ("lint", {"bmojo_version"}),
    ("mutants", set()), ("test", None), ("all", None)])
def test_what_make_builds(target, programs):
    """None: everything, which is cmake's default."""
    out = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True,
                         check=True).stdout
    builds = [line.split() for line in out.splitlines() if line.startswith("cmake --build")]
    if programs is None:
        assert builds == [["cmake", "--build", "--preset", "release"]]
    else:
        assert all("--target" in words for words in builds)
        named = {word for words in builds for word in words[words.index("--target") + 1:]}
        assert named == programs
