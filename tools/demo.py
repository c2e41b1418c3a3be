"""`make demo`: B'MOJO, a hybrid and Mamba, with equal memory, learn side by side to recall pairs from
among other tokens, more than they can hold. Then all are asked on new sequences, and one sequence
is drawn with what B'MOJO kept of it.

The recipes are configs/demo-short.toml and, from its weights, configs/demo.toml. `--seeds 5 --json-out F.json` repeats the experiment and stores
each seed when it is done. A seed of the same recipe that is already in the file is not run again.
"""

import argparse
import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiment import (Board, Training, clock, ended_with_us, exit_on_signals, fields, load_recipe,
                        load_runs, near, percent, program, shown, store_runs, write_recipe)
from measure import ROOT, Failed, commit, machine, run, run_json, table
from metrics import Mistake, Run, printable, read_metrics

# What the others change of the recipe. Their memories have the bytes of B'MOJO's, within 5 %: the
# hybrid has a longer window, Mamba twice the width and more states.
TITLES = {"bmojo": "B'MOJO", "hybrid": "Hybrid", "mamba": "Mamba"}
CHANGES = {"bmojo": [],
           "hybrid": ["pattern=ssm,attention", "window=53"],
           "mamba": ["pattern=ssm", "ssm_inner_size=128", "ssm_state_size=28"]}
FRESH_SEQUENCES = 1000
PLAIN_SECONDS = 10


def task_keys(recipe):
    keys = recipe["task"].partition(":")[2]
    return dict(part.split("=", 1) for part in keys.split(",")) if keys else {}


def model_of(recipe, name):
    return fields(recipe) | fields({"set": CHANGES[name]})


def reach_of(recipe, name):
    """Stacked windows see that many tokens back."""
    model = model_of(recipe, name)
    return int(model["num_layers"]) * int(model["window"])


def check_tight(recipe, path):
    """No pair may be within reach of a question, and keeping the first tokens must not do."""
    try:
        keys, places = task_keys(recipe), int(fields(recipe)["eidetic_tokens"])
        gap, span, pairs = int(keys["gap"]), int(keys["span"]), int(keys["pairs"])
        reach, _ = max(reach_of(recipe, name) for name in TITLES), recipe["steps"]
    except KeyError as missing:
        raise Mistake(f"{path}: must have steps, task with pairs, span and gap, and set with "
                      "num_layers, window and eidetic_tokens, "
                      f"got no {missing.args[0]}") from None
    if gap < reach:
        raise Mistake(f"{path}: gap must be at least layers x window = {reach}, got {gap}")
    if places > 2 * pairs:
        raise Mistake(f"{path}: eidetic_tokens must be at most 2 x pairs = {2 * pairs}, "
                      f"got {places}")
    if span < 4 * places:
        raise Mistake(f"{path}: span must be at least 4 x eidetic_tokens = {4 * places}, "
                      f"got {span}")


def introduction(recipe):
    keys, model = task_keys(recipe), fields(recipe)
    read = int(keys["span"]) + int(keys["gap"])
    return (f"Task: {recipe['task']}.\n"
            f"{keys['pairs']} pairs of a key and a value stand somewhere among {keys['span']} "
            f"tokens. {keys['gap']} others follow.\n"
            "Then each key asks for its value.\n\n"
            "Three models of equal memory learn it side by side, with one thread each, first\n"
            "from short sequences and then from these:\n"
            f"  B'MOJO  chooses {model['eidetic_tokens']} of the {read} tokens to keep\n"
            f"  Hybrid  sees the last {model_of(recipe, 'hybrid')['window']} tokens, and has a "
            "state\n"
            "  Mamba   has the largest state\n")


# --- one seed ------------------------------------------------------------------------------------


def train_command(options, recipe, seed, out, more):
    return [program(options.bin), "train", "--run", recipe, *more, "--seed", str(seed),
            "--threads", "1", "--out", out, "--quiet"]


def short_command(options, name, seed, folder):
    """Short sequences, from fresh weights."""
    changes = [word for change in CHANGES[name] for word in ("--set", change)]
    return train_command(options, options.short.resolve(), seed, folder / f"{name}-short", changes)


def long_command(options, name, seed, folder):
    """The task itself, from the weights that short sequences gave."""
    return train_command(options, options.recipe.resolve(), seed, folder / name,
                         ["--init-from", folder / f"{name}-short"])


def train(command_of, options, steps, seed, folder):
    """The trainings of all models, a thread each."""
    trainings = {}
    with ended_with_us(trainings.values()):
        for name in TITLES:
            command = command_of(options, name, seed, folder)
            print(shown(near(word) if isinstance(word, Path) else word for word in command),
                  flush=True)
            trainings[name] = Training(command, command[command.index("--out") + 1], steps)
        watch(trainings)
    return trainings


