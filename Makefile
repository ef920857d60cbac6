# Two commands do everything on a machine with Python 3.11+ and make: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

.PHONY: run install dev test check format compat bench demo lock generate clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "magnetar needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing magnetar into $(VENV) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/run.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	@echo "installing the development tools ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

install: $(VENV)/.run ## install magnetar into .venv
dev: $(VENV)/.dev ## install what tests and checks need as well

run: install ## start the server (ARGS="--kafka-port 9092 --data-dir data")
	@exec $(BIN)/magnetar standalone $(ARGS)

test: dev ## every test that needs nothing but this machine (ARGS="-k name")
	@$(BIN)/python -m pytest -n 2 $(ARGS)

check: dev ## format, lint, types, import contracts, generated code up to date
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/generate_kafka.py --check

format: dev
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

compat: dev ## the outside suites: kafka-python's and librdkafka's own tests
	@$(BIN)/python tests/compat/run.py $(ARGS)

bench: dev ## measure beside Apache Kafka, into bench/results/latest.json
	@$(BIN)/python -m bench $(ARGS)

demo: dev ## 336,776 real flights through a topic and a group of two consumers
	@$(BIN)/python -m demo $(ARGS)

generate: dev ## write the Kafka codecs from the schema tables again
	@$(BIN)/python tools/generate_kafka.py

lock: ## pin requirements/*.txt from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -o requirements/run.txt requirements/build.in
	uv pip compile pyproject.toml requirements/build.in --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -c requirements/run.txt -o requirements/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
