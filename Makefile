# make demo    train, tune and evaluate on German nouns, from nothing
# make test    lint, types, layers and every test, from nothing
# make test-long   further cases of some tests, which take a few more minutes
# make faults  trainings and decodings killed at every moment, full disks, signals: the long forms of these tests
# make bench   time and memory of the loss, training steps and decoding on this machine
PYTHON ?= python3
VENV := .venv
# In the environment, so that the constraints hold for what pip installs to build the package, too.
export PIP_CONSTRAINT := constraints.txt
# Modules are compiled when they are imported; most never are.
PIP := $(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile

.PHONY: demo test test-long faults bench clean

demo: $(VENV)/.demo
	$(VENV)/bin/noisychannel demo

test: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest -n auto --dist worksteal

test-long: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest -n auto --dist worksteal -m long

faults: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest -n auto --dist worksteal -m faults -rP --durations=0

bench: $(VENV)/.core
	$(VENV)/bin/noisychannel bench

# torch first and alone: its pinned version is the CPU build where that is what pip offers.
$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("noisychannel needs Python 3.11 or newer; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable .
	touch $@

# Only the word list is wanted of german-nouns, not the parser it depends on.
$(VENV)/.demo: $(VENV)/.core
	$(PIP) --no-deps german-nouns
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
