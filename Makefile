# `make demo` shows Slipstream at work, `make test` runs the suite; both set up what they need.
# Another Python:  make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= python3
# Levanter and MaxText, of `make test-stacks`, want it.
PYTHON312 ?= python3.12
VENV ?= .venv
# Debian packages the tests want (a browser, say); installed where apt-get may be used.
SYSTEM_PACKAGES ?= chromium postgresql openmpi-bin
# Of `make fuzz`, over all readers.
EXECUTIONS ?= 1000000
# Three for two cores: some tests wait. In the order of tests/conftest.py, long files first.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder

# Tests with the lowest versions: files in, numbers and pages out, without the files that need an extra.
LOWEST_TESTS ?= $(addprefix tests/,analyses costs outputs profile serve sources)
NEED_EXTRAS := analyses/diff/test_diff_compiled analyses/test_collectives analyses/test_hosts analyses/test_overlap \
               costs/test_compiled costs/test_coverage costs/test_nsight outputs/test_sql outputs/test_tables \
               profile/test_events sources/nsys/test_archive sources/test_load

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q
WARMUP := src/slipstream/native/warmup.py

.PHONY: help install demo packages environment test test-loop test-lowest test-stacks fuzz check docs format \
        bench lock sbom clean system-packages
.DEFAULT_GOAL := help

help:
	@echo "make install   $(BIN)/slipstream, ready to use"
	@echo "make demo      set up, compile a GPT for 8 H200 with no GPU, predict its step"
	@echo "make test      the test suite, import contracts included"
	@echo "make test-loop only the tests of slipstream run, which start many jobs"
	@echo "make test-stacks  training scripts of Flax, Keras, MaxText and others (docs/stacks.md)"
	@echo "make fuzz      readers and native code on damaged inputs: make fuzz EXECUTIONS=10000000"
	@echo "make test-lowest  a core selection, with the lowest versions that pyproject.toml allows"
	@echo "make check     formatting, lint, types, import contracts, generated docs"
	@echo "make docs      rewrite the generated parts of docs/"
	@echo "make format    format the code"
	@echo "make bench     every script in benchmarks/"
	@echo "make lock      rewrite requirements/, the locked versions with hashes (needs uv)"
	@echo "make sbom      dist/slipstream.cdx.json: what Slipstream depends on, as CycloneDX"
	@echo "make clean     remove environments and caches"

install: $(VENV)/.stamp-core
	$(call warm-up)

demo: $(VENV)/.stamp-demo
	$(call warm-up)
	$(BIN)/python examples/demo.py

# What `make test` needs, in two parts, so that it can be made ready beside other work.
packages: $(VENV)/.stamp-test system-packages

environment: packages
	$(call warm-up)
# Tests start hundreds of processes, and not every machine lets Python keep bytecode by itself.
	$(BIN)/python -m compileall -q src

test: environment
	$(BIN)/python -m pytest $(PYTEST_ARGS)

fuzz: $(VENV)/.stamp-test
	$(call warm-up)
	$(BIN)/python tests/fuzz/run.py --executions $(EXECUTIONS)

test-loop: $(VENV)/.stamp-test
	$(call warm-up)
	$(BIN)/python -m pytest tests/run tests/experiment tests/consensus tests/jaxhooks tests/api

test-lowest: $(VENV)-lowest/.stamp
	$(VENV)-lowest/bin/python -m slipstream.native.warmup
	$(VENV)-lowest/bin/python -m pytest -n 2 $(LOWEST_TESTS) $(NEED_EXTRAS:%=--ignore=tests/%.py)

# Each set of libraries has an environment of its own: they don't agree on a JAX.
test-stacks: .venv-stacks-libraries/.stamp .venv-stacks-levanter/.stamp .venv-stacks-maxtext/.stamp
	rm -rf build/stacks
	@failed=0; run() { STACKS_ROWS=build/stacks .venv-stacks-$$1/bin/python -m pytest tests/stacks -k "$$2" || failed=1; }; \
	run libraries "not Levanter and not MaxText"; run levanter Levanter; run maxtext MaxText; \
	.venv-stacks-libraries/bin/python tests/stacks/rows.py build/stacks --write; exit $$failed

.venv-stacks-%/.stamp: tests/stacks/requirements-%.txt pyproject.toml
	$(if $(filter libraries,$*),$(PYTHON),$(PYTHON312)) -m venv .venv-stacks-$*
	.venv-stacks-$*/bin/python -m pip install --disable-pip-version-check -q --editable . \
	  --requirement $< pytest pytest-rerunfailures hypothesis
	.venv-stacks-$*/bin/python -m slipstream.native.warmup
	@touch $@

check: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: $(VENV)/.stamp-test
	$(BIN)/python docs/generate.py

format: $(VENV)/.stamp-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.stamp-test
	$(call warm-up)
	@set -e; for script in $(sort $(wildcard benchmarks/*.py)); do \
	  echo "== $$script"; $(BIN)/python "$$script"; \
	done

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv: https://docs.astral.sh/uv"; exit 3; }
	$(PYTHON) scripts/lock.py

# From pip's own report of what an installation would download: versions, licences, hashes.
sbom: $(VENV)/.stamp-test
	mkdir -p dist
	$(PIP) --dry-run --ignore-installed --require-hashes -r requirements/core.txt --report dist/pip-report.json
	$(BIN)/python scripts/sbom.py dist/pip-report.json dist/slipstream.cdx.json

clean:
	rm -rf .venv .venv3* .venv-lowest .venv-stacks-* build dist .hypothesis .import_linter_cache .mypy_cache \
	  .pytest_cache .ruff_cache
	find src tests docs examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The environment: one stamp for each set of packages, out of date when its lock file or pyproject.toml
# changes. pip accepts only files whose hashes are in the lock file, and builds nothing from elsewhere.

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Slipstream needs Python 3.11 or newer; $(PYTHON) is older or missing: make PYTHON=..."; exit 3; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-core $(VENV)/.stamp-demo $(VENV)/.stamp-test: $(VENV)/.stamp-%: $(VENV)/.stamp-venv pyproject.toml requirements/%.txt
	$(PIP) --require-hashes --requirement requirements/$*.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.stamp-core

$(VENV)-lowest/.stamp: pyproject.toml requirements/lowest.txt
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --disable-pip-version-check -q --require-hashes -r requirements/lowest.txt
	$(VENV)-lowest/bin/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation --editable .
	@touch $@

# Compiles the decoder once, so that the first command a person types is fast.
define warm-up
$(if $(wildcard $(WARMUP)),$(BIN)/python -m slipstream.native.warmup)
endef

system-packages:
	@missing=; for package in $(SYSTEM_PACKAGES); do \
	  dpkg-query -W -f '$${db:Status-Status}' "$$package" 2>/dev/null | grep -qx installed || missing="$$missing $$package"; \
	done; \
	test -n "$$missing" || exit 0; \
	if [ "$$(id -u)" = 0 ]; then run=; elif sudo -n true 2>/dev/null; then run="sudo -n"; else run=none; fi; \
	if command -v apt-get >/dev/null && [ "$$run" != none ]; then \
	  echo "installing system packages:$$missing"; \
	  $$run apt-get update -qq && \
	  $$run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    -o DPkg::Lock::Timeout=120 $$missing >/dev/null || \
	    echo "could not install:$$missing; the tests that want them cannot run"; \
	else \
	  echo "missing system packages, and no right to install them:$$missing; the tests that want them cannot run"; \
	fi
