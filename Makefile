# The few things people do. Everything happens in .venv (the site and releases in small ones of their own); nothing
# outside the clone is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Every package at a locked version and compared with its hash (requirements/lock.sh writes the locks).
LOCKED := -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes --requirement
NATIVE := $(wildcard src/r2med/_native/*.[ch])
JOBS ?= 2
SIDE_BY_SIDE := --numprocesses $(JOBS) --dist loadfile
TEST_HOME := $(abspath $(VENV)/home)
BENCHMARKS := loading lexical measures intervals dense rerank llm_throughput nano view scale

.PHONY: run model test test-all faults lint bench docs dist clean

run:  ## the main job: Mini, the default systems, a table
	@$(MAKE) --silent --jobs=2 $(VENV)/.installed model
	@$(BIN)/r2med run

# Needs no compiled code: it comes while that is made.
model: $(VENV)/.dependencies
	@PYTHONPATH=src $(BIN)/python -m r2med models fetch bge-small || echo "Going on without it: BM25 alone." >&2

test: $(VENV)/.weights lint  ## everything the tests need, then the tests
	@R2MED_HOME=$(TEST_HOME) $(BIN)/python -m pytest $(SIDE_BY_SIDE)

test-all: $(VENV)/.weights  ## the slow tests too
	@R2MED_HOME=$(TEST_HOME) $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not bench and not faults"

faults: $(VENV)/.weights  ## kill -9, full disks, damaged caches, a million hostile inputs; prints its counts
	@R2MED_HOME=$(TEST_HOME) $(BIN)/python -m pytest -m faults -rA

lint: $(VENV)/.tested
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.weights  ## speed against the peers, as ratios
	@$(PIP) install --group bench
	@for name in $(BENCHMARKS); do echo "== benchmarks/$$name.py"; \
		R2MED_HOME=$(TEST_HOME) $(BIN)/python benchmarks/$$name.py || echo "A target was missed."; done

docs: $(VENV)-docs/.installed  ## the site, into site/
	@PYTHONPATH=src $(VENV)-docs/bin/python tools/docs.py
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict --quiet

dist: $(VENV)-release/.installed  ## the source archive and the Linux wheels, into dist/ (PYTHON=python3.10)
	@$(VENV)-release/bin/python tools/wheels.py

clean:
	rm -rf $(VENV) $(VENV)-docs $(VENV)-release build dist site docs/reference src/*.egg-info src/r2med/*.so

$(VENV)-docs/.installed $(VENV)-release/.installed: $(VENV)-%/.installed: requirements/%.txt
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(LOCKED) $<
	@touch $@

$(VENV)/.ready: requirements/build.txt
	@echo "Installing r2med into $(VENV) ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(LOCKED) $< --no-compile
	@touch $@

# Python compiles what it imports: compiling all of it here takes seconds more.
$(VENV)/.dependencies: $(VENV)/.ready requirements/run.txt
	@$(BIN)/python $(LOCKED) requirements/run.txt --no-compile
	@touch $@

# Compiling needs none of the dependencies: with --jobs=2 they are installed on the other core.
$(VENV)/.installed: $(VENV)/.ready pyproject.toml setup.py $(NATIVE)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# PyTorch last and pinned, without a hash: the index says which build of that version comes (requirements/torch.in).
$(VENV)/.tested: $(VENV)/.installed $(VENV)/.dependencies requirements/dev.txt
	@echo "Installing what the tests need ..." >&2
	@$(BIN)/python $(LOCKED) requirements/dev.txt
	@$(PIP) install torch==2.13.0
	@touch $@

# Real weights and a real browser; tests that lack one say so and are skipped.
$(VENV)/.weights: $(VENV)/.tested
	@R2MED_HOME=$(TEST_HOME) $(BIN)/r2med models fetch bge-small msmarco-minilm smollm2 \
		|| echo "Some weights cannot be had: the tests that need them are skipped." >&2
	@command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
		&& apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
		|| echo "No chromium: the browser tests are skipped." >&2
	@touch $@
