"""Checking a result, a plan, an archive of them or a campaign of this store: what each is worth here.

What a document says is recomputed by the loaders of ``result`` and ``recover``; this module opens what it is given
without trusting it and keeps the answer as plain values.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

from watcherml.api.archive import Opened, imported_result, open_export, pack_digest
from watcherml.api.exported import standing_of
from watcherml.api.recover import RecoveryPreparation
from watcherml.api.removal import deletions
from watcherml.api.result import MOST_DISAGREEMENTS, RecoveryResult, unfounded
from watcherml.campaign import source
from watcherml.campaign.ledger import Ledger
from watcherml.campaign.source import Disagreement
from watcherml.errors import InvalidRecord, InvalidValue, NotFound, NotOnRecord, TrustError, WatcherError
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import RecoveryChain
from watcherml.sealed.canonical import parse_json
from watcherml.sealed.fields import CampaignId
from watcherml.sealed.record import checked
from watcherml.store.archive import MANIFEST, STARTS, Archive
from watcherml.store.archive_write import irregularities
from watcherml.store.pack import PACK
from watcherml.store.packed import Packed, find_pack
from watcherml.store.portable import KIND as EXPORT
from watcherml.store.portable import RUN
from watcherml.store.storage import Storage

Standing = Literal["on_record", "unrecorded", "altered"]
# A chain at every limit of its parts (1 MB of configuration in each of 10 trials) stays below half of this.
MAX_DOCUMENT_BYTES = 64 * 2**20
RESULT, PLAN, ARCHIVE, EXPORTED_RUN = RecoveryChain.KIND, RecoveryPlan.KIND, "archive", "exported-run"
EXIT_CODES: dict[Standing, int] = {"on_record": 0, "altered": 1, "unrecorded": 4}
CLAIMED_BY_01 = "Claimed by WatcherML 0.1; its trials cannot be checked here."

_KINDS_01 = {"watcherml.recovery-result": RESULT, "watcherml.recovery-preparation": PLAN}
_NAMES = ("recovery-result.json", "recovery-plan.json")
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
_WORST_FIRST: tuple[Standing, ...] = ("altered", "unrecorded", "on_record")
_HEAD_BYTES = 4_096
# What the content of a document can make the loaders raise; a store that cannot be read is no fault of the document.
_UNFIT = (InvalidValue, TrustError, NotFound)
_NOT_THE_RECORD = (
    "This store has that campaign on record, and this is not it: altered, or of another store's campaign of that name."
)
_WHOLE_STORE = "A whole store as it was packed; unzipped, it opens with --data-dir."
_UNKNOWN_PACK = "This store has not packed it, and what the database in it holds is not checked here."
_ALTERED = "Altered, or not a document of this program: it proves nothing."


@dataclass(frozen=True)
class Examined:
    """What one target is worth here.

    ``kind`` is "recovery-result", "recovery-plan", "archive", "exported-run" or None for what cannot be read.
    ``status`` is the recomputed verdict's, None without one; a claim unless ``standing`` is "on_record".
    ``problems`` holds at most 20 places that are not as they have to be, ``documents`` what an archive holds.
    """

    target: str
    kind: str | None
    standing: Standing
    sentence: str
    campaign_id: str | None = None
    status: str | None = None
    reason_code: str | None = None
    verified: bool = False
    checks_passed: int | None = None
    checks_total: int | None = None
    problems: tuple[Disagreement, ...] = ()
    documents: tuple[Examined, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 on record here, 1 altered, 4 consistent but not on record here."""
        return EXIT_CODES[self.standing]

    def to_data(self) -> dict[str, Any]:
        """Return everything as plain JSON values; each problem as path, expected, got."""
        return {
            **asdict(self),
            "problems": [one._asdict() for one in self.problems],
            "documents": [one.to_data() for one in self.documents],
        }


def examine(target: str, storage: Storage) -> Examined:
    """Check a file (a result, a plan, or a ZIP that holds some), else the campaign of that id in a store.

    Raises ``NotFound`` for what is neither, ``CampaignError`` for a campaign that has no result yet, ``InvalidValue``
    for a file that the system does not let us read.
    """
    stream = _opened(target)
    if stream is None:
        return _campaign(target, storage)
    try:
        with stream:
            return _file(stream, target, storage)
    except OSError as error:
        raise _unreadable(target, error) from None


def _opened(target: str) -> BinaryIO | None:
    """Open a regular file; None for anything else, which is not even opened: a pipe would wait for its writer."""
    try:
        if not target or not stat.S_ISREG(Path(target).stat().st_mode):
            return None
        # What has become something else since is opened without waiting, and looked at again.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        stream = os.fdopen(os.open(target, flags), "rb")
    except ValueError:  # a NUL byte, or text that no file system can hold
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise _unreadable(target, error) from None
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    return None


def _unreadable(target: str, error: OSError) -> InvalidValue:
    return InvalidValue("TARGET", expected="a file that can be read", got=f"{target[:200]}: {error.strerror}")


