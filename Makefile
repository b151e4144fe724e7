# The targets of the project. `make test` and `make run` need only Debian, make and bash.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
STAMP := .venv/.naksha-installed
# Number of parallel tests; most of them wait for a server or the disk more than they compute.
TEST_WORKERS ?= 4
PYTEST_ARGS ?=
RUN_ARGS ?=
BENCH_ARGS ?=

# Tests start hundreds of processes: each would compile the whole project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help java web run run-postgres demo test test-core test-long coverage check format bench lock system clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: $(STAMP) java ## Serve the hub at 127.0.0.1:8080, with its data in naksha-data and a sample
	@scripts/setup.sh web || echo "going on without the map page" >&2
	@$(BIN)/naksha sample $(RUN_ARGS) || echo "going on without the sample" >&2
	@$(BIN)/naksha serve $(RUN_ARGS)

run-postgres: $(STAMP) system ## The same on a throw-away PostgreSQL
	@$(BIN)/python -m naksha.testing.with_postgres $(BIN)/naksha serve $(RUN_ARGS)

demo: $(STAMP) ## Show the versions of edits, in the file demo.naksha or on NAKSHA_STORAGE
	@$(BIN)/naksha demo $(RUN_ARGS)

test: $(STAMP) system web ## Run the tests
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope --max-worker-restart 1 $(PYTEST_ARGS)

test-core: $(STAMP) web ## Run the tests that need no server
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest -m "not postgres and not redis and not mariadb and not browser" $(PYTEST_ARGS)

test-long: $(STAMP) system web ## Run all tests, including those that take minutes
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest --long -n $(TEST_WORKERS) --dist loadscope --max-worker-restart 1 $(PYTEST_ARGS)

coverage: $(STAMP) system web ## Run the tests and measure their coverage; htmlcov has the lines
	@scripts/tmp-in-memory.sh $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope --max-worker-restart 1 --cov --cov-report term --cov-report html $(PYTEST_ARGS)

check: $(STAMP) web ## Check lint, formatting, types and import contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/build_web.py --check

format: $(STAMP) ## Format the code and apply automatic fixes
	@$(BIN)/ruff check --fix --exit-zero --quiet
	@$(BIN)/ruff format

bench: $(STAMP) system ## Run all benchmarks
	@$(BIN)/python -m benchmarks --all $(BENCH_ARGS)

lock: ## Pin the newest packages that fit pyproject.toml into requirements.lock
	@test -x $(BIN)/python || scripts/setup.sh python
	@scripts/lock.sh --upgrade

clean: ## Remove all generated files, including .venv
	@rm -rf .venv dist build htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis web/node_modules src/naksha/server/web/static
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

system:
	@scripts/setup.sh system

java:
	@scripts/setup.sh java

web: $(STAMP)
	@scripts/setup.sh web

$(STAMP): requirements.lock pyproject.toml
	@scripts/setup.sh python
