# Every command a user types. `make` alone lists them.
#
# POSIX sh recipes. What a person types for `story` reaches the tool through the environment as it was typed: make's
# `value` takes it unexpanded and the shell never parses it, so quotes and dollar signs in a prompt are only text.

.SUFFIXES:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV = .venv
RUN = $(VENV)/bin/python -m
# Byte-compiling everything would take twice as long as installing it, and most of it is never imported.
PIP = $(RUN) pip install -qq --no-compile --disable-pip-version-check --no-input

MODEL ?= tales
PROMPT ?= Once upon a time
SEED ?=
TEMPERATURE ?=
TOP_K ?=
TOP_P ?=
TOKENS ?=
PRESET ?=
PORT ?=
BOARD ?=
ARGS ?=

.PHONY: help setup story chat deploy test parity torture types boards board-test train pack rehearse bench budget layouts lock audit clean
# A recursive variable given on the command line would be exported expanded, whatever is in it.
unexport MODEL PROMPT SEED TEMPERATURE TOP_K TOP_P TOKENS PRESET PORT BOARD ARGS

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.ready ## install what everything but training needs, into .venv (about 20 seconds, once)
	@:

story: export SCRIBE_MODEL := $(value MODEL)
story: export SCRIBE_PROMPT := $(value PROMPT)
story: export SCRIBE_SEED := $(value SEED)
story: export SCRIBE_TEMPERATURE := $(value TEMPERATURE)
story: export SCRIBE_TOP_K := $(value TOP_K)
story: export SCRIBE_TOP_P := $(value TOP_P)
story: export SCRIBE_TOKENS := $(value TOKENS)
story: export SCRIBE_PRESET := $(value PRESET)
story: $(VENV)/.ready ## write a story in MicroPython: PROMPT="..." MODEL= SEED= TEMPERATURE= TOP_K= TOP_P= TOKENS= PRESET=
	@$(RUN) tools.story --model="$$SCRIBE_MODEL" --prompt="$$SCRIBE_PROMPT" $${SCRIBE_SEED:+--seed="$$SCRIBE_SEED"} \
		$${SCRIBE_TEMPERATURE:+--temperature="$$SCRIBE_TEMPERATURE"} $${SCRIBE_TOP_K:+--top-k="$$SCRIBE_TOP_K"} \
		$${SCRIBE_TOP_P:+--top-p="$$SCRIBE_TOP_P"} $${SCRIBE_TOKENS:+--tokens="$$SCRIBE_TOKENS"} \
		$${SCRIBE_PRESET:+--preset="$$SCRIBE_PRESET"}

chat: export SCRIBE_MODEL := $(value MODEL)
chat: $(VENV)/.ready ## ask for openings and write their stories, as on a board: MODEL=
	@$(RUN) tools.chat --model="$$SCRIBE_MODEL"

deploy: export SCRIBE_MODEL := $(value MODEL)
deploy: export SCRIBE_PORT := $(value PORT)
deploy: $(VENV)/.ready ## copy the code and a model to a board: PORT= MODEL= ARGS="--help" lists the rest
	@$(RUN) tools.deploy --model="$$SCRIBE_MODEL" $${SCRIBE_PORT:+--port="$$SCRIBE_PORT"} $(ARGS)

test: $(VENV)/.ready ## run the tests: the board's code in real MicroPython against the NumPy reference
	@$(RUN) pytest $(ARGS)

parity: $(VENV)/.ready ## compare every logit of the board's code with the integer reference, to the bit
	@$(RUN) tools.parity $(ARGS)

torture: $(VENV)/.ready ## damage, starve and interrupt everything, at full length (docs/reliability.md): ARGS="damage --amount 0.1"
	@$(RUN) tools.torture $(ARGS)

types: $(VENV)/.ready ## check the board's code with mypy against the stubs of MicroPython's rp2 and esp32 (docs/versions.md)
	@$(RUN) tools.typecheck $(ARGS)

boards: $(VENV)/.ready ## build MicroPython's firmware for emulated 32-bit boards: ARGS="m3 rv32" for some (docs/firmware.md)
	@$(RUN) tools.boards build $(ARGS)

board-test: $(VENV)/.ready ## run the board's code on 32-bit firmware under QEMU against the NumPy reference, to the bit
	@$(RUN) pytest tests/test_boards.py -m ci $(ARGS)

train: $(VENV)/.ready-train ## train a model: ARGS="--help" lists what it takes (installs PyTorch the first time)
	@$(RUN) tools.train $(ARGS)

pack: $(VENV)/.ready ## pack a trained model for a board: ARGS="--help" lists what it takes
	@$(RUN) tools.pack $(ARGS)

rehearse: export SCRIBE_MODEL := $(value MODEL)
rehearse: $(VENV)/.ready-plots ## read held-out text as float and as integers, and judge the difference: MODEL= (build/rehearsal/)
	@$(RUN) tools.rehearse $(ARGS) -- "$$SCRIBE_MODEL"

bench: $(VENV)/.ready ## measure speed, memory and flash reads of the board's code
	@$(RUN) tools.bench $(ARGS)

budget: export SCRIBE_MODEL := $(value MODEL)
budget: export SCRIBE_BOARD := $(value BOARD)
budget: $(VENV)/.ready ## say where every byte of a model goes and whether it fits a board: MODEL= BOARD=pico2
	@$(RUN) tools.budget $${SCRIBE_BOARD:+--board="$$SCRIBE_BOARD"} -- "$$SCRIBE_MODEL"

layouts: $(VENV)/.ready ## measure what the layout of a model on littlefs costs, and write docs/layouts.md
	@$(RUN) tools.layouts $(ARGS)

lock: $(VENV)/.ready ## pin requirements*.in, and all that they need, with hashes (requirements*.txt)
	@$(RUN) tools.lock

audit: $(VENV)/.ready ## ask whether a weakness is known in anything that requirements*.txt installs
	@$(RUN) tools.lock --audit

clean: ## remove build output and caches (.venv, weights and training runs stay)
	rm -rf build .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

$(VENV)/.ready: requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) here; install Python 3.10 or newer, or name one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "error: $$($(PYTHON) --version 2>&1) is too old; Python 3.10 or newer is needed: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments; install its venv package (Debian, Ubuntu: apt install python3-venv)" >&2; exit 2; }
	@echo "Installing requirements.txt into $(VENV) (once) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.ready-plots: requirements-plots.txt $(VENV)/.ready
	@echo "Installing requirements-plots.txt into $(VENV) (once) ..." >&2
	@$(PIP) --require-hashes -r requirements-plots.txt
	@touch $@

$(VENV)/.ready-train: requirements-train.txt requirements-torch.txt $(VENV)/.ready
	@echo "Installing requirements-train.txt and -torch.txt into $(VENV) (once; PyTorch is large) ..." >&2
	@$(PIP) --require-hashes -r requirements-train.txt
	@$(PIP) -r requirements-torch.txt
	@touch $@
