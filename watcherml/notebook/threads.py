"""Exceptions that end the person's own threads: no cell fails of them, so no hook around a cell sees them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

# Threads of the front end and of progress bars: what happens there is not the person's training.
_NOT_THE_PERSONS = frozenset({"IPython", "ipykernel", "jupyter_client", "tornado", "tqdm", "watcherml", "zmq"})

Finish = Callable[[], None]


class ThreadWatch:
    """Stands before the present ``threading.excepthook``, which is always called as well.

    ``failed(error)`` is called before the traceback is printed and may return what is to be done afterwards;
    ``problem(error)`` hears of what either of them raises.
    """

    def __init__(self, failed: Callable[[BaseException], Finish | None], problem: Callable[[Exception], None]) -> None:
        self._failed, self._problem = failed, problem
        self._before: Callable[[Any], Any] | None = None
        self._hook_here = self._hook  # one object, to be told from somebody else's

    def install(self) -> None:
        """Begin to watch."""
        if self._before is None:
            self._before = threading.excepthook
            threading.excepthook = self._hook_here

    def remove(self) -> None:
        """Stop watching. If somebody has stood before us meanwhile, we stay in the chain and only pass on."""
        self._failed = lambda error: None
        if threading.excepthook is self._hook_here and self._before is not None:
            threading.excepthook = self._before

    def _hook(self, arguments: Any) -> None:
        finish: Finish | None = None
        with self._counted():
            if arguments.exc_value is not None and _is_the_persons(arguments.exc_value):
                finish = self._failed(arguments.exc_value)
        try:
            if self._before is not None:
                self._before(arguments)
        finally:
            del arguments  # the frames go with the last reference to it
            if finish is not None:
                with self._counted():
                    finish()

    @contextlib.contextmanager
    def _counted(self) -> Any:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whoever prints the traceback has to get their turn
            with contextlib.suppress(Exception):
                self._problem(error)


def _is_the_persons(error: BaseException) -> bool:
    """Tell by the first frame behind the ``threading`` module whose thread it was."""
    traceback = error.__traceback__
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module != "threading":
            return module.partition(".")[0] not in _NOT_THE_PERSONS
        traceback = traceback.tb_next
    return True