def bar(share, width=16):
    full = round(width * (share or 0))
    return "|" + "#" * full + " " * (width - full) + "|"


def shown_loss(training):
    """The mean of the last 20 steps: single steps jump."""
    last = [row["loss"] for row in training.rows[-20:] if row.get("loss") is not None]
    return f"{sum(last) / len(last):.2f}" if last else "-"


def progress(trainings):
    """(the lines of a terminal, the plain line)."""
    lefts = [each.seconds_left() for each in trainings.values()]
    left = clock(None if None in lefts else max(lefts))
    lines = [f"{'':6}  {'step':>11}  {'loss':>7}  {'right':>7}"]
    for name, each in trainings.items():
        right = each.last("val_accuracy")
        steps = f"{each.step():,}/{each.steps:,}"
        lines.append(f"{TITLES[name]:6}  {steps:>11}  {shown_loss(each):>7}  {percent(right):>7}  "
                     f"{bar(right)}")
    lines.append(f"{left} left")
    steps, rights = (
        "|".join(map(str, words)) for words in zip(*[
            (each.step(), percent(each.last("val_accuracy")).removesuffix(" %"))
            for each in trainings.values()]))
    total = next(iter(trainings.values())).steps
    return lines, f"demo: step {steps} of {total}  right {rights} %  {left} left"


def watch(trainings):
    board, running = Board(PLAIN_SECONDS), True
    while running:
        running = any([each.look() for each in trainings.values()])
        for name, each in trainings.items():
            if each.process.returncode not in (None, 0):
                raise Failed(f"{TITLES[name]}: {each.failure()}")
        board.show(*progress(trainings))
        time.sleep(0.2 if running else 0)


def ask(options, recipe, seed, training):
    """What it knows of fresh sequences."""
    return run_json([program(options.bin), "eval", "--model", training.out / "latest", "--task",
                     recipe["task"], "--sequences", str(FRESH_SEQUENCES), "--seed", str(seed),
                     "--threads", "1", "--json", "--quiet"])


def size_of(options, training):
    found = run_json([program(options.bin), "inspect", training.out / "latest", "--json"])
    return {"parameters": found["parameters"], "memory_bytes": found["memory_bytes"]["total"]}


def run_seed(options, short, recipe, seed):
    folder = options.out.resolve() / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_recipe(folder / "recipe.toml", recipe)
    before = train(short_command, options, short["steps"], seed, folder)
    trainings = train(long_command, options, recipe["steps"], seed, folder)
    with ThreadPoolExecutor(len(trainings)) as pool:
        answers = list(pool.map(lambda each: ask(options, recipe, seed, each), trainings.values()))
    row = {"seed": seed, "task": recipe["task"], "sequences": FRESH_SEQUENCES}
    for (name, training), answer in zip(trainings.items(), answers):
        row[name] = {"accuracy": answer["accuracy"], "answers": answer["answers"],
                     "steps": before[name].step() + training.step(),
                     "seconds": round(before[name].seconds() + training.seconds(), 1),
                     **size_of(options, training)}
    return row | {"short": short, "recipe": recipe, "changes": CHANGES, "commit": commit(), "machine": machine()}


# --- the results ---------------------------------------------------------------------------------


def has_runs(folder, seed, recipe):
    """Whether the runs of a seed are still there, and of this recipe."""
    begun_with = folder / f"seed-{seed}" / "recipe.toml"
    return begun_with.exists() and load_recipe(begun_with) == recipe


def draw(folder, seeds, path):
    """Accuracy and loss against steps, all seeds over one another."""
    from matplotlib.figure import Figure

    import plot

    figure = Figure(figsize=(14, 5), dpi=plot.PIXELS_AN_INCH)
    right, loss = figure.subplots(1, 2)
    plot.tidy(right, "right answers, on validation sequences, after the short ones")
    plot.tidy(loss, "loss (faint: each step)")
    colours = [plot.COLOURS[i] for i in (1, 0, 2)]
    for name, colour in zip(TITLES, colours):
        for seed in seeds:
            curve = Run(folder, name, read_metrics(folder / f"seed-{seed}" / name))
            plot.draw_line(right, *curve.column("val_accuracy"), colour, marker=".")
            plot.draw_noisy(loss, curve, colour, "loss")
    right.set_ylim(-0.03, 1.03)
    right.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    loss.set_ylim(bottom=0)
    for axes in (right, loss):
        axes.set_xlabel("step", fontsize=11)
    plot.add_legend(figure, list(TITLES.values()), colours, len(TITLES))
    figure.subplots_adjust(left=0.05, right=0.985, bottom=0.12, top=0.87, wspace=0.12)
    plot.save(figure, path)


