"""A copy of the sources and its build, in which mutants.py tries one fault at a time."""

import asyncio
import contextlib
import json
import os
import shutil
import signal

from measure import ROOT

PYTHON = ROOT / ".venv/bin/python"
TIMEOUT = 240  # seconds a test may take, beside another
NEVER_ENDS = "never ends"  # in `what`: running out of time is how the fault shows


class Trouble(Exception):
    """What keeps a fault from being tried."""


async def run(command, timeout=None, **options):
    """(exit code, output); None as the code where time ran out. The program hears a signal when we
    are killed, and what outlives us holds the lock of mutants.py (close_fds)."""
    process = await asyncio.create_subprocess_exec(
        "setpriv", "--pdeathsig", "TERM", *map(str, command), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        close_fds=False, **options)  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout)
    except (asyncio.CancelledError, TimeoutError) as reason:
        await end(process)
        if isinstance(reason, TimeoutError):
            return None, ""
        raise
    return process.returncode, output.decode(errors="replace")


async def end(process):
    """Asks first: a compiler has a group of its own, which ninja ends when it is asked."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def tail(output):
    return "\n".join("    " + line for line in output.rstrip().splitlines()[-15:])


class Tree:
    def __init__(self, folder):
        self.folder, self.source, self.build = folder, folder / "tree", folder / "build"
        self.environments = {}  # what CTest sets for each of its entries

    def copy(self, names):
        """Brings the copy up to date. Files that are equal keep their times, so that nothing is
        built twice; one that a killed run left with a fault is not equal, and gets a new time."""
        for path in [path for path in self.source.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.source)) not in names:
                path.unlink()
        for name in names:
            original, target = ROOT / name, self.source / name
            if target.exists() and target.read_bytes() == original.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(original.read_bytes())
            shutil.copymode(original, target)

    async def configure(self):
        torch = (ROOT / ".venv/.torch").read_text().strip()
        # Unoptimised: a fault costs one file to compile, and the tests spend their time in torch.
        # Kernels are optimised a little: without inlining, a vector is a chain of calls.
        code, output = await run(
            ["cmake", "--preset", "release", "-B", self.build, "--log-level=WARNING",
             "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG", "-DBMOJO_KERNEL_OPTIMIZATION=-O1",
             f"-DBMOJO_TORCH_DIR={torch}", f"-DBMOJO_PYTHON={PYTHON}"], cwd=self.source)  # fmt: skip
        if code != 0:
            raise Trouble("cmake failed\n" + tail(output))
        code, output = await run(["ctest", "--test-dir", self.build, "--show-only=json-v1"])
        for test in json.loads(output)["tests"]:
            self.environments[test["name"]] = dict(
                setting.split("=", 1)
                for each in test["properties"] if each["name"] == "ENVIRONMENT"
                for setting in each["value"])  # fmt: skip

    async def make(self, tests, processes):
        targets = set()
        for test in tests:
            room, name = test.split(" ")[0].split("/")
            targets |= {"bmojo", "bmojo-torch"} if room == "cli" else {f"{room}_{name}_test"}
        command = ["ninja", "-C", self.build, "-j", processes]
        # With paths relative to the folder, ccache knows in one tree what it compiled in another.
        settings = os.environ | {"CCACHE_BASEDIR": str(self.folder)}
        code, output = await run([*command, *sorted(targets)], env=settings)
        if code != 0:
            raise Trouble("it does not compile\n" + tail(output))

    async def passes(self, test):
        """(True, False, or None where time ran out; output). Trouble where it did not run."""
        program, case = test.split(" ", 1)
        room, name = program.split("/")
        if room == "cli":
            file = self.source / f"tests/cli/test_{name}.py"
            command = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                       f"{file}::{case}"]
            ran, failed = " passed", {1}
        else:
            command = [self.build / f"bin/{room}_{name}_test", f"--gtest_filter={case}"]
            ran, failed = "[  PASSED  ] 1 test.", {1, *(-number for number in signal.Signals)}
        settings = os.environ | self.environments.get(program, {})
        code, output = await run(command, timeout=TIMEOUT, cwd=self.build, env=settings)
        if code is None:
            return None, f"no end within {TIMEOUT} s"
        if code in failed:
            return False, output
        if code == 0 and ran in output:
            return True, output
        raise Trouble(f"{test} did not run\n" + tail(output))

    async def try_out(self, mutant, processes):
        """caught, missed, or why neither."""
        path = self.source / "src/bmojo" / mutant.file
        text = path.read_text()
        path.write_text(text.replace(mutant.old, mutant.new))
        try:
            await self.make([mutant.test], processes)
            passed, output = await self.passes(mutant.test)
        except Trouble as trouble:
            return str(trouble)
        finally:
            path.write_text(text)  # with a new time: the next build takes the fault out again
        if passed is None:
            return "caught" if NEVER_ENDS in mutant.what else output
        return "missed" if passed else "caught"
