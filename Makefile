# Two commands do everything on a fresh Debian or Ubuntu with python3 and make:
#   make lab     set up, then JupyterLab on the first notebook   (make lab ARGS=--no-browser)
#   make test    set up, then the tests                          (make test ARGS="-k tape")
#   make check   the tests of the language and its derivatives alone, in about a minute
# The others:
#   make test-long   the tests that take longest: more random programs, more lessons, more of JupyterLab
#   make lint    ruff, mypy, eslint          make format   what ruff, eslint and prettier can mend
#   make frontend  the TypeScript of the widgets and the JupyterLab extension (with node, or one that pip brings)
#   make lessons  runs the lessons of the course and stores what they show   (make lessons ARGS=3)
#   make docs    the documentation site, into build/site   (no network is needed to read it)
#   make lite    the lessons as a site that runs them in the browser, into build/lite/site   (docs/teaching.md)
#   make picture   the moving picture of the README and those of the extension, taken in JupyterLab
#   make binder-check  all of the Binder image that needs no docker
#   make oracle  derivatives beside JAX's    make test-interop  arrays and gradients shared with PyTorch and JAX
#   make bench   kernelab beside others       make clean    remove all that make and the tools created
#   make builtins   which builtins pass their tests, how exact they are, and what they cost
#   make fuzz    random programs             make planted  whether the tests notice planted faults
#                (make fuzz ARGS="--minutes 30 --seed 7")
#   make soak    what kernels, launches and shown tapes leave behind in one process
#   make sanitize   random programs under the sanitizers of g++ (make sanitize ARGS="--only address --minutes 30")
#   make test-nvrtc  every kernel of the tests and notebooks, in every variant, to machine code of a GPU
#   make test-gpu    the tests of devices on a GPU       make bench-gpu  kernelab beside Warp on a GPU
#   make dist    wheel and sdist into dist/, tried in clean environments
#   make matrix  the fast tests under every Python of this machine, lowest and newest dependencies
# The environment is $(VENV); nothing else is installed but the Debian packages that scripts/setup.sh names.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
NOTEBOOK := notebooks/00-ten-minutes.ipynb

export PYTHON VENV
BIN := $(VENV)/bin
# JupyterLab refuses to serve as root unless told so.
ALLOW_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.NOTPARALLEL:
.PHONY: help lab test test-long check oracle test-interop fuzz sanitize planted lint format bench builtins clean compiler must-compile browser frontend environment
.PHONY: soak test-nvrtc test-gpu bench-gpu matrix dist lessons docs lite picture binder-check
help:
	@sed -n 's/^#   //p' Makefile

