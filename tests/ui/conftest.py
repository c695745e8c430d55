"""The UI in this process (TestClient), as the real program (`watcher ui`), and in a headless Chromium."""

import os
import shutil
from pathlib import Path

import big_store
import pytest
import ui_store
from headless import chromium as chromium
from ui_tools import OLD, Client, Served

from watcherml.store.storage import Storage


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    """Work outside this repository, whose patch would otherwise be gathered with every run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """The full store and what is where in it; nobody writes to it."""
    folder = tmp_path_factory.mktemp("ui")
    before = Path.cwd()
    os.chdir(folder)  # outside any repository: nothing to gather about code
    try:
        return ui_store.full_store(folder / "store", folder / "elsewhere")
    finally:
        os.chdir(before)


@pytest.fixture(scope="session")
def full(template):
    """A client of the full store, for reading."""
    return Client(template[0].path)


@pytest.fixture(scope="session")
def ids(template):
    """What is where in the full store."""
    return template[1]


@pytest.fixture
def own(template, tmp_path):
    """A client of a copy of the full store that a test may change."""
    shutil.copytree(template[0].path, tmp_path / "own")
    return Client(tmp_path / "own")


@pytest.fixture(scope="session")
def old(tmp_path_factory):
    """A client of a folder that WatcherML 0.1 left."""
    folder = tmp_path_factory.mktemp("old") / "store"
    shutil.copytree(OLD, folder)
    return Client(folder)


@pytest.fixture(scope="session")
def nothing(tmp_path_factory):
    """A client of a folder without a store."""
    return Client(tmp_path_factory.mktemp("nothing") / ".watcherml")


@pytest.fixture(scope="session")
def big(tmp_path_factory):
    """A client of a store with 2,000 runs of 50 points."""
    storage = Storage(tmp_path_factory.mktemp("big") / "store")
    big_store.fill(storage, runs=2_000, points=50, samples=4)
    return Client(storage.path)


@pytest.fixture
def serve():
    """Start the program over a folder; every server is ended with the test."""
    running = []

    def start(folder, *words):
        running.append(Served(folder, *words))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
        else:
            one.process.stdout.close()
            one.process.stderr.close()
