"""How a process ends that never said ``finish()``: what a run is to be called that is still open then.

The interpreter keeps an uncaught exception (``sys.last_value``), and when multiprocessing ends a worker, its exception
is still in flight. A SystemExit with its code is gone, though, by the time the interpreter calls its exit functions. So
while a run is open, ``sys.exit`` and ``exit()`` note the code they are called with. Whether that SystemExit ended the
program, or somebody caught it, shows in where it is dropped: below the last frame, or in the middle of the program.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from watcherml.recorder.life import last_error

NO_FINISH = "the process ended without finish()"
UNKNOWN_EXIT = "the process ended by a SystemExit whose code is not known, without finish()"


class _Mark:
    """Hangs on a SystemExit and goes with it; an exception itself cannot be watched."""

    __slots__ = ("__weakref__",)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Mark, ()


class _Exit:
    """The code that the main thread last asked to exit with."""

    def __init__(self) -> None:
        self.error: SystemExit | None = None  # a copy: the original keeps frames, and with them the user's memory
        self.reported: BaseException | None = None  # what multiprocessing has printed of a worker that ends
        self._watched: weakref.ref[_Mark] | None = None
        self._place: tuple[CodeType, int] | None = None  # where the main program was when it was noted

    def note(self, original: SystemExit) -> None:
        """Keep the code until it turns out that somebody caught the exception."""
        mark = _Mark()
        original.__dict__["_watcherml"] = mark
        self.error = SystemExit(original.code)
        self._watched = weakref.ref(mark, self._dropped)
        frame = _outermost_frame()
        self._place = None if frame is None else (frame.f_code, frame.f_lasti)

    def of(self, main: FrameType | None) -> SystemExit | None:
        """Return the exit that the main program was left by, as far as it can be told.

        While somebody still holds the noted one, a later SystemExit may have ended the program: then the main program
        has come to another instruction since, which does not raise again what was caught.
        """
        held = self._watched is not None and self._watched() is not None
        if not held or main is None or self._place is None or self._place[0] is not main.f_code:
            return self.error
        return self.error if main.f_lasti == self._place[1] or _raised_again(main) else None

    def _dropped(self, mark: weakref.ref[_Mark]) -> None:
        if mark is self._watched and sys._getframe().f_back is not None:
            self.error = None


_exit = _Exit()
_lock = threading.RLock()
_open: set[int] = set()  # the ids of the open runs of this process
_replaced: list[tuple[Any, str, Any, Any]] = []  # holder, name, original, ours


class Watch:
    """Belongs to one open run: learns how the program ends, from ``start`` to ``stop``."""

    def __init__(self, at_exit: Callable[[], None], at_worker_exit: Callable[[], None]) -> None:
        self._at_exit, self._at_worker_exit = at_exit, at_worker_exit
        self._main: FrameType | None = None
        self._worker: FrameType | None = None
        self._finalizer: Any = None

    def start(self) -> None:
        """Have one of the two functions called when this process ends in an orderly way."""
        import atexit

        self._main, self._worker = _outermost_frame(), None
        with _lock:
            if not _open:
                _note_exits()
            if is_worker():
                _note_reports()
            _open.add(id(self))
        atexit.register(self._at_exit)
        if is_worker():
            # A worker of multiprocessing leaves by os._exit after its own exit functions.
            from multiprocessing import process, util

            self._worker = _frame_of(process.BaseProcess._bootstrap.__code__)  # type: ignore[attr-defined]
            self._finalizer = util.Finalize(None, self._at_worker_exit, exitpriority=-100)

    def stop(self) -> None:
        """Have nothing called any more, and leave everything as it was found."""
        import atexit

        atexit.unregister(self._at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
        self._main = self._worker = None
        with _lock:
            _open.discard(id(self))
            if not _open:
                _leave_exits()

    def ending(self) -> BaseException | str | None:
        """Return what ends the program: an exception, nothing (the end of the script), or in words that it is unknown.

        A session of a person (a notebook's kernel, a prompt) that is closed has not come to the end of anything.
        """
        if self._worker is not None:
            # From Python 3.13 on, a worker's exit functions come when multiprocessing has dealt with its exception.
            code = self._worker.f_locals.get("exitcode")
            return (_exit.reported or SystemExit(code)) if code else None
        if _in_notebook():
            return NO_FINISH
        left = None if self._main is None else _left_by_exception(self._main)
        if left is False:
            return NO_FINISH if _is_session() else None
        error = last_error()
        if error is not None and _has_left(error, self._main):
            return error  # an exit that was noted came before it: while it was handled, or in vain
        noted = _exit.of(self._main)
        if noted is not None:
            return noted
        if _is_session():
            return NO_FINISH  # what is remembered was printed by the prompt, which went on
        if error is not None:
            return error
        return None if left is None else UNKNOWN_EXIT


def worker_ending() -> BaseException | None:
    """Return the exception that ends a worker of multiprocessing, for its exit functions; None for a plain end."""
    return sys.exc_info()[1]


def is_worker() -> bool:
    """Tell whether multiprocessing started this process."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


def in_cell() -> bool:
    """Tell whether IPython executes a cell at this moment: it catches the SystemExit, and its session goes on."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "run_code" and frame.f_globals.get("__name__") == "IPython.core.interactiveshell":
            return True
        frame = frame.f_back
    return False


def _is_session() -> bool:
    if hasattr(sys, "ps1"):
        return True
    shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    return shell is not None and bool(shell.initialized())


def _frame_of(code: CodeType) -> FrameType | None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def _outermost_frame() -> FrameType | None:
    """Return the frame of the main program: as old as the process, so keeping it costs nobody memory."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _left_by_exception(frame: FrameType) -> bool | None:
    """Tell how a frame that is done was left, by the last instruction it came to; None where that cannot be told."""
    last = _last_instruction(frame)
    return None if last is None else not last.startswith("RETURN")


def _last_instruction(frame: FrameType) -> str | None:
    import opcode

    try:
        return opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    except (AttributeError, IndexError):
        return None


def _raised_again(frame: FrameType) -> bool:
    """Tell whether a frame was left by what it had caught: by ``raise`` alone, or behind ``finally``."""
    last = _last_instruction(frame)
    return last == "RERAISE" or (last == "RAISE_VARARGS" and frame.f_code.co_code[frame.f_lasti + 1] == 0)


def _has_left(error: BaseException, main: FrameType | None) -> bool:
    """Tell whether an exception that was reported is the one that went through the main program and ended it."""
    trace = getattr(error, "__traceback__", None) or getattr(sys, "last_traceback", None)
    if main is None or trace is None or trace.tb_frame is not main:
        return False
    return bool(trace.tb_lasti == main.f_lasti) or _raised_again(main)


def _note_exits() -> None:
    _exit.error = None
    # `exit` and `quit` are objects of the module site, which may be left out (python -S).
    quitter = type(getattr(builtins, "exit", None))
    places: list[tuple[Any, str]] = [(sys, "exit")]
    if quitter.__module__ == "_sitebuiltins":
        places.append((quitter, "__call__"))
    for holder, name in places:
        _replace(holder, name, _noting)


def _note_reports() -> None:
    import traceback

    # A forked worker may have what its parent has replaced, which was no worker.
    if all(name != "print_exc" for _, name, _, _ in _replaced):
        _replace(traceback, "print_exc", _noting_report)


def _replace(holder: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(holder, name)
    ours = around(original)
    setattr(holder, name, ours)
    _replaced.append((holder, name, original, ours))


def _leave_exits() -> None:
    while _replaced:
        holder, name, original, ours = _replaced.pop()
        # Somebody who has put a function of his own around ours keeps it; alone it does no more than the original.
        if getattr(holder, name) is ours:
            setattr(holder, name, original)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def leave(*arguments: Any, **named: Any) -> Any:
        try:
            return original(*arguments, **named)
        except SystemExit as error:
            if threading.current_thread() is threading.main_thread() and not in_cell():
                _exit.note(error)
            raise

    return leave


def _noting_report(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def print_exc(*arguments: Any, **named: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_code.co_name == "_bootstrap" and caller.f_globals.get("__name__") == "multiprocessing.process":
            _exit.reported = sys.exc_info()[1]
        return original(*arguments, **named)

    return print_exc
