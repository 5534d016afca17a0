# Everything that a user or developer needs; `make help` lists it.
VENV := .venv
BIN := $(VENV)/bin
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(CURDIR)/.tools/muscle5/usr/bin:$(PATH)
PYTHON ?= python3
# One more than the cores of a small machine: many tests wait for others to die.
PYTEST_JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help install dev tools demo test slow lint format check bench docs clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "millrace: Python 3.11 or newer is needed (make PYTHON=python3.12 ...)" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "millrace: a Rust toolchain is needed (cargo is not on PATH); see rustup or your distribution's packages" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "millrace: on Debian and Ubuntu, venv needs: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

install: $(BIN)/uv ## Build and install into .venv: .venv/bin/millrace
	$(BIN)/uv pip install --quiet maturin
	$(BIN)/maturin develop --quiet --release --uv
	@$(BIN)/millrace --version

dev: install
	$(BIN)/uv pip install --quiet --group dev

tools: ## Install the tools that demo, tests and benchmarks run (Debian, Ubuntu; root or sudo)
	./scripts/install-tools

demo: install ## Run blastp through Millrace and serially, compare, kill and resume
	./scripts/install-tools ncbi-blast+
	$(BIN)/millrace demo

test: dev tools ## Set everything up and run every test
	cargo test --quiet --workspace --exclude millrace-py
	$(BIN)/pytest -n $(PYTEST_JOBS) --dist worksteal

slow: dev tools ## Run the tests that `make test` leaves out (hours)
	$(BIN)/pytest -n $(PYTEST_JOBS) --dist worksteal -m slow

lint: dev ## Formatting, lints, types, spelling
	cargo fmt --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check python tests bench
	$(BIN)/ruff check python tests bench
	$(BIN)/mypy
	$(BIN)/codespell python crates docs tests bench README.md CHANGELOG.md CONTRIBUTING.md

format: dev ## Rewrite the code in the house format
	cargo fmt
	$(BIN)/ruff check --fix --quiet python tests bench
	$(BIN)/ruff format --quiet python tests bench

check: lint test ## What a commit must pass

bench: install tools ## Measure against the peers, side by side (see bench/README.md)
	cargo bench --quiet -p millrace-core
	$(BIN)/python -m bench

docs: dev ## Build the documentation into site/
	$(BIN)/uv pip install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## Remove everything that was built
	rm -rf $(VENV) .tools target site demo bench/out python/millrace/*.so
