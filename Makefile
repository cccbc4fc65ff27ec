.PHONY: help venv check test bench runs

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

runs: ## record the runs of examples/runs anew
	.venv/bin/python -m labs.recording.record_examples

# What `make bench` measures; BASELINE names an interpreter that has llama-cpp-python.
MODELS = nano synthetic:qwen3-0.6b:q4_0 synthetic:qwen3-0.6b:q4_k_m synthetic:qwen3-0.6b:q8_0 \
	synthetic:qwen3-4b:q4_0:layers=12 synthetic:qwen3-30b-a3b:q4_0:layers=8
TESTS = pp13,pp36,pp182,pp461,pp1096,tg32,tg16@1024,tg16@4096
NANO_TESTS = pp13,pp36,pp461,tg32
KERNEL_TARGETS = auto
BASELINE =
BENCH = .venv/bin/triplepoint bench
heading = printf '\n\#\# %s\n\n    triplepoint bench %s\n\n'

bench: ## tables as in docs/measured.md; make -s bench BASELINE=peer/bin/python > here.md
	@printf '# Measured\n\nWritten by `make bench`; [performance.md](performance.md) says how to read it.\n'
	@for model in $(MODELS); do \
		tests=$(TESTS); test "$$model" != nano || tests=$(NANO_TESTS); \
		$(heading) "$$model" "-m $$model --tests $$tests$(if $(BASELINE), --baseline-python PYTHON)"; \
		$(BENCH) -m "$$model" --tests $$tests $(if $(BASELINE),--baseline-python $(BASELINE)) || exit 1; \
	done
	@for target in $(KERNEL_TARGETS); do \
		printf '\n\#\# The kernels alone: %s\n\n    python -m labs.bench.kernels --target %s\n\n' $$target $$target; \
		.venv/bin/python -m labs.bench.kernels --target $$target || exit 1; \
	done
