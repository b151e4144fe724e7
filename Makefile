# The verbs of the project. `make test` and `make run` need nothing but Debian, make and bash.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
STAMP := .venv/.naksha-installed
# How many tests run at once; most of them wait for a server or the disk more than they compute.
TEST_WORKERS ?= 4
PYTEST_ARGS ?=
RUN_ARGS ?=
BENCH_ARGS ?=

# Tests start hundreds of processes: each would compile the whole project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help java run run-postgres demo test test-core test-long coverage check format bench lock system clean

help: ## Say what can be done
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: $(STAMP) java ## Serve the hub at 127.0.0.1:8080, with its data in naksha-data and a sample
	@$(BIN)/naksha sample $(RUN_ARGS) || echo "going on without the sample" >&2
	@$(BIN)/naksha serve $(RUN_ARGS)

run-postgres: $(STAMP) system ## The same on a throw-away PostgreSQL
	@$(BIN)/python -m naksha.testing.with_postgres $(BIN)/naksha serve $(RUN_ARGS)

demo: $(STAMP) ## Show what Naksha keeps of edits, in the file demo.naksha or on NAKSHA_STORAGE
	@$(BIN)/naksha demo $(RUN_ARGS)

test: $(STAMP) system ## Run the tests
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope --max-worker-restart 1 $(PYTEST_ARGS)

test-core: $(STAMP) ## Run the tests that need no server
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest -m "not postgres and not redis and not mariadb" $(PYTEST_ARGS)

test-long: $(STAMP) system ## Run all tests, the ones that take minutes included
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest --long -n $(TEST_WORKERS) --dist loadscope --max-worker-restart 1 $(PYTEST_ARGS)

coverage: $(STAMP) system ## Run the tests and measure what they execute; htmlcov has the lines
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope --max-worker-restart 1 --cov --cov-report term --cov-report html $(PYTEST_ARGS)

check: $(STAMP) ## Lint, formatting, types and who may import whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## Format the code and fix what can be fixed by itself
	@$(BIN)/ruff check --fix --exit-zero --quiet
	@$(BIN)/ruff format

bench: $(STAMP) system ## Run all benchmarks
	@$(BIN)/python -m benchmarks --all $(BENCH_ARGS)

lock: ## Pin the newest packages that fit pyproject.toml into requirements.lock
	@test -x $(BIN)/python || scripts/setup.sh python
	@scripts/lock.sh --upgrade

clean: ## Remove what the tools made, .venv included
	@rm -rf .venv dist build htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

system:
	@scripts/setup.sh system

java:
	@scripts/setup.sh java

$(STAMP): requirements.lock pyproject.toml
	@scripts/setup.sh python
