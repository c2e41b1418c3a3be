"""Tiny-shakespeare by characters: nanoGPT's CPU setting, and six models of equal parameters with
context 512 and window 64, each at the best of the same three learning rates.

The recipes are configs/shakespeare-*.toml. Every run is one `bmojo train` with one thread, --jobs
of them at a time, and one line of results/shakespeare.json when it is done; the next start goes on.
A run of a recipe that has changed since is made again; the old one stays in the file. Draws
results/shakespeare.png.

The rate of a family is chosen on seed 1 by the last validation loss; the other seeds run with it.
BMOJO_DATA names the folder with tiny-shakespeare/input.txt (default: ../shared/data).
"""

import argparse
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from experiment import (Board, Training, clock, ended_with_us, exit_on_signals, load_recipe,
                        load_runs, near, program, store_runs, write_recipe)
from measure import ROOT, Failed, commit, machine, run, run_json, table
from metrics import Mistake, printable

FAMILIES = {"bmojo": "B'MOJO", "transformer": "Transformer", "bmojo-rotary": "B'MOJO, rotary",
            "bmojo-f": "B'MOJO-F", "hybrid": "hybrid", "mamba": "Mamba"}
NANOGPT = "nanogpt"
RATES, SEEDS = [1e-3, 2e-3, 4e-3], [1, 2, 3]
NANOGPT_RATE, NANOGPT_LOSS = 1e-3, 1.88  # its README's
WORK = ROOT / "build/shakespeare"  # the recipes name it
PLAIN_SECONDS = 60


@dataclass(frozen=True)
class Job:
    config: str
    lr: float
    seed: int

    def __str__(self):
        return f"{self.config}, rate {self.lr:g}, seed {self.seed}"

    def folder(self):
        return WORK / "runs" / f"{self.config}-lr{self.lr:g}-seed{self.seed}"


# --- data ----------------------------------------------------------------------------------------


def read_text():
    folder = Path(os.environ.get("BMOJO_DATA") or ROOT.parent / "shared/data")
    path = folder / "tiny-shakespeare/input.txt"
    if not path.is_file():
        raise Mistake(f"BMOJO_DATA: must name a folder with tiny-shakespeare/input.txt, "
                      f"got {folder}")
    text = path.read_bytes()
    if not text.isascii():
        raise Mistake(f"{path}: must be ASCII, so that a byte is a character, got other bytes")
    return text


def prepare(bmojo):
    """Token shards of the first 90 % and of the last 10 %, as nanoGPT splits it."""
    text = read_text()
    cut = int(0.9 * len(text))
    WORK.mkdir(parents=True, exist_ok=True)
    for part, piece in (("train", text[:cut]), ("val", text[cut:])):
        source, folder = WORK / f"{part}.txt", WORK / part
        if source.exists() and source.read_bytes() == piece and list(folder.glob("*.tokens")):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        source.write_bytes(piece)
        run([bmojo, "tokenize", "--tokenizer", "bytes", "--out", folder, source, "--quiet"])


# --- which runs ----------------------------------------------------------------------------------


def best_rate(config, done):
    """By the last validation loss of seed 1; None until every rate has run."""
    tried = [Job(config, lr, SEEDS[0]) for lr in RATES]
    if not all(job in done for job in tried):
        return None
    return min(tried, key=lambda job: done[job]["val_loss"]).lr


def all_jobs(configs, done):
    """Those that can be named now: the later seeds of a family wait for its rate."""
    jobs = [Job(NANOGPT, NANOGPT_RATE, seed) for seed in SEEDS] if NANOGPT in configs else []
    families = [config for config in configs if config != NANOGPT]
    jobs += [Job(config, lr, SEEDS[0]) for lr in RATES for config in families]
    for config in families:
        lr = best_rate(config, done)
        jobs += [Job(config, lr, seed) for seed in SEEDS[1:]] if lr else []
    return jobs


