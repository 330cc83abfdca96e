# Each target sets up what it needs: a virtual environment, pinned installs (constraints.txt), and augpipe itself, editable.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

PYTHON ?= python3
PYTEST_ARGS ?=
DEMO_OUT ?= demo
TEST_TIMEOUT_S ?= 240
TEST_PROCESSES ?= 3

PIP = -m pip --disable-pip-version-check --no-input
INSTALL = $(PIP) install -qq -c constraints.txt

# The tests with the marks $(1), unless PYTEST_ARGS has an -m of its own.
RUN_TESTS = if [ -z "$${AUGPIPE_DATA+set}" ] && [ -d "$(PHOTOS)" ]; then \
		AUGPIPE_DATA=$$(cd "$(PHOTOS)" && pwd); export AUGPIPE_DATA; \
	fi; \
	.venv/bin/python -m pytest -n "$(TEST_PROCESSES)" --dist loadfile --no-loadscope-reorder --timeout "$(TEST_TIMEOUT_S)" -m "$(1)" $(PYTEST_ARGS)

# The simulator is chosen when numba is imported, so its tests are a second session. Where $(2), which chooses among the
# tests, is not empty, one of the two may have none of them (pytest ends with 5).
RUN_BOTH = $(call RUN_TESTS,$(1)); normal=$$?; \
	NUMBA_ENABLE_CUDASIM=1; export NUMBA_ENABLE_CUDASIM; $(call RUN_TESTS,$(1)); \
	case "$$normal $$?" in "0 0") true;; "0 5" | "5 0") $(if $(2),true,false);; *) false;; esac

# Real photographs that may lie beside the checkout; tests that want them are skipped where there are none.
PHOTOS = ../shared/data

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

.PHONY: demo
demo: .venv/.installed ## Photographs to a trained network: sample dataset, preview sheet, an epoch, rates, two ranks (into demo/)
	@.venv/bin/augpipe demo --out "$(DEMO_OUT)"

.PHONY: test
test: .venv/.installed ## Run the tests, then those in numba's CUDA simulator; PYTEST_ARGS="-k lens" for some of them
	@$(call RUN_BOTH,not deep,$(PYTEST_ARGS))

.PHONY: test-deep
test-deep: .venv/.installed ## Run the tests that take minutes and that `make test` leaves out
	@$(call RUN_BOTH,deep,deep)

.PHONY: test-fast
test-fast: .venv/.installed ## Run the tests that start no processes and take little time
	@$(call RUN_TESTS,not slow and not deep)

.PHONY: lint
lint: .venv/.installed ## ruff (lint and format) and mypy --strict
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/mypy

.PHONY: format
format: .venv/.installed ## Let ruff mend what it can
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format --quiet .

.PHONY: bench
bench: .venv-bench/.installed ## Run the benchmarks beside the peers they compare with (an environment of their own)
	@for script in $$(grep -l __main__ benchmarks/*.py | grep -v -e /gpu_check -e /wheels); do \
		echo "== $$script"; .venv-bench/bin/python "$$script" || exit 1; \
	done

.PHONY: check-wheels
check-wheels: .venv/.installed ## Ask the package index which wheels the pinned dependencies have, by Python and system
	@.venv/bin/python benchmarks/wheels.py

.PHONY: gpu-check
gpu-check: .venv/.installed ## On a CUDA machine: parity, faults, measurements; one report in benchmarks/results/
	@if [ -z "$${AUGPIPE_DATA+set}" ] && [ -d "$(PHOTOS)" ]; then AUGPIPE_DATA=$$(cd "$(PHOTOS)" && pwd); export AUGPIPE_DATA; fi; \
	.venv/bin/python benchmarks/gpu_check.py $(GPU_CHECK_ARGS)

.PHONY: clean
clean: ## Remove the environments, caches and what the commands wrote
	rm -rf .venv .venv-bench build dist src/augpipe.egg-info demo
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: extras = dev,torch,dali,cudatools,parquet,plots,ray,remote,stats,weights,lightning
.venv-bench/.installed: extras = bench,torch,dali,cudatools
.venv/.installed .venv-bench/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "augpipe needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
			"Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Installing into $(@D) (once; some minutes where torch has to be downloaded)"
	@$(PYTHON) -m venv "$(@D)"
	@$(@D)/bin/python $(INSTALL) --upgrade pip setuptools
	@# torch comes first and alone: its pin decides which build is taken
	@$(@D)/bin/python $(INSTALL) torch==2.13.0
	@$(@D)/bin/python $(INSTALL) --no-build-isolation -e ".[$(extras)]"
	@touch "$@"
