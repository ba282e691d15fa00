# A thin face over CMake's presets (CMakePresets.json): one word for each thing one does with this project.
.DEFAULT_GOAL := build
SHELL := /bin/bash

JOBS ?= $(shell nproc)
# Leave empty to use the sample payments API that ships with the project.
UPSTREAM ?=
LISTEN ?= 127.0.0.1:8080
ADMIN ?= 127.0.0.1:8081
STORE ?= rocksdb:./oncekey-data

OUR_SOURCES = $(shell git ls-files --cached --others --exclude-standard -- '*.cc' '*.h')
# clang-tidy 14 cannot read gcc's coroutines, so it looks at the rooms without any.
TIDY_SOURCES = $(filter-out %_test.cc,$(filter src/base/%.cc src/core/%.cc src/config/%.cc src/store/%.cc,$(OUR_SOURCES)))

.PHONY: help setup build run rides test test-slow bench format lint clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf 'make %-10s %s\n' "$$name" "$$text"; done

setup: ## install the Debian packages that are missing
	@scripts/setup

build: setup ## build build/release/oncekey
	@scripts/build release

run: build ## start the gateway before the sample API, or before UPSTREAM=http://...; LISTEN, ADMIN and STORE too
	@UPSTREAM='$(UPSTREAM)' LISTEN='$(LISTEN)' ADMIN='$(ADMIN)' STORE='$(STORE)' scripts/run.sh

rides: build ## book rides, kill the API in the middle, and count charges and receipts
	@build/release/rides demo

test: setup ## build with sanitizers and run all tests
	@JOBS='$(JOBS)' scripts/test

test-slow: setup ## the same, with some hundred kills in the crash test
	@JOBS='$(JOBS)' scripts/test --slow

bench: build ## measure beside nginx and Redis on this machine
	@bench/run

format: ## format all C++ files
	@clang-format -i $(OUR_SOURCES)

lint: setup ## check format, include directions, and clang-tidy's findings
	@clang-format --dry-run -Werror $(OUR_SOURCES)
	@python3 tests/include_directions.py
	@cmake --preset release >/dev/null
	@printf '%s\n' $(TIDY_SOURCES) | xargs -P $(JOBS) -n 1 clang-tidy --quiet -p build/release --extra-arg=-Wno-unknown-warning-option

clean: ## remove everything that was built
	@rm -rf build
