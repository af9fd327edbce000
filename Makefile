# Two commands do all set-up: `make demo` and `make test`.
#   make demo VENV=/somewhere/else      another environment than .venv
#   make demo PYTHON=python3.12         another interpreter than the first suitable one

VENV ?= .venv
BIN := $(VENV)/bin
# Stamps: the environment is touched again only when pyproject.toml has changed.
TRAIN := $(VENV)/.installed-train
DEV := $(VENV)/.installed-train-dev

# The first of these that is Python 3.10 or newer and can make environments; asked for only when one has to be made.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$p" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && echo "$$p" && break; done)

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check types units docs pictures bench by-hand same triages faults clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(TRAIN) ## set up, train ResNet50 with a real bottleneck, read the verdict, try the fix
	@$(BIN)/python samples/demo.py

test: $(DEV) ## set up, then lints, types and tests, with a real job for each main path; ARGS="-k dat003" runs those tests alone
ifdef ARGS
	$(BIN)/python -m pytest -q tests $(ARGS)
else
	@$(MAKE) --no-print-directory check
endif

REAL := tests/integration tests/bench tests/harm
# A verdict on times is right 99 times of 100 (samples/faults/RESULTS.md), and tests of real jobs ask for one: a test whose
# assertion fails is run once more, three of them at most, and what it failed with is shown.
RERUNS := --reruns 1 --max-suite-reruns 3 --only-rerun AssertionError --rerun-show-tracebacks
# One test a line. Named one by one, all others need not be collected.
MAIN_PATHS = $(shell sed 's,^,tests/,' tests/main_paths.txt)

check: ## what `make test` runs, in an environment that is ready
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	@$(MAKE) --no-print-directory -j2 types units
	$(BIN)/python -m pytest -q -n auto --dist worksteal $(RERUNS) $(MAIN_PATHS)

# Side by side: mypy works for a minute on one core.
types:
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

units:
	$(BIN)/python -m pytest -q -n auto --dist loadfile tests $(REAL:%=--ignore=%)

# First what judges the times of real jobs, one after the other; then the rest, on all cores. Each part runs, whatever became of the others.
test-all: $(DEV) ## set up, then all other tests: some 30 minutes on two cores, which should have nothing else to do
	@failed=0; \
	run() { echo "pytest $$*"; $(BIN)/python -m pytest -q --durations=15 $(RERUNS) "$$@" || failed=1; }; \
	run -m "alone and not main_path" $(REAL); \
	run -n auto --dist loadgroup -m "not alone and not main_path" $(REAL); \
	exit $$failed

docs: $(DEV) ## write docs/rules from the rules themselves, and build the documentation as a site in build/site
	@$(BIN)/python -m docs.rule_pages
	@$(BIN)/python -m docs.site

pictures: $(DEV) ## draw the pictures in README and docs from the run that `rn50-advisor demo` replays
	@$(BIN)/python -m docs.pictures

bench: $(DEV) ## what the advisor costs a training job
	@$(BIN)/python tests/bench/overhead.py

by-hand: $(DEV) ## images/s of `rn50-advisor bench` beside a loop written by hand; wants a quiet machine
	@$(BIN)/python tests/bench/by_hand.py --markdown tests/bench/BY_HAND.md

same: $(DEV) ## what `compare` says of runs of one and the same job; wants a quiet machine
	@PYTHONPATH=. $(BIN)/python tests/bench/same.py --markdown tests/bench/SAME.md

triages: $(DEV) ## what `triage --quick` says of this machine, and of it with one thing wrong; wants a quiet one, and root
	@$(BIN)/python tests/bench/triages.py --markdown tests/bench/TRIAGE.md

faults: $(DEV) ## seeded faults on real jobs: how often the verdict is right (some 310 scenarios, one after the other, in about 75 minutes)
	@$(BIN)/python -m samples.faults --json .faults/results.json --markdown samples/faults/RESULTS.md --verdicts samples/faults/verdicts.json.gz

clean: ## remove the demo's images and runs, and all caches
	rm -rf .demo .faults build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . \( -name .venv -o -path ./$(VENV) -o -name .git \) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## remove the environment too (torch will be downloaded again)
	rm -rf *.egg-info
	if [ -f "$(VENV)/pyvenv.cfg" ]; then rm -rf "$(VENV)"; fi

$(TRAIN): pyproject.toml
	@$(call install,train)

$(DEV): pyproject.toml
	@$(call install,train$(comma)dev$(comma)docs)

comma := ,

# pip leaves alone what already satisfies the requirements, so a suitable torch is never downloaded twice.
# It would compile on one core, for a minute; some packages hold files for other versions of Python, which do not compile.
define install
	set -e; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		if [ -z "$(PYTHON)" ]; then \
			echo "No Python 3.10 or newer with venv was found (on Debian and Ubuntu: apt install python3-venv)." >&2; \
			echo "Name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		echo "Making the environment $(VENV) with $(PYTHON) ..."; \
		"$(PYTHON)" -m venv "$(VENV)"; \
	fi; \
	echo "Installing rn50-advisor[$(1)] into $(VENV); where PyTorch is missing, it is downloaded (a few GB) ..."; \
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -e '.[$(1)]'; \
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true; \
	touch $@
endef
