# The whole workflow. `make` lists it; every target makes what it needs first and does nothing
# twice. Build trees of the same sources: build/py is the installed package, build/c the C layers
# with their tests, build/asan and build/tsan both with sanitizers.
#
#   PYTHON  the interpreter that .venv is made with
#   JOBS    how many compilers run at once; the bridge's need about 2 GiB of memory each
#   WHEEL_PYTHONS  interpreters beside .venv's that wheels are built for

PYTHON ?= python3
JOBS ?= $(shell nproc)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

export PATH := $(CURDIR)/.venv/bin:$(PATH)
# What ccache, where there is one, must be told to cache files that use a precompiled header.
export CCACHE_SLOPPINESS := pch_defines,time_macros

venv := .venv/requirements.stamp
docs_venv := .venv/docs.stamp
package := build/package.stamp

# Folders count, for the date of one changes when a file in it is added or removed.
package_sources := meson.build meson.options pyproject.toml \
  $(shell find base device allocator collectives sanitizer generator amp nvml pymodule \
    \( -name __pycache__ -o -name '.*_cache' \) -prune -o -print)
c_family = $(shell find base device allocator collectives sanitizer generator amp nvml pymodule test examples \
  -name '*.c' -o -name '*.h' -o -name '*.cpp')
python_code := $(wildcard pymodule/torch_openreg pymodule/startup pymodule/stubs test/pymodule test/conformance \
  test/distributed test/allocator/policy test/sanitizer bench examples tools/check-wheel tools/docs_pages.py tools/draw-pictures)
# Plays the allocator of the C layer to the traces of its policy.
player := build/c/test/allocator/replay
# gcc's older sanitizer run-times cannot start in every randomized address space.
fixed_addresses := $(shell setarch --addr-no-randomize true 2>/dev/null \
  && echo setarch --addr-no-randomize)
# Else a process with threads sleeps for a second before it ends, and tests start hundreds of them.
tsan_options := atexit_sleep_ms=0

# The tests of a file run in one process, in their order: some share what takes long to make.
pytest := python -m pytest -q -n $(JOBS) --dist loadfile

# ---- what there is to do -------------------------------------------------------------------------

.PHONY: help
help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' Makefile | expand -t 24

.PHONY: build
build: $(package) ## everything, from nothing: system packages, .venv, the package in it

.PHONY: test
test: $(package) build/c/build.ninja ## the tests of the C layers and of the Python package
	ninja -C build/c -j$(JOBS)
	meson test -C build/c --no-rebuild --print-errorlogs -t 10
	POLICY_PLAYER='$(CURDIR)/$(player)' POLICY_PLAYER_NUMBERS=1 $(pytest) test/allocator/policy
	python test/allocator/policy/compare.py --numbers --player $(player) --seeds 1-50 --steps 1000 --jobs $(JOBS)
	$(pytest) test/pymodule test/conformance/test_runner.py
	QUEUE_EVERYTHING=1 $(pytest) test/pymodule
	$(MAKE) --no-print-directory test-cuda

.PHONY: test-cuda
test-cuda: $(package) ## the Python tests in CUDA mode
	OPENREG_DEVICE_TYPE=cuda $(pytest) test/pymodule

.PHONY: policy
policy: build/c/build.ninja ## a million steps of the allocator, compared with the second implementation of its policy
	ninja -C build/c -j$(JOBS) $(player:build/c/%=%)
	python test/allocator/policy/compare.py --numbers --player $(player) --seeds 1000-1399 --steps 2500 --jobs $(JOBS)

.PHONY: test-quick
test-quick: $(package) build/c/build.ninja ## the C tests, and the Python tests that start no processes of their own
	ninja -C build/c -j$(JOBS)
	meson test -C build/c --no-rebuild --print-errorlogs -t 10
	$(pytest) test/pymodule -m "not own_processes" --ignore test/pymodule/programs/test_device_types.py

.PHONY: chaos
chaos: build/c/build.ninja ## eight ranks of which one is killed at any moment, a hundred times
	ninja -C build/c -j$(JOBS) test/collectives/test_collectives_chaos
	CHAOS_ROUNDS=100 build/c/test/collectives/test_collectives_chaos

.PHONY: conformance
conformance: $(package) ## every operator, module and optimizer of PyTorch's own database, against the CPU
	cd test && python -m conformance --jobs $(JOBS) --table ../build/conformance.md

.PHONY: conformance-part
conformance-part: $(package) ## an eighth of it in either mode, which one follows from the sources
	python -m pytest test/conformance/test_conformance.py -q
	OPENREG_DEVICE_TYPE=cuda python -m pytest test/conformance/test_conformance.py -q

.PHONY: distributed
distributed: $(package) ## PyTorch's own tests of torch.distributed, in two and four processes
	tools/test-distributed --ranks 2
	tools/test-distributed --backend nccl --ranks 2
	tools/test-distributed --backend nccl --ranks 4
	tools/test-distributed --mode openreg --backend occl --ranks 2

.PHONY: demo
demo: $(package) ## train a classifier of handwritten digits on the simulated devices, in two ways
	python examples/train_digits.py
	openreg run --ranks 4 examples/train_digits_ddp.py

