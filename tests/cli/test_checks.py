"""The tools that check the checks: make mutants and make check on a small project of scripts, and
what the committed results say."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check  # noqa: E402
import mutants  # noqa: E402

# --- a project whose test programs are scripts ---------------------------------------------------

LIST = """MUTANTS = [
    Mutant("one", "base/a.sh", "one=1", "one=2", "base/file File.One", "one is two"),
    Mutant("two", "base/a.sh", "two=2", "two=3", "base/file File.Two", "two is three"),
    Mutant("three", "base/b.sh", "three=3", "three=4", "base/file File.Three", "three is four"),
]
"""
PRESETS = {"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja"}]}
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(small NONE)
enable_testing()
set(source ${PROJECT_SOURCE_DIR})
add_custom_command(OUTPUT made COMMAND sh ${source}/build.sh ${source}
  DEPENDS ${source}/src/bmojo/base/a.sh ${source}/src/bmojo/base/b.sh)
add_custom_target(base_file_test DEPENDS made)
add_test(NAME base/file COMMAND base_file_test)
"""
# The build puts the sources before the test, which looks at the value that it is named after.
BUILD = """set -e
echo build >>$SMALL_LOG
. $1/src/bmojo/base/b.sh
sleep $wait
mkdir -p bin
cat $1/src/bmojo/base/a.sh $1/src/bmojo/base/b.sh $1/tests/base/file_test.cpp >bin/base_file_test
chmod +x bin/base_file_test
touch made
sleep 0.02 # so that what changes next is newer
"""
TESTS = """: '
TEST(File, One)
TEST(File, Two)
TEST(File, Three)
'
case "$1$one$two$three" in
  *One1*|*Two12*|*Three123) echo "[  PASSED  ] 1 test." ;;
  *) exit 1 ;;
esac
"""


