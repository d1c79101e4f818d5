# Everything runs in .venv, made here on first use. Needs python3 (3.10 or later), g++ and make.
#   make demo    the main job: trains a small model on this machine and reports   (about 10 minutes)
#   make test    the tests                                                        (make test-full: the slow ones too)
# The other targets are listed by `make help`.

PYTHON ?= python3
TORCH ?= torch==2.13.0
PYTEST_WORKERS ?= 2

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
BUILD_NEEDS := 'setuptools>=77' ninja 'pybind11>=2.13'
CXX_FILES := $(wildcard csrc/*.* csrc/*/*.*)
BUILD_FILES := pyproject.toml setup.py $(wildcard build_tools/*.py) $(CXX_FILES)

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-full fuzz check bench wheel docs gpu clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

venv: .venv/.base  ## .venv with torch and what the build needs

demo: .venv/.demo  ## train a small GLM-V from a random start: SFT, then RL, then a table and a report
	$(BIN)/glmv demo

test: .venv/.test  ## the tests
	$(PYTEST) -n $(PYTEST_WORKERS) -m 'not gpu and not full'

test-full: .venv/.test  ## the tests and the slow ones
	$(PYTEST) -n $(PYTEST_WORKERS) -m 'not gpu'

fuzz: .venv/.test  ## 100,000 hostile answers through the parsers of the rewards (two minutes)
	$(PYTEST) tests/rewards/test_fuzz.py --hypothesis-profile=fuzz

check: .venv/.dev  ## lint, format, types, style
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/mypy
	$(PYTEST) tests/test_style.py

bench: .venv/.test  ## time the ops against eager PyTorch
	$(BIN)/glmv bench

wheel: .venv/.dev  ## sdist and wheel in dist/, checked; CUDA=1: with CUDA kernels (needs nvcc, no GPU)
	$(BIN)/python scripts/make_wheel.py $(if $(filter 1,$(CUDA)),--cuda)

docs: .venv/.test  ## run the commands and snippets that README and docs show
	$(PYTEST) tests/test_docs.py

gpu: .venv/.test  ## on a machine with a CUDA GPU: its tests and benchmarks
	$(PYTEST) -m gpu
	$(BIN)/glmv bench --device cuda

clean:  ## remove what was built; .venv stays
	rm -rf build dist *.egg-info glmv/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# Stamps: a step runs again only when its inputs are newer.
.venv/.base:
	$(PYTHON) -c 'import sys; sys.exit("glmv: Python 3.10 or later is needed" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv .venv
	@echo 'Installing PyTorch and the build tools into .venv (a minute or two) ...'
	$(PIP) '$(TORCH)'
	$(PIP) $(BUILD_NEEDS)
	@touch $@

# .venv/.demo, .venv/.test, .venv/.dev: the package in place, with the packages of that extra.
.venv/.%: .venv/.base $(BUILD_FILES)
	@echo 'Building the extension and installing the packages of glmv[$*] ...'
	$(PIP) --no-build-isolation -e '.[$*]'
	@touch $@
