"""Fixtures for tests in a real Chromium, started once a session: `chromium`, the browser, and `page`, an empty page.

A page fails its test if it has logged an error or thrown one that nothing caught. Where there is no Chromium, tests are
skipped with the line that installs it; with CI=true they fail.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "no Chromium: install it with `apt-get install chromium`, and playwright with `pip install -e '.[dev]'`."
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT = 20_000  # milliseconds, of every wait; a hang ends here, nothing depends on it


def program() -> str | None:
    """The path of a Chromium of the system."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="session")
def chromium():
    """Playwright's Browser."""
    found = program()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        found = None
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(INSTALL)
        pytest.skip(INSTALL)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)  # with a fresh profile
        yield browser
        browser.close()


@contextlib.contextmanager
def checked_page(browser, **options) -> Iterator:
    """A page in a context of its own (options: of Playwright's `new_context`), which must end without errors."""
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    if errors:
        pytest.fail("errors in the page: " + "; ".join(errors))


@pytest.fixture
def page(chromium):
    """A page that fails the test on console errors and uncaught exceptions."""
    with checked_page(chromium) as page:
        yield page
