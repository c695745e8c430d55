"""Artifacts: references with size and checksum; large files are hashed while training goes on."""

import hashlib
import os
import pty
import subprocess
import sys
import threading
import time

import pytest

import watcherml
from watcherml.errors import InvalidValue
from watcherml.recorder import artifacts, dataset
from watcherml.recorder.artifacts import REASONS


@pytest.fixture
def run(storage):
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    yield run
    run.finish()


def sha256(path):
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def rows(run):
    return [(row["path"], row["size_bytes"], row["sha256"]) for row in run.storage.runs.artifacts(run.run_id)]


def reasons(run):
    return run.storage.get_run(run.run_id)["facts"].get(REASONS)


def test_a_small_file_has_its_checksum_at_once(run, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"weights")
    run.log_artifact("model.pt")
    assert rows(run) == [(str(path), 7, sha256(path))]
    empty = tmp_path / "empty"
    empty.touch()
    run.log_artifact(empty)
    assert rows(run)[1] == (str(empty), 0, sha256(empty))


def test_a_folder_has_the_checksum_of_its_tree(run, tmp_path):
    folder = tmp_path / "checkpoint"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a" * 10)
    (folder / "sub" / "b.bin").write_bytes(b"b" * 20)
    (folder / "circle").symlink_to(folder)
    run.log_artifact(folder)
    assert rows(run) == [(f"{folder}/", 30, dataset.fingerprint(folder)["fingerprint"])]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("missing.pt", "existing file or folder"),
        ("file/below", "existing file or folder"),
        ("nul\0byte", "existing file or folder"),
        ("empty", "at least one file"),
        ("pipe", "regular file"),
        ("dangling", "existing file or folder"),
        (None, "a path"),
        (7, "a path"),
        (["a"], "a path"),
    ],
)
def test_what_is_no_artifact_is_refused_by_name(run, tmp_path, given, words):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(InvalidValue, match=words) as caught:
        run.log_artifact(given)
    assert caught.value.message == "artifact"
    assert rows(run) == [] and not run.problems


def test_the_same_path_is_a_new_version_only_if_it_has_changed(run, tmp_path):
    path = tmp_path / "last.pt"
    path.write_bytes(b"one")
    first = sha256(path)
    run.log_artifact(path)
    run.log_artifact(path)
    run.log_artifact(tmp_path / "." / "last.pt")
    assert rows(run) == [(str(path), 3, first)]
    path.write_bytes(b"two!")
    run.log_artifact(path)
    assert rows(run) == [(str(path), 3, first), (str(path), 4, sha256(path))]


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file whose reading fails, whoever reads")
def test_an_unreadable_file_is_on_record_without_a_checksum(run):
    with pytest.warns(RuntimeWarning, match="could not be read"):
        run.log_artifact("/proc/self/mem")
    assert [checksum for _, _, checksum in rows(run)] == [None]
    run.finish()
    ((path, reason),) = reasons(run).items()
    assert path == "/proc/self/mem" and "OSError" in reason


