"""The library as its users meet it: installed, found by CMake and by pkg-config, linked and run."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import SMALL

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/generate.cpp"
CMAKE = os.environ.get("CMAKE", "cmake")
CXX = os.environ.get("CXX", "c++")
FLAGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic"]
if sanitizers := os.environ.get("BMOJO_SANITIZE"):
    FLAGS.append(f"-fsanitize={sanitizers}")
# What examples/generate.cpp sets.
SETTINGS = ["--max-tokens", 64, "--temperature", 0.8, "--top-k", 40, "--top-p", 0.95]


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                            errors="replace", **options)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def installed(bmojo, tmp_path_factory):
    """The folder of an installation that was moved after it was made."""
    folder = tmp_path_factory.mktemp("installed")
    run(CMAKE, "--install", bmojo.folder.parent, "--prefix", folder / "first")
    return (folder / "first").rename(folder / "prefix")


@pytest.fixture(scope="module")
def by_cmake(installed, tmp_path_factory):
    build = tmp_path_factory.mktemp("cmake")
    run(CMAKE, "-S", ROOT / "examples", "-B", build, f"-DCMAKE_PREFIX_PATH={installed}",
        f"-DCMAKE_CXX_COMPILER={CXX}", f"-DCMAKE_CXX_FLAGS={' '.join(FLAGS)}")
    run(CMAKE, "--build", build)
    return [build / "generate"], {}


@pytest.fixture(scope="module")
def by_pkg_config(installed, tmp_path_factory):
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    environment = os.environ | {"PKG_CONFIG_PATH": str(installed / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "bmojo", env=environment).split()
    assert run("pkg-config", "--modversion", "bmojo", env=environment).strip() == "0.1.0"
    program = tmp_path_factory.mktemp("pkg-config") / "generate"
    run(CXX, "-std=c++20", *FLAGS, EXAMPLE, "-o", program, *flags)
    return [program], {"LD_LIBRARY_PATH": str(installed / "lib")}


@pytest.fixture
def models(bmojo, pieces, tmp_path):
    """(folder, prompt) of fresh models: one of bytes, one of SentencePiece with more ids than that has."""
    bytes_model, pieces_model = tmp_path / "bytes", tmp_path / "pieces"
    for model, ids, seed in [(bytes_model, 257, 3), (pieces_model, 160, 4)]:
        fields = [word.replace("vocab_size=40", f"vocab_size={ids}") for word in SMALL]
        bmojo("init", *fields, "--set", "bos_token_id=1", "--seed", seed, "--out", model)
    shutil.copy(pieces / "tokenizer.model", pieces_model)
    return [(bytes_model, "naïve, like a first text"), (pieces_model, "word1 und so weiter")]


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) < 60


@pytest.mark.parametrize("how", ["by_cmake", "by_pkg_config"])
def test_the_example_writes_what_the_program_writes(how, request, bmojo, models):
    command, environment = request.getfixturevalue(how)
    written = 0
    for model, prompt in models:
        for seed in (0, 1, 12345):
            result = subprocess.run([*command, model, prompt, str(seed)], capture_output=True,
                                    env=os.environ | environment)
            assert result.returncode == 0, result.stderr
            expected = bmojo.json("generate", "--model", model, "--prompt", prompt, "--seed", seed,
                                  *SETTINGS)
            assert list(map(int, result.stderr.split())) == expected["ids"]
            written += len(expected["ids"])
            assert result.stdout.decode() == expected["text"] + "\n"
    assert written > 100  # not every text ends at once


def test_the_example_says_what_is_wrong(by_cmake, small, tmp_path):
    command, _ = by_cmake
    for model, words in [(tmp_path / "none", "must exist, got none"), (small, "tokenizer")]:
        result = subprocess.run([*command, model, "text"], capture_output=True, text=True)
        assert result.returncode == 2 and result.stderr.count("\n") == 1
        assert result.stderr.startswith("generate: ") and words in result.stderr


def test_an_installed_program_finds_its_module(installed, bmojo, models):
    model, prompt = models[1]
    flags = ["generate", "--model", model, "--prompt", prompt, "--seed", 5]
    there = run(installed / "bin/bmojo", *flags)
    assert there == bmojo(*flags)


def test_another_version_is_not_found(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(x NONE)\nfind_package(bmojo 0.2)\n"
        "if(bmojo_FOUND)\n  message(FATAL_ERROR found)\nendif()\n")
    run(CMAKE, "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")


def test_what_is_installed(installed):
    files = {str(path.relative_to(installed)) for path in installed.rglob("*")
             if not path.is_dir()}
    configs = {name for name in files if name.startswith("lib/cmake/bmojo/")}
    assert {"lib/cmake/bmojo/bmojoConfig.cmake",
            "lib/cmake/bmojo/bmojoConfigVersion.cmake"} <= configs
    assert files - configs == {
        "bin/bmojo", "include/bmojo/bmojo.h", "lib/bmojo/bmojo-sentencepiece.so",
        "lib/libbmojo.so", "lib/libbmojo.so.0.1", "lib/libbmojo.so.0.1.0",
        "lib/pkgconfig/bmojo.pc", "share/doc/bmojo/LICENSE"}
    for name in configs | {"lib/pkgconfig/bmojo.pc"}:
        text = (installed / name).read_text()
        assert str(ROOT) not in text and str(installed.parent) not in text, name


def test_no_torch_python_or_blas_is_loaded(installed):
    for name in ("bin/bmojo", "lib/libbmojo.so", "lib/bmojo/bmojo-sentencepiece.so"):
        # Without the addresses, in which c10 may stand.
        libraries = re.sub(r"\(0x[0-9a-f]+\)", "", run("ldd", installed / name))
        assert "libstdc++" in libraries and "not found" not in libraries
        assert not re.search(r"torch|c10|python|blas|lapack|mkl|gomp|omp\.so", libraries), libraries
        needed = run("readelf", "--dynamic", installed / name)
        assert not re.search(r"RPATH|RUNPATH", needed), f"{name} names folders of the build"


def test_only_the_names_of_the_header_are_visible(installed):
    lines = run("nm", "--dynamic", "--defined-only", "--demangle", installed / "lib/libbmojo.so")
    names = [line.split(" ", 2)[2] for line in lines.splitlines()]
    assert "bmojo::v0::Model::tokenizer() const" in names
    shape = re.compile(r"((typeinfo|typeinfo name|vtable) for )?bmojo::v0::")
    assert [name for name in names if not shape.match(name)] == []
    assert [name for name in names if "Impl::" in name or "Access" in name] == []


@pytest.mark.skipif("sanitizers", reason="a sanitizer's build has another size")
def test_the_page_states_the_sizes(installed):
    page = (ROOT / "docs/library.md").read_text()
    for name, file in [("bmojo", "bin/bmojo"), ("libbmojo.so", "lib/libbmojo.so")]:
        stated = float(re.search(rf"`{name}`(?: has)? ([0-9.]+) MB", page)[1])
        # A small change of the source need not change the page.
        assert (installed / file).stat().st_size / 1e6 == pytest.approx(stated, rel=0.2), name


def test_the_page_shows_the_example():
    page = (ROOT / "docs/library.md").read_text()
    assert EXAMPLE.read_text() in page
    assert (ROOT / "examples/CMakeLists.txt").read_text() in page
