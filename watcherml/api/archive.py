"""Runs that travel: export into a ZIP, import as somebody else's claim, and a whole store in one file.

What comes from elsewhere is kept apart: an imported run has the origin "imported", and the results that came with it
lie in a table of their own. Nothing that came from elsewhere is put on record here.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from watcherml.api.result import ELSEWHERE, RecoveryResult, unfounded
from watcherml.campaign import source
from watcherml.errors import InvalidRecord, InvalidValue, StoreError
from watcherml.forensics.capsule import Capsule
from watcherml.platform import expanded, is_folder
from watcherml.protocol.verdict import RecoveryChain
from watcherml.sealed.canonical import digest as digest_of
from watcherml.sealed.fields import RunId
from watcherml.sealed.record import checked
from watcherml.store import portable_rows
from watcherml.store.absent import no_store
from watcherml.store.archive import MANIFEST, Archive
from watcherml.store.archive_write import Written, irregularities, write_archive
from watcherml.store.pack import PACK, pack
from watcherml.store.packed import Packed, put_pack
from watcherml.store.portable import KIND, VERSION, Portable
from watcherml.store.sound import all_sound
from watcherml.store.storage import Storage

RESULT_NAME = "recovery-result.json"
ALTERED = "What came of this campaign was altered after it was sealed, so nothing is claimed."
Where = Storage | str | os.PathLike[str] | None


@dataclass(frozen=True)
class Exported:
    """A written export: sizes in bytes, the campaigns whose results are in it, and how many points."""

    run_id: str
    path: str
    size_bytes: int
    members: dict[str, int]
    points: int
    campaigns: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {"kind": "export", **asdict(self)}


@dataclass(frozen=True)
class Imported:
    """What an import brought. ``already`` is True where the same archive was imported before: nothing changed then.

    ``claims`` has the status that each campaign's own store gave it, by campaign; here none of them is on record.
    """

    run_id: str
    original_run_id: str
    path: str
    already: bool
    points: int
    capsules: int
    campaigns: tuple[str, ...]
    claims: dict[str, str]

    def to_data(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {"kind": "import", **asdict(self)}


@dataclass(frozen=True)
class Opened:
    """The decoded content of an export: the run, its capsules, and the chains of its campaigns by member name."""

    run: Portable
    capsules: tuple[Capsule, ...]
    chains: dict[str, RecoveryChain]
    digest: str  # of the manifest, which covers every member


def export_run(run_id: str, out: str | os.PathLike[str] | None = None, *, storage: Where = None, force: bool = False
               ) -> Exported:  # fmt: skip
    """Write a run with its evidence and its campaigns' results into a ZIP, by default ``watcher-RUN_ID.zip`` here.

    The same content gives the same bytes. Dataset and checkpoint bytes are not in it. Raises ``NotFound`` for an
    unknown run, ``InvalidValue`` if the file exists (unless ``force``) or cannot be written.
    """
    where = _storage(storage)
    if where.is_older:
        raise StoreError(f"{where.path} holds a store of WatcherML 0.1, whose runs cannot be checked here",
                         remedy="Pass the folder on as it is; it stays readable.")  # fmt: skip
    found = read_run(where, run_id)
    if found is None:
        if where.exists:
            where.get_run(run_id)  # says what the id is instead
        raise no_store(f"no run {run_id[:100]!r}", where.path)
    members: dict[str, bytes | Path] = dict(found.members())
    chains = _chains_of(where, run_id)
    for campaign_id, document in chains.items():
        members[f"campaigns/{campaign_id}/{RESULT_NAME}"] = document.encode("utf-8")
    target = _target(out, f"watcher-{run_id}.zip")
    written = write_archive(target, KIND, members, overwrite=force, run_id=run_id)
    return Exported(run_id, str(target), written.size_bytes, written.members, len(found.points), tuple(chains))


def read_run(storage: Storage, run_id: str) -> Portable | None:
    """Return a run as it would be exported, None if there is none; of one moment, with the points logged so far."""
    if not storage.exists:
        return None
    storage.settle()
    storage.fold(run_id)
    with storage.database.reading() as connection:
        connection.execute("BEGIN")
        return portable_rows.collect(connection, run_id)


def import_run(path: str | os.PathLike[str], *, storage: Where = None, as_id: str | None = None) -> Imported:
    """Bring the run of an export into a store, as somebody else's claim; the store is made if there is none.

    The run keeps its id, or gets ``as_id``. Raises ``InvalidValue`` for a file that is no whole and unaltered export,
    for content that cannot be what it says (naming the member and the place in it), and for an id that is taken. Then
    nothing is changed.
    """
    where = _storage(storage)
    name = Path(path).name
    try:
        with Path(path).open("rb") as stream:
            opened = open_export(Archive(stream, name), stream)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        got = f"{os.fspath(path)[:200]}: {getattr(error, 'strerror', None) or error}"
        raise InvalidValue("FILE", expected="a file that can be read", got=got) from None
    run_id = opened.run.run.run_id if as_id is None else checked(RunId, as_id, "--as")
    with where.database.writing() as connection:
        earlier = connection.execute("SELECT run_id FROM imports WHERE digest = ?", (opened.digest,)).fetchone()
        if earlier is None:
            _refuse_taken(connection, run_id, where)
            _insert(connection, opened, run_id, name, where.clock())
    return Imported(
        run_id if earlier is None else earlier[0],
        opened.run.original_run_id,
        str(path),
        earlier is not None,
        len(opened.run.points),
        len(opened.capsules),
        tuple(chain.campaign_id for chain in opened.chains.values()),
        {chain.campaign_id: chain.verdict.status for chain in opened.chains.values()},
    )


def open_export(archive: Archive, stream: Any) -> Opened:
    """Decode and check an export without a store.

    Raises ``InvalidValue`` where the archive is not whole and as it was written, ``InvalidRecord`` naming the member
    and the place for content that does not decode or does not belong together.
    """
    document = archive.document()
    if document.get("archive") != KIND or document.get("version") != VERSION or document.get("version") is True:
        got = f"{document.get('archive')!r:.60}, version {document.get('version')!r:.20}"
        raise InvalidValue(f"{archive.title}: {MANIFEST}", expected=f"an export ({KIND}, version {VERSION})", got=got,
                           remedy="`watcher export RUN_ID` makes one.")  # fmt: skip
    for member, expected, got in [*archive.check(), *irregularities(stream, archive)]:
        raise InvalidValue(f"{archive.title}: member {member!r:.120}", expected=expected, got=got,
                           remedy="It was changed after it was exported; nothing of it was used.")  # fmt: skip
    run = Portable.from_members(archive.names, archive.read)
    if document.get("run_id") != run.run.run_id:
        raise InvalidRecord(f"{MANIFEST}.run_id", expected=run.run.run_id, got=f"{document.get('run_id')!r:.120}")
    ids = {run.run.run_id, run.original_run_id}
    capsules = tuple(_capsule(text, ids) for text in run.capsules)
    known = {*run.members()}
    chains = {name: _chain(name, archive, ids, capsules) for name in archive.names if name not in {*known, MANIFEST}}
    return Opened(run, capsules, chains, digest_of(KIND, VERSION, document))


def pack_store(out: str | os.PathLike[str] | None = None, *, storage: Where = None, force: bool = False) -> Written:
    """Write a whole store into one ZIP, by default ``watcherml-store.zip`` here, while others go on writing to it.

    Unzipped, the folder opens with ``--data-dir``. Raises ``StoreError`` where there is no store, ``InvalidValue`` if
    the file exists (unless ``force``) or cannot be written. The pack is put on record, where the store can be written.
    """
    where = _storage(storage)
    if not where.exists:
        raise StoreError("no WatcherML store", expected=f"a store in {where.path}", remedy="Point --data-dir at one.")
    written = pack(where, _target(out, "watcherml-store.zip"), overwrite=force)
    # Without this the pack is whole all the same; `watcher verify` cannot say then that it is this store's.
    with suppress(StoreError, InvalidValue, OSError):
        if where.writable:
            with written.path.open("rb") as stream:
                digest = pack_digest(Archive(stream, written.path.name))
            put_pack(where, Packed(digest, written.size_bytes, where.clock()))
    return written


def pack_digest(archive: Archive) -> str:
    """Return the digest of a pack's manifest, which covers every member."""
    return digest_of(PACK, VERSION, archive.document())


