# Everything a user or a developer runs. Each target creates .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED_DEMO := $(VENV)/.installed-demo
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.installed-bench
INSTALLED_SERVICES := $(VENV)/.installed-services
INSTALLED_SITE := $(VENV)/.installed-site
INSTALLED_EXPERIMENTS := $(VENV)/.installed-experiments

# Bytecode is kept whatever the environment says: every process would compile Tacit and its tests again.
unexport PYTHONDONTWRITEBYTECODE

# glibc gives blocks of this size back after every use; keeping them makes training a tenth faster.
export MALLOC_MMAP_THRESHOLD_ := 4294967296
export MALLOC_TRIM_THRESHOLD_ := 8589934592

# Bytecode is compiled at the end, on all cores: pip would do it on one. A third of it nothing imports.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
define COMPILE
@$(BIN)/python -m compileall -q -j 0 -x '/(tests|kubernetes|_inductor|transformers/models)/' $(VENV)/lib src >/dev/null 2>&1 || true
endef

# The CPU build of torch where its index answers, before anything that depends on torch can pull a
# CUDA build; else the build of the default index.
TORCH := torch==2.13.0
TORCH_CPU := https://download.pytorch.org/whl/cpu
define INSTALL_TORCH
$(INSTALL) $(TORCH) --index-url $(TORCH_CPU) --retries 0 || $(INSTALL) $(TORCH)
endef

.PHONY: demo test test-thorough test-services test-gpu bench-gpu wheel release container check-app lint bench figures docs pictures reference site experiments torch clean

demo: $(INSTALLED_DEMO)
	@$(BIN)/python experiments/demo/run.py

# Files of tests are kept in memory where 4 GB are free: a database waits for the disk at every commit.
MEMORY := $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 ] 2>/dev/null && echo /dev/shm)
# One process per core, one thread each: the BLAS of several processes would spin for each other.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(if $(TMPDIR),,$(if $(MEMORY),TMPDIR=$(MEMORY)))

# Of all tests what takes moments; CASES=all, or tests by name in TEST, leaves no case out.
test: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto --dist worksteal $(if $(TEST)$(filter all,$(CASES)),,--quick) $(TEST)

# The long oracles, quadrature and enumeration that take seconds each, and the examples of the pages.
test-thorough: $(INSTALLED)
	$(ONE_THREAD) $(BIN)/python -m pytest --thorough -n auto --dist worksteal $(TEST)

# What needs PostgreSQL, Spark, Opacus, Dask and Ray, against servers of its own that are gone afterwards.
test-services: $(INSTALLED_SERVICES)
	$(BIN)/python -m tests.postgres $(SERVICES)

# What only a GPU shows, and all device tests; one sentence where PyTorch finds no CUDA device.
test-gpu: $(INSTALLED)
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
		$(BIN)/python -m pytest tests/training/test_gpu.py tests/gradients/test_devices.py; \
	else echo "No GPU: PyTorch finds no CUDA device here, and nothing was tested."; fi

# A private step on a GPU beside a plain one and Opacus', kept in benchmarks/results/gpu.json.
bench-gpu: $(INSTALLED)
	$(BIN)/python -m benchmarks.gpu --write $(BENCH)

# The wheel, installed without extras into an empty environment, and its commands run there.
wheel:
	PYTHON=$(PYTHON) .ci/wheel

# Wheel and sdist from two builds that are the same bytes, their digests and a list of their parts: dist/.
release:
	PYTHON=$(PYTHON) .ci/release

# The dock as an image, tacit-dock:VERSION, by podman or docker: deploy/Containerfile.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# an image of podman's own form has no health check
CONTAINERS := $(if $(shell command -v podman),podman build --format docker,docker build)

container:
	$(CONTAINERS) -t tacit-dock:$(VERSION) -f deploy/Containerfile .

# The checker as one file that an auditor can copy; it needs python-flint and nothing else.
check-app:
	$(PYTHON) .ci/check-app build/tacit_check.pyz

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(BENCH_INSTALLED)
	$(BIN)/python -m benchmarks.worst_case $(BENCH)
	$(BIN)/python -m benchmarks.many_references
	$(BIN)/python -m benchmarks.accounting $(BENCH_ACCOUNTING)
	$(BIN)/python -m benchmarks.information $(BENCH_INFORMATION)
	$(BIN)/python -m benchmarks.retrieval
	$(BIN)/python -m benchmarks.fisher
	$(BIN)/python -m benchmarks.statistics
	$(BIN)/python -m benchmarks.people
	$(BIN)/python -m benchmarks.noisy_step
	$(BIN)/python -m benchmarks.adapters
	$(BIN)/python -m benchmarks.adapter_heads
	$(BIN)/python -m benchmarks.dock_search

# Every figure of docs/benchmarks.md measured anew: about ten minutes; --slow adds a fresh clone's demo and tests.
figures: $(BENCH_INSTALLED)
	$(BIN)/python -m benchmarks.measured $(FIGURES)

docs: $(INSTALLED)
	$(BIN)/python -m pytest tests/test_examples.py
	$(BIN)/python -m pytest --thorough tests/test_examples.py

# The report that README and the home page show, drawn from a release made for it, and six kinds of pages in a browser.
pictures: $(INSTALLED)
	$(BIN)/python experiments/demo/picture.py
	$(BIN)/python docs/pages.py

# The page of every command and option, from the commands; a test holds it against them.
reference: $(INSTALLED)
	$(BIN)/python docs/commands.py

# The pages, the reference and the gallery as one site: build/site/index.html.
site: $(INSTALLED_SITE) reference
	$(BIN)/python -m sphinx -W --keep-going -q -d build/doctrees docs build/site

# make experiments NAME=pac-means, or all of them.
experiments: $(INSTALLED_EXPERIMENTS)
	@set -e; for run in experiments/$(or $(NAME),*)/run.py; do \
		echo "== $$run"; $(BIN)/python $$run; done

torch: $(VENV)/bin/python
	$(INSTALL_TORCH)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# What the demo runs on, which compiles the little of it that it imports.
$(INSTALLED_DEMO): pyproject.toml | $(VENV)/bin/python
	$(INSTALL_TORCH)
	$(INSTALL) --editable '.[demo,llm]'
	@touch $@

$(INSTALLED): $(INSTALLED_DEMO)
	$(INSTALL) --editable '.[dev]'
	$(COMPILE)
	@touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(INSTALL) --editable '.[dev,bench]'
	$(COMPILE)
	@touch $@

$(INSTALLED_EXPERIMENTS): $(INSTALLED)
	$(INSTALL) --editable '.[dev,opacus]'
	$(COMPILE)
	@touch $@

$(INSTALLED_SERVICES): $(INSTALLED)
	$(INSTALL) --editable '.[dev,postgres,opacus,cluster,spark,stores-tests]'
	$(COMPILE)
	@touch $@

$(INSTALLED_SITE): $(INSTALLED)
	$(INSTALL) --editable '.[dev,docs]'
	$(COMPILE)
	@touch $@

clean:
	rm -rf $(VENV) build dist demo docs/pictures docs/reference/packages .mypy_cache .ruff_cache .pytest_cache
