# make demo, make test, make docs: everything on a fresh machine with Python 3.11 or newer. make wheel: with compiled
# kernels of GPUs. make cpu: the code for this processor, which the others compile, too.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

comma := ,

# The CuPy extra for the CUDA version that the driver offers; none without a GPU, or with a driver older than CUDA 12.
CUDA := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\)\..*/\1/p')
GPU := $(if $(filter-out 9 10 11,$(CUDA)),$(comma)cuda1$(if $(filter 12,$(CUDA)),2,3))

# Tests run in one process per core, so that each needs one BLAS thread only.
TEST := OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-all docs lint format clean wheel cpu

demo: $(VENV)/.demo cpu
	$(BIN)/ozaki demo

# The first tier of tests; those with the marker "full" are left out (tests/tiers.py).
test: $(VENV)/.dev cpu
	$(TEST) -m "not full" $(ARGS)

test-all: test
	$(TEST) -m full $(ARGS)

# The site, in build/site. Warnings are errors.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -d build/doctrees docs build/site
	@echo "the site begins at build/site/index.html"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.dev
	$(BIN)/python -m building.pack_kernels
	$(BIN)/python -m build --wheel --no-isolation

# Once more where sources are newer. Without a C++ compiler it says so, and the library does without.
cpu: ozaki/compiled/cpu_portable.so

ozaki/compiled/cpu_portable.so: building/compile_cpu.py $(wildcard kernels/cpu/* kernels/arithmetic/*)
	$(PYTHON) building/compile_cpu.py

clean:
	rm -rf $(VENV) ozaki/compiled build dist .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[cli,plot$(GPU)]"
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[dev$(GPU)]"
	touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@