def imported_campaigns(
    storage: Storage, *, project: str | None = None, run_id: str | None = None
) -> list[dict[str, Any]]:
    """Return the campaigns that came with imported runs, newest first, as rows of ``campaign_summary``.

    Their ``status`` and ``lifecycle`` are "imported": what they claim was verified elsewhere, not by this store.
    """
    if not storage.exists:
        return []
    with storage.database.reading() as connection:
        rows = connection.execute(
            "SELECT i.document, i.run_id, i.at, i.campaign_id, r.project FROM imports i LEFT JOIN runs r USING (run_id)"
            " WHERE i.kind = ? ORDER BY i.at DESC, i.campaign_id",
            (RecoveryChain.KIND,),
        ).fetchall()
    found = all_sound("campaigns", (_summary(row) for row in rows if run_id in (None, row["run_id"])))
    return [row for row in found if project in (None, row["project"])]


def imported_result(storage: Storage, campaign_id: str) -> RecoveryResult | None:
    """Return the result that came with an imported run, recomputed from its trials and never on record, or None."""
    if not storage.exists:
        return None
    with storage.database.reading() as connection:
        row = connection.execute(
            "SELECT document FROM imports WHERE kind = ? AND campaign_id = ? ORDER BY at DESC LIMIT 1",
            (RecoveryChain.KIND, campaign_id),
        ).fetchone()
    return None if row is None else RecoveryResult.from_json(row[0], storage=storage)


