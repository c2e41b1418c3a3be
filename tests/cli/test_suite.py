"""Known suites: how their files become questions, against texts put together here and scored by
`bmojo score`; results item by item; and refusals. The model reads bytes, so that a token is one."""

import fcntl
import json
import math
import os
import re
import shutil
import signal
import string
import subprocess
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import SMALL
from training import but

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("BMOJO_DATA") or ROOT.parent / "shared/data")
FIRST = 1  # begins a text that has no context: bos_token_id of the preset


@pytest.fixture(scope="module")
def model(bmojo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite") / "m"
    bmojo("init", *but(SMALL, "--set", "vocab_size=257"), "--out", folder)
    return folder


def jsonl(path, *rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(bmojo, model, suite, data, *flags):
    return bmojo.json("eval", "--model", model, "--suite", suite, "--suite-data", data, *flags)


def items_of(bmojo, model, suite, data, path, *flags):
    """(the summary, a line an item)."""
    summary = run(bmojo, model, suite, data, "--items", path, *flags)
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head["suite"] == suite and [line["index"] for line in lines] == list(range(len(lines)))
    assert summary["items"] == len(lines)
    assert summary["tokens"] == sum(sum(line["tokens"]) for line in lines)
    return summary, lines


def scored(bmojo, model, pairs, tmp_path):
    """[(log-likelihood, greedy)] of (context, continuation), each text read whole."""
    texts = [([FIRST] if not context else list(context.encode()), list(continuation.encode()))
             for context, continuation in pairs]
    ids = jsonl(tmp_path / "ids.jsonl", *({"ids": a + b} for a, b in texts))
    lines = map(json.loads, bmojo("score", "--model", model, "--ids", ids).splitlines())
    out = []
    for (context, continuation), line in zip(texts, lines, strict=True):
        own, best = line["logprobs"][len(context):], line["argmax"][len(context):]
        out.append((sum(own), best == continuation))
    return out


# lm-evaluation-harness's own words for HellaSwag and WikiText.
def clean(text):
    text = re.sub("\\[.*?\\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


ENDINGS = ["goes away [step] now.", " falls  down", "sings é", "eats [title] it"]
HELLASWAG = {"activity_label": "Making [header] tea", "ctx_a": "A man stands. [title] Up.",
             "ctx_b": "he SÉES", "endings": ENDINGS, "label": "2", "ind": 4}
ARC = {"id": "x", "question": "Why?", "choices": {"text": ["up", "down there", "no"],
                                                  "label": ["1", "2", "3"]}, "answerKey": "2"}
OPTIONS = " (A) up \n (B)  down there\n\t(C) no (D) or\n (D) é "
CHOICES = [" up", " down there", " no (D) or", " é"]
SEA = "\n\nQuestion: Where is\nthe sea?\nAnswer:"


def about(text, question="Why?"):
    return [(f"{text}\n\nQuestion: {question}\nAnswer:", each) for each in CHOICES]


# Of each: suite, file, its text, and of each item (choices as (context, continuation), gold).
CASES = {
    "lambada": ("lambada", "lambada_x.jsonl", [{"text": "one two\nthree"}, {"text": "ein  é"}, {"text": "word"}],
                [([("one", " two\nthree")], None), ([("ein", "  é")], None), ([("", " word")], None)]),
    "hellaswag": ("hellaswag", "hellaswag_val.jsonl", [HELLASWAG],
                  [([(clean("Making [header] tea: A man stands. [title] Up. He sées"), " " + clean(each))
                     for each in ENDINGS], 2)]),
    "hellaswag, text": ("hellaswag", "hellaswag.txt",
                        "Tea: A man. he\n3\n" + "\n".join(ENDINGS) + "\nB\n0\na\nbc\nd\ne\n",
                        [([("Tea: A man. he", " " + clean(each)) for each in ENDINGS], 3),
                         ([("B", " a"), ("B", " bc"), ("B", " d"), ("B", " e")], 0)]),
    "piqa": ("piqa", "piqa.jsonl", [{"goal": "Eat", "sol1": "spoon ", "sol2": "fork", "label": 1}],
             [([("Question: Eat\nAnswer:", " spoon "), ("Question: Eat\nAnswer:", " fork")], 1)]),
    "arc": ("arc_easy", "arc_easy.jsonl", [{"query": "Question: Why?", "choices": ["up", "down", "é", "n"], "gold": 3}],
            [([("Question: Why?\nAnswer:", each) for each in (" up", " down", " é", " n")], 3)]),
    "arc, hub": ("arc_challenge", "arc_challenge.jsonl", [ARC],
                 [([("Question: Why?\nAnswer:", each) for each in (" up", " down there", " no")], 1)]),
    "winogrande": ("winogrande", "winogrande.jsonl",
                   [{"context_options": ["A saw B so A", "A saw B so B"], "continuation": "ran.", "gold": 1}],
                   [([("A saw B so A", " ran."), ("A saw B so B", " ran.")], 1)]),
    "winogrande, hub": ("winogrande", "winogrande.jsonl",
                        [{"sentence": "A saw B so _  ran. ", "option1": "A", "option2": "B", "answer": "1"}],
                        [([("A saw B so A", " ran."), ("A saw B so B", " ran.")], 0)]),
    "quality": ("quality", "quality.jsonl",
                [{"input": "\n A text. \n\n It ends.\n", "evaluation": "exam",
                  "instructions": [f"Why?\n\n{OPTIONS}", f"Where is\nthe sea?\n{OPTIONS}"],
                  "outputs": ["(C) no  (D) or ", ["up"]]},
                 {"input": "Other", "instructions": ["x\n\n(A) y\n(B) z"], "outputs": [], "evaluation": "human"},
                 {"input": "B", "instructions": [f"Why?\n\n{OPTIONS}"], "outputs": ["(D) é"]}],
                [(about("A text. \n\n It ends."), 2), ([("A text. \n\n It ends." + SEA, each) for each in CHOICES], 0),
                 (about("B"), 3)]),
    "quality, SCROLLS": ("quality", "quality.jsonl",
                         [{"id": "1", "pid": "1_0", "input": f"Why?\n\n{OPTIONS}\n\n\nA text.\n\nIt ends. ", "output": "é"},
                          {"id": "2", "input": f"Who?\n\n{OPTIONS}\n\nA text.\n\nIt ends.", "output": "down there"}],
                         [(about("A text.\n\nIt ends."), 3), (about("A text.\n\nIt ends.", "Who?"), 1)]),
    "blimp": ("blimp", "x.jsonl", [{"sentence_good": "It is.", "sentence_bad": "It are."}],
              [([("", " It is."), ("", " It are.")], 0)]),
}  # fmt: skip


NORMED = ("hellaswag", "piqa", "arc_easy", "arc_challenge", "quality")


@pytest.mark.parametrize("case", CASES)
def test_items_score_as_their_texts_do(bmojo, model, tmp_path, case):
    suite, name, content, expected = CASES[case]
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    else:
        jsonl(tmp_path / name, *content)
    summary, lines = items_of(bmojo, model, suite, tmp_path, tmp_path / "i.out")
    assert len(lines) == len(expected)
    right = {"acc": [], "acc_norm": [], "acc_bytes": []}
    for line, (choices, gold) in zip(lines, expected, strict=True):
        got = scored(bmojo, model, choices, tmp_path)
        assert line["log_likelihoods"] == pytest.approx([own for own, _ in got], rel=1e-9)
        assert line["greedy"] == [greedy for _, greedy in got]
        assert line["tokens"] == [len(text.encode()) for _, text in choices]
        own = np.array(line["log_likelihoods"])
        if gold is None:
            right["acc"].append(int(line["greedy"][0]))
        else:
            texts = [text[1:] for _, text in choices]
            for name, length in (("acc", 1), ("acc_norm", np.array([len(text) for text in texts])),
                                 ("acc_bytes", np.array([len(text.encode()) for text in texts]))):
                right[name].append(int(np.argmax(own / length) == gold))
                if name in line:
                    assert line[name] == right[name][-1]
            assert line["gold"] == gold and line["choice"] == np.argmax(own)
    names = ["acc", "acc_norm", "acc_bytes"] if suite in NORMED else ["acc"]
    for name in names:
        assert summary[name] == np.mean(right[name])
        error = np.std(right[name], ddof=1) / math.sqrt(len(lines)) if len(lines) > 1 else None
        assert summary[name + "_stderr"] == (error if error is None else pytest.approx(error))
    assert ("acc_norm" in summary) == (len(names) > 1)
    if suite == "lambada":
        assert summary["perplexity"] == pytest.approx(
            math.exp(-np.mean([line["log_likelihoods"][0] for line in lines])))


def test_questions_about_a_document_are_asked_in_any_batch(bmojo, model, tmp_path):
    """Items alone, several about one document, and a call that goes on within one."""
    rows = [{"input": f"text {i} " * 9, "instructions": [f"q{i}{j}\n\n{OPTIONS}" for j in range(i)],
             "outputs": ["up"] * i} for i in (1, 1, 5, 1, 3)]  # fmt: skip
    data = jsonl(tmp_path / "quality.jsonl", *rows)
    whole = items_of(bmojo, model, "quality", data, tmp_path / "a", "--batch", 100)
    assert whole[0]["items"] == 11
    for batch, threads in ((1, 1), (2, 2), (4, 1)):
        path = tmp_path / f"batch{batch}"
        for limit in (1, 4, 11):
            run(bmojo, model, "quality", data, "--items", path, "--limit", limit, "--batch", batch)
        assert items_of(bmojo, model, "quality", data, path, "--batch", batch, "--threads", threads) == whole
        assert path.read_text() == (tmp_path / "a").read_text()


def words(text):
    """As SQuAD's normalisation has it."""
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(text, golds):
    def one(gold):
        own, gold = Counter(words(text)), Counter(words(gold))
        same = (own & gold).total()
        return 2 * same / (own.total() + gold.total()) if same else 0

    return max(map(one, golds))


def contains(text, golds):
    return int(golds[0].lower() in text.lower())


def of_document(text, question):
    return f"{text}\n\nQuestion: {question}\nAnswer:"


LONG = "Of a cat, and\n\nof a dog. "
LONG_ROWS = [
    {"input": LONG, "evaluation": "f1", "source": "x",
     "instructions": ["Who?", "Is it?", "Who?", "Where?", "No?"],
     "outputs": ["the Cat", "Yes", "a dog", ["here", "there"], ["no", "Yes."]]},
    {"input": "B", "instructions": ["Why?"], "outputs": ["x"], "evaluation": "LLM"},
    {"input": "C", "instructions": ["Why?"], "outputs": ["unanswerable"]}]  # fmt: skip
LONG_GOLDS = [["the Cat", "a dog"], ["Yes"], ["here", "there"], ["no", "Yes."], ["unanswerable"]]
LONG_PROMPTS = [*(of_document(LONG, each) for each in ("Who?", "Is it?", "Where?", "No?")), of_document("C", "Why?")]
SCROLLS_ROWS = [{"id": "1", "input": f"Who?\n\n{LONG}", "output": "the Cat"},
                {"id": "1", "input": f"Who?\n\n{LONG}", "output": "a dog"},
                {"id": "2", "input": f"Where?\n\n{LONG}", "output": "there"}]
# Of each: suite, rows, prompts, right answers, items that are answered by yes or no, the measure,
# the most tokens, a text that is right for the first item, and what measures it.
ANSWERED = {
    "qasper": ("qasper", LONG_ROWS, LONG_PROMPTS, LONG_GOLDS, [1, 3], "f1", 256, "Dog, cat", f1),
    "narrativeqa": ("narrativeqa", LONG_ROWS, LONG_PROMPTS, LONG_GOLDS, [], "f1", 256, "A dog!", f1),
    "narrativeqa, SCROLLS": ("narrativeqa", SCROLLS_ROWS, [of_document(LONG, "Who?"), of_document(LONG, "Where?")],
                             [["the Cat", "a dog"], ["there"]], [], "f1", 256, "a dog, the cat", f1),
    "swde": ("swde", [{"text": " <b>Year</b> 1999\nyear: ", "value": " In 1999 "}, {"text": "b", "value": "c"}],
             ["<b>Year</b> 1999\nyear:", "b"], [["In 1999"], ["c"]], [], "contains", 48, "it was IN 1999.", contains),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERED)
def test_answers_are_written_as_generate_writes(bmojo, model, tmp_path, case):
    suite, rows, prompts, golds, given, measure, most, right, score = ANSWERED[case]
    data = jsonl(tmp_path / f"{suite}.jsonl", *rows)
    summary, lines = items_of(bmojo, model, suite, data, tmp_path / "a")
    assert [line["golds"] for line in lines] == golds
    for i, (line, prompt) in enumerate(zip(lines, prompts, strict=True)):
        if i in given:
            got = scored(bmojo, model, [(prompt, " no"), (prompt, " yes")], tmp_path)
            assert line["log_likelihoods"] == pytest.approx([own for own, _ in got], rel=1e-9)
            assert line["text"] == ["no", "yes"][np.argmax(line["log_likelihoods"])]
            continue
        (tmp_path / "prompt").write_text(prompt)
        alone = bmojo.json("generate", "--model", model, "--prompt-file", tmp_path / "prompt", "--temperature", 0,
                           "--max-tokens", most, "--stop", "\n")  # fmt: skip
        assert line["text"] == alone["text"] and line["tokens"] == [len(alone["ids"])]
        assert line["log_likelihoods"] == [pytest.approx(sum(alone["logprobs"]), rel=1e-9)]
    # In any batch, and where a call goes on within a document. A right text that stands in the file counts.
    for batch in (1, 3):
        path = tmp_path / f"b{batch}"
        run(bmojo, model, suite, data, "--items", path, "--limit", 1)
        assert items_of(bmojo, model, suite, data, path, "--batch", batch) == (summary, lines)
    head, *rest = path.read_text().splitlines()
    rest[0] = json.dumps(lines[0] | {"text": right})
    path.write_text("\n".join([head, *rest]) + "\n")
    summary, lines = items_of(bmojo, model, suite, data, path)
    scores = [score(line["text"], line["golds"]) for line in lines]
    assert scores[0] > 0.5 and scores[1:] == pytest.approx([line[measure] for line in lines[1:]])
    assert summary[measure] == pytest.approx(np.mean(scores))
    assert summary[measure + "_stderr"] == pytest.approx(np.std(scores, ddof=1) / math.sqrt(len(scores)))
    assert f"\n{measure}  " in bmojo("eval", "--model", model, "--suite", suite, "--suite-data", data)


NEEDLES = {"niah_single": (128, 1, r"\d{7}"), "ruler_vt": (30, 5, "[A-Z]{5}")}


def made(bmojo, model, suite, *flags):
    return bmojo.json("eval", "--model", model, "--suite", suite, *flags)


@pytest.mark.parametrize("suite", NEEDLES)
def test_texts_that_are_made_depend_on_seed_and_length(bmojo, model, tmp_path, suite):
    most, count, right = NEEDLES[suite]
    path = tmp_path / "items"
    flags = ("--length", 2000, "--items", path)
    whole = made(bmojo, model, suite, *flags, "--limit", 3)
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head["suite"] == suite and head["length"] == 2000 and head["seed"] == 0
    assert whole["items"] == 3 and whole["tokens"] == sum(line["tokens"][0] for line in lines)
    assert whole["contains"] == np.mean([line["contains"] for line in lines])
    for line in lines:
        assert len(line["golds"]) == count and all(re.fullmatch(right, gold) for gold in line["golds"])
        assert 1 <= line["tokens"][0] <= most
    assert len({line["golds"][0] for line in lines}) == 3
    # One by one, and from a file that ends sooner.
    kept = path.read_text()
    path.write_text("".join(kept.splitlines(keepends=True)[:2]))
    assert made(bmojo, model, suite, *flags, "--limit", 3, "--batch", 1) == whole and path.read_text() == kept
    assert made(bmojo, model, suite, *flags, "--limit", 2)["items"] == 2
    # Names that were found count.
    lines[0]["text"] = f"… {lines[0]['golds'][0].lower()} …"
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
    assert made(bmojo, model, suite, *flags, "--limit", 3)["contains"] == pytest.approx(1 / count / 3)

    def refused(*flags):
        return bmojo("eval", "--model", model, "--suite", suite, "--items", path, *flags, code=2)

    assert "items:1: length must be 1999, got 2000; give a new file" in refused("--length", 1999)
    assert "items:1: seed must be 4, got 0; give a new file" in refused("--seed", 4, "--length", 2000)
    text = bmojo("eval", "--model", model, "--suite", suite, "--length", 2000, "--limit", 1)
    assert re.fullmatch(r"RULER, [a-z ]+, 1 items\ncontains +[\d.]+ %\n", text)


def test_needles_and_their_flags(bmojo, model, tmp_path):
    def refused(*flags):
        return bmojo("eval", "--model", model, *flags, code=2)

    data = jsonl(tmp_path / "swde.jsonl", {"text": "a", "value": "b"})
    assert refused("--suite", "swde", "--suite-data", data, "--length", 9) == (
        "bmojo: --length: needs a suite that is made, niah_single or ruler_vt, got --suite swde")
    assert refused("--task", "x", "--length", 9) == "bmojo: --length: needs --suite, got none"
    assert refused("--suite", "niah_single", "--suite-data", data) == (
        "bmojo: --suite-data: needs a suite that is read, got --suite niah_single, which is made")
    assert refused("--suite", "ruler_vt", "--max-length", 9) == (
        "bmojo: --max-length: cuts documents, got --suite ruler_vt")
    for least in (0, 2**24 + 1):
        assert "--length: must be from 1 to 16777216" in refused("--suite", "ruler_vt", "--length", least)
    for suite in NEEDLES:
        assert re.fullmatch(r"bmojo: --length: must be at least \d+ tokens for item 1, got 300",
                            refused("--suite", suite, "--length", 300))


def test_a_line_without_its_text_is_refused(bmojo, model, tmp_path):
    data = jsonl(tmp_path / "swde.jsonl", {"text": "a", "value": "b"})
    _, (line,) = items_of(bmojo, model, "swde", data, tmp_path / "items")
    head = (tmp_path / "items").read_text().splitlines()[0]
    del line["text"]
    (tmp_path / "items").write_text(f"{head}\n{json.dumps(line)}\n")
    assert "items:2: must be a line of --items with 1 choices, got {" in refusal(
        bmojo, model, "swde", data, "--items", tmp_path / "items")


def test_piqa_finds_its_labels_beside_it(bmojo, model, tmp_path):
    jsonl(tmp_path / "piqa_v.jsonl", *({"goal": f"g{i}", "sol1": "a", "sol2": "b"} for i in range(3)))
    (tmp_path / "piqa_v_labels.lst").write_text("1\n0\n1\n")
    _, lines = items_of(bmojo, model, "piqa", tmp_path, tmp_path / "i.out")
    assert [line["gold"] for line in lines] == [1, 0, 1]
    (tmp_path / "piqa_v_labels.lst").write_text("1\n0\n")
    assert "piqa_v.jsonl:3: must have a label, got none here and 2 in" in refusal(
        bmojo, model, "piqa", tmp_path)


def test_blimp_weighs_its_files_the_same(bmojo, model, tmp_path):
    pairs = [("It is.", "It are."), ("They go.", "They goes."), ("a b", "b a")]
    rows = [{"sentence_good": a, "sentence_bad": b} for a, b in pairs]
    flipped = [{"sentence_good": b, "sentence_bad": a} for a, b in pairs[:1]]
    jsonl(tmp_path / "blimp" / "one.jsonl", *rows)
    jsonl(tmp_path / "blimp" / "two.jsonl", *flipped)
    jsonl(tmp_path / "other.jsonl", {})
    summary = run(bmojo, model, "blimp", tmp_path)
    parts = {name: part["acc"] for name, part in summary["parts"].items()}
    assert list(parts) == ["one", "two"] and summary["items"] == 4
    assert summary["acc"] == sum(parts.values()) / 2
    # A pair and its mirror: one of them is right.
    assert parts["two"] == 1 - run(bmojo, model, "blimp", tmp_path / "blimp/one.jsonl", "--limit", 1)["acc"]
    text = bmojo("eval", "--model", model, "--suite", "blimp", "--suite-data", tmp_path)
    assert re.fullmatch(r"BLiMP, 4 items\nacc +[\d.]+ %\n\n[\d.]+ % ± [\d.]+ +one\n[\d.]+ % +two\n", text)


PAGES = [" = One = \n \n a , b @-@ c ( d ) 's \" e \" \n = = Two = = \n f . \n",
         " = Zwei = \n é ( g"]  # fmt: skip
DETOKENIZED = [" = One =\n\na, b-c (d)'s \"e\"\n== Two ==\nf.\n", " = Zwei =\né ( g"]


def test_wikitext_counts_words_and_bytes_of_the_page(bmojo, model, tmp_path):
    jsonl(tmp_path / "wikitext.jsonl", *({"page": page} for page in PAGES))
    summary, lines = items_of(bmojo, model, "wikitext", tmp_path, tmp_path / "i.out")
    got = scored(bmojo, model, [("", text) for text in DETOKENIZED], tmp_path)
    assert [line["log_likelihoods"][0] for line in lines] == pytest.approx([own for own, _ in got], rel=1e-9)
    words = sum(len(re.split(r"\s+", page)) for page in PAGES)
    size = sum(len(page.encode()) for page in PAGES)
    nats = -sum(own for own, _ in got)
    assert summary["word_perplexity"] == pytest.approx(math.exp(nats / words))
    assert summary["byte_perplexity"] == pytest.approx(math.exp(nats / size))
    assert summary["bits_per_byte"] == pytest.approx(nats / size / math.log(2))
    # Its own file, cut at the titles.
    (tmp_path / "test.txt").write_text("\n" + "\n".join(page.rstrip("\n") for page in PAGES))
    own = run(bmojo, model, "wikitext", tmp_path / "test.txt")
    assert own["items"] == 2 and own["tokens"] == summary["tokens"]  # "f. " for "f.\n"


def test_windows_of_a_document_begin_anew(bmojo, model, tmp_path):
    text = "abcdefghij"
    jsonl(tmp_path / "wikitext.jsonl", {"page": text})
    _, (line,) = items_of(bmojo, model, "wikitext", tmp_path, tmp_path / "i.out", "--max-length", 4)
    pairs = [("", "abcd"), ("d", "efgh"), ("fgh", "ij")]
    expected = sum(own for own, _ in scored(bmojo, model, pairs, tmp_path))
    assert line["log_likelihoods"] == [pytest.approx(expected, rel=1e-9)] and line["tokens"] == [10]
    # Windows of several documents are read together, in parts that end within a document.
    jsonl(tmp_path / "wikitext.jsonl", *({"page": text[:length]} for length in (10, 3, 9, 4)))
    whole = items_of(bmojo, model, "wikitext", tmp_path, tmp_path / "a", "--max-length", 4)
    assert whole[1][0] == line
    for batch in (1, 2, 3):
        path = tmp_path / f"batch{batch}"
        assert items_of(bmojo, model, "wikitext", tmp_path, path, "--max-length", 4, "--batch", batch) == whole


@pytest.fixture
def piqa(tmp_path):
    rows = ({"goal": f"goal {i}", "sol1": "abc" * (i % 3 + 1), "sol2": "acd", "label": i % 2} for i in range(7))
    return jsonl(tmp_path / "piqa.jsonl", *rows)


def test_the_batch_and_the_threads_change_nothing(bmojo, model, piqa, tmp_path):
    whole = items_of(bmojo, model, "piqa", piqa, tmp_path / "a", "--batch", 7, "--threads", 2)
    for batch, threads in ((1, 1), (3, 2), (100, 1)):
        path = tmp_path / f"b{batch}"
        assert items_of(bmojo, model, "piqa", piqa, path, "--batch", batch, "--threads", threads) == whole
        assert path.read_text() == (tmp_path / "a").read_text()


def test_a_second_call_goes_on(bmojo, model, piqa, tmp_path):
    """It asks only for what is missing: what stands in the file is taken as it is."""
    whole = items_of(bmojo, model, "piqa", piqa, tmp_path / "a")
    path = tmp_path / "b"
    text = (tmp_path / "a").read_text().splitlines(keepends=True)
    for rest in ("", text[4][:20], text[4][:-1]):  # none of the next line, some, all but its end
        path.write_text("".join(text[:4]) + rest)
        assert items_of(bmojo, model, "piqa", piqa, path) == whole
        assert path.read_text() == "".join(text)
    changed = json.loads(text[1])
    changed["log_likelihoods"] = [-0.5, -9.25]
    path.write_text(text[0] + json.dumps(changed) + "\n")
    _, lines = items_of(bmojo, model, "piqa", piqa, path)
    assert lines[0]["log_likelihoods"] == [-0.5, -9.25] and lines[1:] == whole[1][1:]
    # A longer run goes on from a shorter one, and a shorter one needs nothing more.
    path.unlink()
    assert run(bmojo, model, "piqa", piqa, "--items", path, "--limit", 2)["items"] == 2
    assert items_of(bmojo, model, "piqa", piqa, path) == whole
    assert run(bmojo, model, "piqa", piqa, "--items", path, "--limit", 2)["items"] == 2
    assert path.read_text() == "".join(text)


def test_an_interrupted_call_is_gone_on_with(bmojo, model, tmp_path):
    rows = ({"goal": f"goal {i}" * 20, "sol1": "abc" * 9, "sol2": "acd", "label": i % 2} for i in range(3000))
    data, path = jsonl(tmp_path / "piqa.jsonl", *rows), tmp_path / "items"
    call = subprocess.Popen([bmojo.path, "eval", "--model", model, "--suite", "piqa", "--suite-data", data,
                             "--items", path, "--batch", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while call.poll() is None and (not path.exists() or path.read_text().count("\n") < 5):
        time.sleep(0.01)
    call.send_signal(signal.SIGINT)
    out, err = call.communicate()
    assert call.returncode == 130 and out == b"" and b"interrupted" in err
    kept = path.read_text()
    assert 5 <= kept.count("\n") < 3000
    whole = items_of(bmojo, model, "piqa", data, tmp_path / "whole", "--batch", 64)
    assert items_of(bmojo, model, "piqa", data, path, "--batch", 64) == whole
    assert path.read_text().startswith(kept)


def test_a_file_in_use_is_refused(bmojo, model, piqa, tmp_path):
    with open(tmp_path / "items", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert refusal(bmojo, model, "piqa", piqa, "--items", tmp_path / "items") == (
            f"bmojo: --items: must not be in use by another process, got {tmp_path}/items locked")


def test_results_of_something_else_are_refused(bmojo, model, piqa, tmp_path):
    path = tmp_path / "items"
    items_of(bmojo, model, "piqa", piqa, path)
    before = path.read_text()

    def refused(*flags, model=model, suite="piqa", data=piqa):
        return refusal(bmojo, model, suite, data, "--items", path, *flags)

    bmojo("init", *but(SMALL, "--set", "vocab_size=257"), "--seed", 5, "--out", tmp_path / "other")
    assert re.search(r'items:1: model must be "xxh3.*, got "xxh3.*; give a new file$', refused(model=tmp_path / "other"))
    assert "items:1: config must be" in refused("--set", "window=4")
    assert 'items:1: weights must be "bf16", got "f32"' in refused("--dtype", "bf16")
    winogrande = jsonl(tmp_path / "winogrande.jsonl", {"context_options": ["a", "b"], "continuation": "c", "gold": 0})
    assert 'items:1: suite must be "winogrande", got "piqa"' in refused(suite="winogrande", data=winogrande)
    other = jsonl(tmp_path / "piqa_other.jsonl", {"goal": "x", "sol1": "a", "sol2": "b", "label": 1})
    assert re.search(r"items:2: must be of item 0, .*piqa_other.jsonl:1, got another item", refused(data=other))
    assert path.read_text() == before
    for text, message in (("hello", "items: must be a file of --items, got another"),
                          ("hello\n", "items:1: must be valid JSON"), ("{}\n", "items:1: suite must be"),
                          (before.splitlines()[0] + "\n{}\n", "items:2: must be a line of --items with 2 choices, got {}")):
        path.write_text(text)
        assert message in refused()
        assert path.read_text() == text


def refusal(bmojo, model, suite, data, *flags):
    return bmojo("eval", "--model", model, "--suite", suite, "--suite-data", data, *flags, code=2)


TWO = {"goal": "g", "sol1": "a", "sol2": "b"}
GRANDE = {"sentence": "a _ b", "option1": "x", "option2": "y", "answer": "1"}
BAD = [
    ("lambada", [{"text": "a b"}, {"txt": "a"}], "2: must have a field text, got none"),
    ("lambada", [{"text": 3}], "1: text must be text, got 3"),
    ("lambada", [{"text": ""}], '1: text must not be empty, got ""'),
    ("lambada", [{"text": "a b "}], "1: text must end with a word, got a space"),
    ("lambada", [[1]], "1: must be an object {..}, got [1]"),
    ("lambada", "{\n", "1: must be valid JSON"),
    ("lambada", '{"text": "a b"}\n\n', "2: must be valid JSON"),
    ("hellaswag", [{**HELLASWAG, "endings": ["a"]}], '1: endings must be two texts or more, got ["a"]'),
    ("hellaswag", [{**HELLASWAG, "endings": ["a", "[b]"], "label": 0}], "1: endings must not be empty, got '[b]'"),
    ("hellaswag", [{**HELLASWAG, "label": 4}], "1: label: must be from 0 to 3, got 4"),
    ("hellaswag", [{**HELLASWAG, "label": ""}], "1: label: must be a whole number in digits, got ''"),
    ("hellaswag.txt", "a\n4\na\nb\nc\nd\n", "2: must be from 0 to 3, got 4"),
    ("hellaswag.txt", "a\nb\na\nb\nc\nd\n", "2: must be a whole number in digits, got 'b'"),
    ("hellaswag.txt", "a\n1\na\nb\nc\n", "6: must be an ending, got none"),
    ("hellaswag.txt", "a\n", "2: must be the right ending's number, 0 to 3, got none"),
    ("hellaswag.txt", "\n", "1: must be a context, got none"),
    ("hellaswag.txt", b"a\xff\n", "1: must be UTF-8, got other bytes"),
    ("piqa", [TWO], "1: must have a label, got none here and 0 in"),
    ("piqa", [{**TWO, "sol1": "", "label": 0}], '1: sol1 must not be empty, got ""'),
    ("arc_easy", [{**ARC, "answerKey": "4"}], "1: answerKey must be one of the 3 labels, got '4' of 3"),
    ("arc_easy", [{**ARC, "choices": []}], "1 choices: must be an object {..}, got []"),
    ("arc_easy", [{"query": "q", "choices": ["a", "b"], "gold": 2}], "1: gold: must be from 0 to 1, got 2"),
    ("winogrande", [{**GRANDE, "sentence": "a"}], "1: sentence must have a gap _, got none"),
    ("winogrande", [{**GRANDE, "sentence": "a _ "}], "1: sentence must go on behind its gap _, got its end"),
    ("winogrande", [{**GRANDE, "answer": "3"}], "1: answer: must be from 1 to 2, got 3"),
    ("blimp", [{"sentence_good": "a"}], "1: must have a field sentence_bad, got none"),
    ("quality", [{"input": "t", "instructions": ["q"]}], "1: must have a field outputs, got none"),
    ("quality", [{"input": "", "instructions": ["q"], "outputs": ["a"]}], '1: input must not be empty, got ""'),
    ("quality", [{"input": " \n", "instructions": ["q"], "outputs": ["a"]}], "1: input must hold a document, got none"),
    ("quality", [{"input": "t", "instructions": [], "outputs": []}], "1: instructions must be one text or more, got []"),
    ("quality", [{"input": "t", "instructions": ["q"], "outputs": []}],
     "1: outputs must be as many as the 1 instructions, got []"),
    ("quality", [{"input": "t", "instructions": ["q"], "outputs": [[""]]}],
     '1: outputs must hold texts that are not empty, got [""]'),
    ("quality", [{"input": "t", "instructions": ["q"], "outputs": ["a"]}],
     "1, question 1: question must have choices (A) to (D), a line each, got 'q'"),
    ("quality", [{"input": "t", "instructions": ["q\n(A) a\n(B) b (C) c\n(D) d"], "outputs": ["a"]}],
     "1, question 1: question must have choices (A) to (D), a line each, got "),
    ("quality", [{"input": "t", "instructions": ["q\n(A) a\n(B)\n(C) c\n(D) d"], "outputs": ["a"]}],
     "1, question 1: choices must not be empty, got (B) of "),
    ("quality", [{"input": "t", "instructions": ["p\n" + OPTIONS, "q\n" + OPTIONS], "outputs": ["up", "(B) up"]}],
     "1, question 2: output must be one of the choices, got '(B) up'"),
    ("quality", [{"input": "t", "instructions": ["q\n" + OPTIONS], "outputs": [["up", "no"]]}],
     "1, question 1: question must have one right answer, got 2"),
    ("quality", [{"input": "q (D) t", "output": "a"}],
     "1: input must be a question, a blank line and a document, got 'q (D) t'"),
    ("quality", [{"input": f"q\n\n{OPTIONS}\n\n ", "output": "a"}], "1: input must hold a document, got none"),
    ("quality", [{"input": "t"}], "1: must have a field output, got none"),
    ("qasper", [{"input": "q t", "output": "a"}],
     "1: input must be a question, a blank line and a document, got 'q t'"),
    ("qasper", [{"input": "q\n\n", "output": "a"}], "1: input must hold a document, got none"),
    ("qasper", [{"id": "d", "input": "p\n\nt", "output": "a"}, {"id": "d", "input": "q\n\nt", "output": "b"}],
     "2: lines of one id must have one input, got another behind id 'd'"),
    ("narrativeqa", [{"input": "q\n\nt", "output": 3}], "1: output must hold texts that are not empty, got 3"),
    ("narrativeqa", [{"input": "q\n\nt", "output": []}], "1: output must hold texts that are not empty, got []"),
    ("swde", [{"text": " ", "value": "a"}], "1: text must not be empty, got ' '"),
    ("swde", [{"text": "a", "value": "\n"}], "1: value must not be empty, got '\\x0a'"),
    ("swde", [{"text": "a"}], "1: must have a field value, got none"),
    ("wikitext", [{"page": " \n"}], "1: page must not be empty, got white space"),
    ("wikitext.txt", b"a\xff", " must be UTF-8, got other bytes at 1"),
    ("wikitext.txt", "\n", " must hold at least one item, got none"),
    ("piqa", "", " must hold at least one item, got none"),
]  # fmt: skip


@pytest.mark.parametrize("name,content,message", BAD)
def test_malformed_files_are_named_with_their_line(bmojo, model, tmp_path, name, content, message):
    path = tmp_path / (name if "." in name else name + ".jsonl")
    if isinstance(content, list):
        jsonl(path, *content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    got = refusal(bmojo, model, name.split(".")[0], tmp_path)
    assert got.startswith(f"bmojo: {path}:{message}"), got


def test_labels_are_named_with_their_line(bmojo, model, tmp_path):
    jsonl(tmp_path / "piqa.jsonl", TWO, TWO)
    (tmp_path / "piqa_labels.lst").write_text("0\n2\n")
    assert "piqa_labels.lst:2: must be from 0 to 1, got 2" in refusal(bmojo, model, "piqa", tmp_path)


def test_suites_and_files_that_are_not_there(bmojo, model, piqa, tmp_path):
    names = "lambada, hellaswag, piqa, arc_easy, arc_challenge, winogrande, blimp, quality, qasper, narrativeqa, swde, niah_single, ruler_vt, wikitext"
    assert refusal(bmojo, model, "helaswag", tmp_path) == (
        f"bmojo: --suite: must be {names}, got 'helaswag'; did you mean hellaswag?")
    assert refusal(bmojo, model, "xxxxxxxxxxxxxxx", tmp_path).endswith(f"must be {names}, got 'xxxxxxxxxxxxxxx'")
    assert refusal(bmojo, model, "piqa", tmp_path / "none") == (
        f"bmojo: --suite-data: must be a file or a folder, got {tmp_path}/none")
    assert refusal(bmojo, model, "lambada", tmp_path) == (
        f"bmojo: --suite-data: must hold lambada*.jsonl or lambada*.txt, got none in {tmp_path}")
    shutil.copy(piqa, tmp_path / "piqa_2.jsonl")
    assert refusal(bmojo, model, "piqa", tmp_path) == (
        "bmojo: --suite-data: must hold one file of piqa, got piqa.jsonl, piqa_2.jsonl; name the file")
    (tmp_path / "empty").mkdir()
    assert refusal(bmojo, model, "blimp", tmp_path / "empty").endswith("must hold *.jsonl, got none in "
                                                                       f"{tmp_path}/empty")


def test_flags_that_do_not_fit(bmojo, model, small, pieces, piqa, tmp_path):
    def refused(*flags):
        return bmojo("eval", "--model", model, *flags, code=2)

    assert refused() == "bmojo: eval: --task, --data or --suite is needed, got none"
    assert refused("--suite", "piqa", "--task", "x") == (
        "bmojo: eval: --task, --data or --suite is needed, got more than one")
    assert refused("--suite", "piqa") == "bmojo: --suite: needs --suite-data, got none"
    for flag, value in (("--suite-data", tmp_path), ("--items", "i"), ("--limit", 3), ("--max-length", 3)):
        assert refused("--task", "x", flag, value) == f"bmojo: {flag}: needs --suite, got none"
    assert refusal(bmojo, model, "piqa", piqa, "--max-length", 5) == (
        "bmojo: --max-length: cuts documents, got --suite piqa")
    assert refusal(bmojo, small, "piqa", piqa) == (
        "bmojo: --suite: needs a tokenizer, got none in the model's folder")
    shutil.copy(pieces / "tokenizer.model", small)
    assert re.match("bmojo: the model's tokenizer: vocabulary must be at most the model's = 40, got \\d+$",
                    refusal(bmojo, small, "piqa", piqa))
    assert "--limit: must be from 1" in refusal(bmojo, model, "piqa", piqa, "--limit", 0)


def test_torch_tells_the_same(bmojo, model, piqa, tmp_path):
    if not (bmojo.folder / "bmojo-torch").exists():
        pytest.skip("built without torch")
    native = items_of(bmojo, model, "piqa", piqa, tmp_path / "a")
    torch = items_of(bmojo, model, "piqa", piqa, tmp_path / "b", "--engine", "torch")
    for ours, theirs in zip(native[1], torch[1], strict=True):
        assert ours["log_likelihoods"] == pytest.approx(theirs["log_likelihoods"], abs=1e-4)
        assert ours["choice"] == theirs["choice"]


REAL = [("lambada", "eval", 5153), ("hellaswag", "eval", 2000), ("piqa", "eval", 1838), ("arc_easy", "eval", 2376),
        ("arc_challenge", "eval", 1172), ("winogrande", "eval", 1267), ("wikitext", "wikitext-2/test.txt", 62),
        ("quality", "eval", 202), ("qasper", "eval/scientific_qa.jsonl", 151)]  # fmt: skip


@pytest.mark.parametrize("suite,where,count", REAL)
def test_real_files_are_read_to_their_end(bmojo, tmp_path, suite, where, count):
    if not (DATA / where).exists():
        pytest.skip(f"no {DATA / where}; BMOJO_DATA names the data's folder")
    bmojo("init", "--preset", "mamba-tiny", "--set", "vocab_size=257", "--set", "hidden_size=4",
          "--set", "ssm_inner_size=4", "--set", "ssm_state_size=1", "--set", "ssm_dt_rank=1",
          "--set", "num_layers=1", "--out", tmp_path / "m")  # fmt: skip
    summary = run(bmojo, tmp_path / "m", suite, DATA / where, "--batch", 64)
    assert summary["items"] == count
