"""Does a plan tell the failure that it was made for as the capsule tells it?

A plan repeats what it needs of the failed run. The capsule is the evidence; where the two differ, the plan's trials
were run against something that never happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from watcherml.errors import InvalidValue
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.causes.diagnose import control_only, refusing, ruled_out, supported_capabilities
from watcherml.forensics.causes.thresholds import RULES_VERSION
from watcherml.protocol.plan import RecoveryPlan, Refusing, RuledOut
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.record import thaw
from watcherml.store.storage import Storage

_ABSENT = object()
_SHOWN_CHARACTERS = 200


class Disagreement(NamedTuple):
    """One value that is not as it has to be: where it stands, what was expected there, what came."""

    path: str
    expected: str
    got: str


def disagreements(plan: RecoveryPlan, capsule: Capsule) -> list[Disagreement]:
    """Return where a plan and the capsule of its source differ; empty if they tell the same failure."""
    source = plan.source
    pairs = (
        ("plan.source.run_id", capsule.run_id, source.run_id),
        ("plan.source.project", capsule.project, source.project),
        ("plan.source.capsule_digest", capsule.digest, source.capsule_digest),
        ("plan.source.failure_class", capsule.failure.class_, source.failure_class),
        ("plan.source.requested_bytes", capsule.memory.requested_bytes, source.requested_bytes),
        ("plan.source.shortfall_bytes", shortfall_of(capsule), source.shortfall_bytes),
        ("plan.source.slack_bytes", capsule.memory.reserved_unallocated_bytes, source.slack_bytes),
        ("plan.source.phase", capsule.failure.phase, source.phase),
        ("plan.source.last_step", capsule.failure.step, source.last_step),
        ("plan.source.horizon_step", capsule.diagnosis.horizon_step, source.horizon_step),
        ("plan.source.config", _configuration(capsule), source.config),
        ("plan.contract.device", capsule.device, plan.contract.device),
    )
    told = (*pairs, *_refusals(plan, capsule))
    return [one for path, expected, got in told for one in differences(expected, got, path)]


def _refusals(plan: RecoveryPlan, capsule: Capsule) -> Iterator[tuple[str, Any, Any]]:
    """Yield what the causes mean for the changes and what was insisted on: by the capsule, and as the plan tells it.

    What a cause means is a table of the rules. A plan for a capsule of other rules is only held to name causes that
    the capsule holds, because it may have been sealed when the table was another one, or none was kept.
    """
    source, diagnosis = plan.source, capsule.diagnosis
    told = source.refused_by or ()
    insisted = {one.cause for one in told if one.insisted}
    of_other_rules = diagnosis.rules_version != RULES_VERSION
    causes = [one for one in diagnosis.sufficient if one.id in {each.cause for each in told}]
    if not of_other_rules:
        causes = list(refusing(diagnosis))
    expected = tuple(Refusing(one.id, one.name, one.sentence, one.id in insisted) for one in causes)
    yield "plan.source.refused_by", expected, told
    if not of_other_rules:
        yield "plan.source.control_only", told_control_only(capsule, expected), source.control_only
        yield "plan.source.ruled_out", tuple(RuledOut(*one) for one in ruled_out(diagnosis)), source.ruled_out
        yield "plan.source.supports", supported_capabilities(diagnosis), source.supports


def told_control_only(capsule: Capsule, causes: tuple[Refusing, ...] | None) -> str | None:
    """Return the sentence with which a plan tries the control alone; None also where every cause is insisted on."""
    if causes and all(one.insisted for one in causes):
        return None
    return control_only(capsule.diagnosis) or None


def on_record(plan: RecoveryPlan, storage: Storage) -> list[Disagreement]:
    """Compare a plan with the capsule of its source in a store; a capsule that is not there is a disagreement."""
    source = plan.source
    # A run may fail several times and have a capsule of each; the plan names the one it was made for.
    with storage.database.reading() as connection:
        row = connection.execute(
            "SELECT document FROM capsules JOIN runs USING (run_id) WHERE run_id = ? AND digest = ? AND origin = 'here'"
            " ORDER BY capsule_id DESC LIMIT 1",
            (source.run_id, source.capsule_digest),
        ).fetchone()
    if row is None:
        wanted = f"a capsule of run {source.run_id} in {storage.path}"
        return [Disagreement("plan.source.capsule_digest", wanted, f"none with the digest {source.capsule_digest}")]
    try:
        return disagreements(plan, Capsule.from_json(row[0]))
    except InvalidValue as error:
        return [Disagreement(f"capsule of run {source.run_id}: {error.message}", error.expected, error.got)]


def differences(expected: Any, got: Any, path: str) -> Iterator[Disagreement]:
    """Yield where two JSON values or records differ, down to their leaves; of lists of two lengths only the lengths.

    Values are the same where their canonical bytes are: 1 and 1.0 are one number, 1 and true are not one value.
    """
    expected, got = thaw(expected), thaw(got)
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for key in sorted(expected.keys() | got.keys()):
            yield from differences(expected.get(key, _ABSENT), got.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif isinstance(expected, list) and isinstance(got, list):
        yield Disagreement(path, f"{len(expected)} entries", f"{len(got)} entries")
    elif expected is _ABSENT or got is _ABSENT or canonical_bytes(expected) != canonical_bytes(got):
        yield Disagreement(path, _shown(expected), _shown(got))


def shortfall_of(capsule: Capsule) -> int | None:
    """Return the bytes that were missing as a plan keeps them: never negative, None where they are not known."""
    missing = capsule.diagnosis.shortfall_bytes
    return None if missing is None else max(0, missing)


def _configuration(capsule: Capsule) -> Any:
    data = next((piece.data for piece in capsule.evidence if piece.id == "EV-1"), None)
    return data.get("config", _ABSENT) if isinstance(data, Mapping) else _ABSENT


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = canonical_bytes(value).decode("utf-8")
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