def trial_rows(chain: RecoveryChain) -> list[dict[str, Any]]:
    """Return the trials of a chain as rows of ``trial_summary``; an imported campaign has no rows of its own."""
    rows = []
    for number, one in enumerate(chain.trials, 1):
        request, result = one.request, one.result
        rows.append({
            "trial_id": request.trial_id, "campaign_id": chain.campaign_id, "seq": number, "role": request.role,
            "proposal_id": request.proposal_id, "run_id": request.run_id, "started_at": result.started_at,
            "ended_at": result.started_at + result.wall_seconds, "outcome": result.outcome,
            "steps": result.progress.steps, "peak_bytes": None if result.peak is None else result.peak.compared_bytes,
            "wall_s": result.wall_seconds, "gpu_s": result.gpu_seconds, "sentence": result.sentence,
        })  # fmt: skip
    return rows


def _summary(row: sqlite3.Row) -> dict[str, Any]:
    found = {
        "campaign_id": row["campaign_id"], "project": row["project"], "source_run_id": row["run_id"],
        "created_at": row["at"], "last_change": "imported", "status": "imported", "reason_code": None,
        "sentence": ALTERED, "candidate_id": None, "device_kind": None, "ended_at": row["at"], "trials": 0,
        "trial_wall_s": None, "lifecycle": "imported",
    }  # fmt: skip
    try:
        chain = RecoveryChain.from_json(row["document"])
    except InvalidValue:  # one that was altered must not hide the others
        return found
    verdict, claimed = chain.verdict, chain.verdict.status == "verified"
    return {
        **found, "campaign_id": chain.campaign_id, "project": chain.plan.source.project,
        "reason_code": verdict.reason_code,
        "sentence": f"{ELSEWHERE if claimed else 'Claimed elsewhere: '}{verdict.sentence}",
        "candidate_id": verdict.candidate_id, "device_kind": verdict.device_kind, "trials": len(chain.trials),
        "trial_wall_s": sum(one.result.wall_seconds for one in chain.trials),
    }  # fmt: skip


def _chains_of(storage: Storage, run_id: str) -> dict[str, str]:
    """Return the results of a run's finished campaigns by campaign: its own, or those that came with an import."""
    with storage.database.reading() as connection:
        own = connection.execute(
            "SELECT c.campaign_id, r.document FROM campaigns c JOIN records r ON r.campaign_id = c.campaign_id"
            " WHERE c.source_run_id = ? AND r.kind = ?",
            (run_id, RecoveryChain.KIND),
        ).fetchall()
        other = connection.execute(
            "SELECT campaign_id, document FROM imports WHERE kind = ?2"
            f" AND (run_id = ?1 OR digest IN (SELECT value FROM ({portable_rows.CAME_WITH} AND r.run_id = ?1)))",
            (run_id, RecoveryChain.KIND),
        ).fetchall()
    return {str(row[0]): str(row[1]) for row in sorted([*own, *other], key=lambda row: str(row[0]))}


