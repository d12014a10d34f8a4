# `make demo` shows Slipstream at work, `make test` runs the suite; both set up what they need.
# Another Python:  make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= python3
# Levanter and MaxText, of `make test-stacks` and `make test-integrations`, want it.
PYTHON312 ?= python3.12
VENV ?= .venv
# The environments of `make test-stacks`, and whether it writes its table into docs/stacks.md.
STACKS ?= .venv-stacks
STACKS_PAGE ?= --write
# Debian packages the tests want (a browser, say); installed where apt-get may be used.
SYSTEM_PACKAGES ?= chromium postgresql openmpi-bin slurmctld slurmd slurm-client munge zsh fish
# Of `make fuzz`, over all readers.
EXECUTIONS ?= 1000000
# Three for two cores: some tests wait. In the order of tests/conftest.py, long files first.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder

# Tests with the lowest versions: files in, numbers and pages out, without the files that need an extra.
LOWEST_TESTS ?= $(addprefix tests/,analyses costs outputs profile serve sources)
NEED_EXTRAS := analyses/diff/test_diff_compiled analyses/test_collectives analyses/test_hosts analyses/test_overlap \
               costs/test_compiled costs/test_coverage costs/test_nsight outputs/test_schemas outputs/test_sql outputs/test_tables \
               profile/test_events sources/nsys/test_archive sources/test_load

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q
WARMUP := src/slipstream/native/warmup.py

.PHONY: help install demo packages environment test test-loop test-lowest test-stacks test-integrations \
        integration-environments test-newest fuzz check docs site linkcheck format bench lock sbom man dist test-dist clean system-packages
.DEFAULT_GOAL := help

help:
	@echo "make install   $(BIN)/slipstream, ready to use"
	@echo "make demo      set up, compile a GPT for 8 H200 with no GPU, predict its step"
	@echo "make test      the test suite, import contracts included"
	@echo "make test-loop only the tests of slipstream run, which start many jobs"
	@echo "make test-integrations  trainers and trackers with the real libraries (docs/trainers.md)"
	@echo "make test-stacks  training scripts of Flax, Keras, MaxText and others (docs/stacks.md)"
	@echo "make test-newest  the suite and test-stacks with the newest version of every package"
	@echo "make fuzz      readers and native code on damaged inputs: make fuzz EXECUTIONS=10000000"
	@echo "make test-lowest  a core selection, with the lowest versions that pyproject.toml allows"
	@echo "make check     formatting, lint, types, import contracts, generated docs"
	@echo "make docs      rewrite the generated parts of docs/"
	@echo "make site      the docs as a site that needs no server: build/site/index.html"
	@echo "make linkcheck whether links to other sites lead somewhere (needs the network)"
	@echo "make format    format the code"
	@echo "make bench     every script in benchmarks/"
	@echo "make lock      rewrite requirements/, the locked versions with hashes (needs uv)"
	@echo "make sbom      dist/slipstream.cdx.json: what Slipstream depends on, as CycloneDX"
	@echo "make man       a man page for each command, in build/man/man1"
	@echo "make dist      the wheel and the sdist, in dist/"
	@echo "make test-dist the wheel installed into an empty environment of every Python that is here, the sdist of one"
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

# Trainers and trackers with the real libraries, in the environments of `make test-stacks`; without Python 3.12:
# make test-integrations INTEGRATIONS=libraries
INTEGRATIONS ?= libraries levanter maxtext
INTEGRATION_TESTS := $(addprefix tests/stacks/test_,trainers.py trackers.py llama_nnx.py)
test-integrations: integration-environments
	@set -e; run() { ALL_INSTALLED=1 .venv-stacks-$$1/bin/python -m pytest $(INTEGRATION_TESTS) -k "$$2"; }; \
	for one in $(INTEGRATIONS); do case $$one in \
	  libraries) run $$one "not Levanter and not MaxText";; \
	  levanter) run $$one Levanter;; \
	  maxtext) run $$one MaxText;; \
	esac; done

integration-environments: $(INTEGRATIONS:%=.venv-stacks-%/.stamp)