class Small:
    def __init__(self, folder):
        self.folder, self.log = folder, folder.parent / "log"
        self.write("CMakePresets.json", json.dumps(PRESETS))
        self.write("CMakeLists.txt", CMAKE)
        self.write("build.sh", BUILD)
        self.write("src/bmojo/base/a.sh", "#!/bin/sh\none=1\ntwo=2\n")
        self.write("src/bmojo/base/b.sh", "wait=0\nthree=3\n")
        self.write("tests/base/file_test.cpp", TESTS)
        self.write_list(LIST)
        for name in ("mutant_tree", "record", "measure", "metrics", "check"):
            shutil.copy(ROOT / f"tools/{name}.py", folder / "tools")
        self.write(".gitignore", "/build/\n/.venv/\n__pycache__/\n")
        self.write(".venv/.torch", "nowhere\n")
        (folder / "results").mkdir()
        self.git("init", "-q")
        self.commit()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_list(self, text):
        whole = (ROOT / "tools/mutants.py").read_text()
        begin = whole.index("MUTANTS = [")
        end = whole.index("\n]\n", begin) + 3
        self.write("tools/mutants.py", whole[:begin] + text + whole[end:])

    def git(self, *words):
        names = ["-c", "user.name=n", "-c", "user.email=n@example.com"]
        result = subprocess.run(["git", *names, *words], cwd=self.folder, check=True, text=True,
                                capture_output=True)
        return result.stdout.strip()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "small: change")

    def start(self, *words, tool="mutants"):
        self.log.write_text("")
        return subprocess.Popen(
            [sys.executable, f"tools/{tool}.py", *words], cwd=self.folder, text=True,
            env=os.environ | {"SMALL_LOG": str(self.log)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    def __call__(self, *words, code=0, tool="mutants"):
        process = self.start(*words, tool=tool)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        return out + err

    def builds(self):
        return self.log.read_text().split().count("build")

    def results(self, name="mutants"):
        path = self.folder / f"results/{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def journal(self):
        path = self.folder / "build/mutants/journal.jsonl"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def small(tmp_path):
    return Small(tmp_path / "small")


# --- make mutants --------------------------------------------------------------------------------


def test_a_whole_run_is_recorded_and_not_repeated(small):
    out = small()
    assert "3 caught, 0 missed, 0 not tried\nrecorded in results/mutants.json" in out
    found = small.results()
    assert found["commit"] == small.git("rev-parse", "--short=12", "HEAD")
    assert found["faults"] == 3 and found["machine"] and found["command"] == "make mutants"
    assert [row["name"] for row in found["outcomes"]] == ["one", "two", "three"]
    for row in found["outcomes"]:
        assert row["outcome"] == "caught" and row["test"].startswith("base/file File.")
        assert row["file"].startswith("base/") and row["what"] and row["seconds"] >= 0

    out = small()
    assert "3 faults were tried before" in out and "3 caught" in out and small.builds() == 0
    small.write("README.md", "words")  # of which no outcome depends
    assert "3 faults were tried before" in small()
    assert "tried before" not in small("--fresh", "--only", "two") and small.builds() > 0
    assert "3 faults were tried before" in small()
    assert "tried before" not in small("--fresh") and small.builds() > 0


def test_changed_sources_start_anew_and_are_not_recorded(small):
    small("--only", "one")
    small.write("src/bmojo/base/b.sh", "wait=0\nthree=3 # changed\n")
    out = small("--jobs", "1")
    assert "the sources have changed since the last run; starting anew" in out
    assert "not recorded in results/mutants.json: the work tree must be as committed, " in out
    assert "got changes in src/bmojo/base/b.sh" in out and small.results() is None
    small.commit()
    assert "\nrecorded in" in small() and small.results()["faults"] == 3
    small.write("src/bmojo/base/new.sh", "")
    out = small("--only", "two")
    assert "starting anew" in out and "2 of 3 faults are still to be tried" in out


def test_outcomes_depend_on_no_other_test(small):
    small()
    small.write("tests/base/other_test.cpp", "")
    small.write("tests/cli/test_other.py", "")
    assert "3 faults were tried before" in small() and small.builds() == 0
    small.write("tests/base/file_test.cpp", TESTS + "\n")
    assert "the sources have changed since the last run; starting anew" in small()
    small.write("tests/support.h", "")
    assert "starting anew" in small()


def test_a_test_depends_on_those_that_it_imports():
    sources = mutants.Sources()
    assert sources.own("nn/oracle Oracle.RandomLayers") == {"tests/nn/oracle_test.cpp"}
    assert sources.own("cli/llama2c test_x") == {"tests/cli/test_llama2c.py",
                                                 "tests/cli/test_tokenize.py"}
    one, other = "nn/oracle Oracle.RandomLayers", "nn/native Native.AgreesWithTorchBitForBit"
    before = sources.digest(one), sources.digest(other)
    sources.hashes["tests/nn/native_test.cpp"] = "changed"
    assert sources.digest(one) == before[0] and sources.digest(other) != before[1]


def test_a_part_of_the_list_is_not_recorded(small):
    assert "2 of 3 faults are still to be tried" in small("--only", "two")
    assert small.results() is None
    out = small()
    assert "1 faults were tried before" in out and "\nrecorded in" in out


def test_a_changed_fault_is_tried_again_alone(small):
    small()
    small.write_list(LIST.replace("two=3", "two=4"))
    out = small()
    assert "2 faults were tried before" in out and "caught  two" in out
    assert "got changes in tools/mutants.py" in out


def test_what_is_missed_is_said_and_recorded(small):
    small.write_list(LIST.replace('"two=3"', '"two=2 #"'))
    small.commit()
    out = small(code=1)
    assert "missed  two " in out and "2 caught, 1 missed" in out
    assert [row["outcome"] for row in small.results()["outcomes"]] == ["caught", "missed", "caught"]


def test_a_test_that_fails_without_a_fault(small):
    small.write("src/bmojo/base/a.sh", "#!/bin/sh\none=1\ntwo=2\ntwo=4\n")
    assert "base/file File.Two must pass without a fault" in small(code=1)


def start_slowly(small):
    """A run whose last fault is being built, which takes minutes."""
    small.write_list(LIST.replace("three=4", "three=4; wait=300"))
    process = small.start("--jobs", "1")
    wait_until(lambda: small.journal().count("caught") == 2 and sleepers(small))
    return process


def sleepers(small):
    """The processes that sleep in the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            sleeps = (entry / "comm").read_text() == "sleep\n"
            if sleeps and small.folder in (entry / "cwd").resolve().parents:
                found.append(entry.name)
        except OSError:
            pass  # it has just ended
    return found


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_goes_on(small, number):
    process = start_slowly(small)
    copy = small.folder / "build/mutants/1/tree/src/bmojo/base/b.sh"
    assert "three=4" in copy.read_text()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    if number == signal.SIGKILL:
        wait_until(lambda: not sleepers(small))
        with open(small.folder / "build/mutants/journal.jsonl", "a") as journal:
            journal.write('{"name": "thr')  # a line that was being written
    else:
        assert process.returncode == 128 + number
        assert err == "mutants: stopped; `make mutants` goes on from here\n"
        assert "three=3" in copy.read_text()
        wait_until(lambda: not sleepers(small))
    small.write_list(LIST)
    out = small("--jobs", "1")
    assert "2 faults were tried before" in out and "caught  three" in out
    assert small.builds() == 2  # once without the fault, once with it
    assert "\nrecorded in" in out


def test_two_runs_do_not_share_a_folder(small):
    first = start_slowly(small)
    small.write_list(LIST)
    second = small.start()
    assert second.stderr.readline() == "mutants: waiting for what still runs in build/mutants\n"
    first.send_signal(signal.SIGINT)
    assert "2 faults were tried before" in second.communicate(timeout=60)[0]
    assert first.wait(30) == 130 and second.returncode == 0
    first.communicate()


# --- the list ------------------------------------------------------------------------------------


def test_every_fault_has_its_line_and_its_test():
    assert list(mutants.stale()) == []


@pytest.mark.parametrize("old, new, message", [
    ("three=3", "five=5", "three: the old text must stand once, in one line of base/b.sh, got 0"),
    ("one=1", "=", "one: the old text must stand once, in one line of base/a.sh, got 2 times"),
    ("base/b.sh", "base/c.sh", "three: the old text must stand once, in one line of base/c.sh"),
    ("File.Two", "File.Twelve", "two: its test must exist, got base/file File.Twelve"),
    ("base/file File.Two", "cli/none test_it", "two: its test must exist, got cli/none test_it"),
    ('"two"', '"one"', "one: a name must stand once in the list, got 2 times"),
])
def test_faults_that_are_out_of_date(small, old, new, message):
    assert small("--check") == ""
    small.write_list(LIST.replace(old, new))
    for flags in (["--check"], []):
        out = small(*flags, code=1)
        assert out.startswith(f"tools/mutants.py: {message}") and out.count("\n") == 1
    assert small.journal() == ""


def test_tests_are_found_by_their_names():
    for test in ("cli/checks test_tests_are_found_by_their_names[a-b]", mutants.ORACLE,
                 f"{mutants.KERNEL}/rotary_odd_b"):
        assert mutants.test_exists(test), test
    for test in ("cli/checks test_tests", "cli/nowhere test_tests_are_found_by_their_names",
                 "nn/oracle Oracle.Random", "nn/nowhere Oracle.RandomLayers",
                 "kernels/kernels Kernels.AttentionIsItsSoftmax"):
        assert not mutants.test_exists(test), test


def test_every_fault_of_the_list_was_noticed():
    path = ROOT / "results/mutants.json"
    if not path.exists():
        pytest.skip("results/mutants.json is not there; make mutants writes it")
    found = json.loads(path.read_text())
    names = [row["name"] for row in found["outcomes"]]
    assert len(set(names)) == len(names) == found["faults"]
    assert [row["name"] for row in found["outcomes"] if row["outcome"] != "caught"] == []
    if found["list"] != mutants.list_digest():
        pytest.skip("results/mutants.json is of another list; make mutants writes it anew")
    assert names == [mutant.name for mutant in mutants.MUTANTS]


# --- make check ----------------------------------------------------------------------------------

OUTPUT = """      Start  1: base/file
 1/12 Test  #1: base/file ...................   Passed    0.07 sec
 2/12 Test #12: cli/hugging_face .............***Skipped   0.50 sec
 3/12 Test  #3: nn/oracle ....................***Failed   10.50 sec
 4/12 Test  #4: cli/kill .....................***Timeout 1200.00 sec
/a/linears_test.cpp:132: Skipped
SKIPPED [1] test_hugging_face.py:20: could not import 'torch'
"""


def test_check_keeps_how_each_command_ended(small):
    small.write("output", OUTPUT)
    assert "got changes in output; commit them first" in small("true", tool="check", code=2)
    assert small.results("check") is None
    small.commit()
    out = small("cat output", "sh -c 'exit 3'", "true", tool="check", code=1)
    assert "cat output: exit code 0, 1 passed, 2 failed, 1 skipped, 0.0 minutes" in out
    assert OUTPUT in out
    found = small.results("check")
    assert found["commit"] == small.git("rev-parse", "--short=12", "HEAD") and found["machine"]
    assert found["outcomes"][0] == {
        "command": "cat output", "exit_code": 0, "minutes": 0.0, "passed": 1, "failed": 2,
        "skipped": 1, "skip_lines": OUTPUT.splitlines()[-2:]}
    assert [row["exit_code"] for row in found["outcomes"]] == [0, 3, 0]
    assert small("true", tool="check").startswith("true: exit code 0, 0 passed")


def test_check_is_of_one_commit(small):
    again = "git -c user.name=n -c user.email=n commit -q --allow-empty -m again"
    out = small(again, tool="check", code=2)
    assert "check: the commit must stay " in out and "start again" in out
    assert "got changes in new; commit" in small("touch new", tool="check", code=2)
    assert small.results("check") is None


@pytest.mark.parametrize("name", ["README.md", "docs/page.md", "results/demo.json"])
def test_check_needs_pages_and_results_as_committed(small, name):
    small.write(name, "new")
    message = f"got changes in {name}; commit them first"
    assert message in small("true", tool="check", code=2)
    small.commit()
    small("true", tool="check")
    small.write(name, "changed")
    assert message in small("true", tool="check", code=2)


def test_check_leaves_out_what_is_recorded_about_the_tests(small):
    small.write("results/mutants.json", "{}")
    small("true", tool="check")
    small.commit()
    small.write("results/mutants.json", "{ }")
    small.write("results/check.json", "{}")
    small("true", tool="check")


def test_check_runs_what_must_pass_before_a_change_is_sent():
    assert check.COMMANDS == ("make lint", "make test", "make sanitize")


# --- make ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("target, programs", [
    ("demo", {"bmojo", "bmojo-torch"}), ("bench-full", {"bmojo", "bmojo-torch"}),
    ("bench-train", {"bmojo", "bmojo-torch"}),
    ("bench-engine", {"bmojo", "bmojo-torch", "bmojo-engine-kernels"}),
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