def _capsule(text: str, ids: set[str]) -> Capsule:
    try:
        capsule = Capsule.from_json(text)
    except InvalidValue as error:
        raise _inside("capsule.json", error) from None
    if capsule.run_id not in ids:
        raise InvalidRecord("capsule.json: $.value.run_id", expected=" or ".join(sorted(ids)), got=capsule.run_id)
    return capsule


def _chain(name: str, archive: Archive, ids: set[str], capsules: tuple[Capsule, ...]) -> RecoveryChain:
    if not (name.startswith("campaigns/") and name.endswith(f"/{RESULT_NAME}") and name.count("/") == 2):
        raise InvalidRecord(name, expected="only members that an export has", got="one more")
    try:
        chain = RecoveryChain.from_json(archive.read(name))
    except InvalidValue as error:
        raise _inside(name, error) from None
    told = chain.plan.source
    for path, expected, got in (
        ("$.value.campaign_id", name.split("/")[1], chain.campaign_id),
        ("$.value.plan.source.run_id", told.run_id if told.run_id in ids else " or ".join(sorted(ids)), told.run_id),
    ):
        if expected != got:
            raise InvalidRecord(f"{name}: {path}", expected=expected, got=got)
    capsule = next((one for one in capsules if one.digest == told.capsule_digest), None)
    if capsule is None:
        raise InvalidRecord(f"{name}: $.value.plan.source.capsule_digest", expected="a capsule of this archive",
                            got=told.capsule_digest)  # fmt: skip
    for path, expected, got in [*unfounded(chain), *source.disagreements(chain.plan, capsule)]:
        raise InvalidRecord(f"{name}: {path}", expected=expected, got=got,
                            remedy="It does not follow from the trials and the capsule beside it.")  # fmt: skip
    return chain


def _inside(name: str, error: InvalidValue) -> InvalidRecord:
    return InvalidRecord(f"{name}: {error.message}", expected=error.expected, got=error.got, remedy=error.remedy)


def _refuse_taken(connection: sqlite3.Connection, run_id: str, storage: Storage) -> None:
    row = connection.execute("SELECT origin FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    # Commands take ids of runs and of campaigns alike, and a trial's run may have been pruned.
    other = connection.execute(
        "SELECT 'a campaign' FROM campaigns WHERE campaign_id = ?1 UNION SELECT 'a trial' FROM trials WHERE run_id = ?1"
        " OR trial_id = ?1 UNION SELECT 'an imported campaign' FROM imports WHERE campaign_id = ?1",
        (run_id,),
    ).fetchone()
    if row is None and other is not None:
        raise InvalidValue(f"run {run_id} cannot be imported", expected=f"an id that is free in {storage.path}",
                           got=f"one of {other[0]}", remedy="Give it another one with --as NEW_ID.")  # fmt: skip
    if row is not None:
        whose = "recorded here" if row[0] == "here" else "imported from another file"
        raise InvalidValue(
            f"run {run_id} cannot be imported",
            expected=f"an id that is free in {storage.path}",
            got=f"one of a run that was {whose}",
            remedy="Give it another one with --as NEW_ID.",
        )


def _insert(connection: sqlite3.Connection, opened: Opened, run_id: str, file: str, at: float) -> None:
    shown = file.encode("utf-8", "replace").decode("utf-8")[:400]
    origin: dict[str, Any] = {
        "run_id": opened.run.original_run_id,
        "file": shown,
        "digest": opened.digest,
        "imported_at": at,
    }
    if opened.chains:
        origin["results"] = sorted(chain.digest for chain in opened.chains.values())
    portable_rows.adopt(connection, opened.run, run_id, opened.capsules, origin)
    documents: list[tuple[str, str, str | None, str]] = [(opened.digest, KIND, None, "{}")]
    documents += [(one.digest, one.KIND, one.campaign_id, one.to_json()) for one in opened.chains.values()]
    connection.executemany(
        # A result that came with another export of the same run stays with the one that it came with first,
        # until that one is deleted.
        "INSERT OR IGNORE INTO imports (digest, kind, run_id, campaign_id, document, source, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(digest, kind, run_id, campaign_id, text, shown, at) for digest, kind, campaign_id, text in documents],
    )


def _target(out: str | os.PathLike[str] | None, name: str) -> Path:
    target = expanded(name if out is None else out)
    if is_folder(target):
        target = target / name
    return target


def _storage(storage: Where) -> Storage:
    return storage if isinstance(storage, Storage) else Storage(storage)
