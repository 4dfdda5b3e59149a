# Everything runs in .venv, which is made from the lock when it is missing or no longer fits.
.DEFAULT_GOAL := help
.PHONY: help demo up test check bench format shape lock upgrade venv clean
BIN := .venv/bin

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: venv ## import a real conversation set, search it, change it, show what is found
	@$(BIN)/gnomon demo

up: venv ## run Gnomon in one process: Postgres, indexes, workers, HTTP API
	@$(BIN)/gnomon up

test: check ## everything that CI runs: check, then the tests in random order
	$(BIN)/pytest

check: venv ## the static part: format, lint, types, import direction
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: venv ## our figure, the floor in the same run, and the ratio
	@$(BIN)/python -m bench

format: venv ## format, and mend what the linter can mend by itself
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

shape: venv ## sizes of files and functions, beside their caps
	@$(BIN)/python -m tests.support.shape

lock: venv ## compile the lock from pyproject.toml, keeping the versions that still fit
	tools/lock

upgrade: venv ## compile the lock with the newest versions that fit
	tools/lock --upgrade

venv:
	@tools/venv

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache .coverage
