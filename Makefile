# Everything that is done with this repository, by a person or by CI. `make` alone lists it.
#
# One environment, .venv, holds both forms of Holdfast: compiled files lie beside their sources, and
# HOLDFAST_PURE=1 passes them over. So testing the pure form needs no second installation.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

export PYTHON ?= python3.11
PY := .venv/bin/python
PYTEST := $(PY) -m pytest -p tools.no_skips

# What is compiled; a change here means compiling again, and nothing else.
COMPILED := $(shell find src/holdfast/core src/holdfast/wire -name '*.py') $(wildcard src/holdfast/shell/native*.p*)

# Tests by what they cost. Folders that do not exist yet are left out.
UNIT := $(wildcard tests/unit tests/wire tests/docs tests/test_tidy.py)
# The same without the snippets of the documentation, which start nodes, and with the transcripts.
CHECK := $(wildcard tests/unit tests/wire tests/docs/test_written_pages.py tests/test_tidy.py tests/conformance)
SIM := $(wildcard tests/sim)
PROC := $(wildcard tests/proc tests/doors tests/worker)
# All tests in parts that may run side by side (tools/lanes.py), the long ones first: a folder each, in tests/proc a file.
LONG := tests/pipeline tests/proc/cluster tests/proc/netns tests/sim tests/worker tests/gateway
FOLDERS := $(patsubst %/,%,$(wildcard tests/*/ tests/proc/*/))
PARTS := $(LONG) $(filter-out $(LONG) tests/proc %__pycache__,$(FOLDERS)) $(wildcard tests/proc/test_*.py tests/test_*.py)
# Not again in the pure form: real processes and the benchmark, which know no other.
PURE := $(wildcard tests/unit tests/wire tests/sim tests/conformance)
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
# How many jobs `make chaos-pipeline` drives through, and how many `make truth-pipeline`.
JOBS = 100000
TRUTH = 1000000

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: .venv/.ready ## Make .venv: packages, and Holdfast compiled. Done once, and again when something changed
	@true

.venv/.ready: pyproject.toml constraints.txt setup.py tools/setup.sh $(COMPILED)
	@tools/setup.sh

.PHONY: run
run: setup ## Three nodes, console, a sample application, the pipeline: holdfast up. Ctrl-C stops it
	@exec $(PY) -m holdfast up $(UP)

# -- tests ------------------------------------------------------------------------------------------------

.PHONY: test
test: lint setup servers ## Everything, in both forms: lint, types, all tests
	@HOLDFAST_PURE= $(LANES) $(PARTS) "make types" $(AS_PURE) -- -p tools.no_skips

.PHONY: test-compiled
test-compiled: setup servers ## All tests, compiled
	@HOLDFAST_PURE= $(LANES) $(PARTS) -- -p tools.no_skips

.PHONY: test-pure
test-pure: setup servers ## Unit, wire, a short sim and the transcripts, as plain Python
	@$(LANES) $(AS_PURE) -- -p tools.no_skips

.PHONY: stories
stories: setup ## Disque's thirteen stories on seven real nodes
	@$(PYTEST) tests/proc/cluster

.PHONY: swarm
swarm: setup ## Simulated clusters under faults for MINUTES
	@$(PY) -m holdfast.testing.sim run --seeds 0:0 --fresh 100000000 --jobs 2 --minutes $(MINUTES)

.PHONY: replay
replay: setup ## One simulated cluster again, with the story of what went wrong: SEED=n, PLAN=file or TEST=scenario
	@$(PY) -m holdfast.testing.sim replay $(SEED) $(if $(PLAN),--plan $(PLAN)) $(if $(TEST),--test $(TEST))

.PHONY: netns
netns: setup ## Five real nodes under network faults for MINUTES; needs root
	@PYTHONPATH=tests/proc $(PY) -m netns --minutes $(MINUTES)

.PHONY: check
check: lint types ## Before each commit, under a minute: lint, types, unit tests, transcripts
	@$(PYTEST) -x $(CHECK)

.PHONY: lint
lint: setup ## ruff
	@$(PY) -m ruff check .

.PHONY: types
types: setup ## mypy --strict
	@$(PY) -m mypy

.PHONY: unit
unit: setup ## Unit tests, golden bytes, documentation, tidiness
	@$(PYTEST) $(UNIT)

.PHONY: sim
sim: setup ## Simulations: one node against a model (MODEL_RUNS=1000), clusters under faults (CLUSTERS=700)
	@MODEL_RUNS=$(MODEL_RUNS) CLUSTERS=$(CLUSTERS) $(PYTEST) -s $(SIM)

.PHONY: mutants
mutants: setup ## Take away each rule of the cluster in turn: some check must notice
	@$(PY) -m holdfast.testing.sim mutants --jobs 2 --plans tests/sim/cluster/plans

