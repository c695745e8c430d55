"""What several views do alike."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from watcherml.api import data
from watcherml.report.listing import CAMPAIGNS, FAILURES, RUNS
from watcherml.store.pages import Found
from watcherml.store.runs import Row
from watcherml.store.storage import Storage
from watcherml.ui import tables
from watcherml.ui.tables import Table

Answer = TypeVar("Answer")
NOTHING = Found([], 0)


def ask(storage: Storage, question: Callable[[sqlite3.Connection], Answer], empty: Answer) -> Answer:
    """Return a question's answer from one moment of the store; ``empty`` where there is no store."""
    if not storage.exists:
        return empty
    with storage.database.reading() as connection:
        return question(connection)


def current(storage: Storage) -> Storage:
    """Return the store after runs whose process is gone have been ended, as every list does it."""
    if storage.exists:
        storage.settle()
    return storage


def runs_table(rows: list[Row], *leave_out: str) -> Table:
    """Return runs with links, without some of the columns."""
    links = {"Run": tables.run_link, "Project": tables.project_link("/runs"), "Failure": tables.failure_link}
    return tables.table(RUNS, rows, links, leave_out=leave_out)


def failures_table(rows: list[Row], *leave_out: str) -> Table:
    """Return failures with links, without some of the columns."""
    links = {"Run": tables.failure_link, "Project": tables.project_link("/failures")}
    return tables.table(FAILURES, rows, links, leave_out=leave_out)


def campaigns_table(rows: list[Row], *leave_out: str) -> Table:
    """Return campaigns with links, without some of the columns."""
    links = {
        "Campaign": tables.campaign_link,
        "Project": tables.project_link("/campaigns"),
        "Source run": tables.source_link,
    }
    return tables.table(CAMPAIGNS, rows, links, leave_out=leave_out)


def with_lifecycle(storage: Storage, rows: list[Row]) -> list[Row]:
    """Return campaigns of this store as they stand now: only those without a verdict are looked at again."""
    return [row if row["status"] else data.campaign(storage, str(row["campaign_id"])) for row in rows]
