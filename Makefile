# Two commands do everything on a machine with Python 3.11+ and make: `make run` and `make test`.
PYTHON ?= python3
UV     ?= uv
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
ROUNDS ?= 1000
MINUTES ?= 60

# Half of the time that a server takes to start is compiling, unless Python may keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run install dev test spark peers check format cover soak compat bench demo demo-spark lock generate changelog clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: install ## start the server (ARGS="--kafka-port 9092 --data-dir DIR")
	@exec $(BIN)/magnetar standalone $(ARGS)

# What starts Spark runs in processes of its own: pulsar-client's native code has ended a process that had had a JVM and
# Arrow at work.  Of the seven workers one computes, and the others wait for servers as much as they compute
# (tests/scheduling.py): together they take two cores.  Three workers do so with Spark's tests, which wait less.
test: dev ## the tests, ten minutes on two cores (ARGS="-k name"); `make spark` and `make peers` are the others
	@$(BIN)/python -m pytest -n 7 -m "not spark and not soak and not peers" $(ARGS)

spark: dev ## the tests that start Spark, ten minutes
	@$(BIN)/python -m pytest -n 3 -m spark --dist loadfile $(ARGS)

peers: dev ## the tests that start a real Apache Kafka or Apache Pulsar, five minutes
	@$(BIN)/python -m pytest -n 2 -m "peers and not spark and not soak" $(ARGS)

install: $(VENV)/.run ## install magnetar into .venv
dev: $(VENV)/.dev ## install what tests and checks need as well

# `activate` is the last file that venv writes: without it an earlier attempt was cut off.
$(BIN)/activate:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "magnetar needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)

# $(call install_from,FILE): exactly what FILE pins, and this tree in place.  An installation that was cut off may have
# left half a package, which pip would take for a whole one: the next attempt starts from nothing.  pip would
# compile on one processor; what some packages have for other Pythons cannot be compiled, and nothing imports it.
define install_from
	@test ! -e $(VENV)/.installing || $(PYTHON) -m venv --clear $(VENV)
	@touch $(VENV)/.installing
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile --require-hashes -r $(1)
	@$(BIN)/python -W ignore -m compileall -q -q -j 0 $(VENV)/lib || :
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm $(VENV)/.installing
endef

$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/activate
	@echo "installing magnetar into $(VENV) ..."
	$(call install_from,requirements/run.txt)
	@touch $@

# What the demos need besides; Spark installs itself when it is first needed.
$(VENV)/.demo: requirements/demo.txt requirements/run.txt pyproject.toml | $(BIN)/activate
	@echo "installing magnetar and what the demos need into $(VENV) ..."
	$(call install_from,requirements/demo.txt)
	@touch $(VENV)/.run $@

# What is pinned for development contains what is pinned for running.
$(VENV)/.dev: requirements/dev.txt requirements/spark.txt requirements/run.txt pyproject.toml | $(BIN)/activate
	@echo "installing magnetar and the development tools into $(VENV) ..."
	$(call install_from,requirements/dev.txt)
	@touch $(VENV)/.run $@

check: dev ## format, lint, types, import contracts, generated code up to date
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy bench demo tools examples
	@$(BIN)/mypy tests
	@$(BIN)/lint-imports
	@$(BIN)/python tools/generate_kafka.py --check
	@$(BIN)/python tools/generate_pulsar.py --check

format: dev ## put every file into the form that check wants
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

# Under coverage a test takes several times as long.
cover: dev ## the unit tests again: lines and branches that they do not reach; fails below the floor of pyproject.toml
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -n 2 -q --timeout 1200 --hypothesis-profile cover tests/unit $(ARGS)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report --skip-covered --show-missing

# One hour or so for each thousand rounds; a failure prints the command that shows it again.
soak: dev ## kills, power cuts, bit flips, compaction, a queue and transactions of both protocols, Streams, Connect, functions, properties and hostile clients for hours (ROUNDS=1000 MINUTES=60)
	@$(BIN)/python -m tests.soak --rounds $(ROUNDS) --minutes $(MINUTES) $(ARGS)

compat: dev ## the outside suites: tests of the Kafka and Pulsar clients (ARGS="kafka-python")
	@$(BIN)/python tests/compat/run.py $(ARGS)

bench: dev ## measure beside Apache Kafka and Pulsar, into bench/results/latest.json (ARGS="--quick")
	@$(BIN)/python -m bench $(ARGS)

demo: $(VENV)/.demo ## 336,776 real flights through a topic and a group of two consumers
	@$(BIN)/python -m demo $(ARGS)

demo-spark: $(VENV)/.demo ## the same flights as hourly delays per airport, with Spark (which it installs)
	@$(BIN)/python -m demo.spark $(ARGS)

generate: dev ## write again what is made from tables: the Kafka and Pulsar codecs and the reference pages
	@$(BIN)/python tools/generate_kafka.py
	@$(BIN)/python tools/generate_pulsar.py
	@$(BIN)/python tools/configuration_reference.py
	@$(BIN)/python tools/kafka_api_reference.py
	@$(BIN)/python tools/pulsar_command_reference.py
	@$(BIN)/python tools/pulsar_admin_reference.py
	@$(BIN)/python tools/authorization_reference.py
	@$(BIN)/python tools/login_reference.py
	@$(BIN)/python tools/metrics_reference.py

lock: ## pin requirements/*.txt from pyproject.toml (needs uv)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv (pip install uv, or make UV=/path/to/uv lock)" >&2; exit 1; }
	@$(UV) pip compile pyproject.toml requirements/build.in --extra fast --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -o requirements/run.txt
	@$(UV) pip compile pyproject.toml requirements/build.in --extra fast --extra spark --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -c requirements/run.txt -o requirements/spark.txt
	@$(UV) pip compile pyproject.toml requirements/build.in --extra fast --group demo --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -c requirements/spark.txt -o requirements/demo.txt
	@$(UV) pip compile pyproject.toml requirements/build.in --extra fast --extra spark --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -c requirements/spark.txt -c requirements/demo.txt -o requirements/dev.txt

changelog: dev ## fold newsfragments/ into CHANGELOG.md (VERSION=0.1.0)
	@test -n "$(VERSION)" || { echo "say which version: make changelog VERSION=0.1.0" >&2; exit 1; }
	@$(BIN)/towncrier build --yes --version $(VERSION)

clean: ## remove .venv and the tools' caches; data and what was fetched to be built stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
