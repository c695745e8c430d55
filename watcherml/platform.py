"""The few calls that differ by operating system, each with a fallback.

Linux is the tested system. Elsewhere a missing facility makes a guarantee weaker, never an error;
``describe`` tells which ones are missing so that ``watcher doctor`` can say it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class ProcessId(NamedTuple):
    """A process that cannot be mistaken for a later one with the same pid.

    ``started`` is seconds since 1970 as psutil reports it; ``boot_id`` changes with every boot of the machine.
    """

    pid: int
    started: float
    boot_id: str


def boot_id() -> str:
    """Return a text that is the same for one boot of this machine (and PID namespace, where known)."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + "/" + namespace
    except OSError:
        import psutil

        try:
            return f"boot-{int(psutil.boot_time())}"
        except Exception:  # noqa: BLE001 - what psutil meets where there is no /proc; a run must be on record there too
            return "boot-unknown"


def this_process() -> ProcessId:
    """Return the identity of the calling process; ``started`` is 0 where the system does not tell it."""
    import psutil

    try:
        started = round(psutil.Process().create_time(), 2)
    except Exception:  # noqa: BLE001 - no /proc, or one that may not be read
        started = 0.0
    return ProcessId(os.getpid(), started, boot_id())


def is_alive(process: ProcessId) -> bool:
    """Tell whether that very process still runs here; a zombie counts as gone."""
    import psutil

    if process.boot_id != boot_id():
        return False
    try:
        found = psutil.Process(process.pid)
        if found.status() == psutil.STATUS_ZOMBIE:
            return False
        # Two readers of the start time may round differently; a recycled pid is further off than this.
        return not process.started or abs(found.create_time() - process.started) < 1.0
    except psutil.ZombieProcess:
        return False
    except psutil.NoSuchProcess:
        return _is_hidden(process.pid)
    except psutil.Error:
        return False


def pid_runs(pid: int) -> bool:
    """Tell whether a process of this number runs here; a zombie has ended."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.ZombieProcess:
        return False
    except psutil.NoSuchProcess:
        return _is_hidden(pid)
    except psutil.Error:
        return True


def _is_hidden(pid: int) -> bool:
    """Tell whether a process runs that psutil does not see: without /proc, or behind its ``hidepid``."""
    if os.name != "posix":  # elsewhere the call would end the process
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # somebody else's
    except (OSError, OverflowError):
        return False
    return True


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process (Linux); False where that does not exist."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # every command comes through this module, and only guards and workers need this and signal

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def die_with_parent(parent: int) -> bool:
    """Have the system kill this process when its parent dies (Linux); False where that does not exist.

    ``parent`` is the pid of the process that started this one; if it has died already, this one ends at once. Covers
    the one case that nobody else can see to: guard and supervisor killed at the same moment.
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes
    import signal

    try:
        done = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False
    if os.getppid() != parent:
        os._exit(1)
    return bool(done)


def new_session_options() -> dict[str, Any]:
    """Return the ``subprocess.Popen`` options that detach a child from this terminal and process group."""
    if os.name == "nt":
        flags = 0x00000200 | 0x08000000  # CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW
        return {"creationflags": flags}
    return {"start_new_session": True}


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9 and so on; ``signal N`` for an unknown number."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path that a person wrote with its ``~`` as the home folder; without one it stays, as in a shell."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises where there is no home


def interpreter(python: str | os.PathLike[str] | None) -> str:
    """Return the interpreter that a person named, for children that start in other folders: this one if none was.

    A bare name is looked up on PATH by who starts it; any other path is made absolute. Links stay: a virtual
    environment is known by the path of its own.
    """
    if not python:
        return sys.executable
    name = os.fspath(python)
    return name if os.path.basename(name) == name else str(expanded(name).absolute())  # noqa: PTH119 - "./name" is none


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder is there, for all that this user can see.

    ``Path.is_dir`` raises below a folder that one may not look into, and for names that no file system can hold.
    """
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is there; as ``is_folder``."""
    return os.path.isfile(path)  # noqa: PTH113


def make_private_dir(path: Path) -> None:
    """Create a folder and its parents, the last one readable by its owner only."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the target and rename over it, so that a reader sees the old bytes or the new ones."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[bool]:
    """Hold an advisory lock on a file for the block; yields False at once if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)  # releases the lock


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def describe() -> dict[str, str]:
    """Return what this system lacks, by facility, in words for ``watcher doctor``."""
    weaker: dict[str, str] = {}
    if not sys.platform.startswith("linux"):
        weaker["subreaper"] = "orphaned descendants of a trial are found by their environment marker only"
    if os.name == "nt":
        weaker["signals"] = "a trial is ended without a chance to clean up"
    return weaker