.PHONY: proc
proc: setup servers ## Real processes: signals, settings, limits, other people's clients
	@$(PYTEST) $(PROC)

.PHONY: test-pipeline
test-pipeline: setup servers ## The data pipeline: protocols without Java, stages, real streams on Spark
	@$(PYTEST) tests/pipeline

.PHONY: worker-long
worker-long: setup ## A job of two minutes under a lease of five seconds, whatever its handler blocks
	@LONG=1 $(PYTEST) tests/worker/test_trouble.py -k lease_is_kept

.PHONY: chaos-pipeline
chaos-pipeline: setup ## The pipeline under faults: drivers, executors and nodes killed; JOBS=100000
	@PYTHONPATH=tests/pipeline:tests/proc $(PY) -m chaos --jobs $(JOBS)

.PHONY: truth-pipeline
truth-pipeline: setup ## A million jobs with known fates through three nodes: every figure of gold is what it must be
	@TRUTH_JOBS=$(TRUTH) $(PYTEST) -s --durations=1 tests/pipeline/test_truth.py

.PHONY: fuzz
fuzz: setup ## Bad input for a long time: SECONDS=600
	@mkdir -p build
	@$(PY) -m tests.fuzz.fuzz_resp --seconds $(SECONDS) --out build/fuzz-failure.json
	@OPENAPI_EXAMPLES=200 $(PYTEST) tests/gateway/test_openapi.py tests/gateway/test_grpc.py

.PHONY: servers
servers: ## redis-server and redis-cli: says what is missing; installs it on CI
	@tools/servers.sh

# -- figures ----------------------------------------------------------------------------------------------

.PHONY: bench-core
bench-core: setup servers ## A node beside redis-server: CPU per command, memory per job, longest pause
	@code=0; $(PY) -m bench.core || code=$$?; $(PY) -m tools.figures; exit $$code

.PHONY: bench-cluster
bench-cluster: setup servers ## Three nodes and --cores beside redis-server: CPU and bus bytes per job, latency
	@$(PY) -m bench.cluster

.PHONY: bench-journal
bench-journal: setup servers ## What the journal costs, beside redis-server with its own; restart with a million jobs
	@$(PY) -m bench.journal

.PHONY: bench-clients
bench-clients: setup servers ## Python programs at our door beside other brokers, and no-op tasks beside other workers
	@tools/peers.sh
	@$(PY) -m bench.clients

.PHONY: bench-pipeline
bench-pipeline: setup servers ## The data pipeline: rows a second of each source and sink, history to gold, backfill
	@$(PY) -m bench.pipeline

.PHONY: bench-scheduler
bench-scheduler: setup ## What the scheduler costs beside the commit before it, rates on three nodes, a million keys
	@$(PY) -m bench.scheduler

.PHONY: bench-console
bench-console: setup ## What the console costs the nodes, and its pages with a thousand queues and a million jobs
	@$(PY) -m bench.console

.PHONY: show-node
show-node: setup servers ## Every promise of this release, run and judged in one table
	@$(PY) -m bench.show node

.PHONY: show-cluster
show-cluster: setup servers ## Every promise of the cluster, run and judged in one table
	@$(PY) -m bench.show cluster

.PHONY: show-journal
show-journal: setup servers ## Every promise of the journal, run and judged in one table
	@$(PY) -m bench.show journal

.PHONY: show-scheduler
show-scheduler: setup ## Every promise of the scheduler, run and judged in one table
	@$(PY) -m bench.show scheduler

.PHONY: show-doors
show-doors: setup servers ## Every promise of clients, workers, HTTP and gRPC, run and judged in one table
	@tools/peers.sh
	@$(PY) -m bench.show doors

.PHONY: show-pipeline
show-pipeline: setup servers ## Every promise of the data pipeline, run and judged in one table
	@$(PY) -m bench.show pipeline

.PHONY: show-console
show-console: setup servers ## Every promise of the console and of operations, run and judged in one table
	@$(PY) -m bench.show console

# -- what is written by programs --------------------------------------------------------------------------

.PHONY: docs
docs: setup ## Write docs/reference from the tables in the code and the figures in README.md; build the site
	@$(PY) -m tools.reference
	@$(PY) -m tools.figures
	@$(PY) -m tools.architecture
	@$(PY) -m tools.site build/site

.PHONY: rewrite-scripts
rewrite-scripts: setup ## Write the expected traces of the transcripts anew; read the diff before you commit
	@$(PY) -m tests.conformance.rewrite

.PHONY: dist
dist: setup ## Wheel and source archive, in dist/
	@rm -rf dist && mkdir -p build
	@HOLDFAST_COMPILE=1 $(PY) -m build --no-isolation --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@ls dist

.PHONY: clean
clean: ## Remove what was built; keeps .venv and ./data
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .venv/.ready src/*.egg-info
	@find src -name '*.so' -delete
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
