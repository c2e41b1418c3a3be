"""`make engine` in a copy of the project without .venv, and with no Python on the PATH."""

import os
import shutil
import subprocess
from pathlib import Path

from conftest import SMALL, Bmojo

ROOT = Path(__file__).resolve().parents[2]


def copy_of_the_project(folder):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                            capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if not (ROOT / name).is_file() or name.startswith("results/"):
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def path_without_python(folder):
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*") if place else []:
            if "python" in program.name or program.name.startswith("pip"):
                continue
            if not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    assert shutil.which("python3", path=folder) is None
    return str(folder)


def test_make_engine_needs_no_python(bmojo, tmp_path):
    project, prefix = tmp_path / "project", tmp_path / "prefix"
    copy_of_the_project(project)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS"))}
    environment["PATH"] = path_without_python(tmp_path / "bin")
    made = subprocess.run(["make", "engine", f"PREFIX={prefix}"], cwd=project, env=environment,
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert f"bmojo is installed in {prefix}" in made.stdout
    assert not (project / ".venv").exists()
    for name in ("include/bmojo/bmojo.h", "lib/libbmojo.so", "lib/pkgconfig/bmojo.pc"):
        assert (prefix / name).is_file(), name
    alone = Bmojo(prefix / "bin")
    alone("init", *SMALL, "--out", tmp_path / "model")
    flags = ["generate", "--model", tmp_path / "model", "--ids", "1,2,3", "--seed", 1]
    assert alone(*flags) == bmojo(*flags)
