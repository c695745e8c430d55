"""The schema and its version. A store is created or moved forward under one write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from watcherml.errors import NewerStore, NotAStore

SCHEMA_VERSION = 1
# "WML1" as a number: tells our file from any other SQLite database.
APPLICATION_ID = 0x574D4C31


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of a store that this code can read.

    Raises ``NotAStore`` for another program's database or an empty one, ``NewerStore`` for a later schema.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application != APPLICATION_ID:
        raise NotAStore(
            f"{path} is not a WatcherML store",
            expected=f"application id {APPLICATION_ID:#x}",
            got=f"{application:#x}",
            remedy="Choose another folder with --data-dir or WATCHERML_DIR.",
        )
    if version > SCHEMA_VERSION:
        raise NewerStore(
            f"{path} was written by a later WatcherML",
            expected=f"schema {SCHEMA_VERSION} or older",
            got=f"schema {version}",
            remedy="Upgrade watcherml to open it.",
        )
    return version


def ensure_schema(connection: sqlite3.Connection, path: Path, begin: Callable[[sqlite3.Connection], None]) -> None:
    """Create the schema in an empty file, or check it; many processes may do so at once."""
    if not is_empty(connection):
        schema_version(connection, path)
        return
    begin(connection)
    try:
        if is_empty(connection):  # another process may have been first
            for name in ("schema.sql", "views.sql"):
                for statement in _statements(resources.files("watcherml.store").joinpath(name).read_text("utf-8")):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    schema_version(connection, path)


def is_empty(connection: sqlite3.Connection) -> bool:
    """Tell whether a database has no table yet."""
    return int(connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]) == 0


def _statements(script: str) -> list[str]:
    # executescript would commit first; statements one by one keep the whole schema in one transaction.
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
