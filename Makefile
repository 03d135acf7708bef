# The few things people do. Everything happens in .venv; nothing outside the clone is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: run test test-all lint bench clean

run: $(VENV)/.installed  ## the main job: Mini, the default systems, a table
	@$(BIN)/r2med run

test: $(VENV)/.tested  ## everything the tests need, then the tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest

test-all: $(VENV)/.tested  ## the slow tests too
	@$(BIN)/python -m pytest -m "not bench"

lint: $(VENV)/.tested
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(VENV)/.tested  ## speed against the peers, as ratios
	@$(PIP) install --group bench
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/r2med/*.so

NATIVE := $(wildcard src/r2med/_native/*.[ch])

$(VENV)/.python:
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml setup.py $(NATIVE)
	@echo "Installing r2med into $(VENV) ..." >&2
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.tested: $(VENV)/.installed
	@echo "Installing what the tests need ..." >&2
	@$(PIP) install --editable ".[all]" --group test --group lint
	@touch $@
