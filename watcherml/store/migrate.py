"""The schema and its version. A store is created or moved forward under one write transaction.

Each step to a later version is one file in ``migrations``, named for the version it leads to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from watcherml.errors import NewerStore, NotAStore

SCHEMA_VERSION = 2
# "WML1" as a number: tells our file from any other SQLite database.
APPLICATION_ID = 0x574D4C31


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of a store that this code can read.

    Raises ``NotAStore`` for another program's database or an empty one, ``NewerStore`` for a later schema.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application != APPLICATION_ID or version < 1:
        raise NotAStore(
            f"{path} is not a WatcherML store",
            expected=f"application id {APPLICATION_ID:#x}",
            got=f"a SQLite database with application id {application:#x} and {_tables(connection)}",
            remedy="It was left alone. Choose another folder with --data-dir or WATCHERML_DIR.",
        )
    if version > SCHEMA_VERSION:
        raise NewerStore(
            f"{path} was written by a later WatcherML",
            expected=f"schema {SCHEMA_VERSION} or older",
            got=f"schema {version}",
            remedy="Open it with that version or a later one, from its clone or wheel; nothing in it was changed.",
        )
    return version


def ensure_schema(connection: sqlite3.Connection, path: Path, begin: Callable[[sqlite3.Connection], None]) -> None:
    """Create the schema in an empty file, or move an older one forward; many processes may do so at once.

    All steps are one transaction: a process that dies among them leaves the version it found.
    """
    if not is_empty(connection) and schema_version(connection, path) == SCHEMA_VERSION:
        return
    begin(connection)
    try:
        # Asked again under the lock: another process may have been first.
        if is_empty(connection):
            create(connection)
        else:
            upgrade(connection, schema_version(connection, path))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled back already
            connection.execute("ROLLBACK")
        raise


def create(connection: sqlite3.Connection) -> None:
    """Make tables and views in an empty database, inside the caller's transaction."""
    _run(connection, "schema.sql")
    _run(connection, "views.sql")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Move a schema forward from ``version``, inside the caller's transaction."""
    if version == SCHEMA_VERSION:
        return
    # A view over a table that changes would stop the change.
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
        connection.execute(f'DROP VIEW "{name}"')
    for step in range(version + 1, SCHEMA_VERSION + 1):
        _run(connection, f"migrations/{step}.sql")
    _run(connection, "views.sql")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def is_empty(connection: sqlite3.Connection) -> bool:
    """Tell whether a database has no table yet and no other program has put its mark on it."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    return application in (0, APPLICATION_ID) and not _count(connection)


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])


def _tables(connection: sqlite3.Connection) -> str:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name LIMIT 5").fetchall()
    return f"the tables {', '.join(str(row[0])[:40] for row in rows)}" if rows else "no table"


def _run(connection: sqlite3.Connection, name: str) -> None:
    from importlib import resources  # costs more than opening a store that is up to date

    script = resources.files("watcherml.store").joinpath(name).read_text("utf-8")
    for statement in _statements(script):
        connection.execute(statement)


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
