PYTHON ?= python3
VENV ?= .venv
# Supported Python versions: the lock is resolved for each, and the whole suite runs on each before
# a release.
PYTHONS ?= 3.11 3.12 3.13

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help train test tests check fast-tests slow-tests test-pythons wheel-test lint format mutate docs lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

train: $(STAMP) ## train an agent: make train ARGS="..."
	$(BIN)/python -m jaxrl.train $(ARGS)

test: $(STAMP) ## lint, types and the whole test suite, side by side
	@$(MAKE) --no-print-directory -j 2 lint tests

tests: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP) ## lint, types and the fast tests, side by side
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint fast-tests

fast-tests: $(STAMP)
	$(BIN)/python -m pytest -m "not slow and not learning and not multiprocess and not sweep"

slow-tests: $(STAMP) ## run the whole suite, and list the slow tests that `make check` leaves out
	$(BIN)/python -m pytest --junitxml=.cache/tests.xml
	$(BIN)/python tools/slow_tests.py .cache/tests.xml > tests/slow_tests.txt

test-pythons: ## run `make test` with every supported Python: PYTHONS="3.11 3.12"
	@for version in $(PYTHONS); do \
		python=$$($(PYTHON) tools/find_python.py $$version) && \
		echo "Python $$version: $$python" && \
		$(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-$$version || exit 1; \
	done

# The dependencies are those that the wheel declares, with the versions of the lock: one that is
# missing in pyproject.toml is missing here too.
WHEEL := .cache/wheel
wheel-test: ## install the wheel into an empty environment, then train, evaluate and export there
	rm -rf $(WHEEL)
	mkdir -p $(WHEEL)/source
	cp -r jaxrl pyproject.toml LICENSE README.md $(WHEEL)/source
	$(PYTHON) -m venv $(WHEEL)/venv
	$(WHEEL)/venv/bin/pip wheel -qq --disable-pip-version-check --no-deps -w $(WHEEL)/dist $(WHEEL)/source
	$(WHEEL)/venv/bin/pip install -qq --disable-pip-version-check -c requirements.lock $(WHEEL)/dist/*.whl
	$(WHEEL)/venv/bin/pip check
	cd $(WHEEL) && PATH=$$PWD/venv/bin:$$PATH PYTHONPATH= sh -ec '\
		jaxrl train cartpole --num-envs 16 --ppo.num-minibatches 2 --epochs 1 --cycles 1 --run-dir run; \
		jaxrl train ant --dry-run; \
		jaxrl evaluate run --episodes 2; \
		jaxrl render run --out run.html; \
		jaxrl export run'

lint: $(STAMP) ## check formatting, style and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(STAMP) ## format the code and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

mutate: $(STAMP) ## break the mathematics, one detail at a time; tests must fail: make mutate ARGS="..."
	$(BIN)/python tools/mutate.py $(ARGS)

docs: $(DOCS_STAMP) ## build the documentation into site/; a broken link fails
	$(BIN)/python tools/docs/build.py

lock: ## resolve the dependencies again into requirements.lock
	$(PYTHON) tools/lock.py $(foreach version,$(PYTHONS),$$($(PYTHON) tools/find_python.py $(version))) > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean: ## remove the environment and everything generated
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis build dist site *.egg-info MUJOCO_LOG.TXT
	find jaxrl tests experiments benchmarks tools -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@echo "Installing requirements.lock into $(VENV) (the first time takes some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@

# Its own stamp: only those who build the site install Sphinx, with the versions of the lock where
# they share packages.
$(DOCS_STAMP): $(STAMP)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c requirements.lock -e '.[docs]'
	@touch $@
