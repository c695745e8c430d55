"""How a run ends, and what becomes of the recording's own errors."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal, NoReturn, Protocol, TypeVar

from watcherml.errors import RunError
from watcherml.recorder import redact
from watcherml.store.spool import Spool

T = TypeVar("T")
Ending = Literal["success", "failed", "interrupted"]


class Safely(Protocol):
    """Makes a call and turns an error into None and one of the run's problems."""

    def __call__(self, action: Callable[[], T]) -> T | None:
        """Return what the action returns; None if it raises."""


_MOST_TEXTS = 1_000
_INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit)
# Ways to stop that are BaseExceptions of modules which this process may not have loaded.
_OTHER_INTERRUPTIONS = {("asyncio.exceptions", "CancelledError"), ("bdb", "BdbQuit")}


def ending_of(error: BaseException) -> tuple[Ending, str]:
    """Return the status and the reason of a run that an exception ends.

    An exit that ends the process with code 0 (None, 0, False) is success; KeyboardInterrupt, a cancelled task, a closed
    generator and a debugger's quit are interruptions; everything else is a failure, other exit codes included.
    """
    kind = type(error)
    # Only the class is asked, and the exit code past it: an instance may answer with anything, or raise.
    if issubclass(kind, SystemExit) and _is_zero(SystemExit.__dict__["code"].__get__(error)):
        return "success", "sys.exit(0)"
    if issubclass(kind, _INTERRUPTIONS) or (kind.__module__, kind.__name__) in _OTHER_INTERRUPTIONS:
        return "interrupted", kind.__name__
    return "failed", f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def last_error() -> BaseException | None:
    """Return the exception whose traceback was printed last in this process and that Python remembers, or None."""
    found = (getattr(sys, name, None) for name in ("last_exc", "last_value"))
    return next((one for one in found if isinstance(one, BaseException)), None)


def judge(error: BaseException) -> tuple[Ending, str]:
    """Return what ``ending_of`` does; an exception that cannot be looked at is a failure by the name of its type."""
    try:
        return ending_of(error)
    except BaseException:  # noqa: BLE001 - a class of the user's that raises when it is looked at
        return "failed", name_of(type(error))


def _is_zero(code: object) -> bool:
    # As the interpreter has it: 0.0 and numpy's 0 are printed as messages and end the process with code 1. Nothing of
    # the user's own, such as an __eq__, is called.
    return code is None or (issubclass(type(code), int) and int.__eq__(code, 0) is True)  # type: ignore[operator]


def name_of(kind: type) -> str:
    """Return the name of a class without asking its metaclass, which may be the user's own."""
    return str(type.__dict__["__name__"].__get__(kind))


class Problems:
    """Counts what the recording could not do. The first problem of a run is one warning, the others are counted.

    ``texts`` holds the first thousand and the last; no exception object is kept, since its frames would keep the
    user's memory.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.texts: list[str] = []
        self.count = 0

    def safely(self, action: Callable[[], T]) -> T | None:
        """Return what the action returns; None and one more problem if it raises."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - recording must never end training
            self.note(error)
            return None

    def to_data(self) -> dict[str, Any]:
        """Return ``count`` and the ``first`` reason."""
        return {"count": self.count, "first": self.texts[0][:400] if self.texts else ""}

    def note(self, error: Exception) -> None:
        """Count a problem and warn of the first one."""
        words = words_of(error, 2_000)
        text = f"{name_of(type(error))}: {words}"
        self.count += 1
        if len(self.texts) < _MOST_TEXTS:
            self.texts.append(text)
        else:
            self.texts[-1] = text
        if self.count == 1:
            self._warn(words)

    def _warn(self, words: str) -> None:
        text = (
            f"WatcherML could not record part of run {self.run_id}: {words.rstrip('. ')}. Training goes on;"
            " further problems are counted in run.problems."
        )
        # Warnings may have been turned into errors, and a hook of the user's may raise anything.
        with contextlib.suppress(Exception):
            warnings.warn(text, RuntimeWarning, stacklevel=4)


class SilentSpool:
    """The spool of a process that records nothing: points are accepted and dropped."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}

    def key_of(self, name: str) -> int:
        """Return the same key for every name."""
        return self.keys.setdefault(name, 0)

    def put(self, key: int, value: float, step: int | None, at: float) -> None:
        """Drop the point."""

    def renew(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class EndedSpool:
    """The spool of a run that has ended: a later point would never be read, so it is refused."""

    def __init__(self, run_id: str) -> None:
        self.keys: dict[str, int] = {}
        self._run_id = run_id

    def key_of(self, name: str) -> NoReturn:
        """Raise ``RunError``: the run has ended."""
        raise ended(self._run_id, f"metric {name[:80]!r}")

    def put(self, key: int, value: float, step: int | None, at: float) -> NoReturn:
        """Raise ``RunError``: the run has ended."""
        raise ended(self._run_id, "a metric")

    def renew(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


AnySpool = Spool | SilentSpool | EndedSpool


def ended(run_id: str, what: str) -> RunError:
    """Return the error for something that comes after the end of its run."""
    return RunError(f"{what} came after the end of run {run_id}", remedy="Open a new run with watcherml.init().")


def words_of(error: BaseException, most: int) -> str:
    """Return at most so many characters of ``str(error)`` without secrets; a few words where it has none."""
    try:
        # Cut before secrets are looked for, which takes its time in megabytes, and again after.
        return redact.redact_text(str(error)[: 4 * most])[:most]
    except BaseException:  # noqa: BLE001 - the user's own __str__, which may even want to exit
        return "it cannot be put in words"


def failure_facts(error: BaseException) -> dict[str, str]:
    """Return type and message of a failure, for a run that nobody makes capsules for."""
    return {"type": type(error).__qualname__, "message": words_of(error, 10_000)}
