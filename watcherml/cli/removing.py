"""Deleting from the command line: what would go is said, a person is asked, then it goes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watcherml.cli.console import Console
from watcherml.cli.shared import as_json, deliver
from watcherml.errors import Declined

if TYPE_CHECKING:
    from watcherml.api.removal import Planned
    from watcherml.store.storage import Storage


def add_consent(parser: argparse.ArgumentParser) -> None:
    """Add the flags of who agrees and why."""
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument("--by", metavar="NAME", default="", help="who deletes, for the record (default: this user)")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the record")


def remove(
    values: argparse.Namespace,
    console: Console,
    storage: Storage,
    planned: Planned,
    more: Mapping[str, Any] | None = None,
    note: str = "",
) -> int:
    """Show what would go, have it confirmed, delete it, and say what went; ``more`` is added to the JSON, ``note`` to
    the text.

    Raises ``Declined`` if a person says no or there is nobody to ask.
    """
    from watcherml.api.removal import carry_out
    from watcherml.report.text_removal import question, text_planned, text_removed

    document = planned.to_data()
    if not planned.empty:
        console.notice(text_planned(document, color=console.notice_color))
        if not values.yes:
            _confirm(console, question(document))
    done = carry_out(planned, by=values.by, reason=values.reason, storage=storage).to_data()
    faces = {"text": lambda color: text_removed(done, color=color) + note, "json": as_json({**done, **(more or {})})}
    deliver(values, console, faces)
    return 1 if done["problems"] and not done["given_back_bytes"] and planned.empty else 0


def _confirm(console: Console, question: str) -> None:
    if not console.can_ask:
        raise Declined(
            "nothing was deleted, because nobody could be asked",
            expected="a terminal, or --yes",
            got="--format json without --yes" if console.json else "no terminal and no --yes",
        )
    if not console.agrees(question):
        raise Declined("declined; nothing was deleted")