def is_good(row):
    """What the demo is for: B'MOJO recalls, and the others of its memory do not."""
    ours, *others = (row[name]["accuracy"] for name in TITLES)
    return ours >= 0.9 and ours - max(others) >= 0.3


def summary(rows):
    """The answers of every seed, and how many seeds show what the demo is for."""
    cells = [[row["seed"], *(percent(row[name]["accuracy"]) for name in TITLES),
              clock(max(row[name]["seconds"] for name in TITLES))] for row in rows]
    for key in ("memory_bytes", "parameters"):
        cells.append([key.replace("_", ", "), *(f"{rows[0][name][key]:,}" for name in TITLES), ""])
    answers = rows[0]["bmojo"]["answers"]
    return (f"Right answers to {answers:,} questions in {FRESH_SEQUENCES:,} new sequences:\n\n"
            + table(["seed", *TITLES.values(), "time"], cells)
            + "\n\nB'MOJO has at least 90 %, and 30 points more than each of the others, in\n"
            f"{sum(map(is_good, rows))} of {len(rows)} seeds.")


def explain(options, recipe, seed):
    """One sequence as a picture, with a table of what was kept and where attention went."""
    command = [program(options.bin), "explain", "--model",
               options.out / f"seed-{seed}" / "bmojo" / "latest", "--task", recipe["task"]]
    picture = options.out / "explain.png"
    told = run([*command, "--out", picture]).rpartition("\n\n")[0]  # without the picture's name
    facts = run_json([*command, "--json"])
    (options.out / "explain.json").write_text(json.dumps(facts) + "\n")
    return (f"What B'MOJO remembered of a sequence that it was not trained on:\n\n{told}\n\n"
            f"picture: {near(picture)}\nthe same in numbers: {near(options.out / 'explain.json')}\n")


def how_to_go_on(options, recipe, row):
    bmojo, runs = near(program(options.bin)), near(options.out) / f"seed-{row['seed']}"
    return "\n".join([
        "What to try next:", "", "# show one sequence of the task with its answers",
        shown([bmojo, "task", recipe["task"], "--show"]), "# draw all curves of the runs",
        shown([bmojo, "plot", *(runs / name for name in TITLES)]),
        "# ask again with half the places and the same weights",
        shown([bmojo, "eval", "--model", runs / "bmojo/latest", "--task", recipe["task"], "--set",
               f"eidetic_tokens={int(fields(recipe)['eidetic_tokens']) // 2}"])])


def run_seeds(options, short, recipe):
    """The rows of all seeds, those of the results file among them."""
    command = f"tools/demo.py --seeds {options.seeds}"
    rows = []
    if options.json_out:
        command += f" --json-out {near(options.json_out)}"
        rows = [row for row in load_runs(options.json_out)
                if (row.get("short"), row["recipe"], row.get("changes"))
                == (short, recipe, CHANGES)]
    for seed in range(1, options.seeds + 1):
        if any(row["seed"] == seed for row in rows):
            print(f"seed {seed}: already in {near(options.json_out)}")
            continue
        rows.append(run_seed(options, short, recipe, seed))
        rows.sort(key=lambda row: row["seed"])
        if options.json_out:
            store_runs(options.json_out, command, rows)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--short", type=Path, default=ROOT / "configs/demo-short.toml",
                        help="run file of the short sequences")
    parser.add_argument("--recipe", type=Path, default=ROOT / "configs/demo.toml", help="run file")
    parser.add_argument("--out", type=Path, default=ROOT / "build/demo", help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 1 … N")
    parser.add_argument("--json-out", type=Path, metavar="F.json", help="keep the results there")
    options = parser.parse_args()
    if options.seeds < 1:
        raise Mistake(f"--seeds: must be at least 1, got {options.seeds}")
    short, recipe = load_recipe(options.short), load_recipe(options.recipe)
    check_tight(recipe, options.recipe)
    program(options.bin)
    print(introduction(recipe))
    begin = time.monotonic()
    rows = run_seeds(options, short, recipe)
    print(f"\n{summary(rows)}\n")
    drawn = [row["seed"] for row in rows if has_runs(options.out, row["seed"], recipe)]
    if drawn:
        draw(options.out, drawn, options.out / "demo.png")
        print(f"curves: {near(options.out / 'demo.png')}\n")
        print(explain(options, recipe, drawn[0]))
        print(how_to_go_on(options, recipe, rows[0]))
    print(f"\nThis took {clock(time.monotonic() - begin)}.")


if __name__ == "__main__":
    exit_on_signals()
    try:
        main()
    except Mistake as mistake:
        print(f"demo: {printable(str(mistake))}", file=sys.stderr)
        sys.exit(2)
    except Failed as failure:
        sys.exit(f"demo: {printable(str(failure))}")
    except KeyboardInterrupt:
        print("demo: interrupted; the trainings have ended", file=sys.stderr)
        sys.exit(130)
