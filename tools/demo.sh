#!/usr/bin/env bash
# A short tour with a small random model: `tools/demo.sh BIN`, BIN the folder of the programs. Every
# command is shown before its output, and what it writes is removed at the end.
set -euo pipefail

if [ $# != 1 ] || [ ! -x "$1/bmojo" ]; then
  echo "demo: must be given the folder that holds bmojo, got ${*:-nothing}; run make demo" >&2
  exit 2
fi
PATH="$(cd "$1" && pwd):$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# show EXPLANATION COMMAND: what is printed is what runs.
show() {
  printf '\n# %s\n$ %s\n' "$1" "$2"
  eval "$2" | fold -s -w 80
}

echo "A small B'MOJO model with random weights, in a temporary folder."

show "Make a model. The same seed always gives the same weights." \
  "bmojo init --preset bmojo-tiny --seed 1 --out model"

show "Look at it: what it weighs, and what each memory of one sequence takes." \
  "bmojo inspect model"

show "Score three tokens: log-probability of each, given those before it." \
  "echo '{\"ids\":[1,5,7]}' | bmojo score --model model --ids -"

show "Continue a prompt of three tokens." \
  "bmojo generate --model model --ids 1,2,3 \\
    --max-tokens 16 --temperature 0.8 --seed 1"

cat <<'TEXT'

The weights are random and untrained, so these tokens mean nothing yet. A token
of 32,000 guessed blindly has a log-probability of about -10.4, as above.
TEXT
