# Two commands do everything on a fresh machine with Python 3.11 and make:
#   make demo    set up, then run the main job on a small case
#   make test    set up, then lint, type-check and test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install demo test test-slow lint format docs bench clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# Off-screen rendering needs one Debian package; without it (or without root) those tests skip.
.PHONY: system
system:
	@ldconfig -p | grep -q libOSMesa || \
	  (apt-get update -qq && apt-get install -y -qq libosmesa6) >/dev/null 2>&1 || \
	  echo "libosmesa6 is not installed: pictures are left out (apt-get install libosmesa6)"

demo: install system
	$(BIN)/python examples/demo.py

test: lint system
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: install system
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A warning, such as a link that leads nowhere, is an error.
docs: install
	$(BIN)/python -m sphinx -q -E -W --keep-going -c docs . docs/_build
	@echo "open docs/_build/index.html"

bench: install
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python -W ignore $$script; done

clean:
	rm -rf $(VENV) demo docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