def count_jobs(configs):
    return sum(len(SEEDS) + (0 if config == NANOGPT else len(RATES) - 1) for config in configs)


def load_done(path, recipes):
    """{job: its line}, of the recipes as they are now."""
    rows = load_runs(path)
    done = {Job(row["config"], row["lr"], row["seed"]): row for row in rows
            if row["recipe"] == recipes.get(row["config"])}
    if len(done) < len(rows):
        print(f"shakespeare: {len(rows) - len(done)} runs of other recipes are left out",
              file=sys.stderr)
    return done


def store_done(path, command, done, recipes):
    """Runs of other recipes stay in the file: nothing that was measured is lost."""
    others = [row for row in load_runs(path) if row["recipe"] != recipes.get(row["config"])]
    store_runs(path, command, others + list(done.values()))


# --- running -------------------------------------------------------------------------------------


def start(job, bmojo, recipe):
    """From where it was stopped, by its own run.toml, unless the recipe is another one now."""
    folder = job.folder()
    begun_with = folder.with_name(folder.name + ".toml")
    if (folder / "latest").exists() and load_recipe(begun_with) == recipe:
        flags = ["--resume"]
    else:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_recipe(begun_with, recipe)
        flags = ["--run", ROOT / f"configs/shakespeare-{job.config}.toml", "--lr", f"{job.lr:g}",
                 "--ssm-lr", f"{job.lr:g}", "--seed", str(job.seed), "--threads", "1"]
    return Training([bmojo, "train", *flags, "--out", folder, "--quiet"], folder, recipe["steps"])


def row_of(job, training, recipe, bmojo):
    curve = [[row["step"], row["val_loss"]] for row in training.rows
             if row.get("val_loss") is not None]
    if not curve or curve[-1][0] != recipe["steps"]:
        raise Failed(f"{job}: must end with a validation at step {recipe['steps']}, "
                     f"got {curve[-1][0] if curve else 'none'}")
    size = run_json([bmojo, "inspect", training.out / "latest", "--json"])
    seconds = training.last("seconds")
    return {"config": job.config, "lr": job.lr, "seed": job.seed, "val_loss": curve[-1][1],
            "best_val_loss": min(loss for _, loss in curve), "curve": curve,
            "parameters": size["parameters"],
            "parameters_without_embeddings": size["parameters_without_embeddings"],
            "seconds": round(seconds, 1), "tokens_per_s": round(training.last("tokens") / seconds),
            "recipe": recipe, "commit": commit(), "machine": machine()}


def progress(running, num_done, total):
    lines = [f"{num_done} of {total} runs done"]
    for job, each in running.items():
        loss, val = each.last("loss"), each.last("val_loss")
        words = [f"{job.config:12} {job.lr:<6g} seed {job.seed}", f"step {each.step():>5}",
                 "loss -" if loss is None else f"loss {loss:.3f}",
                 "val -" if val is None else f"val {val:.3f}", f"{clock(each.seconds_left())} left"]
        lines.append("  ".join(words))
    now = ", ".join(f"{job.config} {each.step()}" for job, each in running.items())
    return lines, f"shakespeare: {lines[0]}; at step: {now}"


def run_jobs(options, everything, done):
    """Returns the jobs that failed. They are tried again by the next start."""
    recipes = {config: recipe for config, recipe in everything.items()
               if not options.only or config in options.only}
    bmojo, total = program(options.bin), count_jobs(recipes)
    board, running, failed = Board(PLAIN_SECONDS), {}, []
    command = f"tools/shakespeare.py --jobs {options.jobs}"
    with ended_with_us(running.values()):
        while True:
            for job in [job for job, each in running.items() if not each.look()]:
                training = running.pop(job)
                try:
                    if training.failure():
                        raise Failed(f"{job}: {training.failure()}")
                    done[job] = row_of(job, training, recipes[job.config], bmojo)
                except Failed as failure:
                    failed.append(job)
                    board.note(f"shakespeare: {printable(str(failure))}")
                    continue
                store_done(options.out / "shakespeare.json", command, done, everything)
                board.note(f"shakespeare: {job}: {done[job]['val_loss']:.4f} "
                           f"in {clock(done[job]['seconds'])}")
            waiting = [job for job in all_jobs(recipes, done)
                       if job not in done and job not in running and job not in failed]
            for job in waiting[:options.jobs - len(running)]:
                running[job] = start(job, bmojo, recipes[job.config])
            if not running:
                return failed
            num_done = sum(job.config in recipes for job in done)
            board.show(*progress(running, num_done, total))
            time.sleep(1)


