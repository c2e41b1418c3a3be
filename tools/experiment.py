"""What demo.py and shakespeare.py share: trainings that run side by side and are watched through
their metrics.jsonl, and results that are kept as they come."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

from measure import ROOT
from metrics import Mistake


class Training:
    """One `bmojo train`. It has a session of its own, so that an interrupt reaches it once, by
    stop(), and what it has to say goes into a file beside its folder."""

    def __init__(self, command, out, steps):
        self.command, self.out, self.steps = command, Path(out), steps
        self.rows, self.read = [], 0
        self.log = self.out.with_name(self.out.name + ".log")
        self.begin, self.end = time.monotonic(), None
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, cwd=ROOT, start_new_session=True)

    def look(self):
        """Reads the metrics written since the last look; returns whether it still runs."""
        code = self.process.poll()  # before reading: the last lines are seen
        if code is not None and self.end is None:
            self.end = time.monotonic()
        try:
            with open(self.out / "metrics.jsonl", "rb") as file:
                if os.fstat(file.fileno()).st_size < self.read:
                    self.rows, self.read = [], 0  # a resumed run cuts its file back
                file.seek(self.read)
                text = file.read()
        except FileNotFoundError:
            return code is None
        whole = text[:text.rfind(b"\n") + 1]
        self.read += len(whole)
        self.rows += [json.loads(line) for line in whole.splitlines()]
        return code is None

    def last(self, key):
        """The newest number under the key, or None."""
        return next((row[key] for row in reversed(self.rows) if row.get(key) is not None), None)

    def step(self):
        return self.rows[-1]["step"] if self.rows else 0

    def seconds(self):
        return (self.end or time.monotonic()) - self.begin

    def seconds_left(self):
        """By its own pace so far; None before there is one."""
        step, spent = self.step(), self.last("seconds")
        return (self.steps - step) * spent / step if step and spent else None

    def failure(self):
        """Why it ended, in its own words; None where it was done."""
        if self.process.returncode == 0:
            return None
        lines = self.log.read_text(errors="replace").strip().splitlines()
        if not lines:
            return f"ended with exit code {self.process.returncode}"
        return lines[-1].removeprefix("bmojo: ")[:300]


@contextmanager
def ended_with_us(trainings):
    """However the block is left, the trainings that still run save their state and end."""
    try:
        yield
    finally:
        running = [each.process for each in trainings if each.process.poll() is None]
        for process in running:
            process.terminate()  # an interrupt is ignored by what a shell started with &
        deadline = time.monotonic() + 30
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.kill()
                process.wait()


def exit_on_signals():
    """SIGTERM and a closed terminal leave through the blocks above, as an interrupt does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup asks for it: that stays
            signal.signal(number, lambda got, _: sys.exit(128 + got))


class Board:
    """Lines on stderr that move on a terminal. Elsewhere a plain line now and then."""

    def __init__(self, every):
        self.moving = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.height = 0
        self.every, self.next = every, time.monotonic() + every  # seconds

    def show(self, lines, plain):
        if self.moving:
            width = min(80, os.get_terminal_size(sys.stderr.fileno()).columns or 80)
            up = f"\x1b[{self.height}A" if self.height else ""
            # One column stays free: a terminal wraps when its last one is written.
            text = "".join(f"\r{line[:width - 1]}\x1b[K\n" for line in lines)
            sys.stderr.write(up + text + "\x1b[J")
            sys.stderr.flush()
            self.height = len(lines)
        elif time.monotonic() >= self.next:
            self.next += self.every
            print(plain[:80], file=sys.stderr, flush=True)

    def note(self, line):
        """A line that stays, above those that move."""
        if self.height:
            sys.stderr.write(f"\x1b[{self.height}A\x1b[J")
            self.height = 0
        print(line, file=sys.stderr, flush=True)


def clock(seconds):
    if seconds is None:
        return "-:--"
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def percent(share):
    return "-" if share is None else f"{100 * share:.1f} %"


def near(path):
    """Short where the path lies in the current folder."""
    path = Path(os.path.abspath(path))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def shown(command, indent="  "):
    """A command as a shell takes it, in at most 80 columns where its words allow."""
    lines = [""]
    for word in map(shlex.quote, map(str, command)):
        if lines[-1] and len(indent) + 4 + len(lines[-1]) + len(word) > 78:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return f" \\\n{indent}    ".join([indent + lines[0], *lines[1:]])


def program(folder):
    path = Path(os.path.abspath(folder)) / "bmojo"
    if not os.access(path, os.X_OK):
        raise Mistake(f"--bin: must be the folder that holds bmojo, got {folder}; run make")
    return path


def load_recipe(path):
    """A run file of `bmojo train`."""
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as failure:
        raise Mistake(f"{path}: must be a run file, got {failure}") from None


def write_recipe(path, recipe):
    """JSON writes texts, numbers, truths and flat lists of them as TOML does."""
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in recipe.items()))


def fields(recipe):
    """The model's fields that a recipe sets, as texts."""
    return dict(setting.split("=", 1) for setting in recipe["set"])


def load_runs(path):
    """The runs that a results file holds; none where there is no file."""
    try:
        return json.loads(path.read_text())["runs"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        raise Mistake(f"{path}: must be a results file with runs, got another; move it") from None


def store_runs(path, command, runs):
    """Whole or not at all; a line a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(run) for run in runs)
    part = path.with_name(path.name + ".part")
    with open(part, "w") as file:
        file.write(f'{{"command": {json.dumps(command)}, "runs": [\n{lines}\n]}}\n')
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
