# Each target sets up what it needs: a virtual environment, pinned installs (constraints.txt), and augpipe itself, editable.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

PYTHON ?= python3
PYTEST_ARGS ?=
DEMO_OUT ?= demo
BENCH_ARGS ?=
TEST_TIMEOUT_S ?= 240
TEST_PROCESSES ?= 4
# Each process imports all tests, and torch; these tests wait for nothing that a third one could use.
FAST_PROCESSES ?= 2

# Where it is set, every process that tests start compiles what it imports again, and pytest rewrites all asserts.
unexport PYTHONDONTWRITEBYTECODE

PIP = -m pip --disable-pip-version-check --no-input
# pip would compile one module after another: Python does that for those that are imported, or compileall on all cores.
INSTALL = $(PIP) install -qq --no-compile -c constraints.txt

# The tests with the marks $(1), unless PYTEST_ARGS has an -m of its own, in $(2) processes.
RUN_TESTS = if [ -z "$${AUGPIPE_DATA+set}" ] && [ -d "$(PHOTOS)" ]; then \
		AUGPIPE_DATA=$$(cd "$(PHOTOS)" && pwd); export AUGPIPE_DATA; \
	fi; \
	.venv/bin/python -m pytest -n "$(2)" --dist loadfile --no-loadscope-reorder --timeout "$(TEST_TIMEOUT_S)" -m "$(1)" $(PYTEST_ARGS)

# The simulator is chosen when numba is imported, so its tests are a second session, at the same time: a process for it
# fills the time in which others wait. Its output comes last. Where $(2), which chooses among the tests, is not empty,
# one of the two may have none of them (pytest ends with 5).
RUN_BOTH = output=$$(mktemp); \
	(NUMBA_ENABLE_CUDASIM=1; export NUMBA_ENABLE_CUDASIM; $(call RUN_TESTS,$(1),1)) > "$$output" 2>&1 & \
	$(call RUN_TESTS,$(1),$(TEST_PROCESSES)); normal=$$?; \
	wait $$!; simulated=$$?; cat "$$output"; rm "$$output"; \
	case "$$normal $$simulated" in "0 0") true;; "0 5" | "5 0") $(if $(2),true,false);; *) false;; esac

# Real photographs that may lie beside the checkout; tests that want them are skipped where there are none.
PHOTOS = ../shared/data

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

.PHONY: demo
demo: $(if $(wildcard .venv/.installed),.venv/.installed,.venv/.demo) ## Photographs to a trained network, in two to five minutes (into demo/); installs only what it uses
	@.venv/bin/augpipe demo --out "$(DEMO_OUT)"

.PHONY: test
test: .venv/.installed ## Run the tests, then those in numba's CUDA simulator; PYTEST_ARGS="-k lens" for some of them
	@.venv/bin/augpipe warm --quiet
	@$(call RUN_BOTH,not deep,$(PYTEST_ARGS))

.PHONY: test-deep
test-deep: .venv/.installed .venv-docs/.installed ## Run the tests that take minutes and that `make test` leaves out
	@$(call RUN_BOTH,deep,deep)

.PHONY: test-fast
test-fast: .venv/.installed ## Run the tests that start no processes and take little time
	@.venv/bin/augpipe warm --quiet
	@$(call RUN_TESTS,not slow and not deep,$(FAST_PROCESSES))

.PHONY: lint
lint: .venv/.installed ## ruff (lint and format) and mypy --strict
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/mypy

.PHONY: format
format: .venv/.installed ## Let ruff mend what it can
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format --quiet .

.PHONY: docs
docs: .venv-docs/.installed ## Build the documentation's site (an environment of its own); read it by python3 -m http.server -d build/site
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site"

# Measurements by their modules. Those of QUICK take minutes in all and need no data; the others hours.
QUICK = $(addprefix pipeline.,loader kernel chains planning sampling jpeg_regions prepare memory startup) \
	trainer.codec_speed trainer.evaluate gpu.resources
