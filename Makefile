# make check: what must pass before a commit. The environment comes from scripts/run_tests.sh --setup-only.
BIN := .venv/bin
CODE := msllm models data_tools rank_tables scripts tests

.PHONY: check setup format lint types quick test

check: setup format lint types quick

setup:
	@bash scripts/run_tests.sh --setup-only

format: setup
	$(BIN)/ruff format $(CODE)

lint: setup
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: setup
	$(BIN)/mypy msllm models data_tools rank_tables scripts

quick: setup
	bash scripts/run_tests.sh tests/unit tests/architecture -m "not slow and not device and not distributed and not fault"

test: setup
	bash scripts/run_tests.sh
