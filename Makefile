# A thin face over CMake's presets (CMakePresets.json): one word for each task.
.DEFAULT_GOAL := build
SHELL := /bin/bash

JOBS ?= $(shell nproc)
# Leave empty to use the sample payments API that ships with the project.
UPSTREAM ?=
LISTEN ?= 127.0.0.1:8080
ADMIN ?= 127.0.0.1:8081
STORE ?= journal:./oncekey-data
PREFIX ?= /usr/local

OUR_SOURCES = $(shell git ls-files --cached --others --exclude-standard -- '*.cc' '*.h')
# clang-tidy 14 cannot read gcc's coroutines, so it looks at the rooms without any. Nor can it read gcc's precompiled
# headers, and it wants each source by itself.
PLAIN_SOURCES = -DONCEKEY_UNITY=OFF -DONCEKEY_PRECOMPILE=OFF -DONCEKEY_TESTS=OFF -DONCEKEY_BENCH=OFF
TIDY_SOURCES = $(filter-out %_test.cc,$(filter src/base/%.cc src/core/%.cc src/config/%.cc src/store/%.cc,$(OUR_SOURCES)))

.PHONY: help setup build install package run rides test test-gcc test-slow bench format lint clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf 'make %-10s %s\n' "$$name" "$$text"; done

setup: ## install the Debian packages that building needs and that are missing
	@scripts/setup build

build: setup ## build everything that is installed, into build/release
	@JOBS='$(JOBS)' scripts/build release

install: build ## install the binary, the libraries and the documents under PREFIX (/usr/local)
	@cmake --install build/release --prefix '$(PREFIX)' >/dev/null && echo "installed under $(PREFIX)"

package: ## build a Debian package and a tarball that need nothing but the C library, into build/packages
	@scripts/setup package
	@JOBS='$(JOBS)' scripts/package

run: setup ## start the gateway in front of the sample API, or of UPSTREAM=http://...; LISTEN, ADMIN and STORE too
	@JOBS='$(JOBS)' scripts/build release -- oncekey_main payments_api
	@UPSTREAM='$(UPSTREAM)' LISTEN='$(LISTEN)' ADMIN='$(ADMIN)' STORE='$(STORE)' scripts/run.sh

rides: setup ## book rides, kill the API in the middle, and count charges and receipts
	@JOBS='$(JOBS)' scripts/build release -- rides
	@build/release/rides demo

test: ## build with sanitizers and run all tests
	@scripts/setup test
	@JOBS='$(JOBS)' scripts/test

test-gcc: ## build the gateway with the compiler of what users run, and run scenarios, kills and its flow
	@scripts/setup test
	@JOBS='$(JOBS)' scripts/test --gcc

test-slow: ## the same, with some hundred kills and power cuts in the crash tests, and the packages in clean roots
	@scripts/setup test-slow
	@JOBS='$(JOBS)' scripts/test --slow

bench: ## measure beside nginx and Redis on this machine
	@scripts/setup bench
	@JOBS='$(JOBS)' CMAKE_FLAGS=-DONCEKEY_BENCH=ON scripts/build release
	@bench/run

format: ## format all C++ files
	@clang-format -i $(OUR_SOURCES)

lint: ## check format, include directions, class names, and clang-tidy's findings
	@scripts/setup lint
	@clang-format --dry-run -Werror $(OUR_SOURCES)
	@python3 tests/include_directions.py
	@python3 tests/class_names.py
	@cmake -S . -B build/lint -G Ninja -DCMAKE_BUILD_TYPE=Debug $(PLAIN_SOURCES) >/dev/null
	@printf '%s\n' $(TIDY_SOURCES) | xargs -P $(JOBS) -n 1 clang-tidy --quiet -p build/lint --extra-arg=-Wno-unknown-warning-option

clean: ## remove everything that was built
	@rm -rf build
