"""Tables and pictures of what sweeps over recall found: `recall.py results/recall/A.jsonl …` prints
a Markdown table a family; with `--against AXIS --out F.png` it draws the accuracy instead.

A row of a table is one question (the task and what `set` changed) to the runs of one recipe that
differ in their seeds. docs/sweeps.md says what a line of results holds.
"""

import json
import re
import sys
from functools import cache
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

from demo import task_keys
from experiment import fields
from measure import FAMILIES, table
from metrics import Mistake
from plot import Parser, check_out, plot_sweep, run
from sweep_figure import read_results

HEAD = ["question", "recipe", "memory, bytes", "parameters", "seeds", "accuracy", "worst",
        "standard error", "95 % interval", "held", "remarks"]
# What a recipe may change from seed to seed without being another one.
NOT_THE_RECIPE = {"seed", "set", "init_from", "threads", "keep", "eval_every", "eval_tokens"}


# --- reading -------------------------------------------------------------------------------------


def number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def run_name(row):
    """As the sweep names its folder, but for the digits of a number: 1e-3 is 0.001."""
    axes = [f"{key.removeprefix('set.')}={value}" for key, value in row["axes"].items()]
    return ",".join([row["family"], *axes])


def family_of(row, by):
    name = row["family"].split(",")[0]
    found = re.search(by, run_name(row)) if by else None
    return (found[1 if found.re.groups else 0] or name) if found else name


@cache
def results_of(sweep, folder):
    """Those of another sweep, {name: row}: they stand beside these, or in its own folder."""
    files = [folder / f"{sweep}.jsonl", folder.parent / sweep / "results.jsonl"]
    file = next((file for file in files if file.exists()), None)
    return {run_name(row): row for row in read_results(file)} if file else {}


def model_of(recipe, folder):
    """The model's fields as texts, as far as the recipe has them, and of weights that a run began
    with those of the run that left them."""
    start = Path(recipe.get("init_from", ""))
    name = re.sub("(?<==)[^,]+", lambda value: str(number(value[0])), start.name)
    begun = results_of(start.parent.name, folder).get(name) if name else None
    model = model_of(begun["recipe"], folder) if begun else {}
    family = recipe.get("preset", "").rpartition("-")[0].removesuffix("-paper")
    if family in FAMILIES:
        model["pattern"] = ",".join(FAMILIES[family][1])
    return model | fields({"set": recipe.get("set", [])})


def read(path, by=None):
    """The results of a file, each with its `model`, under the family that `by` finds."""
    rows = read_results(path)
    for row in rows:
        if any("accuracy" not in each for each in row["evals"]):
            raise Mistake(f"{path}: must be results of tasks, "
                          f"got {run_name(row)} without accuracy")
        row["model"] = model_of(row["recipe"], Path(path).absolute().parent)
        row["family"] = family_of(row, by)
    return rows


def tight(row, each):
    """Whether neither a simple rule nor a window can answer (docs/tasks.md, mqar); None where not
    all that decides it is known."""
    if not each.get("task", "").startswith("mqar:"):
        return True
    try:
        task, model = task_keys(each), row["model"] | fields(each)
        pairs, span, gap = (int(task[key].split("..")[0]) for key in ("pairs", "span", "gap"))
        kinds = set(model["pattern"].split(","))
        places = int(model["eidetic_tokens"]) if "bmojo" in kinds else 0
        reach = 0  # tokens, if all of the memory were rows of one window; full attention is exempt
        if kinds != {"ssm"} and int(model["window"]) > 0:
            row_bytes = 2 * int(model["num_kv_heads"]) * int(model["head_size"]) * 4
            reach = each["memory_bytes"] / row_bytes
        return (task["fill"] == "random" and places <= 2 * pairs and span >= 4 * places
                and gap >= reach)
    except KeyError:
        return None


# --- tables --------------------------------------------------------------------------------------


def settings(row):
    """What must be equal in runs that differ in their seeds alone."""
    recipe = {key: value for key, value in row["recipe"].items() if key not in NOT_THE_RECIPE}
    began = re.sub(r"[,-]?seed[=-]\d+", "", Path(row["recipe"].get("init_from", "")).name)
    return recipe | row["model"] | ({"init_from": began} if began else {})


def questions(rows):
    """{(task, set): [[(row, evaluation), …] for each recipe]}"""
    found = {}
    for row in rows:
        for each in row["evals"]:
            asked = each.get("task", ""), " ".join(each.get("set", []))
            size = row["parameters"], each.get("memory_bytes"), json.dumps(settings(row))
            found.setdefault(asked, {}).setdefault(size, []).append((row, each))
    return {asked: list(groups.values()) for asked, groups in found.items()}


