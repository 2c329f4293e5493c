# Needs make and Python 3.11 or newer; everything else goes into .venv. PYTHON=... names the interpreter for a new .venv.

BIN := .venv/bin
PYTHONS := $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11)
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo setup test lint types bench clean

help:  ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s%s\n", $$1, $$2 }' Makefile

demo: .venv/core  ## set up and solve an example of 64 nodes
	@$(BIN)/coplace solve --method prices --replay instances/examples/openb-64.yaml

setup: .venv/test  ## set up .venv with all that the tests need

test: lint types  ## set up; check style and types; run the tests
	$(BIN)/python -m pytest -q -rfEs -n 2

lint: .venv/test  ## check style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/test  ## check types
	$(BIN)/mypy

bench: .venv/core  ## run a benchmark, NAME=core [JSON=file] [ARGS=...]; without NAME list them
	@$(BIN)/python -m benchmarks $(NAME) $(if $(JSON),--json "$(JSON)") $(ARGS)

clean:  ## remove .venv and everything else that was made here
	rm -rf .venv build dist coplace.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/core: pyproject.toml constraints.txt | $(BIN)/python
	@$(INSTALL) -e .
	@$(BIN)/python -m coplace.solver.kernel  # compiles the search, once for a machine
	@touch $@

.venv/test: pyproject.toml constraints.txt | $(BIN)/python
	@$(INSTALL) -e '.[test]'
	@$(BIN)/python -m coplace.solver.kernel
	@touch .venv/core $@

$(BIN)/python:
	@for python in $(PYTHONS); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Setting up .venv with $$("$$python" -V)"; \
	    "$$python" -m venv --clear .venv && exit 0; \
	    rm -rf .venv; exit 1; \
	  fi; \
	done; \
	echo "coplace needs Python 3.11 or newer and found none; name one with PYTHON=/path/to/python3" >&2; exit 1
