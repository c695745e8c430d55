"""The exception that carries the facts, and the frames that led to it, with a safe look at their names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

from watcherml.forensics.matching import ask, real

MOST_EXCEPTIONS = 100
MOST_FRAMES = 2_000  # a recursion has more; its innermost ones tell
# The frame's own reference, our variable, and the argument of getrefcount itself.
_NOBODY_ELSE = 3


def chain(error: BaseException) -> list[BaseException]:
    """Return the exception and what it was raised from or while handling, members of groups included, outer first."""
    found: dict[int, BaseException] = {}
    waiting: list[Any] = [error]
    while waiting and len(found) < MOST_EXCEPTIONS:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and id(one) not in found:
            found[id(one)] = one
            members = ask(one, "exceptions")
            context = None if real(one, "__suppress_context__") else real(one, "__context__")
            waiting += [real(one, "__cause__"), context, *(members if isinstance(members, (list, tuple)) else ())]
    return list(found.values())


def frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of an exception's traceback with their line numbers, outermost first."""
    trace: TracebackType | None = real(error, "__traceback__")
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def frames_to(error: BaseException, origin: BaseException) -> list[tuple[FrameType, int]]:
    """Return the frames of the outer exception followed by those of the one it came from, outermost first."""
    found: list[tuple[FrameType, int]] = list(frames(error))
    if origin is not error:
        known = {id(frame) for frame, _ in found}
        found += [(frame, line) for frame, line in frames(origin) if id(frame) not in known]
    return found[-MOST_FRAMES:]


def names_of(frame: FrameType) -> dict[str, Any]:
    """Return a frame's names and values as a new dict, and leave nothing of them on the frame.

    Before Python 3.13 a look at ``f_locals`` stores a dict of the values on the frame, which keeps them alive for as
    long as the function runs, long after it has let go of them. It is emptied again, unless somebody else has it:
    ``locals()`` returns the same dict.
    """
    held = frame.f_locals
    names = dict(held)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.gettrace() is None:
        if sys.getrefcount(held) <= _NOBODY_ELSE:
            held.clear()
    return names


def globals_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the globals of a frame of the user's own code; none of a library's."""
    file = frame.f_code.co_filename
    return {} if "site-packages" in file or "dist-packages" in file else frame.f_globals
