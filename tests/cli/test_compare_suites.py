"""The driver of `make compare-suites`: the rows it gives to lm-evaluation-harness, what it counts as
different, and what the committed comparison says."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import compare_suites  # noqa: E402
import suite_peer  # noqa: E402


def test_no_torch_is_loaded():
    assert "torch" not in sys.modules and "lm_eval" not in sys.modules


def test_rows_have_the_fields_of_lm_eval(tmp_path, monkeypatch):
    monkeypatch.setattr(compare_suites, "DATA", tmp_path)
    (tmp_path / "eval").mkdir()

    def write(name, *lines):
        (tmp_path / "eval" / name).write_text("".join(line + "\n" for line in lines))

    write("hellaswag_val_2000.txt", "Tea: A: man. he", "2", "a", "b", "c", "d")
    write("piqa_valid.jsonl", '{"goal": "g", "sol1": "a", "sol2": "b"}')
    write("piqa_valid_labels.lst", "1")
    write("arc_easy.jsonl", '{"query": "Question: Why?", "choices": ["a", "b", "c"], "gold": 1}')
    write("winogrande.jsonl", json.dumps({"context_options": ["x A so Ann", "x A so Bob"],
                                          "continuation": "ran.", "gold": 1}))
    assert list(compare_suites.hellaswag()) == [
        {"activity_label": "Tea", "ctx_a": "A: man. he", "ctx_b": "", "label": "2", "endings": [*"abcd"]}]
    assert compare_suites.piqa() == [{"goal": "g", "sol1": "a", "sol2": "b", "label": 1}]
    assert list(compare_suites.arc("arc_easy")) == [
        {"question": "Why?", "answerKey": "B", "choices": {"text": [*"abc"], "label": [*"ABC"]}}]
    assert list(compare_suites.winogrande()) == [
        {"sentence": "x A so _ ran.", "option1": "Ann", "option2": "Bob", "answer": "2"}]
    pairs = list(compare_suites.blimp())
    assert len(pairs) >= compare_suites.ITEMS and len({json.dumps(pair) for pair in pairs}) == len(pairs)


def sample(*answers, texts=(" a", " bc"), **measures):
    return suite_peer.line_of({"filtered_resps": list(answers), **measures,
                               "arguments": [("context", text) for text in texts]})


def test_a_sample_of_lm_eval_becomes_a_line():
    assert sample((-1.5, True), (-2, False), acc=1.0, other=3) == {
        "log_likelihoods": [-1.5, -2.0], "greedy": [True, False], "choices": ["a", "bc"], "acc": 1.0}
    assert sample(-7.5, texts=[""])["log_likelihoods"] == [-7.5]


def ours(*values, choice=0, norm=0, gold=0):
    return {"log_likelihoods": list(values), "gold": gold, "choice": choice, "choice_norm": norm}


def compared(mine, theirs, suite="piqa"):
    return compare_suites.compare(suite, ([mine], {"acc": 0.5}), ([theirs], {"acc": 0.5, "alias": "x"}))


def test_what_differs_is_counted():
    theirs = sample((-1.0, False), (-3.0, False), acc=1.0, acc_norm=1.0)
    row = compared(ours(-1.0005, -3), theirs)
    assert row["worst_difference"] == pytest.approx(5e-4) and row["choices_that_differ"] == 0
    assert row["texts"] == 2 and row["measures"] == {"acc": [0.5, 0.5]} and compare_suites.is_equal(row)
    assert not compare_suites.is_equal(compared(ours(-1.002, -3), theirs))
    other = compared(ours(-1, -3, choice=1), theirs)
    assert other["choices_that_differ"] == 1 and other["of_these_ties"] == 0
    assert not compare_suites.is_equal(other)
    assert not compare_suites.is_equal(compared(ours(-1, -3, norm=1), theirs))


def test_a_tie_is_no_difference():
    theirs = sample((-1.0, False), (-1.0002, False), texts=(" a", " b"), acc=1.0, acc_norm=1.0)
    row = compared(ours(-1.0003, -1, choice=1, norm=1), theirs)
    assert row["choices_that_differ"] == row["of_these_ties"] == 2 and compare_suites.is_equal(row)


def test_words_are_compared_by_whether_they_are_the_likeliest():
    theirs = sample((-1.0, True), texts=[" a"], acc=1)
    for greedy, differing in ((True, 0), (False, 1)):
        row = compared({"log_likelihoods": [-1.0], "greedy": [greedy]}, theirs, "lambada")
        assert row["choices_that_differ"] == differing


def test_what_lm_eval_says_must_follow_from_its_numbers():
    with pytest.raises(compare_suites.Failed, match="acc_norm does not follow"):
        compared(ours(-1, -3), sample((-1.0, False), (-3.0, False), acc=1.0, acc_norm=0.0))


def test_the_committed_comparison_holds():
    facts = json.loads((ROOT / "results/suites.json").read_text())
    rows, suites = facts["outcomes"], list(compare_suites.SUITES)
    asked = suites if facts["command"] == "make compare-suites" else facts["command"].split("--only ")[1].split()
    assert [row["suite"] for row in rows] == asked and set(asked) <= set(suites)
    for row in rows:
        assert row["items"] == compare_suites.ITEMS and compare_suites.is_equal(row), row
    page = (ROOT / "docs/evaluation.md").read_text()
    assert "\n".join(compare_suites.table(rows)) in page and facts["commit"] in page