# --- results -------------------------------------------------------------------------------------


def chosen(config, done):
    """The runs of a family at its rate, by seed."""
    lr = NANOGPT_RATE if config == NANOGPT else best_rate(config, done)
    return [done[Job(config, lr, seed)] for seed in SEEDS if Job(config, lr, seed) in done]


def family_table(done):
    rows = []
    for config, title in FAMILIES.items():
        runs = chosen(config, done)
        if not runs:
            continue
        losses = [run["val_loss"] for run in runs]
        cells = [f"{loss:.4f}" for loss in losses] + ["-"] * (len(SEEDS) - len(losses))
        mean = sum(losses) / len(losses)
        rows.append((mean, [title, f"{runs[0]['parameters_without_embeddings']:,}",
                            f"{runs[0]['lr']:g}", *cells, f"{mean:.4f}"]))
    head = ["model", "parameters", "rate", *(f"seed {seed}" for seed in SEEDS), "mean"]
    return table(head, [row for _, row in sorted(rows)])


def rate_table(done):
    rows = []
    for config, title in FAMILIES.items():
        losses = [done.get(Job(config, lr, SEEDS[0]), {}).get("val_loss") for lr in RATES]
        rows.append([title, *("-" if loss is None else f"{loss:.4f}" for loss in losses)])
    return table(["seed 1", *(f"{lr:g}" for lr in RATES)], rows)


def summary(done):
    text = ["Tiny-shakespeare, validation loss in nats a character.", ""]
    losses = [run["val_loss"] for run in chosen(NANOGPT, done)]
    if losses:
        text += ["nanoGPT's CPU setting, our transformer: "
                 + ", ".join(f"{loss:.3f}" for loss in losses)
                 + f" (nanoGPT's README: {NANOGPT_LOSS}).", ""]
    text += ["Context 512, window 64; the transformer has rotary positions, B'MOJO only where it says "
             "so.", "Parameters without embeddings:", "", family_table(done), "",
             "By learning rate:", "", rate_table(done)]
    ours, theirs = ({run["seed"]: run["val_loss"] for run in chosen(config, done)}
                    for config in ("bmojo", "transformer"))
    both = [seed for seed in ours if seed in theirs]
    if both:
        below = sum(ours[seed] < theirs[seed] for seed in both)
        text += ["", f"B'MOJO is below the sliding-window transformer in {below} of {len(both)} "
                 "seeds."]
    return "\n".join(text)


def draw_curves(axes, done, colours):
    """Means over seeds, and between their extremes a pale band; the names at the ends."""
    from figure import spread

    ends, late = [], []
    for (config, title), colour in zip(FAMILIES.items(), colours):
        runs = chosen(config, done)
        if not runs:
            continue
        steps = [step for step, _ in runs[0]["curve"]]
        columns = list(zip(*([loss for _, loss in run["curve"]] for run in runs)))
        means = [sum(column) / len(column) for column in columns]
        axes.fill_between(steps, [min(c) for c in columns], [max(c) for c in columns], color=colour,
                          alpha=0.2, lw=0)
        axes.plot(steps, means, color=colour, lw=1.8, marker=".")
        ends.append((title, steps[-1], means[-1], colour))
        late += [loss for step, column in zip(steps, columns) for loss in column
                 if step >= 0.2 * steps[-1]]
    low, high = min(late), max(late)
    axes.set_ylim(low - 0.1 * (high - low), high + 0.05 * (high - low))
    axes.set_xlim(right=max(step for _, step, _, _ in ends))  # from here on places are final
    places = [axes.transData.transform((step, loss))[1] for _, step, loss, _ in ends]
    for (title, step, loss, colour), place, height in zip(ends, places, spread(places, 20)):
        points = 72 / axes.figure.dpi
        axes.annotate(title, (step, loss), xytext=(16, (height - place) * points),
                      textcoords="offset points", color=colour, fontsize=11, va="center",
                      annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 0,
                                  "shrinkB": 3, "relpos": (0, 0.5)})


