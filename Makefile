.PHONY: help venv check test bench

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

venv: ## a virtual environment for work on triplepoint itself
	python3 -m venv .venv
	.venv/bin/pip install -q -U pip
	.venv/bin/pip install -q -e '.[test]' --group dev
	mkdir -p build/typing && ln -sfn ../.. build/typing/triplepoint

check: ## what CI checks: lint, format, types, tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/basedpyright
	.venv/bin/pytest -q

test: ## the tests alone
	.venv/bin/pytest -q

bench: ## speed of the embedded model and of a 0.6B shape on this machine
	.venv/bin/triplepoint bench -m nano -p 36,512 -n 32
	.venv/bin/triplepoint bench -m synthetic:qwen3-0.6b:q4_0 -p 36,512 -n 32
