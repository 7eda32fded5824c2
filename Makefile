# Every target sets up what it needs: a virtual environment with the package, and the Debian packages tests use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.installed
INSTALLED_DEMO := $(VENV)/.installed-demo

.PHONY: test demo lint types unit debian docs reproduce quick fuzz wheel nightly clean

test: debian lint types unit

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/python
	@echo "Installing clickharvest with all that its tests, documentation and experiments need into $(VENV) ..."
	$(PIP) --editable '.[spark,mlflow,docs,dev]'
	touch $(INSTALLED) $(INSTALLED_DEMO)

$(INSTALLED_DEMO): pyproject.toml | $(BIN)/python
	@echo "Installing clickharvest and what the demo needs into $(VENV): a minute or two ..."
	$(PIP) --editable .
	touch $(INSTALLED_DEMO)

debian:
	scripts/debian-packages

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(INSTALLED)
	$(BIN)/mypy

# Two processes on two cores: further threads would wait for each other.
unit: export OPENBLAS_NUM_THREADS = 1
unit: export OMP_NUM_THREADS = 1
unit: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --durations 15

demo: $(INSTALLED_DEMO)
	$(BIN)/clickharvest demo

# The wheel, installed into an environment of its own outside this folder, runs the README's commands.
wheel:
	$(PYTHON) scripts/try_wheel.py

docs: $(INSTALLED)
	$(BIN)/mkdocs build --strict

# All experiments of the paper and beyond; finished runs are kept in results/, so it may be interrupted.
# SEEDS=20 measures all seeds of the published page.
SEEDS ?= 1
reproduce: $(INSTALLED)
	$(BIN)/python -m experiments --seeds $(SEEDS) --page docs/reproduction.md

# A thousand generated cases, always the same, each in a process of its own; make benchmark-fuzz has ten thousand.
# Valid command lines run longest: here they are an eighth of the cases, there half of them.
fuzz: $(INSTALLED)
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
		$(BIN)/python benchmarks/fuzz.py --cases 1000 --seed 13 --kinds hostile:60,valid:12,counts:28 --folder "$$folder"

# What repeats a promise over many logs: hours of CPU.
nightly: $(INSTALLED)
	$(BIN)/python -m pytest -m nightly --numprocesses 2 --dist loadfile
	$(MAKE) benchmark-mutants benchmark-coverage benchmark-fuzz

quick: $(INSTALLED)
	$(BIN)/python -m experiments --quick --results .quick

# start, fits, harvest, prepare, accuracy, speed, coverage, simulate, weigh, judgments, plan, places, browsing, affine, model_choice, svm_rank, boosting, rankers, peers, mutants, fuzz
benchmark-%: $(INSTALLED)
	$(BIN)/python benchmarks/$*.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .quick site
