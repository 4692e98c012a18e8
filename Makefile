# `make demo` and `make test` do all set-up by themselves on a fresh Debian 12 with root; see README.md.
SHELL := /bin/bash
PY := .venv/bin/python

sources := $(shell find native pyvma cmake CMakeLists.txt pyproject.toml tools/setup.sh tools/train.py tools/requirements.txt -type f -not -name '*.pyc' 2>/dev/null)

.PHONY: setup demo test bench check docs format clean
.DEFAULT_GOAL := demo

# Packages, .venv, build and install; quick when nothing changed.
setup: .venv/installed
.venv/installed: $(sources)
	@bash tools/setup.sh

# The main job: two Python processes exchange datagrams over raw-Ethernet queue pairs, beside the same over kernel sockets.
demo: setup
	@PYTHONSAFEPATH=1 $(PY) -m pyvma demo

# Everything that a change has to pass; `make test ONLY=ctest-asan,pytest` runs named steps.
test: setup
	@$(PY) tools/run_tests.py $(if $(ONLY),--only $(ONLY))

# All benchmarks in one run, and the page of it, which tells how long it took. The machine should have nothing else to do.
bench: setup
	@PYTHONSAFEPATH=1 $(PY) -m pyvma bench report --page docs/performance.md --build "$$(git describe --always --dirty 2>/dev/null)"

# The quick half of `make test`: layers, sizes, generated files, types, formats.
check: setup
	@$(PY) tools/run_tests.py --only checks

# The guide as a site, build/docs/index.html; a broken link is an error.
docs: setup
	@$(PY) tools/build_docs.py

format: setup
	clang-format -i $$(git ls-files 'native/*.[ch]' 'tests/*.[ch]')
	.venv/bin/ruff format pyvma tests tools
	.venv/bin/ruff check --fix pyvma tests tools

clean:
	rm -rf build dist .venv
