# Every target sets up what it needs: a virtual environment with the package, and the Debian packages tests use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: test demo lint types unit debian docs reproduce quick clean

test: debian lint types unit

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,boost,docs,mlflow,dev]'
	touch $(INSTALLED)

debian:
	scripts/debian-packages

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

# JAX keeps what it compiles: a second run of the tests takes less than half of the first's processor time in estimation.
unit: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/.pytest_cache/compiled
unit: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
unit: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --durations 15

demo: $(INSTALLED)
	$(BIN)/clickharvest demo

docs: $(INSTALLED)
	$(BIN)/mkdocs build --strict

# All experiments of the paper and beyond; finished runs are kept in results/, so it may be interrupted.
reproduce: $(INSTALLED)
	$(BIN)/clickharvest reproduce --page docs/reproduction.md

quick: $(INSTALLED)
	$(BIN)/clickharvest reproduce --quick --results .quick

# harvest, accuracy, speed, coverage, simulate, weigh, svm_rank, boosting, peers, mutants
benchmark-%: $(INSTALLED)
	$(BIN)/python benchmarks/$*.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .quick site