def seeds_of(group):
    seeds = sorted(row["recipe"].get("seed", 0) for row, _ in group)
    twice = next((a for a, b in zip(seeds, seeds[1:]) if a == b), None)
    if twice is not None:
        raise Mistake(f"{group[0][0]['family']}: a seed must stand once in a row, got {twice} "
                      "twice; name the families apart with --by")
    return ", ".join(map(str, seeds))


def percent(share):
    return f"{100 * share:.2f} %"


def remarks(group):
    found = []
    for key, words in (("still_falling", "still falling"), ("stopped_early", "stopped early")):
        count = sum(bool(row.get(key)) for row, _ in group)
        if count:
            found.append(words if count == len(group) else f"{count} of {len(group)} {words}")
    found += {True: [], False: ["not tight"], None: ["not known to be tight"]}[tight(*group[0])]
    return "; ".join(found)


def cells(asked, group, others):
    """A row of the table; `others` are the recipes that were asked the same."""
    row, each = group[0]
    recipe = " ".join(f"{key}={value}" for key, value in settings(row).items()
                      if any(other.get(key) != value for other in others))
    right = [each["accuracy"] for _, each in group]
    error = f"{100 * stdev(right) / sqrt(len(right)):.2f}" if len(right) > 1 else "–"
    alone = len(group) == 1 and "low" in each
    interval = f"{100 * each['low']:.2f} to {100 * each['high']:.2f}" if alone else "–"
    held = [percent(mean(shares)) for shares in zip(*(each.get("held", []) for _, each in group))]
    memory = each.get("memory_bytes", row.get("memory_bytes"))
    return [", ".join(filter(None, asked)), recipe, f"{memory:,}" if memory else "–",
            f"{row['parameters']:,}", seeds_of(group), percent(mean(right)), percent(min(right)),
            error, interval, ", ".join(held) or "–", remarks(group)]


def tables(rows):
    families = dict.fromkeys(row["family"] for row in rows)
    found = []
    for family in families:
        asked = questions([row for row in rows if row["family"] == family])
        lines = [cells(question, group, [settings(other[0][0]) for other in groups])
                 for question, groups in asked.items() for group in groups]
        found.append(f"{family}\n\n{table(HEAD, lines)}")
    return "\n\n".join(found)


# --- pictures ------------------------------------------------------------------------------------


def with_fields(row, evals):
    """What was asked, with the fields of the model that it was asked of. Where some were set, only
    those count: such a question belongs to no other axis."""
    for each in evals:
        model = fields(each) if each.get("set") else row["model"]
        yield each | {f"set.{key}": number(value) for key, value in model.items()}


def lines_of(rows, axis):
    """The results as they are drawn: a line a family and, but against the length, a task."""
    tasks = {row["evals"][0].get("task", "") for row in rows}
    heads = {task.split(",")[0] for task in tasks}  # such as mqar:pairs=16
    for row in rows:
        task, family, evals = row["evals"][0].get("task", ""), row["family"], row["evals"]
        if axis != "length":
            evals = [each for each in evals if each.get("task", "") == task]
            short = task.split(",")[0] if len(heads) == len(tasks) else task
            family += f", {short}" if len(tasks) > 1 else ""
        evals = list(with_fields(row, evals))
        if axis.startswith("set.") and axis not in row["axes"] | dict.fromkeys(evals[0]):
            raise Mistake(f"--against: must be a field that the recipes set, got {axis}, which "
                          f"that of {run_name(row)} does not; where a run began with weights of "
                          "another sweep, results of that must stand beside these")
        yield row | {"family": family, "evals": evals}


def work(arguments):
    parser = Parser(prog="recall", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--by", metavar="REGEX", help="families by its first group, or match, in "
                        "the names of the runs (FAMILY,axis=value,…), in place of their own")
    parser.add_argument("--against", metavar="AXIS", help="draw the accuracy against an axis of "
                        "the grid, memory_bytes, parameters, length or set.FIELD")
    parser.add_argument("--out", type=Path, metavar="F.png", help="picture to write")
    options = parser.parse_args(arguments)
    if (options.against is None) != (options.out is None):
        parser.error("--against and --out: must be given together, got one")
    try:
        re.compile(options.by or "")
    except re.error as mistake:
        raise Mistake(f"--by: must be a regular expression, got {options.by} ({mistake})") from None
    rows = [row for path in options.results for row in read(path, options.by)]
    if not options.against:
        return print(tables(rows))
    check_out(options.out)
    options.json = False
    lines = list(lines_of(rows, options.against))
    plot_sweep(lines, options, lambda row, each: not tight(row, each))


if __name__ == "__main__":
    sys.exit(run("recall", lambda: work(sys.argv[1:])))
