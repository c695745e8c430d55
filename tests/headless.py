"""A headless Chromium of the system, for every folder that tests pages."""

import os
import shutil

import pytest

CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions",
]  # fmt: skip
WAIT_MS = 60_000


def missing(reason):
    """Skip, or fail where the tests have to run."""
    if os.environ.get("WATCHERML_REQUIRE_BROWSER") == "1":
        pytest.fail(f"WATCHERML_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium of the system.

    Ends with its module: the driver keeps an event loop running in this thread, under which no later test could await.
    """
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        missing("there is no Chromium: apt-get install chromium fonts-dejavu-core")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()
