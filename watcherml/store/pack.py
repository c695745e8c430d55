"""One ZIP of a whole store, taken while others write to it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from watcherml.errors import NotAStore, StoreError
from watcherml.store.archive_write import Source, Written, beside, cannot_write, refuse_existing, write_archive
from watcherml.store.database import FILE_NAME, explain

if TYPE_CHECKING:
    from watcherml.store.storage import Storage

PACK = "watcherml.pack"
FOLDERS = ("artifacts", "trials")


def pack(storage: Storage, target: Path, *, overwrite: bool = False) -> Written:
    """Write the store's database as of one moment, and the files of its campaigns and trials, into one ZIP.

    Points that were logged before the call are in it. Nothing is written to a store that cannot be written. Raises
    ``StoreError`` where there is no store, ``InvalidValue`` if the target exists (unless ``overwrite``) or cannot be
    written.
    """
    if storage.is_older:
        raise StoreError(
            f"{storage.path} holds a store of WatcherML 0.1, which is only read",
            remedy="Nothing writes to it any more: copy the folder as it is.",
        )
    with storage.database.reading():
        pass  # raises where there is none
    storage.settle()
    for run_id in _runs_in_spool(storage):
        storage.fold(run_id)
    if not overwrite:
        refuse_existing(target)
    with beside(target) as copy:
        try:
            _copy_database(storage, copy, target)
        except OSError as error:
            raise cannot_write(target, error) from None
        members: dict[str, Source] = {FILE_NAME: copy}
        members.update(_files(storage.path))
        return write_archive(target, PACK, members, overwrite=overwrite)


def _runs_in_spool(storage: Storage) -> list[str]:
    """Return the runs that have a journal: a run's id may hold dots, so the names are matched from their ends."""
    names = (path.name for path in storage.runs.spool_folder.glob("*"))
    found = {name.rsplit(".", 3)[0] for name in names if name.endswith(".points")}
    names = (path.name for path in storage.runs.spool_folder.glob("*.jsonl"))
    return sorted(found | {name.rsplit(".", 2)[0] for name in names})


def _copy_database(storage: Storage, copy: Path, out: Path) -> None:
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    target = sqlite3.connect(copy, isolation_level=None)
    try:
        with storage.database.reading() as source:
            # In one step: SQLite would start over whenever another process writes between two.
            # Points in journals that could not be folded are in what is read.
            try:
                source.backup(target, pages=-1)
            except sqlite3.OperationalError as error:  # of the copy's disk: the store's own errors are other ones
                raise cannot_write(out, error) from None
        # Without a write-ahead log the file opens on media that take no second file beside it.
        target.execute("PRAGMA journal_mode = DELETE")
        target.execute("DELETE FROM spools")  # positions in files that the copy does not have
        problem = target.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise NotAStore(f"{storage.database.path} is damaged", got=str(problem), remedy="Restore it from a copy.")
    except sqlite3.OperationalError as error:
        raise cannot_write(out, error) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the copy has the damage of what was copied
        raise explain(error, storage.database.path) from error
    finally:
        target.close()


def _files(store: Path) -> Iterator[tuple[str, Path]]:
    for top in FOLDERS:
        for folder, _, names in os.walk(store / top):
            for name in names:
                path = Path(folder) / name
                temporary = name.startswith(".") and name.endswith(".tmp")
                if name != "lock" and not temporary and stat.S_ISREG(path.lstat().st_mode):
                    yield path.relative_to(store).as_posix(), path
