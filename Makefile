# Everything that a user or developer needs; `make help` lists it.
VENV := .venv
BIN := $(VENV)/bin
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(CURDIR)/.tools/muscle5/usr/bin:$(CURDIR)/.tools/iqtree/usr/bin:$(PATH)
# Where Python may not keep what it compiles, each start of millrace compiles all of it: 0.2 s.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
# Where `make install` puts the command: $(PREFIX)/bin/millrace. EXTRAS=[mpi] brings an MPI, too.
PREFIX ?= $(HOME)/.local
EXTRAS ?=
# More than cores: a test also waits for something to start, be heard or die. Six keep two cores busy all the time; more make ranks of MPI that wait cost more.
PYTEST_JOBS ?= 6
# Of the databases with which `make versions` compares searches in fragments.
MATRIX_SCALE ?= 0.1
# Of fuzzing, for all targets together.
MINUTES ?= 10

.DEFAULT_GOAL := help
# Files of census/programs; none: all of them.
PROGRAMS ?=

.PHONY: census checks quick help install uninstall build dev wheel tools demo test slow versions fuzz lint format check bench docs clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/uv:
	@PYTHON=$(PYTHON) ./scripts/check-build
	$(PYTHON) -m venv $(VENV) || { echo "millrace: on Debian and Ubuntu, venv needs: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

install: $(BIN)/uv ## Build, and install for yourself: ~/.local/bin/millrace (PREFIX=...); needs Rust, and no more of this folder
	$(BIN)/uv pip install --quiet maturin
	rm -rf target/install
	$(BIN)/maturin build --quiet --release --out target/install
	$(PYTHON) -m venv --clear $(PREFIX)/lib/millrace
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(PREFIX)/lib/millrace/bin/python "$$(echo target/install/millrace-*.whl)$(EXTRAS)"
	mkdir -p $(PREFIX)/bin
	ln -sfn ../lib/millrace/bin/millrace $(PREFIX)/bin/millrace
	@$(PREFIX)/bin/millrace --version
	@command -v millrace >/dev/null || echo "millrace: $(PREFIX)/bin is not on PATH: export PATH=$(PREFIX)/bin:\$$PATH"

uninstall: ## Remove what `make install` installed
	rm -rf $(PREFIX)/lib/millrace $(PREFIX)/bin/millrace

build: $(BIN)/uv ## Build into .venv for work on this source: .venv/bin/millrace
	$(BIN)/uv pip install --quiet maturin
	$(BIN)/maturin develop --quiet --release --uv
	@$(BIN)/millrace --version

wheel: $(BIN)/uv ## Build dist/: a wheel for any Linux with glibc 2.17 or later, and the source distribution
	$(BIN)/uv pip install --quiet 'maturin[zig]'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --quiet --release --zig --compatibility manylinux2014 --sdist --out dist

dev: $(BIN)/uv ## The same, compiled faster and with more checks, and everything that tests and lints need
	$(BIN)/uv pip install --quiet --group dev
	$(BIN)/maturin develop --quiet --profile develop --uv

tools: ## Install the tools that demo, tests and benchmarks run, and make the test data (Debian, Ubuntu; root or sudo)
	./scripts/install-tools
	-@$(PYTHON) ./scripts/make-test-data

demo: build ## Run blastp through Millrace and serially, compare, kill and resume
	./scripts/install-tools ncbi-blast+
	$(BIN)/millrace demo

# rustdoc complains of `make -j`. Collecting compiles the tests once, which each process of the last line would else do for itself.
test: dev tools ## Set everything up and run a test of every promise
	MAKEFLAGS= PROPTEST_RNG_SEED=0 cargo test --quiet --profile develop --workspace
	-@$(BIN)/pytest --collect-only -q >/dev/null
	$(BIN)/pytest -n $(PYTEST_JOBS) --dist worksteal

slow: dev tools ## Run the tests that `make test` leaves out, and those that draw their inputs with other ones (an hour)
	MAKEFLAGS= PROPTEST_CASES=5000 cargo test --quiet --profile develop --workspace
	MILLRACE_TEST_RANDOM=1 $(BIN)/pytest -n $(PYTEST_JOBS) --dist worksteal -m "slow or hypothesis"

versions: dev tools ## Run the tests of exactness, and the matrix of fragments, with newer releases of the tools (hours; 600 MB)
	./scripts/install-versions .tools/versions
	@for release in trixie sid; do \
		export PATH="$(CURDIR)/.tools/versions/$$release/bin:$$PATH"; \
		echo "== $$(blastp -version | head -1), $$(hmmscan -h | sed -n 2p), $$(diamond version)"; \
		$(BIN)/pytest -n $(PYTEST_JOBS) --dist worksteal -m "" tests/exact tests/unit/test_blast_adapter.py tests/unit/test_hmmer_fragments.py && \
		$(BIN)/python -m bench.matrix --scale $(MATRIX_SCALE) --folder ".tools/versions/$$release/matrix" || exit; \
	done

fuzz: dev ## Run the fuzz targets for MINUTES=10 in all, two at a time; what they find is in target/fuzz/findings
	$(BIN)/uv pip install --quiet atheris
	./scripts/fuzz $(MINUTES)

# What lint and quick say of the Python code.
checks:
	$(BIN)/ruff format --check python tests bench census examples fuzz
	$(BIN)/ruff check python tests bench census examples fuzz
	./scripts/check-names
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: checks ## What lint and tests can say in half a minute, without processes and Rust; `make dev` first
	$(BIN)/pytest -q -n 2 -m "not slow and not process" tests/unit tests/contract

lint: dev ## Formatting, lints, names, types, layers, spelling
	cargo fmt --check
	rustfmt --check --edition 2024 fuzz/fuzz_targets/*.rs
	cargo clippy --quiet --profile develop --workspace --all-targets -- -D warnings
	CUSTOM_LIBFUZZER_PATH=target/libfuzzer.a CARGO_TARGET_DIR=target cargo clippy --quiet --profile develop --manifest-path fuzz/Cargo.toml -- -D warnings
	$(MAKE) checks
	$(BIN)/stubtest --mypy-config-file scripts/stubtest.ini --allowlist scripts/stubtest-allowlist millrace._core
	$(BIN)/codespell python crates docs tests bench examples README.md CHANGELOG.md CONTRIBUTING.md

format: dev ## Rewrite the code in the house format
	cargo fmt
	rustfmt --edition 2024 fuzz/fuzz_targets/*.rs
	$(BIN)/ruff check --fix --quiet python tests bench examples fuzz
	$(BIN)/ruff format --quiet python tests bench examples fuzz

check: lint test ## What a commit must pass

census: build tools ## Measure what programs do when their input is cut: PROGRAMS="emboss seqkit" (all: hours); fails if one has changed
	$(BIN)/python -m census $(PROGRAMS)

bench: build tools ## Measure against the peers, side by side (see bench/README.md)
	cargo bench --quiet -p millrace-core
	$(BIN)/python -m bench

docs: dev ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## Remove everything that was built
	rm -rf $(VENV) .tools target dist site demo python/millrace/*.so
