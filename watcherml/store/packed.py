"""The packs that a store has made: what it has to know to say of a ZIP, later, that this is one, unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from watcherml.sealed.fields import ByteCount, Digest, Timestamp
from watcherml.sealed.record import Record

if TYPE_CHECKING:
    from watcherml.store.storage import Storage


@dataclass(frozen=True, slots=True, eq=False)
class Packed(Record):
    """A whole store that was written into one ZIP: the digest of its manifest, which covers every member."""

    KIND: ClassVar[str] = "store-pack"

    manifest_digest: Digest
    size_bytes: ByteCount
    at: Timestamp


def put_pack(storage: Storage, made: Packed) -> None:
    """Put a pack on record; ``StoreError`` if the store does not take it."""
    storage.audit.put_record(made.digest, made.KIND, made.to_json(), made.at)


def find_pack(storage: Storage, manifest_digest: str) -> Packed | None:
    """Return the pack of this store that has this manifest, None if it made no such pack."""
    if not storage.exists or storage.is_older:
        return None
    with storage.database.reading() as connection:
        row = connection.execute(
            "SELECT document FROM records WHERE kind = ? AND json_extract(document, '$.value.manifest_digest') = ?",
            (Packed.KIND, manifest_digest),
        ).fetchone()
    return None if row is None else Packed.from_json(row[0])
