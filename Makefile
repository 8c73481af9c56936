# Everything happens in .venv; delete it to start afresh.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types unit chromium test-gpu soak docs notebooks lock audit dist-check clean

demo: .venv/ready  ## learn to copy, show how far it carries, draw pictures: one attempt, half a minute; `tuned` also validates and restarts
	$(BIN)/tapehead train copy --recipe once --out runs/demo

test: lint types unit  ## everything that must pass before a change lands

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

# Two processes of one thread each: threads of small operations wait for each other, and take the cores while they do.
unit: .venv/ready chromium
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

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
	$(BIN)/tapehead bench --device cuda --no-growth --out benchmarks/results

soak: .venv/ready  ## the whole fault suite, under two hours; resumes; a dated file, and the table of docs/reliability.md
	$(BIN)/python tests/soak

docs: .venv/ready  ## the site, in docs/_build/html; a warning or a link that leads nowhere is an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/_ext/check_links.py docs/_build/html

notebooks: .venv/ready  ## run the notebooks in full, some minutes, and record their outputs for the site
	$(BIN)/python docs/notebooks/run.py

lock: .tools/ready  ## write the lock files; UPGRADE=1 takes newer versions, UPGRADE=NAME a newer one of a package
	.tools/bin/python requirements/lock.py --uv .tools/bin/uv --upgrade '$(UPGRADE)'

# Of packages with conditions those for this Python and system. A file at a time: in two files a package may have two versions.
audit: .tools/ready  ## compare the locked versions with PyPI's database of known vulnerabilities; fails without a network
	@for file in dev torch tools; do \
	  .tools/bin/pip-audit --strict --require-hashes --disable-pip -r requirements/$$file.txt && continue; \
	  echo "requirements/$$file.txt did not pass: a vulnerability is listed above, or pypi.org did not answer (also where a locked package is 'not found on PyPI')."; \
	  exit 1; \
	done

dist-check: .tools/ready  ## build wheel and sdist, check them, run the quickstart from the wheel in an empty environment
	.tools/bin/python requirements/dist_check.py

LOCKED = install --quiet --disable-pip-version-check --no-deps --require-hashes -r

# Everything by version and hash. torch is its CPU build where an index or a folder that pip searches has that.
.venv/ready: pyproject.toml $(wildcard requirements/*.txt)
	$(PYTHON) -c 'import sys; sys.exit("tapehead needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip $(LOCKED) requirements/dev.txt
	$(BIN)/pip $(LOCKED) requirements/torch-cpu.txt 2> /dev/null || $(BIN)/pip $(LOCKED) requirements/torch.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch .venv/ready

.tools/ready: requirements/tools.txt
	$(PYTHON) -m venv .tools
	.tools/bin/pip $(LOCKED) requirements/tools.txt
	touch .tools/ready

clean:
	rm -rf .venv .tools docs/_build dist .pytest_cache .mypy_cache .ruff_cache
