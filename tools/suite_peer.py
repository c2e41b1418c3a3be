"""lm-evaluation-harness on rows that are given, for compare_suites.py: runs in its environment.

    suite_peer.py MODEL_FOLDER ROWS_FOLDER TASK LIMIT [MAX_LENGTH]

ROWS_FOLDER/TASK.jsonl holds rows in the task's own fields. Prints one line an item:
{"log_likelihoods": [..], "greedy": [..], "choices": [..], "acc": .., "acc_norm": ..}, then a line of
the task's measures."""

import json
import os
import sys
from pathlib import Path

# Of each task: the data set's name on the hub, and its configuration.
DATA_SETS = {
    "lambada_openai": ("EleutherAI/lambada_openai", "default"),
    "hellaswag": ("Rowan/hellaswag", "default"),
    "piqa": ("baber/piqa", "default"),
    "arc_easy": ("allenai/ai2_arc", "ARC-Easy"),
    "arc_challenge": ("allenai/ai2_arc", "ARC-Challenge"),
    "winogrande": ("allenai/winogrande", "winogrande_xl"),
    "blimp_adjunct_island": ("nyu-mll/blimp", "adjunct_island"),
    "wikitext": ("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1"),
}


def lay_out(folder, task, rows):
    """A data set as a folder under its name on the hub, which is found before the hub is asked. Each
    task has a working folder of its own, so its configuration is the only one. A task asks one split,
    and wants to see those that it could take examples from."""
    name, config = DATA_SETS[task]
    home = folder / task / name
    home.mkdir(parents=True, exist_ok=True)
    (home / "rows.jsonl").write_text(rows)
    splits = "".join(f"  - split: {split}\n    path: rows.jsonl\n"
                     for split in ("train", "validation", "test"))
    (home / "README.md").write_text(
        f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{splits}---\n")
    return folder / task


def line_of(sample):
    """What became of an item: every answer is (log-likelihood, greedy), or a number of a document."""
    answers = [each if isinstance(each, (list, tuple)) else (each, False)
               for each in sample["filtered_resps"]]
    texts = [arguments[-1] for arguments in sample["arguments"]]
    line = {"log_likelihoods": [float(own) for own, _ in answers],
            "greedy": [bool(greedy) for _, greedy in answers],
            "choices": [text[1:] for text in texts]}
    return line | {name: sample[name] for name in ("acc", "acc_norm") if name in sample}


def main():
    model, folder, task, limit, *max_length = sys.argv[1:]
    folder = Path(folder).resolve()
    model = str(Path(model).resolve())
    os.chdir(lay_out(folder / "hub", task, (folder / f"{task}.jsonl").read_text()))
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                   "HF_DATASETS_CACHE": str(folder / "cache"), "TOKENIZERS_PARALLELISM": "false"}
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    peer = HFLM(pretrained=model, dtype="float32", device="cpu", batch_size=8,
                max_length=int(max_length[0]) if max_length else None)
    done = lm_eval.simple_evaluate(model=peer, tasks=[task], limit=int(limit), log_samples=True,
                                   bootstrap_iters=0)
    for sample in sorted(done["samples"][task], key=lambda sample: sample["doc_id"]):
        print(json.dumps(line_of(sample)))
    print(json.dumps({name.split(",")[0]: value for name, value in done["results"][task].items()
                      if isinstance(value, (int, float)) and not name.startswith("sample")}))


if __name__ == "__main__":
    main()
