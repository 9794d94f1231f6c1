# Every target makes the virtual environment and installs what it needs.
PYTHON ?= python3
# Exact versions are installed, as in uv.lock; with LATEST=1 or LOWEST=1, into environments of their own, the newest or the oldest
# that the ranges of pyproject.toml allow.
RESOLUTION := $(if $(LATEST),highest,$(if $(LOWEST),lowest-direct))
VENV := .venv$(if $(LATEST),-latest,$(if $(LOWEST),-lowest))
BIN := $(VENV)/bin
GROUPS := $(addprefix $(VENV)/.,demo kafka shop test check bench)
FLINK_VENV := .venv-flink

# The tests start hundreds of Python processes, which begin in half the time when compiled modules may be kept.
export PYTHONDONTWRITEBYTECODE :=
PARALLEL := --dist worksteal --numprocesses
# Where there is so much free, in GB, the tests keep their tens of thousands of small files in memory. A server that root starts
# is another user, who must get into the folder.
memory = $(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 {print $$4}')" -gt $(1)000000 ] && echo /dev/shm)
in_folder = folder=$$(mktemp -d "$(or $(call memory,$(1)),$${TMPDIR:-/tmp})/tests-XXXXXX"); chmod 755 "$$folder"; \
	trap 'rm -rf "$$folder"' EXIT; trap 'exit 130' INT TERM; TMPDIR="$$folder"

.DEFAULT_GOAL := help
.PHONY: help lock demo demo-kafka demo-shop quick test test-all kafka mariadb azurite elasticsearch iceberg-rest jdbc chromium fuzz check bench attack soak proof cluster-demo clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: $(VENV)/.demo ## Run a job over real flights, and query its state from a second process
	@PYTHONPATH="$(CURDIR)" $(BIN)/python examples/flights/demo.py

demo-kafka: $(VENV)/.kafka kafka ## Count clicks in windows from one topic of a Kafka broker to another
	@PYTHONPATH="$(CURDIR)" $(BIN)/python examples/clicks/kafka_demo.py

demo-shop: $(VENV)/.shop kafka ## Run a shop on Kafka, PostgreSQL and Delta, kill its jobs, and check their results
	@PYTHONPATH="$(CURDIR)" $(BIN)/python examples/shop/shop.py $(ARGS)

quick: $(VENV)/.test ## Run a sample of the short tests: no Java, a minute on two cores
	@$(call in_folder,1) $(BIN)/python -m pytest $(PARALLEL) 2 --tier=quick $(PYTEST)

# Three workers on two cores: much of the time one of them waits for a JVM, a broker or the end of a process. The first tests
# on Spark come when its classes have been archived, which other starts make use of.
# How long the tests of each folder have taken is shown at the end, and written into a file. Our own options are one word each: until
# it has read conftest.py pytest takes what follows an option for a path.
NEEDED := $(VENV)/.test $(VENV)/.demo kafka mariadb azurite elasticsearch chromium
run_all = $(BIN)/python -m tests.class_data 2>/dev/null & \
	$(call in_folder,4) $(BIN)/python -m pytest $(PARALLEL) 3 -o tmp_path_retention_policy=failed --durations-to=.durations/$@.json

test: $(NEEDED) ## Run the tests of every change: fifteen minutes on two cores
	@$(run_all) --tier=test --budget $(PYTEST)

test-all: export PROPERTY_EXAMPLES ?= 1
test-all: $(NEEDED) iceberg-rest jdbc ## Run all tests, with all examples of the properties: an hour on two cores
	@$(run_all) $(PYTEST)

kafka: $(VENV)/.base ## Fetch a Kafka broker for tests and demos into the user's cache (44 MB, once)
	@$(BIN)/python -m tests.kafka_broker

mariadb: $(VENV)/.test ## Fetch a MariaDB server for tests into the user's cache (149 MB, once)
	@$(BIN)/python -m tests.mariadb_server

azurite: $(VENV)/.test ## Fetch an emulator of Azure's store for tests into the user's cache (needs npm; 186 MB, once)
	@$(BIN)/python -m tests.azurite_server

elasticsearch: $(VENV)/.test ## Fetch Elasticsearch and OpenSearch for tests into the user's cache (73 MB, once)
	@$(BIN)/python -m tests.elasticsearch_server

iceberg-rest: $(VENV)/.test ## Fetch Apache Iceberg's REST catalog for tests into the user's cache (27 MB, once)
	@$(BIN)/python -m tests.connectors.lake.iceberg_rest

jdbc: $(VENV)/.test ## Fetch PostgreSQL's JDBC driver for tests into the user's cache (1 MB, once)
	@$(BIN)/python -m tests.server.postgres.jdbc

# Where it cannot be had its tests are skipped, and say how to get it.
chromium: $(VENV)/.test ## Fetch a headless Chromium for tests into the user's cache, where none is installed (Debian's packages; 100 MB, once)
	@$(BIN)/python -m tests.page.chromium || true

fuzz: $(VENV)/.test ## Compile texts and run queries made by chance (ARGS="--seed 7 --seconds 900")
	@$(BIN)/python -m tests.fuzz $(ARGS)

# Of uv.lock, what each group needs, with hashes, for pip.
uv_export = $(BIN)/uv export --quiet --frozen --no-emit-project --no-annotate --no-header --output-file $(1)
lock_files = $(call uv_export,$(1)/base.txt) --group build && \
	$(call uv_export,$(1)/demo.txt) --extra demo && \
	$(call uv_export,$(1)/kafka.txt) --extra kafka && \
	$(call uv_export,$(1)/shop.txt) --extra kafka --extra postgresql --extra delta --group shop && \
	$(call uv_export,$(1)/test.txt) --group test && \
	$(call uv_export,$(1)/check.txt) --group check && \
	$(call uv_export,$(1)/bench.txt) --group bench

lock: $(VENV)/.check ## Find exact versions for changed ranges of pyproject.toml (ARGS=--upgrade: the newest): uv.lock, tests/requirements
	@$(BIN)/uv lock $(ARGS)
	@$(call lock_files,tests/requirements)

check: $(VENV)/.check $(VENV)/.test ## Lint, format, types, import direction, exact versions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/uv lock --quiet --check
	@mkdir -p $(VENV)/requirements && $(call lock_files,$(VENV)/requirements) && diff -r $(VENV)/requirements tests/requirements || \
		{ echo "tests/requirements is not what uv.lock says: run make lock"; exit 1; }

attack: $(VENV)/.bench ## Measure the pace of a job on Spark while clients that may only read do the worst that the limits of a server allow
	@$(BIN)/python -m tests.bench.attack

bench: $(VENV)/.bench $(if $(FLINK),$(FLINK_VENV)/.flink) ## Measure against plain Spark and DuckDB, with FLINK=1 against Flink, too; BESIDE=DIR: against another checkout (ARGS="--rows 1000000" for a short one)
	@$(BIN)/python -m tests.bench$(if $(BESIDE),.beside $(BESIDE)) $(if $(FLINK),--flink $(FLINK_VENV)) $(ARGS)

soak: $(VENV)/.test ## Run a server, jobs and clients for ten minutes, kill at random, and see that nothing is lost and nothing grows (ARGS="--minutes 30", ARGS="--batches 300,1000,5000")
	@$(BIN)/python -m tests.soak $(ARGS)

cluster-demo: $(VENV)/.test $(VENV)/.demo ## Run jobs on a standalone Spark cluster, kill its workers, and compare the results with local runs
	@$(BIN)/python -m tests.cluster $(ARGS)

proof: $(VENV)/.test ## Kill jobs, workers and servers while rows go from every source into every sink (ARGS="--kills 5 --source kafka"), each step of savepoints and upgrades (ARGS="--savepoints"), or each kind of work (ARGS="--scenario all")
	@$(BIN)/python -m tests.proof $(ARGS)

clean: ## Delete the virtual environment and everything that was made
	rm -rf .venv .venv-latest .venv-lowest $(FLINK_VENV) .demo .durations warehouse bench-results .pytest_cache .ruff_cache .mypy_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sqlstream needs Python 3.11 or newer (PYTHON=python3.11 make ...)"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

install = $(BIN)/python -m pip install --quiet
# With its dependencies there already, and what builds it.
install_project = $(install) --no-deps --no-build-isolation --editable .

ifeq ($(RESOLUTION),)
$(VENV)/.base: pyproject.toml tests/requirements/base.txt | $(BIN)/python $(VENV)/.pip
	@echo "installing sqlstream and what it needs into $(VENV) ..."
	@$(install) --requirement tests/requirements/base.txt
	@$(install_project)
	@touch $@

$(GROUPS): $(VENV)/.%: tests/requirements/%.txt $(VENV)/.base
	@$(install) --requirement $<
	@touch $@
else
$(VENV)/.base: pyproject.toml | $(BIN)/python $(VENV)/.pip
	@echo "installing sqlstream and the $(RESOLUTION) versions that its ranges allow into $(VENV) ..."
	@$(install) "uv>=0.13,<0.14"
	@$(BIN)/uv pip compile --quiet --python $(BIN)/python --resolution $(RESOLUTION) --all-extras \
		--group build --group shop --group test --group check --group bench --output-file $(VENV)/requirements.txt pyproject.toml
	@$(install) --requirement $(VENV)/requirements.txt
	@$(install_project)
	@touch $@

$(GROUPS): $(VENV)/.base
	@touch $@
endif

$(VENV)/.pip: | $(BIN)/python
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null # uv makes environments without pip
	@$(install) --upgrade "pip>=25.1"
	@touch $@

# Flink needs other versions of what we use.
$(FLINK_VENV)/.flink: tests/bench/flink_jars.py
	@$(PYTHON) -m venv $(FLINK_VENV)
	@echo "installing Flink into $(FLINK_VENV) ..."
	@$(FLINK_VENV)/bin/python -m pip install --quiet "apache-flink>=2.3,<2.4"
	@$(FLINK_VENV)/bin/python tests/bench/flink_jars.py $(FLINK_VENV)
	@touch $@