def test_names_that_are_no_text_are_stored_as_escapes(run, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.pt"
    with open(path, "wb") as stream:
        stream.write(b"x")
    run.log_artifact(os.fsdecode(path))
    ((stored, size, checksum),) = rows(run)
    assert stored.endswith("caf\\udce9.pt") and size == 1 and checksum


@pytest.fixture
def gate(monkeypatch):
    """Make every file large, and let hashing wait until the gate opens."""
    opened = threading.Event()
    original = artifacts._file_checksum

    def waiting(found):
        assert opened.wait(20)
        return original(found)

    monkeypatch.setattr(artifacts, "LARGE_BYTES", 0)
    monkeypatch.setattr(artifacts, "_file_checksum", waiting)
    yield opened
    opened.set()


def test_a_large_file_is_hashed_while_training_goes_on(run, tmp_path, gate):
    path = tmp_path / "large"
    path.write_bytes(b"x" * 1_000)
    begin = time.monotonic()
    run.log_artifact(path)
    assert time.monotonic() - begin < 5
    assert rows(run) == [(str(path), 1_000, None)]
    gate.set()
    run.finish()
    assert rows(run) == [(str(path), 1_000, sha256(path))] and reasons(run) is None


def test_what_is_not_hashed_in_time_says_so_and_is_hashed_afterwards(storage, tmp_path, gate, monkeypatch):
    monkeypatch.setattr("watcherml.recorder.recording._ARTIFACTS_TIMEOUT_SECONDS", 0.2)
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        path.write_bytes(path.name.encode())
        run.log_artifact(path)
    run.finish()
    row = storage.get_run(run.run_id)
    assert row["status"] == "success"
    assert reasons(run) == {str(path): "still being hashed when the run ended" for path in paths}
    assert row["receipt"]["artifacts"] == 2 and row["receipt"]["artifacts_without_checksum"] == 2
    gate.set()
    while reasons(run):
        time.sleep(0.01)
    assert rows(run) == [(str(path), 3, sha256(path)) for path in paths]
    assert not run.problems


def test_a_failure_waits_for_no_checksum(storage, tmp_path, gate):
    (tmp_path / "large").write_bytes(b"x")
    begin = time.monotonic()
    with pytest.raises(ValueError):
        with watcherml.Run("demo", {}, storage, quiet=True) as run:
            run.log_artifact(tmp_path / "large")
            raise ValueError("x")
    assert time.monotonic() - begin < 5
    assert reasons(run) == {str(tmp_path / "large"): "still being hashed when the run ended"}


@pytest.mark.parametrize("change", ["rewritten", "grown", "replaced", "removed"])
def test_a_file_that_changes_while_it_is_hashed_has_no_checksum(storage, tmp_path, gate, change):
    path = tmp_path / "large"
    path.write_bytes(b"x" * 100)
    run = watcherml.Run("demo", {}, storage, quiet=True).start()
    run.log_artifact(path)
    if change == "rewritten":
        time.sleep(0.02)
        path.write_bytes(b"y" * 100)
    elif change == "grown":
        with path.open("ab") as stream:
            stream.write(b"more")
    elif change == "replaced":
        (tmp_path / "other").write_bytes(b"x" * 100)
        (tmp_path / "other").replace(path)
    else:
        path.unlink()
    with pytest.warns(RuntimeWarning, match="has no checksum"):
        gate.set()
        run.finish()
    assert rows(run) == [(str(path), 100, None)]
    assert ("could not be read" if change == "removed" else "changed while it was hashed") in reasons(run)[str(path)]


def test_a_change_between_two_reads_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "growing"
    path.write_bytes(b"x" * 5_000)
    found = artifacts.look(path)
    monkeypatch.setattr(artifacts, "_CHUNK_BYTES", 1_000)
    real, reads = hashlib.sha256, []

    class Meddling:
        def __init__(self):
            self._real = real()

        def update(self, chunk):
            reads.append(len(chunk))
            if len(reads) == 2:
                with path.open("r+b") as stream:
                    stream.write(b"y")
            self._real.update(chunk)

        def hexdigest(self):
            return self._real.hexdigest()

    monkeypatch.setattr(artifacts.hashlib, "sha256", Meddling)
    time.sleep(0.02)
    assert artifacts._file_checksum(found) is None and len(reads) == 5


def test_a_folder_that_changes_while_it_is_hashed_has_no_checksum(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("a")
    found = artifacts.look(folder)
    (folder / "b").write_text("b")
    assert artifacts._tree_checksum(found) is None


def test_a_killed_process_leaves_an_empty_checksum(storage, tmp_path):
    code = (
        "import os, sys, watcherml\n"
        "from watcherml.recorder import artifacts\n"
        "artifacts._file_checksum = lambda found: __import__('time').sleep(60)\n"
        "run = watcherml.Run('p', {}, sys.argv[1], quiet=True).start()\n"
        "run.log_artifact('large')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(artifacts.LARGE_BYTES + 1)
    subprocess.run([sys.executable, "-c", code, str(storage.path)], cwd=tmp_path, check=False)
    storage.settle()
    (row,) = storage.list_runs()
    assert row["status"] == "killed"
    assert storage.runs.artifacts(row["run_id"])[0]["sha256"] is None


LARGE = """
import sys, watcherml
with watcherml.Run('p', {}, sys.argv[1], quiet='quiet' in sys.argv) as run:
    run.log_artifact('large')
"""


def finish_on(storage, folder, *, terminal, quiet=False):
    """Record a large file with stderr on a terminal or a pipe; returns what was written there."""
    with open(folder / "large", "wb") as stream:
        stream.truncate(600 << 20)
    command = [sys.executable, "-c", LARGE, str(storage.path), *(["quiet"] if quiet else [])]
    if not terminal:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
    main, other = pty.openpty()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=other)
    os.close(other)
    seen = b""
    try:
        while chunk := os.read(main, 10_000):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert child.wait() == 0
    return seen.decode()


def test_a_terminal_shows_progress_and_cleans_its_line(storage, tmp_path):
    seen = finish_on(storage, tmp_path, terminal=True)
    assert "WatcherML: checksum of large" in seen and "% of 600.00 MiB" in seen
    assert "\n" not in seen and seen.endswith(" \r")
    assert storage.runs.artifacts(storage.list_runs()[0]["run_id"])[0]["sha256"]


@pytest.mark.parametrize(("terminal", "quiet"), [(False, False), (True, True)])
def test_a_pipe_or_a_quiet_run_shows_none(storage, tmp_path, terminal, quiet):
    assert finish_on(storage, tmp_path, terminal=terminal, quiet=quiet) == ""


def test_a_file_that_has_changed_since_it_was_logged_is_not_read_at_all(tmp_path):
    (tmp_path / "f").write_bytes(b"one")
    found = artifacts.look(tmp_path / "f")
    (tmp_path / "f").write_bytes(b"other")
    assert artifacts._file_checksum(found) is None and found.done_bytes == 0
