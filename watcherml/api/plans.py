"""Finding a plan that is on record: by its own digest, by the run that it was made for, or by its campaign."""

from __future__ import annotations

from typing import Literal

from watcherml.api.recover import RecoveryPreparation
from watcherml.campaign.ledger import Ledger
from watcherml.errors import NotFound
from watcherml.protocol.plan import RecoveryPlan
from watcherml.store.storage import Storage

_FEWEST_DIGITS = 8  # of a digest that is not written out


def find_plan(storage: Storage, wanted: str) -> tuple[RecoveryPreparation, str | None]:
    """Return a plan on record and the id of the newest campaign that runs it, None while there is none.

    ``wanted`` is a run (its newest plan), a campaign, or a plan's digest or the first 8 digits of it or more. Raises
    ``NotFound`` for what is none of them, ``TrustError`` for a plan that does not tell its failure as the store does.
    """
    if not storage.exists or storage.is_older:
        raise NotFound(f"no plan {wanted[:100]!r}: there is no store of this version in {storage.path}")
    if _campaign(storage, "campaign_id", wanted) is not None:
        return RecoveryPreparation(Ledger(storage, wanted).plan(), storage), wanted
    document = _of_run(storage, wanted) or _by_digest(storage, wanted)
    if document is None:
        raise NotFound(
            f"no plan {wanted[:100]!r} in {storage.path}",
            expected="a run that a recovery was prepared for, a campaign, or a plan's digest",
            remedy="`%%watcher recover` prepares one; `%watcher recoveries` lists campaigns.",
        )
    preparation = RecoveryPreparation.from_json(document, storage=storage)
    return preparation, _campaign(storage, "plan_digest", preparation.plan.digest)


def _campaign(storage: Storage, column: Literal["campaign_id", "plan_digest"], value: str) -> str | None:
    with storage.database.reading() as connection:
        row = connection.execute(
            f"SELECT campaign_id FROM campaigns WHERE {column} = ? ORDER BY created_at DESC LIMIT 1", (value,)
        ).fetchone()
    return None if row is None else str(row[0])


def _of_run(storage: Storage, run_id: str) -> str | None:
    return _newest(storage, "json_extract(document, '$.value.source.run_id') = ?", run_id)


def _by_digest(storage: Storage, digest: str) -> str | None:
    digits = digest.removeprefix("sha256:").lower()
    if len(digits) < _FEWEST_DIGITS or not all(one in "0123456789abcdef" for one in digits):
        return None
    return _newest(storage, "digest LIKE ?", f"%{digits}%")


def _newest(storage: Storage, condition: str, value: str) -> str | None:
    with storage.database.reading() as connection:
        row = connection.execute(
            f"SELECT document FROM records WHERE kind = ? AND {condition} ORDER BY at DESC, rowid DESC LIMIT 1",
            (RecoveryPlan.KIND, value),
        ).fetchone()
    return None if row is None else str(row[0])
