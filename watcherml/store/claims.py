"""Does a row that says "verified" say what the sealed verdict says? A list does not recompute; it must not be fooled.

The verdict's document is on record under its digest. Whether it follows from its trials is asked where a result is
opened; here it only has to be that document, of this campaign, with the same words.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from watcherml.errors import InvalidValue
from watcherml.sealed.canonical import digest, parse_json
from watcherml.store.sound import damaged, each, hearing

VERIFIED = "verified"
R = TypeVar("R", bound=Mapping[str, Any])
_SEALED = (
    "SELECT v.digest, v.status, v.candidate_id, v.sentence, r.document FROM verdicts v"
    " LEFT JOIN records r ON r.digest = v.digest WHERE v.campaign_id = ?"
)


def backed(connection: sqlite3.Connection, row: R, says: str = "status") -> R:
    """Return a row that has ``campaign_id``; ``DamagedRow`` if it says "verified" and the verdict on record does not.

    ``says`` is the column with the status.
    """
    if row[says] == VERIFIED:
        campaign_id = str(row["campaign_id"])
        told = connection.execute(_SEALED, (campaign_id,)).fetchone()
        sealed = None if told is None else _sealed(told["digest"], told["document"])
        if sealed is None:
            raise damaged("verdicts", campaign_id, "digest", "that of a verdict on record", "that of none")
        for key, value in {"campaign_id": campaign_id, **{one: told[one] for one in _COMPARED}}.items():
            if sealed.get(key) != value:
                raise damaged("verdicts", campaign_id, key, repr(sealed.get(key)), repr(value))
    return row


def unbacked(connection: sqlite3.Connection) -> list[str]:
    """Return which verdicts say "verified" and are not backed by the one on record, a sentence each."""
    with hearing() as heard:
        count_backed(connection, "SELECT campaign_id FROM verdicts WHERE status = ?", (VERIFIED,))
    return heard


def count_backed(connection: sqlite3.Connection, query: str, values: Sequence[Any]) -> int:
    """Return how many of the campaigns that a query names, each said to be verified, are so by the sealed verdict."""
    rows = connection.execute(query, values).fetchall()
    return len(each(rows, lambda row: backed(connection, {"campaign_id": row[0], "status": VERIFIED})))


_COMPARED = ("status", "candidate_id", "sentence")


def _sealed(name: str, document: Any) -> dict[str, Any] | None:
    """Return what a verdict's document says, None if it is not the one of that digest."""
    try:
        found = parse_json(document)
        if digest(found["kind"], found["version"], found["value"]) == name and found["kind"] == "recovery-verdict":
            return dict(found["value"])
    except (InvalidValue, KeyError, TypeError, ValueError):
        pass
    return None
