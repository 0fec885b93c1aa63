# The whole workflow. `make` lists the targets. Every target first makes what it needs, and does nothing
# twice. There are several build trees of the same sources: build/py is the installed package, build/c
# the C layers with their tests, build/asan and build/tsan both of these with sanitizers.
#
#   PYTHON  the interpreter that .venv is made with
#   JOBS    how many compilers run at once; each needs about 2 GiB of memory for a file of the bridge
#   WHEEL_PYTHONS  more interpreters that `make wheel` builds for
#   TORCH_RELEASES  more releases of PyTorch that `make wheel` builds for, such as '2.12.1 2.14.1'
#   TORCH   the PyTorch in .venv, as a requirement of pip; default: the release that openreg is written
#           for. TORCH='torch===2.13.0' is the CUDA build also where pip has a CPU build.
#   NVIDIA_PACKAGES  `no`: install the CUDA build without NVIDIA's packages
#   ENVIRONMENTS     the environments and options of `make test-environments`
# .venv remembers the last two: a command without either of them keeps the PyTorch that is installed.

empty :=
space := $(empty) $(empty)
PYTHON ?= python3
JOBS ?= $(shell nproc)

# A PYTHON that is given must be the one of .venv, if there is one.
ifneq ($(origin PYTHON),file)
python_version = $(shell "$(1)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifneq ($(wildcard .venv/bin/python),)
ifneq ($(call python_version,.venv/bin/python),$(call python_version,$(PYTHON)))
$(error openreg: PYTHON=$(PYTHON) is Python $(call python_version,$(PYTHON)), but .venv has Python \
  $(call python_version,.venv/bin/python): remove the folders .venv and build, and try again)
endif
endif
endif

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Meson uses ccache if it is installed. It caches files that include a precompiled header only with this
# setting. With the other two, a clone in another folder uses what this one compiled of C; debug
# information may then name the folder of the clone that compiled a file.
export CCACHE_SLOPPINESS := pch_defines,time_macros
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# Progress of a compile: finished files, all files, time so far.
export NINJA_STATUS := [%f of %t, %w]$(space)

venv := .venv/requirements.stamp
torch_choice := .venv/torch-choice
docs_venv := .venv/docs.stamp
package := build/package.stamp

# Folders are in the list because the date of a folder changes when a file is added or removed.
package_sources := meson.build meson.options pyproject.toml \
  $(shell find base device allocator collectives sanitizer generator amp nvml cudart pymodule \
    \( -name __pycache__ -o -name '.*_cache' \) -prune -o -print)
c_family = $(shell find base device allocator collectives sanitizer generator amp nvml cudart pymodule test examples \
  -name '*.c' -o -name '*.h' -o -name '*.cpp')
python_code := $(wildcard pymodule/*.py pymodule/torch_openreg pymodule/startup pymodule/stubs test/pymodule test/conformance \
  test/distributed test/allocator/policy test/sanitizer bench examples \
  $(shell grep -slE '^\#!.*python' tools/*) tools/docs_pages.py tools/build_backend.py cudart/planner/make_stand_ins.py)
# The program that runs the traces in test/allocator/policy on the C layer.
player := build/c/test/allocator/replay
# The sanitizers of older gcc versions cannot start in some randomized address spaces.
fixed_addresses := $(shell setarch --addr-no-randomize true 2>/dev/null \
  && echo setarch --addr-no-randomize)
# Without this option each process with threads sleeps for a second before it exits, and tests start
# hundreds of them.
tsan_options := atexit_sleep_ms=0

# The tests of a file run in one process, in their order, because some share a fixture that is slow to
# make. The slowest ones are listed at the end.
pytest := python -m pytest -q -n $(JOBS) --dist loadfile --durations=20 --durations-min=5
step := @tools/step

# ---- what there is to do -------------------------------------------------------------------------

.PHONY: help
help: ## print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' Makefile | expand -t 24

.PHONY: build
build: $(package) ## build and install everything: system packages, .venv, and the package in it

# Each Python test runs in CUDA mode, where most launches run inline, and once more in openreg mode with
# every launch queued. Tests that have no meaning in CUDA mode also run inline in openreg mode.
# tools/openreg-mode says in one line if openreg mode is left out.
.PHONY: test
test: test-c $(package) ## run the tests that every change must pass, of the C layers and the Python package
	$(step) 'Python tests, cuda mode' env OPENREG_DEVICE_TYPE=cuda $(pytest) \
	  test/pymodule test/conformance/test_runner.py \
	  test/conformance/test_dry.py
	@if tools/openreg-mode; then \
	  tools/step 'Python tests, openreg mode, queued' env QUEUE_EVERYTHING=1 $(pytest) \
	    test/pymodule --ignore test/pymodule/commands; \
	  tools/step 'Python tests for openreg mode only' $(pytest) -m openreg_only \
	    $$(grep -rl --include='test_*.py' openreg_only test/pymodule); \
	fi

# CI has no time for all of `make test`. A hash of the sources chooses the mode of each file.
.PHONY: test-part
test-part: test-c $(package) ## run each Python test file in one of the modes of `make test`, and all C tests
	$(step) 'Python tests, cuda mode, a part' env OPENREG_DEVICE_TYPE=cuda $(pytest) \
	  $$(tools/choose-part tests cuda) test/conformance/test_runner.py \
	  test/conformance/test_dry.py
	@if tools/openreg-mode; then \
	  tools/step 'Python tests, openreg mode, queued, a part' env QUEUE_EVERYTHING=1 $(pytest) \
	    $$(tools/choose-part tests openreg); \
	  tools/step 'Python tests for openreg mode only, a part' $(pytest) -m openreg_only \
	    $$(grep -l openreg_only $$(tools/choose-part tests cuda)); \
	fi

.PHONY: test-c
test-c: build/c/build.ninja ## run the tests of the C layers
	$(step) 'compile of the C layers' ninja -C build/c -j$(JOBS)
	$(step) 'C tests' meson test -C build/c --no-rebuild --print-errorlogs -t 10
	$(step) 'allocator policy, recorded' env POLICY_PLAYER='$(CURDIR)/$(player)' POLICY_PLAYER_NUMBERS=1 \
	  $(pytest) test/allocator/policy
	$(step) 'allocator policy, random' python test/allocator/policy/compare.py --numbers \
	  --player $(player) --seeds 1-50 --steps 1000 --jobs $(JOBS)

.PHONY: test-all
test-all: test-c $(package) ## run every test in every mode, and under sanitizers (an hour on two cores)
	$(step) 'Python tests, openreg mode' $(pytest) test/pymodule test/conformance/test_runner.py \
	  test/conformance/test_dry.py
	$(step) 'Python tests, openreg mode, queued' env QUEUE_EVERYTHING=1 $(pytest) test/pymodule
	$(MAKE) --no-print-directory test-cuda
	$(step) 'conformance, openreg mode' env $$(tools/choose-part conformance) OPENREG_DEVICE_TYPE=openreg \
	  python -m pytest -q test/conformance/test_conformance.py
	$(step) 'conformance, cuda mode' env $$(tools/choose-part conformance) OPENREG_DEVICE_TYPE=cuda \
	  python -m pytest -q test/conformance/test_conformance.py
	$(MAKE) --no-print-directory sanitize-part
	$(MAKE) --no-print-directory test-aarch64

.PHONY: test-cuda
test-cuda: $(package) ## run the Python tests in CUDA mode
	$(step) 'Python tests, cuda mode' env OPENREG_DEVICE_TYPE=cuda $(pytest) test/pymodule

.PHONY: test-aarch64
test-aarch64: build/aarch64/build.ninja ## build the C layers for aarch64, and run their tests in an emulator
	$(step) 'compile for aarch64' ninja -C build/aarch64 -j$(JOBS)
	$(step) 'C tests, aarch64' meson test -C build/aarch64 --no-rebuild --print-errorlogs \
	  --num-processes $(JOBS) -t 10
	@echo 'left out, because the emulator cannot do it:'
	@sed -nE 's/^test_/  test_/p' tools/aarch64/left-out.txt

.PHONY: policy
policy: build/c/build.ninja ## compare a million steps of the allocator with the second implementation of its policy
	ninja -C build/c -j$(JOBS) $(player:build/c/%=%)
	python test/allocator/policy/compare.py --numbers --player $(player) --seeds 1000-1399 --steps 2500 --jobs $(JOBS)

.PHONY: test-quick
test-quick: $(package) build/c/build.ninja ## run the C tests, and the Python tests that start no processes
	ninja -C build/c -j$(JOBS)
	meson test -C build/c --no-rebuild --print-errorlogs -t 10
	$(pytest) test/pymodule -m "not own_processes" --ignore test/pymodule/programs/test_device_types.py

.PHONY: chaos
chaos: build/c/build.ninja ## kill one of eight ranks at any moment, a hundred times
	ninja -C build/c -j$(JOBS) test/collectives/test_collectives_chaos
	CHAOS_ROUNDS=100 build/c/test/collectives/test_collectives_chaos

.PHONY: conformance
conformance: $(package) ## compare every operator, module and optimizer of PyTorch's database with the CPU, and dry runs
	cd test && python -m conformance --jobs $(JOBS) --table ../build/conformance.md
	cd test && python -m conformance.dry --jobs $(JOBS)
	cd test && python -m conformance.dry --jobs $(JOBS) --bytes 1200000

.PHONY: conformance-part
conformance-part: $(package) ## run an eighth of that in one mode; a hash of the sources chooses both
	$(step) 'conformance, a part' env $$(tools/choose-part conformance) \
	  python -m pytest -q test/conformance/test_conformance.py

.PHONY: distributed
distributed: $(package) ## run PyTorch's own tests of torch.distributed, in two and four processes
	tools/test-distributed --ranks 2
	tools/test-distributed --backend nccl --ranks 2
	tools/test-distributed --backend nccl --ranks 4
	tools/test-distributed --mode openreg --backend occl --ranks 2

.PHONY: demo
demo: $(package) ## train a classifier of handwritten digits on the simulated devices, in two ways
	$$(tools/openreg-mode || echo openreg run) python examples/train_digits.py
	openreg run --ranks 4 examples/train_digits_ddp.py

.PHONY: libraries
libraries: $(package) ## install other projects' libraries, and run the programs of examples/libraries in CUDA mode
	tools/try-libraries

.PHONY: bench
bench: $(package) ## run every benchmark: prints ratios to the CPU, and at the end the missed goals
	python bench

sanitizers := asan tsan
aarch64_tools := $(addprefix tools/aarch64/,cross.ini packages.apt prepare)

.PHONY: sanitize sanitize-part sanitize-c
sanitize: sanitize-asan sanitize-tsan ## run C and Python tests under the address, undefined-behaviour and thread sanitizers
sanitize-part: sanitize-c sanitize-py-asan ## run the C tests under all of them, the Python tests under the first two
sanitize-c: sanitize-c-asan sanitize-c-tsan ## run the C tests under all of them

.PHONY: $(sanitizers:%=sanitize-%) $(sanitizers:%=sanitize-c-%) $(sanitizers:%=sanitize-py-%)
$(sanitizers:%=sanitize-%): sanitize-%: sanitize-c-% sanitize-py-%
	QUEUE_EVERYTHING=1 JOBS=$(JOBS) tools/test-sanitized $*

$(sanitizers:%=sanitize-c-%): sanitize-c-%: build/%/build.ninja
	$(step) 'compile of the C layers, $*' ninja -C build/$* -j$(JOBS) meson-test-prereq
	$(step) 'C tests, $*' env TSAN_OPTIONS=$(tsan_options) $(fixed_addresses) \
	  meson test -C build/$* --no-rebuild --print-errorlogs -t 10

$(sanitizers:%=sanitize-py-%): sanitize-py-%: build/%/build.ninja $(package)
	$(step) 'compile of the bridge, $*' ninja -C build/$* -j$(JOBS)
	meson install -C build/$* --no-rebuild --quiet --only-changed --destdir '$(CURDIR)/build/$*'
	$(step) 'Python tests, $*' env JOBS=$(JOBS) tools/test-sanitized $*

# The second mode runs even if the first has findings.
.PHONY: test-watched
test-watched: $(package) ## run the Python tests under `openreg sanitize`, in both modes; only findings in test/pymodule/suppressions.ini are allowed
	failed=0; for mode in openreg cuda; do \
	  OPENREG_DEVICE_TYPE=$$mode openreg sanitize --suppressions test/pymodule/suppressions.ini \
	    $(pytest) test/pymodule || failed=1; \
	done; exit $$failed

.PHONY: wheel
wheel: $(package) ## write a wheel, which needs no compiler and no hwloc, and the sdist into dist/
	JOBS=$(JOBS) TORCH_RELEASES='$(TORCH_RELEASES)' tools/build-wheels $(WHEEL_PYTHONS)

.PHONY: wheel-test
wheel-test: ## test the wheels of dist/ in a new environment
	JOBS=$(JOBS) tools/test-wheel $(WHEEL_PYTHONS)

.PHONY: test-environments
test-environments: $(venv) ## test several releases and builds of PyTorch in new environments, and print a table
	JOBS=$(JOBS) tools/test-environments $(ENVIRONMENTS)

# The extension is the same for all builds of a release, so nothing is compiled.
.PHONY: test-cuda-build
test-cuda-build: $(package) ## test a part of CUDA mode with PyTorch's CUDA build, without NVIDIA's packages
	$(step) 'tests with the CUDA build' env JOBS=$(JOBS) tools/test-environments --keep --modes cuda \
	  --tests "$$(tools/choose-part cuda-build)" --wheel build/wheel/*.whl "$$(python pymodule/torch_facts.py | head -n 1)/bare"

.PHONY: docs
docs: $(docs_venv) ## build the documentation, build/docs/index.html
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

.PHONY: lint
lint: $(venv) ## check formatting, common mistakes, types, includes and wording
	@echo clang-format --dry-run -Werror
	@clang-format --dry-run -Werror $(c_family)
	ruff check $(python_code)
	ruff format --check $(python_code)
	mypy
	tools/check-includes
	tools/check-types
	tools/check-torch-version
	tools/write-configuration --check
	tools/check-words

.PHONY: format
format: $(venv) ## format the sources
	@echo clang-format -i
	@clang-format -i $(c_family)
	ruff check --fix $(python_code)
	ruff format $(python_code)

.PHONY: clean
clean: ## remove all build results; keeps .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find bench examples pymodule test tools -name __pycache__ -prune -exec rm -rf {} +

# ---- how -----------------------------------------------------------------------------------------

# The file changes only if TORCH or NVIDIA_PACKAGES is given and differs from the last choice. Then PyTorch
# is installed again, and all that depends on $(venv) is built again.
.PHONY: always
$(torch_choice): $(if $(TORCH)$(NVIDIA_PACKAGES),always)
	@mkdir -p $(@D)
	@printf 'TORCH=%q\nNVIDIA_PACKAGES=%q\n' '$(TORCH)' '$(NVIDIA_PACKAGES)' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(venv): tools/requirements.txt tools/packages.apt tools/install-packages tools/install-requirements \
  tools/install-torch pyproject.toml $(torch_choice)
	$(step) 'system packages' env PYTHON="$(PYTHON)" tools/install-packages
	$(step) 'virtual environment' tools/install-requirements "$(PYTHON)"
	@touch $@

$(docs_venv): tools/docs-requirements.txt | $(venv)
	$(step) 'packages for the documentation' python -m pip install --quiet -r $<
	@touch $@

# meson-python configures build/py once; afterwards ninja finds what changed. The wheel is built by the
# function that pip would call, because pip hides the progress.
$(package): $(venv) $(package_sources)
	@rm -rf build/wheel && mkdir -p build/wheel
	$(step) 'compile of the package' env PYTHONPATH=tools python -c 'import build_backend; \
	  build_backend.build_wheel("build/wheel", {"build-dir": "build/py", "compile-args": "-j$(JOBS)"})'
	$(step) 'installation' python -m pip install --quiet --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

c_options := -Dbuildtype=debugoptimized -Db_ndebug=false

build/c/build.ninja: | $(venv)
	meson setup build/c -Dpymodule=false $(c_options)

build/aarch64/build.ninja: $(aarch64_tools) tools/install-packages | $(venv)
	$(step) 'system packages for aarch64' tools/install-packages tools/aarch64/packages.apt
	$(step) 'libraries and emulator for aarch64' tools/aarch64/prepare
	rm -rf build/aarch64
	meson setup build/aarch64 --cross-file tools/aarch64/cross.ini -Dpymodule=false $(c_options)

# The C tests and the extension, which is installed into the folder python of the tree. C++ compiles in
# half the time with fewer optimizations and with line numbers as the only debug information. It takes
# another third less without checks of each pointer for null, alignment and size: the address sanitizer
# finds the first and most of the last. C has all checks. Warnings are not errors here: gcc warns that
# the thread sanitizer ignores a fence in PyTorch's headers.
sanitizer_options := $(c_options) -Dwerror=false -Db_lundef=false \
  '-Dcpp_args=-O1 -g1 -fno-sanitize=null,alignment,object-size' \
  -Dpython.purelibdir=/python -Dpython.platlibdir=/python

# libubsan is linked into the extension, with hidden names. As a shared library beside libasan it would
# write its findings to the file of libasan.
build/asan/build.ninja: Makefile | $(venv)
	meson setup --reconfigure build/asan $(sanitizer_options) -Db_sanitize=address,undefined \
	  '-Dcpp_link_args=-static-libubsan -Wl,--exclude-libs,libubsan.a'

build/tsan/build.ninja: Makefile | $(venv)
	meson setup --reconfigure build/tsan $(sanitizer_options) -Db_sanitize=thread