# Trusted: JupyterLab strips the styles and pictures of outputs that come from elsewhere.
lab: $(VENV)/.with-lab compiler frontend
	@$(BIN)/jupyter trust notebooks/*.ipynb notebooks/course/*.ipynb >/dev/null
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter-lab --ServerApp.root_dir="$(CURDIR)" \
	    --LabApp.default_url=/lab/tree/$(NOTEBOOK) $(ALLOW_ROOT) $(ARGS)

# loadgroup: the tests of a file stay in one process, and those that share one JupyterLab.
test: TESTS := not long
test-long: TESTS := long
test test-long: $(VENV)/.with-test must-compile browser frontend
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -n logical --dist=loadgroup -m "$(TESTS)" $(ARGS)

# What most changes break first. Kernels that were built once are kept for the next run.
CHECKED := tests/test_tiny.py tests/test_layers.py tests/test_public_names.py tests/lang tests/frontend tests/conformance \
    tests/contract tests/codegen
check: export KERNELAB_TEST_CACHE = $(CURDIR)/.pytest_cache/kernels
check: $(VENV)/.with-test must-compile
	$(BIN)/python -m pytest -n logical -m "not slow and not long" $(CHECKED) $(ARGS)

# make dist ARGS="--url https://host/us/kernelab" states the address of the repository.
dist: $(VENV)/.with-test must-compile frontend
	$(BIN)/python scripts/dist.py $(ARGS)

matrix: must-compile
	$(PYTHON) scripts/matrix.py $(ARGS)

# JAX is not needed for anything else, and has an environment to itself.
oracle: VENV := .venv-oracle
oracle: must-compile
	scripts/setup.sh environment oracle
	$(VENV)/bin/python -m pytest oracle $(ARGS)

# PyTorch and JAX, in an environment of their own.
test-interop: VENV := .venv-interop
test-interop: must-compile
	scripts/setup.sh environment interop
	$(VENV)/bin/python -m pytest interop $(ARGS)

# In static forms: what a reader sees without running anything. Without ARGS all of them, one after another.
lessons: $(VENV)/.with-test must-compile
	$(BIN)/python -m tests.support.course $(or $(ARGS),1 2 3 4 5 6 7 8 9 10 11)

# Warnings are errors, and every link between pages is followed.
docs: VENV := .venv-docs
docs:
	scripts/setup.sh environment docs
	$(VENV)/bin/python -m kernelab.builtins.reference > docs/builtins.md
	$(VENV)/bin/python -m tests.support.modules > docs/modules.md
	$(VENV)/bin/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet -c docs -d build/doctrees . build/site
	$(VENV)/bin/python scripts/check_site.py build/site

# JupyterLite, in an environment of its own: make lite ARGS="--pyodide ARCHIVE" takes Pyodide from a file.
lite: VENV := .venv-lite
lite:
	scripts/setup.sh environment lite
	$(VENV)/bin/python scripts/lite.py $(ARGS)

picture: $(VENV)/.with-test must-compile browser frontend
	$(BIN)/python -m pytest tests/browser/moving_picture.py tests/browser/pictures.py

# Uses the last commit, and two environments of its own.
binder-check:
	scripts/binder_check.sh

lint: $(VENV)/.with-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@if [ -x extension/node_modules/.bin/eslint ]; then npm --prefix extension run --silent lint; \
	    else echo "NOT RUN: eslint and prettier. Type: make frontend"; fi

format: $(VENV)/.with-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@if [ -x extension/node_modules/.bin/eslint ]; then npm --prefix extension run --silent format; fi

# Warp, numba and JAX are installed into build/peers; ARGS="--peers PYTHON" names another environment.
bench: $(VENV)/.with-test must-compile
	$(BIN)/python benchmarks/bench.py --write benchmarks/RESULTS.md $(ARGS)

builtins: $(VENV)/.with-test must-compile
	$(BIN)/python benchmarks/builtins.py $(ARGS)

# Prints its seed, and a test to paste for what it finds.
fuzz: $(VENV)/.with-test
	$(BIN)/python -m tests.fuzz $(ARGS)

# Each sanitizer has a run of its own; prints what it says, and the program, for what is found.
sanitize: $(VENV)/.with-test must-compile
	$(BIN)/python -m tests.sanitize $(ARGS)

# What each kernel, launch and shown tape leaves behind (make soak ARGS="--kernels 500").
soak: $(VENV)/.with-test must-compile
	$(BIN)/python -m tests.soak $(ARGS)

planted: $(VENV)/.with-test must-compile
	$(BIN)/python -m tests.planted $(ARGS)

# Needs no GPU: (make test-nvrtc ARGS="--architecture sm_75 --architecture sm_90").
test-nvrtc: $(VENV)/.with-test must-compile
	$(BIN)/python -m tests.nvrtc $(ARGS)

# Without a GPU both say so, and fail; (make test-gpu ARGS=--quick) runs what tells most, --dry on a simulated one.
test-gpu: $(VENV)/.with-test $(VENV)/.with-cuda must-compile
	$(BIN)/python -m tests.gpu $(ARGS)

# --dry tries the program on a simulated device, and leaves GPU.md as it is:
# (make bench-gpu ARGS="--dry --shrink 1000000").
bench-gpu: $(VENV)/.with-bench $(VENV)/.with-cuda must-compile
	$(BIN)/python benchmarks/gpu.py --warp-python $(BIN)/python \
	    $(if $(findstring --dry,$(ARGS)),,--write benchmarks/GPU.md) $(ARGS)

# What lint and test need, so that they may run at the same time.
environment: $(VENV)/.with-test $(VENV)/.with-dev

# The extra `test` holds what `lab` holds.
$(VENV)/.with-test: pyproject.toml
	scripts/setup.sh environment test
	@touch $@ $(VENV)/.with-lab

# One stamp for each set of extras: made once, again when pyproject.toml changes.
$(VENV)/.with-%: pyproject.toml
	scripts/setup.sh environment $*
	@touch $@

compiler:
	@scripts/setup.sh compiler

must-compile:
	@scripts/setup.sh compiler required

browser: $(VENV)/.with-test
	@scripts/setup.sh browser

frontend: $(VENV)/.with-lab
	@scripts/setup.sh frontend

clean:
	rm -rf $(VENV) .venv-oracle .venv-interop .venv-docs .venv-lite build dist extension/node_modules extension/lib extension/labextension kernelab/jupyter/static docs/builtins.md docs/modules.md .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
