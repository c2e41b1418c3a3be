"""Suites item by item beside lm-evaluation-harness, on the same weights: `make compare-suites`.

SmolLM2-135M-Instruct in f32 answers the first 200 items of each suite, once by `bmojo eval --suite`
and once by lm-eval's Hugging Face backend, in an environment of its own. Each must make the same
choices, but where two choices lie closer than rounding, and give the same log-likelihoods to 1e-3.
Texts are found in the folder that BMOJO_DATA names; BLiMP's pairs are made here.

The first call builds the environment and the weights in build/peers; what lm-eval said of a suite is
kept there, and a second call goes on. results/suites.json is written at the end. Exits 1 where
something differs."""

import argparse
import json
import os
import shutil
import sys
from itertools import product
from pathlib import Path

import record
from engine_peers import FOLDER, TOOLS, environment, made, smollm2_folder, smollm2_gguf, weights_python
from measure import ROOT, Failed, run

DATA = Path(os.environ.get("BMOJO_DATA") or ROOT.parent / "shared/data")
LM_EVAL = "lm_eval[hf]==0.4.13"
ITEMS = 200
WINDOW = 64  # tokens of a document that are read at once, so that most have several windows
CLOSE = 1e-3
RESULTS = ROOT / "results/suites.json"


def say(text):
    print(f"compare-suites: {text}", file=sys.stderr, flush=True)


def lines_of(name):
    return (DATA / name).read_text().splitlines()


def rows_of(name):
    return [json.loads(line) for line in lines_of(f"eval/{name}.jsonl")]


# Each suite in lm-eval's fields: what it says must come from the same texts as ours.


def lambada():
    return rows_of("lambada_test")


def hellaswag():
    lines = lines_of("eval/hellaswag_val_2000.txt")
    for at in range(0, len(lines), 6):
        label, context = lines[at].split(": ", 1)
        yield {"activity_label": label, "ctx_a": context, "ctx_b": "", "label": lines[at + 1],
               "endings": lines[at + 2:at + 6]}


def piqa():
    labels = lines_of("eval/piqa_valid_labels.lst")
    return [row | {"label": int(label)}
            for row, label in zip(rows_of("piqa_valid"), labels, strict=True)]


def arc(name):
    for row in rows_of(name):
        labels = "ABCDEFGH"[:len(row["choices"])]
        yield {"question": row["query"].removeprefix("Question: "), "answerKey": labels[row["gold"]],
               "choices": {"text": row["choices"], "label": list(labels)}}


def winogrande():
    for row in rows_of("winogrande"):
        first, second = row["context_options"]
        same = len(os.path.commonprefix([first, second]))
        yield {"sentence": f"{first[:same]}_ {row['continuation']}", "option1": first[same:],
               "option2": second[same:], "answer": str(row["gold"] + 1)}


def blimp():
    """Made here. The first pair is one sentence twice: a tie."""
    yield {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleep."}
    nouns = ["teacher", "driver", "child", "river", "story", "student", "doctor", "horse"]
    verbs = ["sleeps", "falls", "waits", "remains", "returns"]
    for near, noun, verb, place in product(("near", "behind"), nouns, verbs, ("doors", "old towns", "seas")):
        yield {"sentence_good": f"The {noun} {near} the {place} {verb}.",
               "sentence_bad": f"The {noun} {near} the {place} {verb[:-1]}."}


def wikitext():
    """A paragraph a page: whole articles would take hours."""
    for line in lines_of("wikitext-2/test.txt"):
        if line.strip() and not line.startswith(" ="):
            yield {"page": line}


# Of each suite: lm-eval's name, its rows, and the file that ours reads; by default the same rows.
SUITES = {
    "winogrande": ("winogrande", winogrande, "eval/winogrande.jsonl"),
    "blimp": ("blimp_adjunct_island", blimp, None),
    "lambada": ("lambada_openai", lambada, "eval/lambada_test.jsonl"),
    "piqa": ("piqa", piqa, "eval/piqa_valid.jsonl"),
    "arc_easy": ("arc_easy", lambda: arc("arc_easy"), "eval/arc_easy.jsonl"),
    "arc_challenge": ("arc_challenge", lambda: arc("arc_challenge"), "eval/arc_challenge.jsonl"),
    "hellaswag": ("hellaswag", hellaswag, "eval/hellaswag_val_2000.txt"),
    "wikitext": ("wikitext", wikitext, None),
}


def lm_eval_python():
    def install(pip):
        say(f"installing {LM_EVAL}, some minutes")
        run([*pip, "--constraint", str(TOOLS / "requirements.txt"), LM_EVAL])

    return environment("lm-eval", f"{LM_EVAL} {(TOOLS / 'requirements.txt').read_text()}", install)


def models(program):
    """The same weights for both: ours are imported from the GGUF, lm-eval's are dequantised by Python."""
    python, folder = weights_python(), FOLDER / "models"
    theirs = smollm2_folder(python)
    ours = made(folder / "smollm2-gguf", lambda part: run(
        [str(program), "import", str(smollm2_gguf(python)), "--dtype", "f32", "--out", str(part), "--quiet"]))

    def with_tokenizer(part):
        part.mkdir()
        for name in ("config.json", "model.safetensors"):
            (part / name).symlink_to(theirs / name)
        shutil.copy(ours / "tokenizer.json", part)
        (part / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>",
             "eos_token": "<|im_end|>"}))

    return ours, made(folder / "smollm2-lm-eval", with_tokenizer)


