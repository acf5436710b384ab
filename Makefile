# Every target sets up what it needs in .venv and reuses it afterwards.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
JOBS   ?= 2

.PHONY: demo test lint docs bench clean

demo: $(VENV)/.demo
	$(BIN)/crlearn demo --out demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(VENV)/.docs
	rm -rf docs/api/generated  # pages of names that are gone
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/.test
	$(BIN)/python benchmarks/train_speed.py
	$(BIN)/python benchmarks/runner_overhead.py
	$(BIN)/python benchmarks/linear_interventions.py
	$(BIN)/python benchmarks/observational.py
	$(BIN)/python benchmarks/empirical_bayes.py
	$(BIN)/python benchmarks/nonlinear_interventions.py --worlds 2 --processes 2

clean:
	rm -rf $(VENV) demo docs/_build docs/api/generated docs/gallery docs/results

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "crlearn needs Python 3.11 or newer. Name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[frames,report,cli,bench]'
	touch $@

$(VENV)/.test: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[frames,report,cli,graph,bench,cluster]' --group test
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --group lint
	touch $@

$(VENV)/.docs: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --group docs
	touch $@
