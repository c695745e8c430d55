"""Progress callbacks: a campaign's events, handed to a person's function while somebody waits for the end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from watcherml.campaign.events import words
from watcherml.errors import InvalidValue

OnEvent = Callable[[dict[str, Any]], object]


def check_callback(on_event: object) -> None:
    """Raise ``InvalidValue`` for what cannot be called: said before a campaign starts, it costs nothing."""
    if on_event is not None and not callable(on_event):
        raise InvalidValue(
            "on_event",
            expected="a function of one argument, the event",
            got=type(on_event).__name__,
            remedy="Hand over the function itself, on_event=print, or leave it out.",
        )


class Teller:
    """Hands the new events of a campaign to a callback, until it raises.

    ``read`` returns the events with a number above its argument, as ``Campaign.events`` does.
    """

    def __init__(self, campaign_id: str, read: Callable[[int], list[dict[str, Any]]], on_event: OnEvent | None) -> None:
        check_callback(on_event)
        self._campaign_id, self._read, self._on_event = campaign_id, read, on_event
        self._seen = 0

    def new(self) -> None:
        """Tell what has happened since the last call; an exception of the callback is one warning and its last call."""
        if self._on_event is None:
            return
        for event in self._read(self._seen):
            self._seen = event["seq"]
            told = {"campaign_id": self._campaign_id, **event, "words": words(event["type"], event["body"])}
            try:
                self._on_event(told)
            except Exception as error:  # noqa: BLE001 - a broken progress bar must not cost a campaign
                self._on_event = None
                text = f"on_event raised {type(error).__name__}: {error}. It is not called again; the campaign goes on."
                warnings.warn(text, RuntimeWarning, stacklevel=4)
                return
