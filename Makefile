# What people type. The build itself is CMake's: see CMakePresets.json; build trees lie in $(BUILD)/PRESET.
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
export BUILD JOBS
ifneq ($(shell command -v ninja),)
export CMAKE_GENERATOR ?= Ninja
endif

release = scripts/build release products

.PHONY: all demo check check-long bench install uninstall wheel lint format deps clean help

all:            ## build libweir, its plug-ins and the command weir into build/release
	@scripts/deps build
	@$(release)

demo:           ## fetch engines and models, then answer with both engines under one budget
	@scripts/deps build models
	@scripts/engines
	@scripts/models
	@scripts/venv venv
	@$(release)
	@scripts/demo $(BUILD)/release

check:          ## every test, sanitizer builds, lint and the installed tree (15 minutes on 2 cores)
	@scripts/check

check-long:     ## check, the long tests, more under the sanitizers, both compilers, mutants, and the core on emulated arm64
	@scripts/check --long

bench:          ## the project's own measurements
	@scripts/deps build models
	@scripts/engines
	@scripts/models
	@$(release)
	@scripts/build release bench
	@set -e; for program in $(BUILD)/release/bench/bench-*; do echo "$${program##*/}"; "$$program"; done

install:        ## install into PREFIX (default /usr/local), below DESTDIR
	@scripts/deps build
	@$(release) -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD)/release
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

uninstall:      ## remove what the last install from this tree put there
	@DESTDIR=$(DESTDIR) cmake --build $(BUILD)/release --target uninstall

wheel:          ## the Python package with libweir, its plug-ins and the command inside, as out/weir-*.whl
	@scripts/deps build
	@scripts/wheel

lint:           ## clang-format, clang-tidy, cppcheck and the scripts' syntax
	@scripts/deps build lint
	@scripts/lint

format:         ## rewrite the sources as clang-format wants them
	@scripts/deps lint
	@scripts/lint --format

deps:           ## install every package that the targets above use (as root; otherwise say which)
	@scripts/deps build models lint arm64

clean:          ## remove the build trees (the store of engines and models stays)
	@rm -rf $(BUILD)

help:
	@sed -n 's/^\([a-z-]*\): *## */\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
