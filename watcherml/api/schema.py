"""The sealed documents of this version, by kind, and what they are made of."""

from __future__ import annotations

from typing import Any

from watcherml.contract.contract import RecoveryContract
from watcherml.errors import UsageError
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.classify import Classification
from watcherml.forensics.holders import Holder
from watcherml.forensics.neighbours import Comparison
from watcherml.forensics.oom_message import OomMessage, ProcessUse
from watcherml.forensics.release import Release
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Proposal
from watcherml.protocol.ranking import Ranking
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import TrialResult, WorkerReport
from watcherml.protocol.verdict import RecoveryChain, Verdict
from watcherml.sealed.record import Record
from watcherml.sealed.schema import json_schema, parts_of, summary
from watcherml.store.packed import Packed
from watcherml.store.removal import Deletion

# In the order of the flow: a failure, its plan, its trials, its verdict, and what was taken out of the store.
_CLASSES: tuple[type[Record], ...] = (
    Capsule, Classification, OomMessage, ProcessUse, Release, Holder, RecoveryContract, Proposal, RecoveryPlan,
    Authorization, TrialRequest, Launch, WorkerReport, TrialResult, Ranking, Verdict, RecoveryChain, Deletion,
    Packed, Comparison,
)  # fmt: skip
DOCUMENTS: dict[str, type[Record]] = {cls.KIND: cls for cls in _CLASSES}
_PREFIX = "watcherml."


def listing() -> list[dict[str, Any]]:
    """Return name, version and summary of every kind of sealed document."""
    return [{"name": kind, "version": cls.VERSION, "summary": summary(cls)} for kind, cls in DOCUMENTS.items()]


def document_class(name: str) -> type[Record]:
    """Return the class of a kind; ``watcherml.`` in front may be left out. ``UsageError`` if there is no such kind."""
    found = DOCUMENTS.get(name) or DOCUMENTS.get(_PREFIX + name)
    if found is None:
        raise UsageError(
            f"unknown document {name[:100]!r}",
            expected="one of " + ", ".join(DOCUMENTS),
            remedy="`watcher schema` says what each is.",
        )
    return found


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document; raises as ``document_class``."""
    return json_schema(document_class(name))


def description(name: str) -> dict[str, Any]:
    """Return a kind's name, version, summary and parts: class -> key -> what it may hold, the whole value first."""
    cls = document_class(name)
    return {"name": cls.KIND, "version": cls.VERSION, "summary": summary(cls), "parts": parts_of(cls)}
