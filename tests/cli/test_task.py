"""bmojo task: every task readable, on a screen and by a program."""

import pytest

# Name, the answers of its example, and its legend.
TASKS = [
    ("mqar", 4, "keys 1 … 31, values 32 … 63"),
    ("noisy-mqar", 4, "keys 1 … 23, values 24 … 47, noise 48 … 63"),
    ("fuzzy-mqar", None, "keys of 1 … 31, values of 32 … 63"),
    ("induction", 1, "0 is the special token"),
    ("selective-copy", 8, "0 is the blank, 15 the marker"),
]


@pytest.mark.parametrize("name, answers, legend", TASKS, ids=[task[0] for task in TASKS])
def test_an_example_fits_a_screen(bmojo, name, answers, legend):
    shown = bmojo.json("task", name, "--show", "--number", 5)
    assert shown["task"].startswith(name + ":")
    due = [(i, target) for i, target in zip(shown["ids"], shown["targets"]) if target >= 0]
    for target, source in zip(shown["targets"], shown["sources"]):
        assert (source < 0) if target < 0 else shown["ids"][source] == target
    assert len(due) == answers or (answers is None and len(due) >= 4)
    text = bmojo("task", name, "--show", "--number", 5)
    first, second, *rest = text.splitlines()
    assert first == shown["task"]
    assert second == f"{legend}; arrows mark the answers"
    assert all(len(line) <= 80 for line in text.splitlines())
    words = " ".join(line.split(":")[1] for line in rest).split()
    expected = [f"{i}" if target < 0 else f"{i}->{target}"
                for i, target in zip(shown["ids"], shown["targets"])]  # fmt: skip
    assert words == expected


def test_wide_numbers_fit_a_screen(bmojo):
    text = bmojo("task", "noisy-mqar:pairs=4,length=64", "--show")
    assert "noise 8176 … 8191;" in text and text.count("->") == 4
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_sequence_is_that_of_its_seed_and_number(bmojo):
    first = bmojo.json("task", "induction", "--show")
    assert first == bmojo.json("task", first["task"], "--show", "--seed", 0, "--number", 0)
    assert first != bmojo.json("task", "induction", "--show", "--seed", 1)
    assert first != bmojo.json("task", "induction", "--show", "--number", 1)


@pytest.mark.parametrize("task, fault", [
    ("mqar:pairs=16,length=200,span=16",
     "task mqar: span must be at least 2 x pairs = 32, got 16; span=32 or pairs=8 would fit"),
    ("mqar:pairs=4,length=64,span=17",
     "task mqar: span must be even, got 17; span=16 or span=18 would fit"),
    ("selective-copy:length=20",
     "task selective-copy: length must be at least 2 x tokens = 32, got 20; length=32 or "
     "tokens=10 would fit"),
    ("induction:length=long",
     "task induction: length must be a whole number from 3 to 1073741824, got 'long'"),
    ("induction:colour=1", "task induction: key 'colour' is not known"),
    ("recall", "task: must be one of mqar, noisy-mqar, fuzzy-mqar, induction, selective-copy, "
     "got 'recall'"),
])  # fmt: skip
def test_what_is_refused(bmojo, task, fault):
    assert bmojo("task", task, "--show", code=2) == f"bmojo: {fault}"