def _is_id(target: str) -> bool:
    with suppress(InvalidValue):
        checked(CampaignId, target, "campaign_id")
        return True
    return False


def _file(stream: BinaryIO, target: str, storage: Storage) -> Examined:
    head = stream.read(_HEAD_BYTES)
    if head.startswith(STARTS):
        return _archive(stream, target, storage)
    if not head.lstrip().startswith(b"{"):
        got = f"{head[:16]!r}" if head else "an empty file"
        return _altered(target, None, [Disagreement("$", "a JSON document or a ZIP archive", got)])
    data = head + stream.read(MAX_DOCUMENT_BYTES - len(head) + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        return _altered(target, None, [Disagreement("$", f"at most {MAX_DOCUMENT_BYTES} bytes", "more")])
    return _document(data, target, storage)


def _document(data: bytes, target: str, storage: Storage) -> Examined:
    try:
        document = parse_json(data)
    except InvalidRecord as error:
        return _altered(target, None, [_problem(error)])
    kind = _kind(document)
    if kind in _KINDS_01:
        return Examined(target, _KINDS_01[kind], "unrecorded", CLAIMED_BY_01, _campaign_id_01(document))
    if kind == RESULT:
        return _result(data, target, storage)
    if kind == PLAN:
        return _plan(data, target, storage)
    got = "nothing" if kind is None else repr(kind)[:200]
    return _altered(target, None, [Disagreement("$.kind", f"'{RESULT}' or '{PLAN}'", got)])


def _kind(document: Any) -> str | None:
    """Return what a document says it is; a document of 0.1 has a schema's name where ours has a kind."""
    if not isinstance(document, dict):
        return None
    schema = document.get("schema")
    if "kind" not in document and isinstance(schema, dict) and schema.get("version") == "1.0":
        return name if (name := str(schema.get("name"))) in _KINDS_01 else None
    kind = document.get("kind")
    return kind if isinstance(kind, str) and kind not in _KINDS_01 else None


def _campaign_id_01(document: dict[str, Any]) -> str | None:
    campaign = document.get("campaign")
    found = campaign.get("campaign_id") if isinstance(campaign, dict) else None
    return found if isinstance(found, str) and _is_id(found) else None


def _result(data: bytes, target: str, storage: Storage) -> Examined:
    try:
        result = RecoveryResult.from_json(data, storage=storage)
    except TrustError as error:
        chain = RecoveryChain.from_json(data)
        return _altered(target, RESULT, _reasons(chain, storage) or [_problem(error)], chain.campaign_id)
    except _UNFIT as error:
        return _altered(target, RESULT, [_problem(error)])
    against = [] if result.standing == "on_record" else _against_the_record(result.chain, storage)
    if against:
        return replace(_altered(target, RESULT, against, result.campaign_id), sentence=_NOT_THE_RECORD)
    return _judged(target, result)


def _judged(target: str, result: RecoveryResult) -> Examined:
    checks = result.verdict.checks
    return Examined(
        target,
        RESULT,
        result.standing,
        result.sentence,
        campaign_id=result.campaign_id,
        status=result.verdict.status,
        reason_code=result.reason_code,
        verified=result.verified,
        checks_passed=sum(one.outcome == "pass" for one in checks),
        checks_total=len(checks),
    )


def _reasons(chain: RecoveryChain, storage: Storage) -> list[Disagreement]:
    return unfounded(chain) or (source.on_record(chain.plan, storage) if storage.exists else [])


def _against_the_record(chain: RecoveryChain, storage: Storage) -> list[Disagreement]:
    """Return how a chain differs from the one on record for the same campaign; empty if there is no such campaign."""
    if not storage.exists:
        return []
    try:
        storage.audit.campaign(chain.campaign_id)
    except NotFound:
        return []
    recorded = Ledger(storage, chain.campaign_id).chain()
    if recorded is None:
        expected = f"no result yet, as campaign {chain.campaign_id} of this store has none"
        return [Disagreement("$.value.campaign_id", expected, "a result")]
    found = list(islice(source.differences(recorded, chain, "$.value"), MOST_DISAGREEMENTS))
    return found or [Disagreement("$", "the parts of this campaign on record", "parts that are not")]


def _plan(data: bytes, target: str, storage: Storage) -> Examined:
    try:
        RecoveryPreparation.from_json(data, storage=storage)
    except InvalidValue as error:
        return _altered(target, PLAN, [_problem(error)])
    except NotOnRecord:
        sentence = "Prepared elsewhere, not in this store; a plan runs only where it was made."
        return Examined(target, PLAN, "unrecorded", sentence)
    except TrustError as error:
        plan = RecoveryPlan.from_json(data)
        return _altered(target, PLAN, source.on_record(plan, storage) or [_problem(error)])
    return Examined(target, PLAN, "on_record", "Prepared in this store, for a failure that is on record as it says.")


def _campaign(target: str, storage: Storage) -> Examined:
    known = storage.exists and _is_id(target)
    try:
        if known and storage.is_older:
            return Examined(target, RESULT, "unrecorded", CLAIMED_BY_01, storage.audit.campaign(target)["campaign_id"])
        if known:
            return _judged(target, RecoveryResult.of_campaign(target, storage))
    except NotFound:
        pass
    except (InvalidValue, TrustError) as error:
        return _altered(target, RESULT, _reasons_of(target, storage) or [_problem(error)], target)
    imported = imported_result(storage, target) if known else None
    if imported is not None:
        return _judged(target, imported)
    raise NotFound(
        f"{target[:100]!r} is neither a file nor a campaign of this store",
        expected="a result, a plan, a ZIP archive that holds some, or a campaign's id",
        got=(_deleted(target, storage) if known else "") or _what_it_is(target),
        remedy=f"`watcher recoveries` lists the campaigns of {storage.path}.",
    )


def _reasons_of(campaign_id: str, storage: Storage) -> list[Disagreement]:
    try:
        chain = Ledger(storage, campaign_id).chain()
    except InvalidValue as error:
        return [_problem(error)]
    return [] if chain is None else _reasons(chain, storage)


def _deleted(campaign_id: str, storage: Storage) -> str:
    for one in deletions(storage):
        if campaign_id in one.campaign_ids:
            when = datetime.fromtimestamp(one.at, timezone.utc)
            return f"a campaign that {one.deleted_by} deleted on {when:%Y-%m-%d %H:%M} UTC"
    return ""


def _what_it_is(target: str) -> str:
    try:
        mode = Path(target).stat().st_mode if target else 0
    except (OSError, ValueError):
        return "nothing of that name"
    return "a folder" if stat.S_ISDIR(mode) else "a pipe or a device" if mode else "an empty name"


def _archive(stream: BinaryIO, target: str, storage: Storage) -> Examined:
    try:
        archive = Archive(stream, Path(target).name)
        problems = [Disagreement(*one) for one in archive.check()]
        made_by = archive.document().get("archive")
        if made_by in (EXPORT, PACK):
            problems += [Disagreement(*one) for one in irregularities(stream, archive)]
            if problems:
                return _altered(target, ARCHIVE, problems)
        documents = tuple(found for name in archive.names if (found := _member(archive, name, storage)))
        if made_by == EXPORT:
            documents = (_exported_run(open_export(archive, stream), storage), *documents)
        own = find_pack(storage, pack_digest(archive)) if made_by == PACK else None
    except InvalidValue as error:
        return _altered(target, ARCHIVE, [_problem(error)])
    if made_by == PACK and not documents:
        return Examined(target, ARCHIVE, "unrecorded" if own is None else "on_record", _whole_store(own))
    if not documents:
        problems.append(Disagreement("$", "a recovery result or plan among its members", "none"))
    standing: Standing = min((one.standing for one in documents), key=_WORST_FIRST.index, default="altered")
    standing = "altered" if problems else standing
    counts = {word: sum(one.standing == word for one in documents) for word in reversed(_WORST_FIRST)}
    told = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.items() if count)
    whole = f" {_whole_store(own)}" if made_by == PACK else ""
    results = [one.verified for one in documents if one.kind == RESULT]
    return Examined(
        target,
        ARCHIVE,
        standing,
        f"Documents: {told or 'none'}.{' The archive itself is not as its manifest says.' if problems else ''}{whole}",
        verified=standing == "on_record" and bool(results) and all(results),
        problems=tuple(problems[:MOST_DISAGREEMENTS]),
        documents=documents,
    )