.PHONY: libraries
libraries: $(package) ## install other people's libraries beside it, and run the programs of examples/libraries in CUDA mode
	tools/try-libraries

.PHONY: bench
bench: $(package) ## every benchmark: ratios against the CPU, and at the end the goals missed
	python bench

sanitizers := asan tsan

.PHONY: sanitize sanitize-part
sanitize: sanitize-asan sanitize-tsan ## C and Python tests under address, undefined-behaviour and thread sanitizers
sanitize-part: sanitize-c-asan sanitize-c-tsan sanitize-py-asan ## the part of it that .ci/run runs: C tests under both, Python tests under the first

.PHONY: $(sanitizers:%=sanitize-%) $(sanitizers:%=sanitize-c-%) $(sanitizers:%=sanitize-py-%)
$(sanitizers:%=sanitize-%): sanitize-%: sanitize-c-% sanitize-py-%
	QUEUE_EVERYTHING=1 JOBS=$(JOBS) tools/test-sanitized $*

$(sanitizers:%=sanitize-c-%): sanitize-c-%: build/%/build.ninja
	ninja -C build/$* -j$(JOBS) meson-test-prereq
	TSAN_OPTIONS=$(tsan_options) $(fixed_addresses) meson test -C build/$* --no-rebuild --print-errorlogs -t 10

$(sanitizers:%=sanitize-py-%): sanitize-py-%: build/%/build.ninja $(package)
	ninja -C build/$* -j$(JOBS)
	meson install -C build/$* --no-rebuild --quiet --only-changed --destdir '$(CURDIR)/build/$*'
	JOBS=$(JOBS) tools/test-sanitized $*

# The first mode's findings shall not keep the other from being looked at.
.PHONY: test-watched
test-watched: $(package) ## the tests of the Python package under `openreg sanitize`, in both modes: nothing is found but what test/pymodule/suppressions.ini names
	failed=0; for mode in openreg cuda; do \
	  OPENREG_DEVICE_TYPE=$$mode openreg sanitize --suppressions test/pymodule/suppressions.ini \
	    $(pytest) test/pymodule || failed=1; \
	done; exit $$failed

.PHONY: wheel
wheel: $(package) ## a wheel that needs no compiler and no hwloc, and the sdist, into dist/
	JOBS=$(JOBS) tools/build-wheels $(WHEEL_PYTHONS)

.PHONY: wheel-test
wheel-test: ## install the wheels of dist/ where nothing else is, and use them
	JOBS=$(JOBS) tools/test-wheel $(WHEEL_PYTHONS)

.PHONY: docs
docs: $(docs_venv) ## the documentation as a site, in build/docs/index.html
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

.PHONY: lint
lint: $(venv) ## formatting, mistakes and types
	@echo clang-format --dry-run -Werror
	@clang-format --dry-run -Werror $(c_family)
	ruff check $(python_code)
	ruff format --check $(python_code)
	mypy
	tools/check-includes

.PHONY: format
format: $(venv) ## rewrite the sources as lint wants them
	@echo clang-format -i
	@clang-format -i $(c_family)
	ruff check --fix $(python_code)
	ruff format $(python_code)

.PHONY: clean
clean: ## remove what was built; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find bench examples pymodule test tools -name __pycache__ -prune -exec rm -rf {} +

# ---- how -----------------------------------------------------------------------------------------

# Exactly the PyTorch that the bridge is written for; a build without CUDA is enough.
$(venv): tools/requirements.txt tools/packages.apt tools/install-packages pyproject.toml
	PYTHON="$(PYTHON)" tools/install-packages
	.venv/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv .venv
	.venv/bin/python -m pip install --quiet -r tools/requirements.txt \
	  $$(grep -o --max-count=1 'torch==[0-9.]*' pyproject.toml)
	touch $@

$(docs_venv): tools/docs-requirements.txt | $(venv)
	python -m pip install --quiet -r $<
	touch $@

# meson-python configures build/py once and lets ninja find what changed.
$(package): $(venv) $(package_sources)
	python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall \
	  -Cbuild-dir=build/py -Ccompile-args=-j$(JOBS) .
	touch $@

c_options := -Dbuildtype=debugoptimized -Db_ndebug=false

build/c/build.ninja: | $(venv)
	meson setup build/c -Dpymodule=false $(c_options)

# The C tests and the extension, which is installed into the folder python of the tree. C++ with
# fewer optimizations, and of debug information only the lines, is compiled in half the time. gcc
# warns that the thread sanitizer does not see a fence of PyTorch's headers: no warning is an error.
sanitizer_options := $(c_options) -Dwerror=false '-Dcpp_args=-O1 -g1' -Db_lundef=false \
  -Dpython.purelibdir=/python -Dpython.platlibdir=/python

# libubsan lies in the extension, its names hidden: beside libasan it would be told the other's file
# for findings.
build/asan/build.ninja: Makefile | $(venv)
	meson setup --reconfigure build/asan $(sanitizer_options) -Db_sanitize=address,undefined \
	  '-Dcpp_link_args=-static-libubsan -Wl,--exclude-libs,libubsan.a'

build/tsan/build.ninja: Makefile | $(venv)
	meson setup --reconfigure build/tsan $(sanitizer_options) -Db_sanitize=thread
