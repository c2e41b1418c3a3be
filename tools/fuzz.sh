#!/usr/bin/env bash
# tools/fuzz.sh [SECONDS [NAME …]]: builds the fuzzers of tests/fuzz and lets each run for SECONDS
# (default 30), two at a time. SEED (default 1) chooses what they try. What they learn stays in
# build/fuzz/corpus; an input that a reader fails on stays in build/fuzz/findings, and the exit code
# is then 1.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
shift || true
names=("$@")
((${#names[@]})) || names=(safetensors gguf config state shard ids run_file)

has_fuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++-19 -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null
}
if ! has_fuzzer && ! { tools/setup.sh fuzz && has_fuzzer; }; then
  echo "SKIPPED fuzzing: needs clang++-19 with its sanitizers (libclang-rt-19-dev), got none"
  exit 0
fi

cmake --preset fuzz --log-level=WARNING >/dev/null
cmake --build --preset fuzz
for name in "${names[@]}"; do mkdir -p "build/fuzz/corpus/$name"; done
mkdir -p build/fuzz/findings

# A machine at work may stop a run for seconds: no input is slow before it took a minute.
run() {
  local log=build/fuzz/$1.log
  if ! build/fuzz/bin/fuzz_"$1" -max_total_time="$2" -timeout=60 -max_len=4096 -seed="${SEED:-1}" \
    -artifact_prefix="build/fuzz/findings/$1-" "build/fuzz/corpus/$1" "tests/fuzz/corpus/$1" \
    >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "fuzz $1: found an input, see build/fuzz/findings"
    return 1
  fi
  echo "fuzz $1: $(grep -a 'DONE' "$log" | tr '\t' ' ' | tr -s ' ')"
}
export -f run
printf '%s\n' "${names[@]}" | xargs -P 2 -I{} bash -c "run {} $seconds" || exit 1
