"""Completing what follows ``%watcher``: the words, their flags, and the ids of the store.

Pressing Tab must never wait for a disk and never show an error: the store is asked in a thread that may take a moment,
and whatever goes wrong there completes nothing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from watcherml.notebook import magics
from watcherml.notebook.command import Ids
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

HOOK = "complete_command"
KEYS = ("%watcher", "%%watcher")
_MOST_IDS = 50
_PATIENCE_SECONDS = 0.4


class Completion:
    """What completes in one shell, from ``register`` to ``unregister``."""

    def __init__(self, session: Session) -> None:
        self._shell = session.shell
        self._asking = Asking(session)
        self._here = lambda shell, event: self._candidates(str(event.text_until_cursor), str(event.symbol))
        self._matcher: Any = None

    def register(self) -> None:
        """Complete from now on."""
        for key in KEYS:
            self._shell.set_hook(HOOK, self._here, str_key=key)
        with contextlib.suppress(ImportError):
            # Before 8.6 IPython has the hook alone, and offers Python's own names beside it.
            from IPython.core.completer import context_matcher

            # It notes things on the function, which a bound method does not take.
            self._matcher = context_matcher(identifier="watcherml")(lambda context: self._match(context))
            self._shell.Completer.custom_matchers.append(self._matcher)

    def unregister(self) -> None:
        """Take back what ``register`` did; IPython itself has no call for that."""
        with contextlib.suppress(AttributeError, ValueError):
            self._shell.Completer.custom_matchers.remove(self._matcher)
        for key in KEYS:
            with contextlib.suppress(AttributeError, KeyError):
                table = self._shell.strdispatchers[HOOK].strs
                chain = table[key].chain
                chain[:] = [one for one in chain if getattr(one[1], "__func__", one[1]) is not self._here]
                if not chain:
                    del table[key]

    def _candidates(self, line: str, symbol: str) -> list[str]:
        try:
            return self._asking.candidates(line, symbol)
        except Exception:  # noqa: BLE001 - pressing Tab is no moment for a traceback
            return []

    def _match(self, context: Any) -> Any:
        from IPython.core.completer import SimpleCompletion

        line = context.line_with_cursor[: context.cursor_position]
        ours = line.split(None, 1)[:1] in ([KEYS[0]], [KEYS[1]]) and not line.endswith(KEYS)
        found = self._candidates(line, context.token) if ours else []
        fitting = [one for one in found if one.startswith(context.token)]
        return {
            "completions": [SimpleCompletion(one, type="magic") for one in fitting],
            "suppress": bool(fitting),
            "ordered": True,
        }


class Asking:
    """Knows what may follow; asks the store in a thread of its own, one question at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._busy = threading.Lock()

    def candidates(self, line: str, symbol: str) -> list[str]:
        """Return what may stand where ``symbol`` stands at the end of a line."""
        cell = line.lstrip().startswith("%%")
        before = line[: len(line) - len(symbol)].split()[1:] if symbol else line.split()[1:]
        if not before:
            return list(magics.CELL_COMMANDS if cell else magics.COMMANDS)
        word, flags = before[0], [one for one in before[1:] if one.startswith("-")]
        if word == "help" and not cell:
            return list(dict.fromkeys([*magics.COMMANDS, *magics.CELL_COMMANDS])) if len(before) == 1 else []
        found = _flags(word, cell, flags) if not symbol or symbol.startswith("-") else []
        return found if symbol.startswith("-") else [*self._ids(_kind(word, cell, before)), *found]

    def _ids(self, kind: Ids) -> list[str]:
        if not kind or not self._busy.acquire(blocking=False):
            return []  # the last question is not answered yet
        found: list[str] = []

        def ask() -> None:
            try:
                with contextlib.suppress(Exception):
                    found.extend(ids(self._session.storage(), kind))
            finally:
                self._busy.release()

        thread = threading.Thread(target=ask, name="watcherml-completion", daemon=True)
        thread.start()
        thread.join(_PATIENCE_SECONDS)
        return list(found)


def _kind(word: str, cell: bool, before: list[str]) -> Ids:
    if before[-1] == "--run":
        return "failures"
    if cell or word not in magics.COMMANDS or before[-1].startswith("-"):
        return ""
    most = 3 if word == "compare" else 1
    return magics.COMMANDS[word].ids if sum(not one.startswith("-") for one in before) <= most else ""


def _flags(word: str, cell: bool, given: Iterable[str]) -> list[str]:
    if cell and word in magics.CELL_COMMANDS:
        parser = magics.CELL_COMMANDS[word].parser()
    elif not cell and word in magics.COMMANDS:
        parser = magics.line_parser(word)
    else:
        return []
    repeated = {flag for action in parser._actions if type(action).__name__ == "_AppendAction"
                for flag in action.option_strings}  # fmt: skip
    flags = [flag for action in parser._actions for flag in action.option_strings]
    return [one for one in [*flags, "--help"] if one.startswith("--") and (one not in given or one in repeated)]


def ids(storage: Storage, kind: Ids) -> list[str]:
    """Return at most 50 ids of a kind, newest first; nothing is settled, folded or written for it."""
    if not storage.exists:
        return []
    if kind == "failures":
        return [str(row["run_id"]) for row in storage.evidence.failures(limit=_MOST_IDS)]
    runs = [str(row["run_id"]) for row in storage.runs.listing(role="user", limit=_MOST_IDS)]
    if kind == "runs" or storage.is_older:
        return runs
    campaigns = [str(row["campaign_id"]) for row in storage.audit.campaigns(limit=_MOST_IDS)]
    return campaigns if kind == "campaigns" else [*campaigns, *runs]