def first_rows(rows):
    return [row for row, _ in zip(rows(), range(ITEMS))]


def their_lines(model, suite, folder):
    """(what lm-eval said of each item, its measures)."""
    task, rows, _ = SUITES[suite]
    text = "".join(json.dumps(row) + "\n" for row in first_rows(rows))
    path = folder / f"{task}.jsonl"
    said = folder / f"{task}-{LM_EVAL.split('==')[1]}-{WINDOW}.said.jsonl"
    if not (said.exists() and path.exists() and path.read_text() == text):
        say(f"{suite}: lm-eval")
        said.unlink(missing_ok=True)
        path.write_text(text)
        window = [str(WINDOW)] if suite == "wikitext" else []
        out = run([str(lm_eval_python()), str(TOOLS / "suite_peer.py"), str(model), str(folder), task,
                   str(ITEMS), *window])
        # What its libraries print stands before its own lines.
        made(said, lambda part: part.write_text("".join(
            line + "\n" for line in out.splitlines() if line.startswith("{"))))
    *lines, measures = map(json.loads, said.read_text().splitlines())
    return lines, measures


def our_lines(program, model, suite, folder):
    say(f"{suite}: bmojo")
    task, _, data = SUITES[suite]
    path = DATA / data if data else folder / f"{task}.jsonl"
    items = folder / f"{suite}.items.jsonl"
    items.unlink(missing_ok=True)  # it may be of another build
    window = ["--max-length", str(WINDOW)] if suite == "wikitext" else []
    measures = json.loads(run(
        [str(program), "eval", "--model", str(model), "--suite", suite, "--suite-data", str(path),
         "--items", str(items), "--limit", str(ITEMS), "--threads", "1", "--quiet", "--json", *window]))
    return [json.loads(line) for line in items.read_text().splitlines()[1:ITEMS + 1]], measures


def argmax(values):
    return values.index(max(values))


def is_tie(values, a, b):
    return abs(values[a] - values[b]) <= CLOSE


def choices_differ(ours, theirs):
    """(choices that differ, and those of them that are ties), as a whole and by the character."""
    differing, ties = 0, 0
    lengths = [len(text) for text in theirs["choices"]]
    for name, weights in (("choice", [1] * len(lengths)), ("choice_norm", lengths)):
        if name not in ours:
            continue
        values = [own / weight for own, weight in zip(theirs["log_likelihoods"], weights, strict=True)]
        measure = {"choice": "acc", "choice_norm": "acc_norm"}[name]
        if (argmax(values) == ours["gold"]) != bool(theirs[measure]):
            raise Failed(f"lm-eval's {measure} does not follow from its log-likelihoods: {theirs}")
        if ours[name] != argmax(values):
            differing += 1
            ties += is_tie(values, ours[name], argmax(values))
    return differing, ties


def compare(suite, ours, theirs):
    """One row of the table."""
    (our_items, our_measures), (their_items, their_measures) = ours, theirs
    worst, differing, ties, texts = 0.0, 0, 0, 0
    for mine, other in zip(our_items, their_items, strict=True):
        for own, their in zip(mine["log_likelihoods"], other["log_likelihoods"], strict=True):
            worst = max(worst, abs(own - their))
            texts += 1
        if suite == "lambada":
            differing += mine["greedy"] != other["greedy"]
        elif suite != "wikitext":
            more, tied = choices_differ(mine, other)
            differing, ties = differing + more, ties + tied
    measures = {name: [our_measures[name], value] for name, value in their_measures.items()
                if name in our_measures and isinstance(value, (int, float))}
    return {"suite": suite, "items": len(our_items), "texts": texts, "worst_difference": worst,
            "choices_that_differ": differing, "of_these_ties": ties, "measures": measures}


def is_equal(row):
    return row["worst_difference"] <= CLOSE and row["choices_that_differ"] == row["of_these_ties"]


def table(rows):
    yield "| suite | items | texts | worst difference of a log-likelihood | choices that differ | bmojo and lm-eval |"
    yield "|---|---:|---:|---:|---:|---|"
    for row in rows:
        measures = "; ".join(f"{name} {ours:.4f}, {theirs:.4f}"
                             for name, (ours, theirs) in row["measures"].items())
        yield (f"| `{row['suite']}` | {row['items']} | {row['texts']} | {row['worst_difference']:.1e} | "
               f"{row['choices_that_differ']} | {measures} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
    parser.add_argument("--only", nargs="+", choices=SUITES, default=list(SUITES))
    options = parser.parse_args()
    if not (DATA / "eval").is_dir():
        sys.exit(f"compare-suites: no {DATA}/eval; BMOJO_DATA names the data's folder")
    folder = FOLDER / "suites"
    folder.mkdir(parents=True, exist_ok=True)
    program = options.bin / "bmojo"
    try:
        lm_eval_python()
        our_model, their_model = models(program)
        rows = []
        for suite in options.only:
            theirs = their_lines(their_model, suite, folder)
            rows.append(compare(suite, our_lines(program, our_model, suite, folder), theirs))
    except Failed as failed:
        sys.exit(f"compare-suites: {failed}")
    print("\n".join(table(rows)))
    whole = len(rows) == len(SUITES)
    command = "make compare-suites" if whole else f"tools/compare_suites.py --only {' '.join(options.only)}"
    record.store(RESULTS, command, rows, model="SmolLM2-135M-Instruct, f32", peer=LM_EVAL)
    sys.exit(0 if all(map(is_equal, rows)) else 1)


if __name__ == "__main__":
    main()
