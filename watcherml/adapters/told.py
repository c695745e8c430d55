"""What a tracker is told of a run's failure and recoveries, as short texts out of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from watcherml.api import data
from watcherml.api.result import RecoveryResult
from watcherml.errors import WatcherError
from watcherml.store.storage import Storage

_MOST_DEPTH = 16


class Told(NamedTuple):
    """Tags about recoveries, and the documents of their results by campaign."""

    tags: dict[str, str]
    results: dict[str, str]


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration as one level of texts: ``optimizer.lr``; lists and what is deeper stay JSON."""
    found: dict[str, str] = {}

    def walk(value: Any, path: str, depth: int) -> None:
        if isinstance(value, Mapping) and value and depth < _MOST_DEPTH:
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else str(key), depth + 1)
        elif path:
            found[path] = value if isinstance(value, str) else json.dumps(value)

    walk(config, "", 0)
    return found


def failure_tags(storage: Storage, run_id: str) -> dict[str, str]:
    """Return class, sentence, missing bytes, phase and step of a run's failure; nothing for a run without one."""
    capsule = data.capsule(storage, run_id)
    if capsule is None:
        return {}
    row = storage.evidence.capsule(run_id)
    failure, missing = capsule.failure, capsule.diagnosis.shortfall_bytes
    return {
        "watcherml.failure.class": failure.class_,
        "watcherml.failure.subkind": failure.subkind,
        "watcherml.failure.sentence": capsule.headline,
        "watcherml.failure.phase": failure.phase,
        "watcherml.failure.step": "" if failure.step is None else str(failure.step),
        "watcherml.failure.shortfall_bytes": "" if missing is None else str(missing),
        "watcherml.failure.resolved": "yes" if row.get("resolved_at") else "no",
    }


def recovery(storage: Storage, run_id: str) -> Told:
    """Return what a run's recoveries came to: of the newest the tags, of each that has ended its result.

    Verdicts are recomputed from their trials. One that is not on record in this store, or does not follow from its
    trials, is never told as verified.
    """
    if not storage.exists or storage.is_older:
        return Told({}, {})
    rows = data.campaigns(storage, source_run_id=run_id)
    if not rows:
        return Told({}, {})
    tags = {"watcherml.recoveries": str(len(rows)), "watcherml.recovery.campaign_id": rows[0]["campaign_id"]}
    results: dict[str, str] = {}
    for row in reversed(rows):  # the newest comes last, and its tags count
        said = {"status": row["status"] or row["lifecycle"], "sentence": row["sentence"] or ""}
        if row["lifecycle"] == "ended":
            said, document = _verdict(storage, row["campaign_id"])
            results.update({row["campaign_id"]: document} if document else {})
    tags.update({f"watcherml.recovery.{name}": text for name, text in said.items()})
    return Told(tags, results)


def _verdict(storage: Storage, campaign_id: str) -> tuple[dict[str, str], str]:
    try:
        result = RecoveryResult.of_campaign(campaign_id, storage)
    except WatcherError as error:  # altered, imported, or of another version: there is nothing to vouch for
        return {"status": "unrecorded", "sentence": str(error)}, ""
    changed = None if result.verified_config is None else json.dumps(result.verified_config, sort_keys=True)
    return {
        "status": result.status,
        "standing": result.standing,
        "reason": result.reason_code,
        "sentence": result.sentence,
        "candidate": result.verified_candidate_id or "",
        "config": changed or "",
    }, result.to_json()
