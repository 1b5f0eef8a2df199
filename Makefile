# Everything a user or a developer runs. Each target creates .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.installed-bench

# The CPU build of torch, before anything that depends on it can pull a CUDA build.
define INSTALL_TORCH
$(BIN)/python -m pip install --quiet torch==2.13.0 || \
$(BIN)/python -m pip install --quiet torch --index-url https://download.pytorch.org/whl/cpu
endef

.PHONY: demo test lint bench docs experiments torch clean

demo: $(INSTALLED)
	@$(BIN)/python experiments/demo/run.py

test: $(INSTALLED)
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(BENCH_INSTALLED)
	$(BIN)/python -m benchmarks.worst_case $(BENCH)
	$(BIN)/python -m benchmarks.accounting $(BENCH_ACCOUNTING)
	$(BIN)/python -m benchmarks.information $(BENCH_INFORMATION)
	$(BIN)/python -m benchmarks.retrieval
	$(BIN)/python -m benchmarks.fisher

docs: $(INSTALLED)
	$(BIN)/python -m pytest tests/test_examples.py

# make experiments NAME=pac-means, or all of them.
experiments: $(INSTALLED)
	@set -e; for run in experiments/$(or $(NAME),*)/run.py; do \
		echo "== $$run"; $(BIN)/python $$run; done

torch: $(VENV)/bin/python
	$(INSTALL_TORCH)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(VENV)/bin/python
	$(INSTALL_TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[dev,bench]'
	@touch $@

clean:
	rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .pytest_cache
