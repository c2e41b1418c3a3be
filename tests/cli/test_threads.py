"""Products and sums that threads share: the same bits in every run."""

import os

import pytest
from training import WIDE, metrics, weights

# Every token is scored, and 4,096 are computed at once: the head's products are split as well.
ROWS, LENGTH = 32, 256
MODEL = f"{WIDE} vocab_size=2048".split()
RECIPE = ["--preset", "bmojo-tiny", *(word for field in MODEL for word in ("--set", field)),
          "--segment", LENGTH, "--context", 0, "--batch-tokens", ROWS * LENGTH, "--micro-batch",
          ROWS // 2, "--lr", 1e-3, "--ssm-lr", 1e-3, "--steps", 3, "--quiet"]


def numbers(run):
    return [[row[key] for key in ("step", "loss", "grad_norm", "grad_norm_ssm")]
            for row in metrics(run)]


@pytest.mark.parametrize("split", [["--threads", 2], ["--workers", 2, "--threads", 1]],
                         ids=["threads", "workers"])
def test_runs_agree_in_every_bit(bmojo, tmp_path, text, split):  # noqa: F811
    # CTest gives its tests one thread each.
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    recipe = [*RECIPE, "--data", text, *split]
    runs = {name: tmp_path / name for name in ("whole", "again", "parts")}
    for name, flags in [("whole", recipe), ("again", recipe),
                        ("parts", [*recipe, "--max-minutes", 1e-9]),
                        ("parts", ["--resume", "--max-minutes", 0, "--quiet"])]:
        bmojo("train", *flags, "--out", runs[name], env=environment)
        if "--resume" not in flags:
            assert len(metrics(runs[name])) == (1 if name == "parts" else 3)
    for name in ("again", "parts"):
        assert numbers(runs[name]) == numbers(runs["whole"])
        assert weights(runs[name]) == weights(runs["whole"])
