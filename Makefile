# Everything happens in .venv; delete it to start afresh.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types unit chromium test-gpu soak clean

demo: .venv/ready  ## learn to copy, show how far it carries, draw pictures
	$(BIN)/tapehead train copy --out runs/demo

test: lint types unit  ## everything that must pass before a change lands

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

unit: .venv/ready chromium
	$(BIN)/pytest -n 2

CHROMIUM = chromium chromium-browser google-chrome google-chrome-stable

chromium:  ## for the tests in a browser: installed where there is apt and the right to; without it they are skipped
	@for name in $(CHROMIUM); do command -v $$name > /dev/null && exit 0; done; \
	root=; test "$$(id -u)" = 0 || root='sudo -n'; \
	if command -v apt-get > /dev/null && $$root true 2> /dev/null; then \
	  (export DEBIAN_FRONTEND=noninteractive; $$root apt-get update -qq && $$root apt-get install -qq -y chromium) > /dev/null 2>&1; \
	fi; \
	command -v chromium > /dev/null || echo 'no Chromium: install it with `apt-get install chromium` to run the tests in a browser.'

test-gpu: .venv/ready  ## on a machine with a CUDA device; the times go to a file with today's date
	$(BIN)/pytest -m gpu
	$(BIN)/tapehead bench --device cuda --no-growth

soak: .venv/ready  ## many minutes: sweeps whose workers and drivers are killed; a line about it goes to a dated file
	$(BIN)/pytest -m soak

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("tapehead needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch .venv/ready

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