def draw_ends(axes, done, colours):
    """The last validation loss of every seed, the best family on top."""
    shown = [(config, colour) for config, colour in zip(FAMILIES, colours) if chosen(config, done)]
    shown.sort(key=lambda each: -sum(r["val_loss"] for r in chosen(each[0], done))
               / len(chosen(each[0], done)))
    for height, (config, colour) in enumerate(shown):
        losses = [run["val_loss"] for run in chosen(config, done)]
        axes.plot([min(losses), max(losses)], [height, height], color=colour, lw=1.5)
        axes.plot(losses, [height] * len(losses), "o", color=colour, markersize=7, mec="white")
    axes.set_yticks(range(len(shown)), [FAMILIES[config] for config, _ in shown])
    axes.set_ylim(-0.6, len(shown) - 0.4)


def draw(done, path):
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    import plot

    if not any(chosen(config, done) for config in FAMILIES):
        return
    figure = Figure(figsize=(16, 5.6), dpi=plot.PIXELS_AN_INCH)
    figure.subplots_adjust(left=0.04, right=0.985, bottom=0.12, top=0.9)
    grid = figure.add_gridspec(1, 2, width_ratios=[1, 0.62], wspace=0.45)
    curves, ends = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    plot.tidy(curves, "validation loss, nats a character (mean of the seeds, band: their extremes)")
    plot.tidy(ends, "at the last step, a dot a seed")
    curves.set_xlabel("step", fontsize=11)
    ends.set_xlabel("validation loss, nats a character", fontsize=11)
    ends.xaxis.set_major_locator(MaxNLocator(5))
    ends.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    colours = [plot.COLOURS[i] for i in (1, 6, 3, 4, 2, 0)]
    draw_ends(ends, done, colours)
    draw_curves(curves, done, colours)
    plot.save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the results")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time")
    parser.add_argument("--only", choices=[NANOGPT, *FAMILIES], action="append", metavar="NAME",
                        help="only this one; may be repeated: " + ", ".join([NANOGPT, *FAMILIES]))
    parser.add_argument("--draw", action="store_true", help="only tables and picture")
    options = parser.parse_args()
    if options.jobs < 1:
        raise Mistake(f"--jobs: must be at least 1, got {options.jobs}")
    everything = {config: load_recipe(ROOT / f"configs/shakespeare-{config}.toml")
                  for config in [NANOGPT, *FAMILIES]}
    done, failed = load_done(options.out / "shakespeare.json", everything), []
    if not options.draw:
        prepare(program(options.bin))
        failed = run_jobs(options, everything, done)
    if not done:
        raise Mistake(f"{near(options.out / 'shakespeare.json')}: must hold runs, got none")
    print(summary(done))
    draw(done, options.out / "shakespeare.png")
    return 1 if failed else 0


if __name__ == "__main__":
    exit_on_signals()
    try:
        sys.exit(main())
    except Mistake as mistake:
        print(f"shakespeare: {printable(str(mistake))}", file=sys.stderr)
        sys.exit(2)
    except Failed as failure:
        sys.exit(f"shakespeare: {printable(str(failure))}")
    except KeyboardInterrupt:
        print("shakespeare: interrupted; the next start goes on", file=sys.stderr)
        sys.exit(130)
