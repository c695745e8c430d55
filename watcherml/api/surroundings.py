"""What lies around a store and can spoil recording: temporary files, space, clock, git, extras, Jupyter's folder.

A store opens without all of it, so that most findings warn. Each check tries the real thing and leaves nothing behind.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from watcherml.api import registered
from watcherml.api.finding import Finding
from watcherml.errors import WatcherError
from watcherml.recorder.git import Git, GitFailed
from watcherml.store import journal
from watcherml.store.claims import unbacked
from watcherml.store.sound import damage, hearing
from watcherml.store.storage import Storage

# A run's journal, capsule and patch are some MiB, the working data of a campaign's trials some hundred.
LEAST_FREE_BYTES = 512 * 2**20
# A store on another machine's disk is stamped by that machine's clock.
MOST_SKEW_SECONDS = 60.0
GIT_SECONDS = 10.0
# The extras of pyproject.toml that a person adds, by the modules that they bring; a test holds the two equal.
EXTRAS = {
    "notebook": ("IPython", "ipywidgets", "pandas"),
    "ui": ("starlette", "uvicorn", "jinja2"),
    "nvidia": ("pynvml",),
}
_TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_DRIVER = Path("/proc/driver/nvidia/version")


def look(storage: Storage) -> Iterator[Finding]:
    """Yield a finding for each; never raises for what it finds."""
    yield temporary_files()
    yield space(storage.path)
    yield clock(storage)
    yield from rows(storage)
    yield git()
    yield extras()
    found = sidebar()
    if found is not None:
        yield found


def nearest_folder(path: Path) -> Path:
    """Return the folder itself, else the nearest one above it that exists."""
    return next((one for one in (path, *path.parents) if one.is_dir()), Path(path.anchor))


def has_nvidia_driver() -> bool:
    """Tell whether NVIDIA's driver is loaded or its tool is there, without waking it up."""
    return _DRIVER.exists() or shutil.which("nvidia-smi") is not None


def temporary_files() -> Finding:
    """Look whether temporary files can be made, and where those go that the environment wants elsewhere."""
    try:
        with tempfile.TemporaryFile() as stream:
            stream.write(b"0" * 4096)
            stream.flush()
    except OSError as error:
        return Finding("Temporary files", "fail", f"None can be made: {error}",
                       "Set TMPDIR to a folder that you can write and that has space.")  # fmt: skip
    used = tempfile.gettempdir()
    wanted = next((name for name in _TEMPORARY_VARIABLES if os.environ.get(name)), None)
    # Python takes the next best folder without a word.
    if wanted is not None and os.path.abspath(os.environ[wanted]) != os.path.abspath(used):  # noqa: PTH100 - as tempfile does
        return Finding("Temporary files", "warn", f"{wanted} names {os.environ[wanted]}, which cannot be used;"
                       f" they go to {used}.", f"Make that folder writable, or unset {wanted}.")  # fmt: skip
    return Finding("Temporary files", "ok", f"They go to {used}.")


def space(path: Path) -> Finding:
    """Look how much the file system of the store has free."""
    try:
        free = shutil.disk_usage(nearest_folder(path)).free
    except OSError as error:
        return Finding("Space", "warn", f"It cannot be told how much is free for {path}: {error.strerror}",
                       "Choose a folder on a local disk with --data-dir or WATCHERML_DIR.")  # fmt: skip
    sentence = f"{free / 2**20:,.0f} MiB are free where the store is."
    if free < LEAST_FREE_BYTES:
        return Finding("Space", "warn", sentence, "Make room: `watcher prune --trials` takes out what trials left,"
                       " `watcher prune --older-than DAYS` old runs. Or choose another folder with --data-dir or"
                       " WATCHERML_DIR.")  # fmt: skip
    return Finding("Space", "ok", sentence)


