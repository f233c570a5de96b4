# make demo    environment, build, then text from the model that ships
# make test    environment, build, all tests
# make help    everything else

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# The tests of a wheel run on each of these that is installed.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
PYTEST_ARGS ?=

CXX_FILES := $(wildcard csrc/*.h csrc/*.hpp csrc/*.cpp csrc/tests/*.hpp csrc/tests/*.cpp)

# Puts the package into the environment as it lies here, with one of its extras. Always asked for, because only pip
# and ninja know what is up to date; where nothing changed it takes seconds.
editable = $(PIP) install --editable '.[$(1)]'

.PHONY: help build demo test lint format stubs asan tsan wheel wheel-test portable portable-test bench clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 16

build: $(BIN)/python ## the environment with the package, built in place
	$(call editable,test)

demo: $(BIN)/python ## a story and an answer, streamed from the model that ships
	$(PIP) install --editable .
	$(BIN)/python examples/demo.py

test: build ## the C++ tests and all Python tests
	$(BIN)/ctest --test-dir build/cp310-abi3-* --no-tests=error --output-on-failure
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(BIN)/python ## every linter, as CI runs them
	$(call editable,dev)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BIN)/python ## Python and C++ in the house style
	$(call editable,dev)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

stubs: build ## the type stubs of the compiled module
	$(BIN)/python tools/make_stubs.py

asan: build ## the C++ tests with the address sanitizer
	$(call sanitized,address)

tsan: build ## the C++ tests with the thread sanitizer
	$(call sanitized,thread)

wheel: $(BIN)/python ## a wheel for this machine, in dist/
	$(PIP) wheel --no-deps --wheel-dir dist .

wheel-test: wheel ## the tests against that wheel, on every CPython found
	.ci/test-wheel dist $(PYTHONS)

portable: $(BIN)/python ## a wheel with every CPU variant, in dist/portable/
	$(PIP) wheel --no-deps --wheel-dir dist/portable --config-settings=build-dir=build/portable \
		--config-settings=cmake.define.PYGGML_PORTABLE=ON .

portable-test: portable ## the tests against that wheel, installed and then moved to another folder
	.ci/test-wheel --move dist/portable $(PYTHONS)

bench: build ## the decode loop beside upstream's own benchmark
	$(BIN)/python benchmarks/decode_vs_llama_bench.py

clean: ## away with what was built; the engine's sources and the environment stay
	rm -rf build dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip

define sanitized
	PATH="$(abspath $(BIN)):$$PATH" cmake -G Ninja -S . -B build/$(1) -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DPYGGML_SANITIZE=$(1) -DPYGGML_BUILD_MODULE=OFF -DPYGGML_BUILD_TESTS=ON
	PATH="$(abspath $(BIN)):$$PATH" cmake --build build/$(1)
	$(BIN)/ctest --test-dir build/$(1) --no-tests=error --output-on-failure
endef
