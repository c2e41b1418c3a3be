"""`make demo`: trains B'MOJO and the same model without eidetic memory side by side on a task that
asks for what lies beyond their windows, and then asks both on new sequences.

The recipe is configs/demo.toml. `--seeds 5 --json-out F.json` repeats the experiment and stores
each seed when it is done. A seed of the same recipe that is already in the file is not run again.
"""

import argparse
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiment import (Board, Training, clock, ended_with_us, exit_on_signals, fields, load_recipe,
                        load_runs, near, percent, program, shown, store_runs, write_recipe)
from measure import ROOT, Failed, commit, machine, run_json, table
from metrics import Mistake, Run, printable, read_metrics

# What the twin is without. The bias on eidetic tokens would be a weight that nothing uses.
TWIN = ["eidetic_tokens=0", "innovation_bias=false"]
TITLES = {"bmojo": "B'MOJO", "without": "without eidetic memory"}
CHANGES = {"bmojo": [], "without": TWIN}
FRESH_SEQUENCES = 1000
PLAIN_SECONDS = 10


def task_keys(recipe):
    keys = recipe["task"].partition(":")[2]
    return dict(part.split("=", 1) for part in keys.split(",")) if keys else {}


def reach_of(recipe):
    """Stacked windows see that many tokens back."""
    model = fields(recipe)
    return int(model["num_layers"]) * int(model["window"])


def check_reach(recipe, path):
    """No pair may be within reach of a question."""
    try:
        gap = int(task_keys(recipe).get("gap", 0))
        reach, _ = reach_of(recipe), recipe["steps"]
    except KeyError as missing:
        raise Mistake(f"{path}: must have task, steps and set with num_layers and window, "
                      f"got no {missing.args[0]}") from None
    if gap < reach:
        raise Mistake(f"{path}: gap must be at least layers x window = {reach}, got {gap}")


def introduction(recipe):
    return (f"Task: {recipe['task']}.\n"
            "Pairs of a key and a value come first. Later, each key asks for its value.\n"
            f"The windows reach {reach_of(recipe)} tokens back, and no pair lies that near.\n\n"
            "Two models learn it side by side, with one thread each:\n"
            "B'MOJO, and its twin, the same model without eidetic memory.\n")


# --- one seed ------------------------------------------------------------------------------------


def train_command(options, name, seed, out):
    changes = [word for change in CHANGES[name] for word in ("--set", change)]
    return [program(options.bin), "train", "--run", options.recipe.resolve(), *changes, "--seed",
            str(seed), "--threads", "1", "--out", out, "--quiet"]


def start(options, recipe, seed, trainings):
    """Both trainings, a thread each, in a new folder of the seed."""
    folder = options.out.resolve() / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_recipe(folder / "recipe.toml", recipe)
    for name in TITLES:
        command = train_command(options, name, seed, folder / name)
        print(shown(near(word) if isinstance(word, Path) else word for word in command), flush=True)
        trainings[name] = Training(command, folder / name, recipe["steps"])


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
    lines = [f"{'':22}  {'step':>11}  {'loss':>7}  {'right':>7}"]
    for name, each in trainings.items():
        right = each.last("val_accuracy")
        steps = f"{each.step():,}/{each.steps:,}"
        lines.append(f"{TITLES[name]:22}  {steps:>11}  {shown_loss(each):>7}  {percent(right):>7}  "
                     f"{bar(right)}")
    lines.append(f"{left} left")
    steps, losses, rights = (
        "|".join(map(str, words)) for words in zip(*[
            (each.step(), shown_loss(each), percent(each.last("val_accuracy")).removesuffix(" %"))
            for each in trainings.values()]))
    total = next(iter(trainings.values())).steps
    return lines, f"demo: step {steps} of {total}  loss {losses}  right {rights} %  {left} left"


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


