# Every target installs what it needs (scripts/bootstrap); a second call finds it installed.
PYTHON := .venv/bin/python
SCRIPTS := scripts/run_tests
ARGS ?=
export WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test check lint docs-check unit unit-all system format snap setup clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## work one issue with the scripted agent on embedded defaults
	@scripts/bootstrap demo
	@.venv/bin/hostside demo $(ARGS)

test: check ## everything: check, unit suite on each supported Python, system suite
	@$(PYTHON) scripts/run_tests unit-all system

check: lint docs-check ## everything that runs no test

lint: setup ## style, format, types, layers
	@$(PYTHON) -m ruff check src tests $(SCRIPTS)
	@$(PYTHON) -m ruff format --check src tests $(SCRIPTS)
	@$(PYTHON) -m mypy
	@$(PYTHON) -m mypy $(SCRIPTS)
	@.venv/bin/lint-imports --no-logo

docs-check: setup ## fail where docs/reference/ differs from the code
	@.venv/bin/hostside docs --check

unit: setup ## the quick suite on one Python; ARGS go to pytest
	@$(PYTHON) -m pytest -m "not system" -n $$((2 * $(WORKERS))) $(ARGS)

unit-all: setup ## the quick suite on each supported Python
	@$(PYTHON) scripts/run_tests unit-all

system: setup ## the suite that starts real processes, sandboxes and clients; ARGS go to pytest
	@$(PYTHON) -m pytest -m system -n $(WORKERS) --dist loadfile $(ARGS)

format: setup ## rewrite style and format
	@$(PYTHON) -m ruff check --fix src tests $(SCRIPTS)
	@$(PYTHON) -m ruff format src tests $(SCRIPTS)

snap: setup ## accept what the code says now: docs/reference/, tool goldens, inline snapshots; read the diff
	@.venv/bin/hostside docs
	@HOSTSIDE_SNAP=update $(PYTHON) -m pytest -q -m "not system" -p no:xdist --inline-snapshot=create,fix $(ARGS)

setup: ## install what the tests need
	@scripts/bootstrap test

clean: ## remove caches and results
	@rm -rf .build .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove everything that a target installed here
	@rm -rf .venv .tools