BENCHES = $(subst /,.,$(patsubst benchmarks/%.py,%,$(shell grep -l __main__ benchmarks/*/*.py)))
SLOW = $(filter-out $(QUICK) gpu.check parity.measure parity.theirs pipeline.compare trainer.checkpoints papers.evidence,$(BENCHES))

.PHONY: bench
bench: .venv-bench/.installed ## Run the quick benchmarks beside the peers they compare with (an environment of their own)
	@for name in $(QUICK); do echo "== $$name"; .venv-bench/bin/python -m benchmarks.$$name $(BENCH_ARGS) || exit 1; done

.PHONY: bench-papers
bench-papers: .venv/.installed ## Run the other benchmarks: links, servers, papers' experiments; hours, and data in AUGPIPE_DATA
	@failed=; for name in $(SLOW); do \
		echo "== $$name"; .venv/bin/python -m benchmarks.$$name $(BENCH_ARGS) || failed="$$failed $$name"; \
	done; [ -z "$$failed" ] || { echo "These failed:$$failed" >&2; exit 1; }

# Libraries whose transforms importers map, in environments of their own: the two versions of albumentations cannot share
# one, and torchvision's pin would ask for a torch with CUDA. A library -> what pip installs, and what without dependencies.
PARITY = build/parity
parity_torch = torch==2.13.0 pillow numpy pyyaml safetensors huggingface_hub
parity_torch_bare = torchvision==0.28.0 timm==1.0.31 kornia==0.9.0 kornia_rs==0.2.0
parity_albumentations-1 = albumentations==1.3.1 imgaug==0.4.0 numpy<2 opencv-python-headless<4.12 opencv-python<4.12
parity_albumentations-2 = albumentations==2.0.8
$(PARITY)/%/.installed: Makefile
	@$(PYTHON) -m venv --clear "$(@D)"
	@$(@D)/bin/python $(PIP) install -qq $(foreach one,$(parity_$*),"$(one)")
	@$(if $(parity_$*_bare),$(@D)/bin/python $(PIP) install -qq --no-deps $(parity_$*_bare))
	@touch "$@"

.PHONY: parity
parity: .venv/.installed $(foreach one,torch albumentations-1 albumentations-2,$(PARITY)/$(one)/.installed) ## Hold other libraries' transforms against what imports make of them: pixels and draws
	@if [ -z "$${AUGPIPE_DATA+set}" ] && [ -d "$(PHOTOS)" ]; then AUGPIPE_DATA=$$(cd "$(PHOTOS)" && pwd); export AUGPIPE_DATA; fi; \
	.venv/bin/python -m benchmarks.parity.measure

.PHONY: check-wheels
check-wheels: .venv/.installed ## Ask the package index which wheels the pinned dependencies have, by Python and system
	@.venv/bin/python -m benchmarks.wheels

.PHONY: wheel
wheel: .venv/.installed ## A wheel with compiled kernels for this Python, for x86-64-v3 and v4 (into dist/); takes a minute
	@rm -rf build
	@.venv/bin/python -m augpipe.gpu_ops.compiled.prebuilt
	@tag=$$(.venv/bin/python -c 'import sys; print("cp%d%d" % sys.version_info[:2])'); \
	.venv/bin/python -m build --wheel --no-isolation --outdir dist \
		-C--build-option=--python-tag=$$tag -C--build-option=--plat-name=manylinux_2_17_x86_64 > build.log 2>&1 \
		|| { cat build.log; exit 1; }
	@rm -rf build build.log gpu_ops/compiled/prebuilt
	@ls -l dist/*.whl

.PHONY: gpu-check
gpu-check: .venv/.installed ## On a CUDA machine: parity, faults, measurements; one report in benchmarks/results/
	@if [ -z "$${AUGPIPE_DATA+set}" ] && [ -d "$(PHOTOS)" ]; then AUGPIPE_DATA=$$(cd "$(PHOTOS)" && pwd); export AUGPIPE_DATA; fi; \
	.venv/bin/python -m benchmarks.gpu.check $(GPU_CHECK_ARGS)

.PHONY: clean
clean: ## Remove the environments, caches and what the commands wrote
	rm -rf .venv .venv-bench .venv-docs build dist src/augpipe.egg-info demo
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What pyproject.toml names, with the extras that were asked for, and the environment does not have.
define MISSING
import re, sys, tomllib
from importlib.metadata import PackageNotFoundError, version
config = tomllib.load(open("pyproject.toml", "rb"))
project = config["project"]
wanted = [*config["build-system"]["requires"], *project["dependencies"]]
for extra in sys.argv[1].split(","):
    wanted += project["optional-dependencies"][extra]
pins = re.findall("^([^#=]+)==(.+)", open("constraints.txt").read(), re.M)
pins = {name.lower().replace("_", "-"): pin for name, pin in pins}
missing = set()
for name in (re.match("[A-Za-z0-9_.-]+", text)[0].lower() for text in wanted):
    try:
        version(name)
    except PackageNotFoundError:
        missing.add(f"{name}=={pins[name]}" if name in pins else name)
if missing:
    sys.exit(f"""Missing, and what they need: {", ".join(sorted(missing))}.
Run the same command again with a network, or put their wheels into a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER.""")
endef
export MISSING

# .venv/.demo is the part of .venv/.installed that the demo uses: `make test` adds the rest to the same environment.
# Kernels are compiled while pip unpacks torch, which comes alone: its pin decides which build is taken.
torch = { $(@D)/bin/python $(INSTALL) --no-build-isolation -e . && \
		{ $(@D)/bin/augpipe warm --quiet > /dev/null 2>&1 & } && \
		$(@D)/bin/python $(INSTALL) torch==2.13.0; } &&
.venv/.demo: extras = torch,plots
.venv/.demo: size = , 1.3 GB
.venv/.installed: extras = dev,torch,dali,cudatools,parquet,plots,ray,remote,stats,weights,lightning,yolo
.venv/.installed: size = , 3.5 GB
.venv-bench/.installed: extras = bench,torch,dali,cudatools
.venv-docs/.installed: extras = docs
.venv-docs/.installed: size = , 0.5 GB
.venv-docs/.installed: torch =
.venv/.demo .venv/.installed .venv-bench/.installed .venv-docs/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "augpipe needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
			"Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Installing into $(@D) (once$(size); some minutes where torch has to be downloaded)"
	@$(PYTHON) -m venv "$(@D)"
	@# the docs do without torch
	@{ $(@D)/bin/python $(INSTALL) --upgrade pip setuptools && \
		$(torch) \
		$(@D)/bin/python $(INSTALL) --no-build-isolation -e ".[$(extras)]"; } || \
		{ $(@D)/bin/python -c "$$MISSING" "$(extras)"; exit 1; }
	@# the demo imports few modules; some are for other Pythons, and are left; a fifth of all source is tests and rllib
	@[ "$(@F)" = .demo ] || $(@D)/bin/python -m compileall -qq -j 0 -x '/(tests?|rllib)/' $(@D)/lib || true
	@touch "$@"
