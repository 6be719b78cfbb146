# `make help` lists the targets. ARGS passes arguments on: make test ARGS="tests/stack -x", make up ARGS=--verbose.

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --disable-pip-version-check --quiet --only-binary :all:

# A stamp carries the checksum of the requirements it was made from: changed requirements ask for a new one.
sum = $(shell cat $(1) | cksum | cut -d ' ' -f 1)
DEMO_STAMP := $(VENV)/.demo-$(call sum,requirements.txt requirements-demo.txt)
DEV_STAMP := $(VENV)/.dev-$(call sum,requirements.txt requirements-demo.txt requirements-dev.txt)

BENCH_STAMP := $(VENV)/.bench-$(call sum,requirements.txt requirements-demo.txt requirements-dev.txt requirements-bench.txt)

# Settings ask for these; the checks connect to nothing.
CHECK_ENV := env DJANGO_SECRET_KEY=for-the-checks-only-7c1f0a94e2b85d36-never-of-a-real-site-at-all \
	DATABASE_URL=postgresql://check:check@127.0.0.1:1/check REDIS_URL=redis://127.0.0.1:1/0 ALLOWED_HOSTS=chronos.test

.DEFAULT_GOAL := help
.PHONY: help demo up test test-again check bench chaos chaos-short clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /  \1\t/'

demo: $(DEMO_STAMP)  ## start Chronos, deliver 250 jobs to a real receiver, show what came, remove everything
	@$(PYTHON) manage.py demo $(ARGS)

up: $(DEMO_STAMP)  ## run Chronos with its own servers until Ctrl-C; data in .chronos/, PORT fixes the web's port
	@$(PYTHON) manage.py up $(ARGS)

# Most tests wait for something: two at a time take little more than half the time. JOBS=0 runs one after the other.
# Those that are marked `alone` measure how soon something happens, and come last, by themselves. 5: none was chosen.
JOBS ?= 2

test: $(DEV_STAMP)  ## run the tests against real servers, which start by themselves; JOBS=0 one after the other
	@$(PYTHON) -m pytest -n $(JOBS) --dist loadfile -m "not alone" $(ARGS); first=$$?; [ $$first != 2 ] || exit 2; \
	$(PYTHON) -m pytest -m alone $(ARGS); \
	for code in $$first $$?; do [ $$code = 0 ] || [ $$code = 5 ] || exit $$code; done

test-again: $(DEV_STAMP)  ## run the one or two tests that failed once more, and name them; more than three are not tried
	@$(PYTHON) -m tests.again

check: $(DEV_STAMP)  ## lint, types, import rules, migrations, deployment checks
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(CHECK_ENV) $(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(CHECK_ENV) DJANGO_SETTINGS_MODULE=chronos_site.settings.migrations \
		$(PYTHON) manage.py makemigrations --check --dry-run
	$(CHECK_ENV) DJANGO_SETTINGS_MODULE=chronos_site.settings.production \
		$(PYTHON) manage.py check --deploy --fail-level WARNING

bench: $(BENCH_STAMP)  ## Chronos beside its peers, in figures (ten minutes); ARGS="--only delivery", results in build/
	@$(PYTHON) -m tests.bench $(ARGS)

chaos-short: $(DEV_STAMP)  ## break the most important parts, in turn, and prove that nothing was lost (six minutes)
	@$(PYTHON) -m tests.chaos --short $(ARGS)

chaos: $(DEV_STAMP)  ## break everything (45 minutes); ARGS="--seed 7 --only leader-killed", ARGS=--list
	@$(PYTHON) -m tests.chaos --mutants $(ARGS)

clean:  ## remove .venv and caches; the data in .chronos/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@for python in python3.13 python3.12 python3.11 python3; do \
		if $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
			>/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Chronos needs Python 3.11, 3.12 or 3.13 with venv. On Debian or Ubuntu: apt install python3-venv;" >&2; \
		echo "on macOS: brew install python@3.13; anywhere: https://www.python.org/downloads/" >&2; \
		exit 1; \
	fi; \
	echo "making $(VENV) with $$($$found --version)"; \
	$$found -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(DEMO_STAMP): | $(PYTHON)
	@echo "installing what the demo needs (a minute or two, once)"
	@$(PIP) -r requirements-demo.txt
	@rm -f $(VENV)/.demo-* && touch $@

$(DEV_STAMP): | $(PYTHON)
	@echo "installing what the tests and checks need (a minute or two, once)"
	@$(PIP) -r requirements-dev.txt
	@rm -f $(VENV)/.dev-* $(VENV)/.demo-* && touch $(DEMO_STAMP) $@

$(BENCH_STAMP): $(DEV_STAMP)
	@echo "installing what the benchmarks compare with (once)"
	@$(PIP) -r requirements-bench.txt
	@rm -f $(VENV)/.bench-* && touch $@
