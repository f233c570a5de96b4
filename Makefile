# make demo      environment, build, then text from the demonstration model
# make test      environment, build, all tests except the slow ones
# make test-all  all tests
# make help      everything else

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Wheels are tested on each of these that is installed.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
# One process per core; idle ones steal tests from the others.
PYTEST_ARGS ?= --numprocesses=auto --maxprocesses=8 --dist=worksteal

ARM_CXX ?= aarch64-linux-gnu-g++
ARM_RUN ?= qemu-aarch64-static -cpu max

# The tests start hundreds of interpreters, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

CXX_FILES = $(shell find csrc -path csrc/cdef -prune -o -name '*.hpp' -print -o -name '*.cpp' -print) csrc/pyggml.h

# Exists while the environment has what the tests need: pip takes half a minute to find that nothing has changed.
BUILT = $(VENV)/built-for-tests
VENDOR_FILES = $(filter-out vendor/llama.cpp,$(wildcard vendor/*.*))

# Install the package in place, with one of its extras and the C++ tests.
editable = $(PIP) install --editable '.[$(1)]' --config-settings=cmake.define.PYGGML_BUILD_TESTS=ON

.PHONY: help build demo test test-all test-real test-clients ray-test arm-test lint format docs stubs reference outputs compare comparison stress schedules attack fuzz fuzz-guided fuzz-engine faults faults-sweep soak gpu-proof asan tsan asan-tests tsan-tests asan-build tsan-build reached-build kernels-test kernels-asan wheel wheel-test portable portable-test wheels release-check cross-check cuda-wheel vulkan-test bench clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 16

build: $(BUILT) ## create the environment and build the package in place

$(BUILT): $(BIN)/python CMakeLists.txt pyproject.toml pyggml/_version.py $(VENDOR_FILES) $(shell find csrc -type f -not -name "*.pyc")
	$(call editable,test)
	touch $@

demo: $(BIN)/python ## stream a story from the demonstration model, then a chat with a real one (93 MB; DEMO_ARGS=--no-download skips it)
	$(PIP) install --editable .
	$(BIN)/python examples/demo.py $(DEMO_ARGS)

test: build ## run the C++ tests, and all Python tests except the slow ones
	$(BIN)/ctest --test-dir build/cp310-abi3-* --no-tests=error --output-on-failure --parallel 2
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-all: test ## run all tests: the same, and then the slow ones, except those of ray-test and test-real
	$(call editable,test) --config-settings=cmake.define.PYGGML_TEST_ALL_INSTRUCTION_SETS=ON
	$(BIN)/ctest --test-dir build/cp310-abi3-* --no-tests=error --output-on-failure --tests-regex test_qgemm
	$(BIN)/python -m pytest -m "slow and not ray and not real" $(PYTEST_ARGS)

test-real: build ## fetch three published models into the user's cache (415 MB, once), and run the tests on them
	models=$$($(BIN)/python tools/real_models.py) && PYGGML_TEST_MODELS="$$models" $(BIN)/python -m pytest \
		tests/published_models tests/loading/test_published_models.py

test-clients: build ## test frameworks and clients, each in an environment of its own (NOX_ARGS="-s 'client(instructor)'")
	$(BIN)/nox $(NOX_ARGS)

ray-test: build ## run the tests of jobs and servers on Ray, alone, because Ray's processes time out on a busy machine
	$(PIP) install --quiet --editable '.[ray]'
	$(BIN)/python -m pytest -m ray

arm-test: build ## run the C++ tests of kernels compiled for ARM, in an emulator
	@command -v $(ARM_CXX) $(firstword $(ARM_RUN)) >/dev/null || { echo >&2 \
		"first, on Debian and Ubuntu: apt install g++-aarch64-linux-gnu qemu-user-static"; exit 1; }
	ARM_CXX="$(ARM_CXX)" ARM_RUN="$(ARM_RUN)" $(BIN)/python tools/test_kernels.py --sets neon i8mm

lint: $(BIN)/python ## run all linters, as CI does
	$(call editable,dev)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BIN)/python ## format Python and C++ in the house style
	$(call editable,dev)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

docs: $(BIN)/python ## build the documentation as a site, in build/docs
	$(call editable,docs)
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going --quiet docs build/docs

stubs: build ## write type stubs (compiled module, families, keywords) and the tables of families in docs/
	$(BIN)/python tools/make_stubs.py
	$(BIN)/python tools/make_families.py
	$(BIN)/python tools/make_keywords.py

reference: build ## write docs/reference/command-line.md from the help of the commands
	$(BIN)/python tools/make_command_help.py

stress: build ## run ten minutes of concurrent threads, tasks, cancels and closes
	$(BIN)/python tests/soak/stress.py --minutes 10 --threads 32

schedules: build ## check batch invariance: compare the requests of 1,000 random schedules with each request alone
	$(BIN)/python tests/soak/schedules.py --rounds 1000
	$(BIN)/python tests/soak/tiered_schedules.py --rounds 1000

attack: build ## stream from a server that 500 hostile clients attack, and measure the effect
	$(BIN)/python tests/soak/attack_server.py --attackers 500

fuzz: build ## run every fuzzer of tests/fuzz (or FUZZERS=...) for TIME=60 seconds
	cd tests && $(abspath $(BIN))/python -m fuzz $(FUZZERS) --time $(or $(TIME),60) $(if $(SEED),--seed $(SEED)) \
		--findings $(abspath build/fuzz)

fuzz-guided: build ## run libFuzzer on files and schemas, guided by Python coverage: TARGETS=... for TIME=60 seconds each
	$(PIP) install --quiet atheris
	cd tests && for target in $(or $(TARGETS),$$($(abspath $(BIN))/python -m fuzz.guided names)); do \
		$(abspath $(BIN))/python -m fuzz.guided $$target --time $(or $(TIME),60) || exit 1; done

fuzz-engine: reached-build ## fuzz files (FUZZERS=gguf), guided by the engine's coverage, for TIME=60 seconds
	cd tests && $(call sanitized,asan,:$(left_to_tests)) ../build/reached-venv/bin/python -m fuzz $(or $(FUZZERS),gguf) \
		--time $(or $(TIME),60) $(if $(SEED),--seed $(SEED)) --findings $(abspath build/fuzz) --evolve $(abspath build/fuzz/evolved)

faults: build ## inject failures of allocations, threads, descriptors, reads and writes, for TIME=300 seconds
	$(MAKE) fuzz FUZZERS=faults TIME=$(or $(TIME),300)

faults-sweep: build ## run the same for every n-th call in turn, AT_MOST=2000 of each kind
	cd tests && $(abspath $(BIN))/python -m fuzz.faults.sweep $(SCENARIOS) $(if $(KINDS),--kinds $(KINDS)) \
		--at-most $(or $(AT_MOST),2000) --findings $(abspath build/fuzz)

soak: build ## use the library and the server for HOURS=2, and record their memory and handles: rows and plots in build/soak
	$(BIN)/python tests/soak/run.py --hours $(or $(HOURS),2) --out build/soak $(if $(SEED),--seed $(SEED))

asan: ## run the C++ tests and a minute of stress with the address and undefined-behaviour sanitizers
tsan: ## run the same with the thread sanitizer
asan tsan: %: %-build
	$(sanitizer_options) $(unrandomised) build/$@-venv/bin/ctest --test-dir build/$@ --no-tests=error --output-on-failure --parallel 2
	$(call sanitized,$@) build/$@-venv/bin/python tests/soak/stress.py --minutes 1 --threads 16

asan-tests: ## run the Python tests, all or TESTS="tests/test_a.py ...", with those of asan; SLOW=1 runs the slow ones
tsan-tests: ## run them with the thread sanitizer
asan-tests tsan-tests: %-tests: %-build
	rm -rf build/$*-reports && mkdir build/$*-reports
	$(call sanitized,$*,$(report_options)) build/$*-venv/bin/pytest \
		-m "$(if $(SLOW),,not )slow" --timeout=1200 $(PYTEST_ARGS) $(TESTS); \
		status=$$?; cat build/$*-reports/* 2>/dev/null && exit 1; exit $$status

kernels-test: build ## run the C++ tests of kernels for every instruction set of x86, including those that this machine lacks
	$(BIN)/python tools/test_kernels.py

kernels-asan: build ## run the same with the address and undefined-behaviour sanitizers
	$(BIN)/python tools/test_kernels.py --sanitize

wheel: $(BIN)/python ## build a wheel for this machine, in dist/
	$(PIP) wheel --no-deps --wheel-dir dist .

wheel-test: wheel ## test that wheel on every CPython found
	.ci/test-wheel dist $(PYTHONS)

portable: $(BIN)/python ## build a wheel with every CPU variant, in dist/portable/
	$(PIP) wheel --no-deps --wheel-dir dist/portable --config-settings=build-dir=build/portable \
		--config-settings=cmake.define.PYGGML_PORTABLE=ON .

portable-test: portable ## test that wheel after moving the installed files to another folder
	.ci/test-wheel --move dist/portable $(PYTHONS)

wheels: ## build wheels for any Linux with glibc, of x86-64 and ARM, in dist/wheels/, and check them on every CPython found (docs/reference/platforms.md)
	$(PYTHON) tools/portable_wheels.py $(WHEELS_ARGS)

release-check: ## check all that can be checked here before a release: wheels, the sdist and a wheel of it, C++ for other systems
	$(PYTHON) tools/portable_wheels.py --sdist $(WHEELS_ARGS)
	$(MAKE) cross-check

cross-check: $(BIN)/python ## compile our C++ for Windows, macOS and Linux with musl; runs nothing
	$(BIN)/python vendor/sync.py
	$(PIP) install --quiet 'ziglang==0.17.*'
	$(BIN)/python tools/cross_check.py $(CROSS_CHECK_ARGS)

cuda-wheel: ## build a wheel with CUDA, in dist/cuda13/, and check it; needs no GPU, no driver and no toolkit (docs/how-to/build-for-gpus.md)
	$(PYTHON) tools/cuda_wheel.py $(CUDA_WHEEL_ARGS)

vulkan-test: ## run the GPU tests on Mesa's software driver for Vulkan, without a GPU
	@command -v glslc >/dev/null && ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null || { echo >&2 \
		"first, on Debian and Ubuntu: apt install libvulkan-dev glslc spirv-headers mesa-vulkan-drivers"; exit 1; }
	$(PYTHON) -m venv build/vulkan-venv
	build/vulkan-venv/bin/python -m pip --disable-pip-version-check install '.[test]' \
		--config-settings=build-dir=build/vulkan --config-settings=cmake.define.GGML_VULKAN=ON \
		--config-settings=cmake.define.GGML_CPU_ALL_VARIANTS=OFF
	GGML_VK_VISIBLE_DEVICES=0 GGML_VK_DISABLE_FUSION=1 build/vulkan-venv/bin/pytest -m "not slow" tests/devices/test_results_on_devices.py -k vulkan

compare: build ## compare imported models and adapters with transformers, compressed-tensors and peft, which TRANSFORMERS_PYTHON must have
	$(BIN)/python tools/compare_with_transformers.py --python $(TRANSFORMERS_PYTHON)
	$(BIN)/python tools/compare_with_compressed_tensors.py --python $(TRANSFORMERS_PYTHON)
	$(BIN)/python tools/compare_with_peft.py --python $(TRANSFORMERS_PYTHON)

outputs: build ## update the outputs in README, docs and examples, after a change to the demonstration model
	$(BIN)/python tools/update_outputs.py
	$(BIN)/python tools/example_outputs.py

comparison: build ## measure the README's comparison with other libraries, and draw its plot; half an hour on two idle cores
	$(BIN)/python benchmarks/compare_features.py
	$(BIN)/python benchmarks/callers.py
	$(BIN)/python tools/make_comparison.py

bench: build ## measure every claim of docs/explanation/benchmarks.md, about half an hour on two idle cores
	$(BIN)/python benchmarks/run_all.py

gpu-proof: ## on a machine with an NVIDIA GPU: build for it, run the tests marked gpu, measure, in eight minutes
	$(PYTHON) tools/gpu_proof.py

clean: ## delete build outputs, but not the engine's sources and the environment
	rm -rf build dist $(BUILT)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip

# Build the package in a separate environment, with everything, including the engine, compiled for the sanitizers.
asan-build tsan-build reached-build: %-build:
	$(PYTHON) -m venv build/$*-venv
	build/$*-venv/bin/python -m pip --disable-pip-version-check install --editable '.[test]' \
		--config-settings=build-dir=build/$* --config-settings=cmake.build-type=RelWithDebInfo \
		$(addprefix --config-settings=cmake.define.,$(defines_of_$*))

comma := ,
defines_of_asan    := PYGGML_SANITIZE=address$(comma)undefined PYGGML_BUILD_TESTS=ON
defines_of_tsan    := PYGGML_SANITIZE=thread PYGGML_BUILD_TESTS=ON
defines_of_reached := PYGGML_SANITIZE=address$(comma)undefined PYGGML_REACHED=ON
libraries_of_asan  := libasan.so libubsan.so
libraries_of_tsan  := libtsan.so

# Prefix for a command under the sanitizers. CPython is not compiled for them, so their libraries are preloaded, and
# libstdc++ as well, because they look there for functions to intercept. Address-space randomisation is off because it
# may use addresses that gcc's thread sanitizer needs. Leak detection is off because CPython and its packages never free
# some memory. The threads of tokenizers are off: it is not compiled for the sanitizers either and would report races
# for hours.
sanitized = $(call sanitizer_options,$(2)) TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1 \
	LD_PRELOAD="$(foreach library,$(libraries_of_$(1)) libstdc++.so,$(shell $(CC) -print-file-name=$(library)))" \
	$(unrandomised)
unrandomised = $(shell setarch --addr-no-randomize true 2>/dev/null && echo setarch --addr-no-randomize)
report_options = :log_path=$(CURDIR)/build/$*-reports/report:$(left_to_tests)
# Tests check how programs crash, and make allocations fail. When a program forks, pyarrow's allocator takes more locks
# than the deadlock detector supports; it is on only outside the tests.
left_to_tests := detect_deadlocks=0:allocator_may_return_null=1:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_abort=0
# A forked child has none of its parent's threads, which is not a thread leak.
sanitizer_options = ASAN_OPTIONS=detect_leaks=0$(1) \
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1$(1) \
	TSAN_OPTIONS=second_deadlock_stack=1:report_thread_leaks=0:suppressions=$(CURDIR)/csrc/tests/support/tsan.supp$(1)
