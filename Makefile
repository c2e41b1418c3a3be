# Everything a newcomer types. Each target sets up what it needs; a second call starts in seconds.
#   make demo      train B'MOJO and its twin without eidetic memory side by side: who can recall?
#   make test      build, then every test (make test-fast leaves out the slow ones)
#   make TORCH=DIR … use a torch that is already there (the folder with include/ and lib/)
SHELL := bash
CMAKE := cmake
BUILD := build/release
export TORCH

.PHONY: all setup build demo test test-fast bench bench-full bench-train format lint sanitize mutants clean

all: build

setup:
	@tools/setup.sh

# CMake runs again by itself when a CMakeLists.txt changes; here only when the torch folder does.
$(BUILD)/build.ninja: .venv/.torch CMakePresets.json tools/torch.cmake
	@$(CMAKE) --preset release -DBMOJO_TORCH_DIR="$$(cat .venv/.torch)" --log-level=WARNING >/dev/null

build: setup
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@$(CMAKE) --build --preset release

demo: build
	@.venv/bin/python tools/demo.py --bin $(BUILD)/bin

# What was skipped is said at the end, and why (GoogleTest: where).
test: build
	@ctest --preset release; code=$$?; grep -hE "^SKIPPED|: Skipped$$" \
	  $(BUILD)/Testing/Temporary/LastTest.log || true; exit $$code

test-fast: build
	@ctest --preset release -L fast

bench: build
	@.venv/bin/python tools/bench.py --bin $(BUILD)/bin

# Hours; may be stopped and started again.
bench-full: build
	@.venv/bin/python tools/bench_full.py --bin $(BUILD)/bin

bench-train: build
	@.venv/bin/python tools/bench_train.py --bin $(BUILD)/bin

SOURCES := $(shell find src tests bench -name "*.cpp" -o -name "*.h")

format:
	@tools/setup.sh lint
	@clang-format-19 -i $(SOURCES)

lint: build
	@tools/setup.sh lint
	@clang-format-19 --dry-run --Werror $(SOURCES)
	@.venv/bin/python tools/rooms.py
	@.venv/bin/python tools/tidy.py $(BUILD)

sanitize: setup
	@$(CMAKE) --preset sanitize --log-level=WARNING >/dev/null
	@$(CMAKE) --build --preset sanitize
	@ctest --preset sanitize
	@$(CMAKE) --preset sanitize-threads --log-level=WARNING >/dev/null
	@$(CMAKE) --build --preset sanitize-threads
	@ctest --preset sanitize-threads

mutants: build
	@.venv/bin/python tools/mutants.py

clean:
	rm -rf build