def clock(storage: Storage) -> Finding:
    """Compare this machine's clock with the file system's and with the newest run."""
    try:
        # A folder that cannot be written is the finding of the store.
        with tempfile.TemporaryFile(dir=nearest_folder(storage.path)) as stream:
            ahead = os.fstat(stream.fileno()).st_mtime - time.time()
    except OSError:
        ahead = 0.0
    if abs(ahead) > MOST_SKEW_SECONDS:
        return Finding("Clock", "warn", f"The clock of the file system is {_apart(ahead)} this machine's.",
                       "Set both by network time; until then, times of runs and files do not agree.")  # fmt: skip
    newest = _newest_start(storage)
    if newest is not None and newest - time.time() > MOST_SKEW_SECONDS:
        began = datetime.fromtimestamp(newest, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        return Finding("Clock", "warn", f"The newest run began at {began}, {_apart(newest - time.time())} now.",
                       "Set this machine's clock by network time; until it is past that moment, new runs are listed"
                       " below older ones.")  # fmt: skip
    return Finding("Clock", "ok", "It agrees with the file system, and no run began after now.")


def rows(storage: Storage) -> Iterator[Finding]:
    """Look at each row and journal of a store for what no version wrote there; nothing for one that cannot be read."""
    if not storage.exists or storage.is_older:
        return
    try:
        with storage.database.reading() as connection:
            found = [*damage(connection), *unbacked(connection)]
        with hearing() as heard:
            journal.tell_unreadable(storage.runs.spool_folder)
        found += heard
    except WatcherError:  # the finding of the store
        return
    if found:
        more = f" {len(found) - 1} more are damaged." if len(found) > 1 else ""
        yield Finding("Rows", "warn", f"A row of the store is damaged, and lists leave it out: {found[0]}{more}",
                      "Restore it from a copy of the store, such as `watcher pack` makes.")  # fmt: skip
    else:
        yield Finding("Rows", "ok", "Every row that lists show is as the program wrote it.")


def _newest_start(storage: Storage) -> float | None:
    if not storage.exists:
        return None
    try:
        with storage.database.reading() as connection:
            found = connection.execute("SELECT MAX(started_at) FROM runs").fetchone()[0]
    except WatcherError:  # the finding of the store
        return None
    return float(found) if isinstance(found, int | float) else None


def _apart(seconds: float) -> str:
    for size, word in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if abs(seconds) >= 2 * size:
            return f"{abs(seconds) / size:,.0f} {word} {'ahead of' if seconds > 0 else 'behind'}"
    return f"{abs(seconds):.0f} seconds {'ahead of' if seconds > 0 else 'behind'}"


def git() -> Finding:
    """Ask git for the repository of the working directory, as a run does."""
    try:
        top = Git(Path.cwd(), time.monotonic() + GIT_SECONDS).text("rev-parse", "--show-toplevel")
    except GitFailed as error:
        why = str(error)
    except OSError as error:
        why = f"the working directory cannot be read: {error.strerror}"
    else:
        return Finding("git", "ok", f"Runs keep commit and changes of {top}.")
    if why == "not inside a git repository":
        return Finding("git", "ok", "It works. The working directory is in no repository, so that runs have no commit.",
                       "`git init` makes it one.")  # fmt: skip
    if why == "git is not installed":
        return Finding("git", "warn", "It is not installed: runs are recorded without commit and changes.",
                       "Install git with the package manager of this system.")  # fmt: skip
    reason, _, remedy = why.partition("; ")
    return Finding("git", "warn", f"Runs are recorded without commit and changes: {reason}.",
                   f"{remedy or 'Run `git status` here and mend what it names'}.")  # fmt: skip


def extras() -> Finding:
    """Say which extras are whole here, and how to add the others."""
    missing = {extra: [one for one in modules if not _is_there(one)] for extra, modules in EXTRAS.items()}
    whole = ", ".join(extra for extra in EXTRAS if not missing[extra]) or "none"
    lacking = [extra for extra in EXTRAS if missing[extra]]
    if not lacking:
        return Finding("Extras", "ok", f"Installed: {whole}.")
    told = "; ".join(f"{extra} lacks {', '.join(missing[extra])}" for extra in lacking)
    remedy = f'From the clone: pip install ".[{",".join(lacking)}]"'
    if "nvidia" in lacking and has_nvidia_driver():
        return Finding("Extras", "warn", f"Installed: {whole}. Not: {told}. There is an NVIDIA driver, and"
                       " without nvidia its GPUs and the other processes on them are not seen.", remedy)  # fmt: skip
    return Finding("Extras", "ok", f"Installed: {whole}. Not, and not needed to record: {told}.", remedy)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def sidebar() -> Finding | None:
    """Look whether a kernel can tell JupyterLab's sidebar where its store is; None where Jupyter is not installed."""
    place = registered.folder()
    if place is None:
        return None
    try:
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(20, "a file is in the way", str(place))
        with tempfile.TemporaryFile(dir=nearest_folder(place)):
            pass
    except OSError as error:
        return Finding("Sidebar", "warn", f"Kernels cannot tell it where their store is; {place} cannot be written:"
                       f" {error.strerror}", "Make that folder yours and writable, or set JUPYTER_RUNTIME_DIR to one"
                       " that is, for Jupyter and its kernels alike.")  # fmt: skip
    return Finding("Sidebar", "ok", f"Kernels can tell it where their store is, in {place}.")