# Each set of libraries has an environment of its own: they don't agree on a JAX.
test-stacks: $(STACKS)-libraries/.stamp $(STACKS)-levanter/.stamp $(STACKS)-maxtext/.stamp
	rm -rf build/stacks
	@failed=0; run() { ALL_INSTALLED=1 STACKS_ROWS=build/stacks $(STACKS)-$$1/bin/python -m pytest tests/stacks -k "$$2" || failed=1; }; \
	run libraries "not Levanter and not MaxText"; run levanter Levanter; run maxtext MaxText; \
	$(STACKS)-libraries/bin/python tests/stacks/rows.py build/stacks $(STACKS_PAGE); exit $$failed

# The newest of everything: the suite first, then the stacks, which leave docs/stacks.md as it is.
test-newest: system-packages
	rm -rf .venv-newest .venv-newest-* build/newest-*.txt
	$(MAKE) .venv-newest/.stamp
	@failed=0; .venv-newest/bin/python -m pytest $(PYTEST_ARGS) || failed=1; \
	$(MAKE) test-stacks STACKS=.venv-newest STACKS_PAGE= || failed=1; exit $$failed

.venv-newest/.stamp: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(newest) --editable '.[test]'
	$(@D)/bin/python -m slipstream.native.warmup
	@touch $@

.venv-stacks-%/.stamp: requirements/stacks-%.txt pyproject.toml
	$(stack-python) -m venv $(@D)
	$(@D)/bin/python -m pip install --disable-pip-version-check -q --require-hashes --no-deps -r $<
	$(@D)/bin/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation --editable .
	$(@D)/bin/python -m slipstream.native.warmup
	@touch $@

.venv-newest-%/.stamp: build/newest-%.txt pyproject.toml
	$(stack-python) -m venv $(@D)
	$(newest) --editable . --requirement $< pytest pytest-rerunfailures hypothesis
	$(@D)/bin/python -m slipstream.native.warmup
	@touch $@

build/newest-%.txt: tests/stacks/requirements-%.txt
	@mkdir -p build
	sed '/# stays/!s/==[^ ]*//' $< > $@

stack-python = $(if $(filter libraries,$*),$(PYTHON),$(PYTHON312))
newest = $(@D)/bin/python -m pip install --disable-pip-version-check -q

check: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: $(VENV)/.stamp-test
	$(BIN)/python docs/generate.py

# A link that leads nowhere is an error.
site: $(VENV)/.stamp-test
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo "build/site/index.html"

# Not part of continuous integration: other sites may be down, or refuse to be asked.
linkcheck: $(VENV)/.stamp-test
	$(BIN)/python -m sphinx -q -b linkcheck docs build/linkcheck

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

man: $(VENV)/.stamp-core
	$(BIN)/python -m slipstream.cli.man_pages build/man/man1

dist: $(VENV)/.stamp-test
	rm -f dist/slipstream-*.whl dist/slipstream-*.tar.gz
	$(BIN)/python -m hatchling build --directory dist

# make test-dist DIST_PYTHONS=3.13    one of them only
DIST_PYTHONS ?= 3.11 3.12 3.13 3.14
test-dist: dist
	$(BIN)/python scripts/check_dist.py dist/slipstream-* --where-found $(DIST_PYTHONS:%=--python %)

clean:
	rm -rf .venv .venv3* .venv-lowest .venv-stacks-* .venv-newest* build dist .hypothesis .import_linter_cache .mypy_cache \
	  .pytest_cache .ruff_cache
	find src tests docs examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The environment: one stamp for each set of packages, out of date when its lock file or pyproject.toml
# changes. pip accepts only files whose hashes are in the lock file, and builds nothing from elsewhere.
# A lock file is complete, so pip resolves nothing: asked to, it takes the newest release for a name
# with an extra (`etils[epath]`) and then refuses it, because its hash is not in the file.

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Slipstream needs Python 3.11 or newer; $(PYTHON) is older or missing: make PYTHON=..."; exit 3; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-core $(VENV)/.stamp-demo $(VENV)/.stamp-test: $(VENV)/.stamp-%: $(VENV)/.stamp-venv pyproject.toml requirements/%.txt
	$(PIP) --require-hashes --no-deps --requirement requirements/$*.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.stamp-core

$(VENV)-lowest/.stamp: pyproject.toml requirements/lowest.txt
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --disable-pip-version-check -q --require-hashes --no-deps -r requirements/lowest.txt
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
