PYTHON ?= python3
VENV ?= .venv
# Interpreters the lock is resolved for: one for each supported Python version.
LOCK_PYTHONS ?= python3.11 python3.12 python3.13

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help train test lint format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

train: $(STAMP) ## train an agent: make train ARGS="..."
	$(BIN)/python -m jaxrl.train $(ARGS)

test: lint ## lint, then run the tests
	$(BIN)/python -m pytest

lint: $(STAMP) ## check formatting, style and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(STAMP) ## format the code and mend what can be mended
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: ## resolve the dependencies anew into requirements.lock
	$(PYTHON) tools/lock.py $(LOCK_PYTHONS) > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean: ## remove the environment and everything generated
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info MUJOCO_LOG.TXT
	find jaxrl tests experiments benchmarks tools -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@echo "Installing requirements.lock into $(VENV) (the first time takes some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@