def run_seed(options, recipe, seed):
    trainings = {}
    with ended_with_us(trainings.values()):
        start(options, recipe, seed, trainings)
        watch(trainings)
    with ThreadPoolExecutor(len(trainings)) as pool:
        answers = list(pool.map(lambda each: ask(options, recipe, seed, each), trainings.values()))
    row = {"seed": seed, "task": recipe["task"], "sequences": FRESH_SEQUENCES}
    for (name, training), answer in zip(trainings.items(), answers):
        row[name] = {"accuracy": answer["accuracy"], "answers": answer["answers"],
                     "steps": training.step(), "seconds": round(training.seconds(), 1)}
    return row | {"recipe": recipe, "twin": TWIN, "commit": commit(), "machine": machine()}


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
    plot.tidy(right, "right answers, on validation sequences")
    plot.tidy(loss, "loss (faint: each step)")
    colours = plot.COLOURS[1::-1]
    for name, colour in zip(TITLES, colours):
        for seed in seeds:
            run = Run(folder, name, read_metrics(folder / f"seed-{seed}" / name))
            plot.draw_line(right, *run.column("val_accuracy"), colour, marker=".")
            plot.draw_noisy(loss, run, colour, "loss")
    right.set_ylim(-0.03, 1.03)
    right.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    loss.set_ylim(bottom=0)
    for axes in (right, loss):
        axes.set_xlabel("step", fontsize=11)
    plot.add_legend(figure, list(TITLES.values()), colours, len(TITLES))
    figure.subplots_adjust(left=0.05, right=0.985, bottom=0.12, top=0.87, wspace=0.12)
    plot.save(figure, path)


def summary(rows):
    """The answers of every seed, and how many seeds show what the demo is for."""
    cells = [[row["seed"], *(percent(row[name]["accuracy"]) for name in TITLES),
              clock(max(row[name]["seconds"] for name in TITLES))] for row in rows]
    good = sum(row["bmojo"]["accuracy"] >= 0.9 and
               row["bmojo"]["accuracy"] - row["without"]["accuracy"] >= 0.3 for row in rows)
    answers = rows[0]["bmojo"]["answers"]
    return (f"Right answers to {answers:,} questions in {FRESH_SEQUENCES:,} new sequences:\n\n"
            + table(["seed", *TITLES.values(), "time"], cells)
            + "\n\nB'MOJO has at least 90 % and 30 points more than its twin in "
            f"{good} of {len(rows)} seeds.")


def scope(recipe):
    """What the answers do not test: with a place for every token, none has to be chosen."""
    keys, places = task_keys(recipe), fields(recipe).get("eidetic_tokens")
    if "pairs" not in keys or places is None:
        return ""
    read = 2 * int(keys["pairs"].rpartition("..")[2]) + int(keys.get("gap", 0))
    if int(places) < read:
        return ""
    return (f"The eidetic memory has {places} places, and {read} tokens come before the first\n"
            "question. So this tests exact recall from beyond the windows. It does not test\n"
            "which tokens are kept when places are scarce.\n")


def how_to_go_on(options, recipe, row):
    bmojo, runs = near(program(options.bin)), near(options.out) / f"seed-{row['seed']}"
    return "\n".join([
        "What to try next:", "", "# show one sequence of the task with its answers",
        shown([bmojo, "task", recipe["task"], "--show"]), "# draw all curves of both runs",
        shown([bmojo, "plot", runs / "bmojo", runs / "without"]),
        "# ask again with a larger memory and the same weights",
        shown([bmojo, "eval", "--model", runs / "bmojo/latest", "--task", recipe["task"], "--set",
               "eidetic_tokens=96"])])


def run_seeds(options, recipe):
    """The rows of all seeds, those of the results file among them."""
    command = f"tools/demo.py --seeds {options.seeds}"
    rows = []
    if options.json_out:
        command += f" --json-out {near(options.json_out)}"
        rows = [row for row in load_runs(options.json_out) if row["recipe"] == recipe]
    for seed in range(1, options.seeds + 1):
        if any(row["seed"] == seed for row in rows):
            print(f"seed {seed}: already in {near(options.json_out)}")
            continue
        rows.append(run_seed(options, recipe, seed))
        rows.sort(key=lambda row: row["seed"])
        if options.json_out:
            store_runs(options.json_out, command, rows)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--recipe", type=Path, default=ROOT / "configs/demo.toml", help="run file")
    parser.add_argument("--out", type=Path, default=ROOT / "build/demo", help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 1 … N")
    parser.add_argument("--json-out", type=Path, metavar="F.json", help="keep the results there")
    options = parser.parse_args()
    if options.seeds < 1:
        raise Mistake(f"--seeds: must be at least 1, got {options.seeds}")
    recipe = load_recipe(options.recipe)
    check_reach(recipe, options.recipe)
    program(options.bin)
    print(introduction(recipe))
    begin = time.monotonic()
    rows = run_seeds(options, recipe)
    print(f"\n{summary(rows)}\n\n{scope(recipe)}")
    drawn = [row["seed"] for row in rows if has_runs(options.out, row["seed"], recipe)]
    if drawn:
        draw(options.out, drawn, options.out / "demo.png")
        print(f"curves: {near(options.out / 'demo.png')}\n")
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
        print("demo: interrupted; both trainings have ended", file=sys.stderr)
        sys.exit(130)
