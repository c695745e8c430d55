"""``--despite CAUSE``: which causes refuse every change of a configuration, and whether a person insists on each."""

from __future__ import annotations

from collections.abc import Sequence

from watcherml.errors import InvalidValue
from watcherml.forensics.capsule import Diagnosis
from watcherml.forensics.causes.diagnose import refusing
from watcherml.protocol.plan import Refusing

_SHOWN = 200


def refused_by(diagnosis: Diagnosis, despite: Sequence[str] = ()) -> tuple[Refusing, ...] | None:
    """Return the causes for which a diagnosis refuses every change, each with whether it is insisted on; None if none.

    ``despite`` holds cause ids such as "C10", in capitals or not; a text alone is one id, and an id that is repeated
    counts once. Raises ``InvalidValue`` for an id that is no sufficient cause of this failure or refuses nothing.
    """
    causes = refusing(diagnosis)
    known = {one.id.lower(): one.id for one in causes}
    asked = {_known(one, known, diagnosis) for one in ([despite] if isinstance(despite, str) else despite)}
    made = tuple(Refusing(one.id, one.name, one.sentence, one.id in asked) for one in causes)
    return made or None


def _known(asked: object, known: dict[str, str], diagnosis: Diagnosis) -> str:
    found = known.get(asked.strip().lower()) if isinstance(asked, str) else None
    if found is not None:
        return found
    sufficient = {one.id.lower() for one in diagnosis.sufficient}
    got = asked[:_SHOWN] if isinstance(asked, str) else type(asked).__name__
    if isinstance(asked, str) and asked.strip().lower() in sufficient:
        got += ", a cause of this failure that refuses no change"
    refusal = ", ".join(f"{one.id} ({one.name})" for one in refusing(diagnosis))
    remedy = f"Insist on {' and '.join(known.values())}." if known else "Leave it out: no cause has to be overruled."
    raise InvalidValue(
        "despite",
        expected=f"a cause that refuses: {refusal}" if refusal else "nothing: no cause of this failure refuses changes",
        got=got or "an empty text",
        remedy=remedy,
    )
