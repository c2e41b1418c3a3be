#!/usr/bin/env python3
"""`make check`: runs make lint, make test and make sanitize on what is committed, and keeps in
results/check.json how each ended. `tools/check.py COMMAND …` runs other commands instead. Exits 1
when one failed, 2 when the work tree is not as committed."""

import re
import shlex
import subprocess
import sys
import time

import record
from measure import ROOT, end_with_children
from metrics import Mistake

COMMANDS = ("make lint", "make test", "make sanitize")
RESULTS = ROOT / "results/check.json"
# Tests read pages and results too. Only what is recorded about the tests may differ.
WATCHED = (".", ":!results/check.json", ":!results/mutants.json")
# "3/40 Test  #5: nn/oracle ......   Passed   12.3 sec"; what is no pass begins with three stars.
ENTRY = re.compile(r"^ *\d+/\d+ Test +#\d+: \S+ \.+ *(Passed|\*\*\*Skipped|\*\*\*)", re.MULTILINE)
SKIPPED = re.compile(r"^(?:SKIPPED.*|.*: Skipped)$", re.MULTILINE)


def run(command):
    """(exit code, output), which is also shown as it comes."""
    output = []
    with subprocess.Popen(shlex.split(command), cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                output.append(line)
        except BaseException:
            process.terminate()  # make ends what it has started
            raise
    return process.returncode, "".join(output)


def outcome(command):
    """Tests are counted as CTest does, by program; skip lines also name cases inside of one."""
    start = time.monotonic()
    code, output = run(command)
    entries = ENTRY.findall(output)
    return {"command": command, "exit_code": code,
            "minutes": round((time.monotonic() - start) / 60, 1),
            "passed": entries.count("Passed"), "failed": entries.count("***"),
            "skipped": entries.count("***Skipped"),
            "skip_lines": [line.replace(f"{ROOT}/", "") for line in SKIPPED.findall(output)]}


def check_clean(commit):
    if changed := record.changes(WATCHED):
        raise Mistake(f"the work tree must be as committed, got changes in {record.some(changed)}; "
                      "commit them first")
    if record.head() != commit:
        raise Mistake(f"the commit must stay {commit}, got {record.head()}; start again")


def main(commands):
    commit = record.head()
    check_clean(commit)
    outcomes = [outcome(command) for command in commands]
    check_clean(commit)
    record.store(RESULTS, "make check", outcomes)
    for each in outcomes:
        print(f"{each['command']}: exit code {each['exit_code']}, {each['passed']} passed, "
              f"{each['failed']} failed, {each['skipped']} skipped, {each['minutes']} minutes")
    return 1 if any(each["exit_code"] for each in outcomes) else 0


if __name__ == "__main__":
    end_with_children()
    try:
        sys.exit(main(sys.argv[1:] or COMMANDS))
    except Mistake as mistake:
        print(f"check: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
