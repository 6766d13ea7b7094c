# Everything that is done with this repository, by a person or by CI. `make` alone lists it.
#
# One environment, .venv, holds both forms of Holdfast: compiled files lie beside their sources, and
# HOLDFAST_PURE=1 passes them over. So testing the pure form needs no second installation. What a target needs there is
# made ready when it is first used (tools/prepare.py).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

export PYTHON ?= python3.11
PY := .venv/bin/python
PYTEST := $(PY) -m pytest -p tools.no_skips

# The form to run in: compiled, unless HOLDFAST_PURE asks for plain Python.
FORM := $(if $(filter-out 0 no false off,$(HOLDFAST_PURE)),,compile)

# A folder each, the long ones first: as one part they would keep one core busy when all others are done.
LONG_UNIT := tests/unit/core tests/unit/journal
UNIT := $(LONG_UNIT) $(filter-out $(LONG_UNIT) %__pycache__,$(patsubst %/,%,$(wildcard tests/unit/*/)))
# What starts no process.
CHECK := $(UNIT) $(wildcard tests/wire tests/docs/test_written_pages.py tests/test_tidy.py tests/conformance)
SIM := $(wildcard tests/sim)
# All tests in parts that may run side by side (tools/lanes.py), the long ones first: a folder each, in tests/proc a file.
LONG := tests/pipeline tests/proc/cluster tests/proc/netns tests/sim tests/worker tests/gateway
FOLDERS := $(patsubst %/,%,$(wildcard tests/*/ tests/proc/*/))
PARTS := $(LONG) $(filter-out $(LONG) tests/proc tests/unit %__pycache__,$(FOLDERS)) $(UNIT) $(wildcard tests/proc/test_*.py tests/test_*.py)
# Not again in the pure form: real processes and the benchmark, which know no other.
PURE := $(UNIT) $(wildcard tests/wire tests/sim tests/conformance)
AS_PURE = $(foreach part,$(PURE),"HOLDFAST_PURE=1 MODEL_RUNS=$(MODEL_RUNS_PURE) CLUSTERS=$(CLUSTERS_PURE) $(part)")
LANES := $(PY) -m tools.lanes

# Seeded runs against the model: in `make sim`, and in the second, pure pass of `make test`.
MODEL_RUNS = 1000
MODEL_RUNS_PURE = 50
# Simulated clusters, most from fixed seeds and some from fresh ones, in the same two places.
CLUSTERS = 700
CLUSTERS_PURE = 12
# How long `make fuzz` goes on.
SECONDS = 600
# How long `make swarm` and `make netns` go on, and which cluster `make replay` plays.
MINUTES = 10
SEED = 0
# More words for `make run`, such as UP=--no-pipeline.
UP =

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Each makes ready what its name says, packages and the compiled form side by side. Nothing to do takes no time.
NEEDS := need-run need-check need-sim need-test need-bench need-docs
.PHONY: $(NEEDS)
$(NEEDS): need-%:
	@$(PYTHON) -m tools.prepare $* $(if $(filter check docs,$*),,$(FORM))

##@ Run it

.PHONY: run
run: need-run ## Three nodes, console, a sample application, the pipeline: holdfast up. Ctrl-C stops it
	@exec $(PY) -m holdfast up $(UP)

##@ Work on it (make test PATHS=tests/proc: some tests, in the form at hand)

.PHONY: check
check: export HOLDFAST_PURE ?= 1
check: lint ## Before each commit, as plain Python, under a minute: lint, types, unit tests, transcripts
	@$(LANES) $(CHECK) "make types" -- -x -p tools.no_skips

ifdef PATHS
.PHONY: test
test: need-test servers
	@$(PYTEST) $(PATHS)

else
.PHONY: test
test: need-test servers lint ## Everything, in both forms: lint, types, all tests
	@HOLDFAST_PURE= $(LANES) $(PARTS) "make types" $(AS_PURE) -- -p tools.no_skips

.PHONY: test-compiled
test-compiled: need-test servers ## All tests, compiled
	@HOLDFAST_PURE= $(LANES) $(PARTS) -- -p tools.no_skips

.PHONY: test-pure
test-pure: need-test servers ## Unit, wire, a short sim and the transcripts, as plain Python
	@$(LANES) $(AS_PURE) -- -p tools.no_skips

endif

##@ Long runs

.PHONY: sim
sim: need-sim ## Simulations: one node against a model (MODEL_RUNS=1000), clusters under faults (CLUSTERS=700)
	@MODEL_RUNS=$(MODEL_RUNS) CLUSTERS=$(CLUSTERS) $(PYTEST) -s $(SIM)

.PHONY: swarm
swarm: need-sim ## Simulated clusters under faults for MINUTES=10
	@$(PY) -m holdfast.testing.sim run --seeds 0:0 --fresh 100000000 --jobs 2 --minutes $(MINUTES)

.PHONY: mutants
mutants: need-sim ## Take away each rule of the cluster in turn: some check must notice
	@$(PY) -m holdfast.testing.sim mutants --jobs 2 --plans tests/sim/cluster/plans

.PHONY: fuzz
fuzz: need-test ## Bad input for SECONDS=600
	@mkdir -p build
	@$(PY) -m tests.fuzz.fuzz_resp --seconds $(SECONDS) --out build/fuzz-failure.json
	@$(PY) -m tests.fuzz.fuzz_handshake --seconds $$(( $(SECONDS) / 5 ))
	@OPENAPI_EXAMPLES=200 $(PYTEST) tests/gateway/test_openapi.py tests/gateway/test_grpc.py

.PHONY: netns
netns: need-test ## Five real nodes under network faults for MINUTES=10; needs root
	@PYTHONPATH=tests/proc $(PY) -m netns --minutes $(MINUTES)

##@ Figures (without PART, both say which parts there are; make bench PART=before COMMIT=HEAD~1: two builds)

.PHONY: bench
bench: part-of-bench need-bench servers ## Measure PART=core|cluster|…, beside others where there are any
	@$(if $(filter clients,$(PART)),tools/peers.sh)
	@code=0; $(PY) -m bench.$(PART) $(if $(COMMIT),--commit $(COMMIT)) || code=$$?; $(if $(filter core,$(PART)),$(PY) -m tools.figures;) exit $$code

.PHONY: show
show: part-of-show $(if $(LIST),need-bench,need-test servers) ## Judge the promises of PART=node|…; ONLY=key,key; LIST=1
	@$(if $(LIST),,$(if $(filter doors,$(PART)),tools/peers.sh))
	@$(PY) -m bench.show $(PART) $(if $(ONLY),--only $(ONLY)) $(if $(LIST),--list)

# Parts are files: those with goals in bench/, those with a list of promises in bench/show/. When PART is none of them,
# these say what each is about, which its first line does, and end with code 2.
.PHONY: part-of-bench part-of-show
part-of-bench: ABOUT = $(shell grep -l '^GOALS' bench/*.py)
part-of-show: ABOUT = $(shell grep -l '^def lines()' bench/show/*.py)
part-of-bench part-of-show: part-of-%:
	@$(if $(filter %/$(PART).py,$(ABOUT)),,$(PARTS_OF) $(ABOUT) >&2; exit 2)

PARTS_OF = awk 'BEGIN { print "make $* PART=…, one of these:" } FNR == 1 { \
	name = FILENAME; gsub(/.*\/|\.py$$/, "", name); gsub(/"""/, ""); sub(/: `make .*/, "."); \
	printf "  %-10s %s\n", name, $$0 }'

##@ Write and ship

.PHONY: docs
docs: need-docs ## Write docs/reference from the tables in the code and the figures in README.md; build the site
	@$(PY) -m tools.reference
	@$(PY) -m tools.figures
	@$(PY) -m tools.architecture
	@$(PY) -m tools.site build/site

.PHONY: dist
dist: need-test ## Wheel and source archive, in dist/
	@rm -rf dist && mkdir -p build
	@HOLDFAST_COMPILE=1 $(PY) -m build --no-isolation --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@ls dist

##@ Now and then

.PHONY: setup
setup: need-test ## All that any target needs, at once; without it each makes ready what it needs itself

.PHONY: lint
lint: need-check ## ruff
	@$(PY) -m ruff check .

.PHONY: types
types: need-check ## mypy --strict
	@$(PY) -m mypy

.PHONY: servers
servers: ## redis-server and redis-cli: says what is missing; installs it on CI
	@tools/servers.sh

.PHONY: replay
replay: need-sim ## One simulated cluster again, with the story of what went wrong: SEED=n, PLAN=file or TEST=scenario
	@$(PY) -m holdfast.testing.sim replay $(SEED) $(if $(PLAN),--plan $(PLAN)) $(if $(TEST),--test $(TEST))

.PHONY: rewrite-scripts
rewrite-scripts: need-sim ## Write the expected traces of the transcripts anew; read the diff before you commit
	@$(PY) -m tests.conformance.rewrite

.PHONY: clean
clean: ## Remove what was built; keeps .venv and ./data
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	@find src -name '*.so' -delete
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