def _whole_store(own: Packed | None) -> str:
    if own is None:
        return f"{_WHOLE_STORE} {_UNKNOWN_PACK}"
    when = datetime.fromtimestamp(own.at, timezone.utc)
    return f"{_WHOLE_STORE} This store packed it on {when:%Y-%m-%d %H:%M} UTC, and it is unchanged."


def _exported_run(opened: Opened, storage: Storage) -> Examined:
    standing, sentence, problems = standing_of(opened, storage)
    return Examined(RUN, EXPORTED_RUN, standing, sentence, problems=tuple(problems[:MOST_DISAGREEMENTS]))


def _member(archive: Archive, name: str, storage: Storage) -> Examined | None:
    """Check a member that is a document of ours, or claims or ought to be one; None for the others."""
    if name == MANIFEST or not name.lower().endswith(".json"):
        return None
    data = archive.read(name, MAX_DOCUMENT_BYTES)
    ours = name.rsplit("/", 1)[-1] in _NAMES
    if not ours:
        try:
            ours = _kind(parse_json(data)) in (RESULT, PLAN, *_KINDS_01)
        except InvalidRecord:
            ours = any(f'"{kind}"'.encode() in data for kind in (RESULT, PLAN))
    return _document(data, name, storage) if ours else None


def _problem(error: WatcherError) -> Disagreement:
    return Disagreement(error.message, error.expected, error.got)


def _altered(
    target: str, kind: str | None, problems: Sequence[Disagreement], campaign_id: str | None = None
) -> Examined:
    return Examined(target, kind, "altered", _ALTERED, campaign_id, problems=tuple(problems[:MOST_DISAGREEMENTS]))
