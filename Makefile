# One-word targets. Needs Python 3.11 or newer with pip and venv, and make; everything else goes into .venv.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python -m
PIP    := $(RUN) pip --disable-pip-version-check --quiet
EXTRAS := cli,experiments,cluster,sklearn,dev
OUT    ?= results/
FIGURES := .slow
OTHERS := SSE4_2 AVX2

SETUP := $(VENV)/.stamp-setup
BENCH := $(VENV)/.stamp-bench
HALF  := $(VENV)/.half-made

export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

.PHONY: help setup quick test matrix lint type docs bench slow reproduce release lock clean

help:
	@echo "make reproduce   run the paper's experiments (quick profile) and write $(OUT)report.html"
	@echo "make test        lint, types, tests and docstring examples"
	@echo "make quick       lint, types and the tests of the rooms that changed, in about a minute"
	@echo "make release     sdist and wheel in dist/, tried in an empty environment, with release notes"
	@echo "make setup lint type docs bench slow matrix lock clean: the parts"

setup: $(SETUP)

# $(HALF) stands from the first step to the last: if setup was interrupted, the next one starts from a clean .venv.
$(SETUP): requirements.lock pyproject.toml
	@if [ -e $(HALF) ] || ! $(RUN) pip --version >/dev/null 2>&1; then \
	    echo "Making $(VENV) (some minutes the first time)."; rm -rf $(VENV); $(PYTHON) -m venv $(VENV); fi
	@touch $(HALF)
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@$(RUN) pyright --version
	@rm -f $(HALF)
	@touch $@

$(BENCH): $(SETUP) requirements-bench.lock
	$(PIP) install -r requirements.lock -r requirements-bench.lock
	@touch $@

# Every check runs even if one before it failed; pytest comes last, so that its closing line is the last one.
test: $(SETUP)
	@status=0; \
	$(RUN) ruff check . || status=1; \
	$(RUN) ruff format --check . || status=1; \
	$(RUN) pyright || status=1; \
	for isa in $(OTHERS); do \
	    echo "The sensitive tests as on a processor with $$isa:"; \
	    XLA_FLAGS=--xla_cpu_max_isa=$$isa $(RUN) pytest -q -m "processor and not slow" tests/solvers tests/subproblem tests/run || status=1; \
	done; \
	$(RUN) pytest || status=1; \
	exit $$status

# The whole suite with older instruction sets and with one and two threads: hours. A line for each run is kept.
matrix: $(SETUP)
	@status=0; mkdir -p $(FIGURES); \
	for threads in 1 2; do for isa in $(OTHERS) ""; do \
	    echo "The whole suite with $$threads threads and $${isa:-every instruction}:"; \
	    XLA_FLAGS=$${isa:+--xla_cpu_max_isa=$$isa} PROXLIN_TEST_THREADS=$$threads $(RUN) pytest -q \
	        > $(FIGURES)/matrix-$${isa:-all}-$$threads.log || status=1; \
	    tail -n 1 $(FIGURES)/matrix-$${isa:-all}-$$threads.log; \
	done; done; exit $$status

# The loop while you write: tests/support/quick.py chooses the tests by `git diff --name-only`.
quick: $(SETUP)
	@$(VENV)/bin/python tests/support/quick.py

lint: $(SETUP)
	$(RUN) ruff check .
	$(RUN) ruff format --check .

type: $(SETUP)
	$(RUN) pyright

# The variable silences an advertisement; warnings of the build are errors (strict, in mkdocs.yml).
docs: $(SETUP)
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict
	$(RUN) pytest -n 0 tests/docs
	@echo "The documentation is site/index.html"

# What the tests measured is in $(FIGURES), a line of JSON each; docs/reliability.md quotes it.
slow: $(SETUP)
	@rm -rf $(FIGURES)
	PROXLIN_FIGURES=$(FIGURES) $(RUN) pytest -m slow
	@cat $(FIGURES)/*.json

bench: $(BENCH)
	$(RUN) bench

reproduce: $(SETUP)
	$(VENV)/bin/proxlin reproduce all --profile quick --out $(OUT)
	@echo "The report is $(OUT)report.html"

# Nothing is uploaded: what to upload is in dist/ then.
release: $(SETUP)
	@$(VENV)/bin/python tools/release.py $(if $(DIRTY),--dirty)

# New lock files from a fresh resolve in a throw-away environment; the bench file holds only what it adds.
lock:
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install ".[$(EXTRAS)]"
	.venv-lock/bin/pip freeze --exclude proxlin > requirements.lock
	.venv-lock/bin/pip install -c requirements.lock ".[bench]"
	.venv-lock/bin/pip freeze --exclude proxlin | grep -vxFf requirements.lock | sed 's/+cpu$$//' > requirements-bench.lock
	rm -rf .venv-lock

clean:
	rm -rf results dist build site .pytest_cache .ruff_cache .hypothesis $(FIGURES)
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
