# Everything a newcomer types. Each target sets up what it needs; a second call starts in seconds.
#   make demo      train B'MOJO, a hybrid and Mamba of equal memory side by side: who can recall?
#   make realization the paper's linear systems: each claim, how far off it is, and figures
#   make chat      talk to SmolLM2, which is fetched; FLAGS="…" are those of bmojo chat
#   make long-text SmolLM2 on a novel, with full attention and with windows; BOOK="FILE …"
#   make test      build, then every test (make test-fast leaves out the slow ones)
#   make check     make lint, test and sanitize on what is committed; kept in results/check.json
#   make engine    the engine alone, a program and a library, without torch and Python; PREFIX=DIR
#   make TORCH=DIR … use a torch that is already there (the folder with include/ and lib/)
SHELL := bash
CMAKE := cmake
BUILD := build/release
PREFIX ?= build/engine/install
FLAGS = --temperature 0.2 --top-p 0.9
export TORCH

.PHONY: all setup configured build programs engine engine-program chat demo realization test \
  test-fast bench bench-full bench-train bench-engine compare compare-suites long-text format lint \
  sanitize mutants check clean

all: build

setup:
	@tools/setup.sh

# CMake runs again by itself when a CMakeLists.txt changes; here only when the torch folder does.
$(BUILD)/build.ninja: .venv/.torch CMakePresets.json tools/torch.cmake
	@$(CMAKE) --preset release -DBMOJO_TORCH_DIR="$$(cat .venv/.torch)" --log-level=WARNING >/dev/null

configured: setup
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja

build: configured
	@$(CMAKE) --build --preset release

# Without the tests, which take most of the time.
programs: configured
	@$(CMAKE) --build --preset release --target bmojo bmojo-torch

engine:
	@tools/setup.sh engine
	@$(CMAKE) --preset engine --log-level=WARNING >/dev/null
	@$(CMAKE) --build --preset engine
	@$(CMAKE) --install build/engine --prefix "$(PREFIX)" >/dev/null
	@echo "bmojo is installed in $(PREFIX)"

# The program alone, as `make engine` builds it.
engine-program:
	@tools/setup.sh chat
	@$(CMAKE) --preset engine --log-level=WARNING >/dev/null
	@$(CMAKE) --build --preset engine --target bmojo

chat: engine-program
	@exec /usr/bin/python3 tools/chat.py --bin build/engine/bin $(FLAGS)

demo: programs
	@.venv/bin/python tools/demo.py --bin $(BUILD)/bin

realization: configured
	@$(CMAKE) --build --preset release --target bmojo-realization
	@.venv/bin/python tools/realization.py --bin $(BUILD)/bin

# $(call run-tests,PRESET,FLAGS): what was skipped is said at the end, and why (GoogleTest: where).
run-tests = ctest --preset $(1) $(2); code=$$?; grep -hE "^SKIPPED|: Skipped$$" \
  build/$(1)/Testing/Temporary/LastTest.log || true; exit $$code

test: build
	@$(call run-tests,release)

test-fast: build
	@$(call run-tests,release,-L fast)

bench: programs
	@$(CMAKE) --build --preset release --target bmojo-kernels
	@.venv/bin/python tools/bench.py --bin $(BUILD)/bin

# Hours; may be stopped and started again.
bench-full: programs
	@.venv/bin/python tools/bench_full.py --bin $(BUILD)/bin

bench-train: programs
	@.venv/bin/python tools/bench_train.py --bin $(BUILD)/bin

# The engine beside llama.cpp, which is built here the first time: about two hours in all.
bench-engine: programs
	@tools/setup.sh peers
	@$(CMAKE) --build --preset release --target bmojo-engine-kernels
	@.venv/bin/python tools/bench_engine.py --bin $(BUILD)/bin

# Logits against transformers on the same weights; prints the worst relative error.
compare: programs
	@BMOJO_BIN=$(BUILD)/bin OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -p no:cacheprovider \
	  tests/cli/test_hugging_face.py

# Suites beside lm-evaluation-harness, item by item; it is installed here the first time.
compare-suites: programs
	@.venv/bin/python tools/compare_suites.py --bin $(BUILD)/bin

# SmolLM2 on a novel, with its whole attention and with windows. An hour or more; may be stopped and
# started again.
long-text: configured
	@$(CMAKE) --build --preset release --target bmojo
	@.venv/bin/python tools/long_text.py --bin $(BUILD)/bin $(if $(BOOK),--text $(BOOK))

SOURCES := $(shell find include src tests bench examples -name "*.cpp" -o -name "*.h")

format:
	@tools/setup.sh lint
	@clang-format-19 -i $(SOURCES)

lint: configured
	@tools/setup.sh lint
	@$(CMAKE) --build --preset release --target bmojo_version
	@clang-format-19 --dry-run --Werror $(SOURCES)
	@.venv/bin/python tools/rooms.py
	@.venv/bin/python tools/mutants.py --check
	@.venv/bin/python tools/tidy.py $(BUILD)

sanitize: setup
	@$(CMAKE) --preset sanitize --log-level=WARNING >/dev/null
	@$(CMAKE) --build --preset sanitize
	@$(call run-tests,sanitize)
	@$(CMAKE) --preset sanitize-threads --log-level=WARNING >/dev/null
	@$(CMAKE) --build --preset sanitize-threads
	@$(call run-tests,sanitize-threads)
	@tools/fuzz.sh 30

# About an hour; may be stopped and started again.
mutants: setup
	@.venv/bin/python tools/mutants.py

check: setup
	@.venv/bin/python tools/check.py

clean:
	rm -rf build
