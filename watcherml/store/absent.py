"""What to say of an id that a store does not know: which store was asked, and what leads to the right one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from watcherml.errors import NotFound
from watcherml.platform import is_file, is_folder
from watcherml.store.database import FILE_NAME

_NAMED = "--data-dir or WATCHERML_DIR names another."


def where_else(folder: Path) -> str:
    """Return where a store is instead of in ``folder``: inside it, or above it; and how to name one."""
    inside = folder / ".watcherml"
    if is_folder(inside):
        return f"There is one in {inside}: name that folder."
    above = (parent / ".watcherml" for parent in folder.parents)
    found = next((one for one in above if one != folder and is_file(one / FILE_NAME)), None)
    return _NAMED if found is None else f"There is one in {found}: {_NAMED}"


def no_store(what: str, folder: Path) -> NotFound:
    """Return the error for ``what``, an id as ``no run 'x'``, that was asked of a folder without a store."""
    return NotFound(f"{what}: there is no store in {folder}", remedy=where_else(folder))


def no_run(connection: sqlite3.Connection, run_id: str, folder: Path) -> NotFound:
    """Return the error for an id that is no run's; a campaign's is told to be one."""
    known = connection.execute("SELECT 1 FROM campaigns WHERE campaign_id = ?", (run_id,)).fetchone()
    remedy = f"It is a campaign: `watcher recovery {run_id}` shows it." if known else "`watcher runs` lists them."
    return NotFound(f"no run {run_id[:100]!r} in {folder}", remedy=remedy)


def no_campaign(connection: sqlite3.Connection, campaign_id: str, folder: Path) -> NotFound:
    """Return the error for an id that is no campaign of this store; a run's or an imported one's is told to be one."""
    known = connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (campaign_id,)).fetchone()
    imported = connection.execute("SELECT 1 FROM imports WHERE campaign_id = ?", (campaign_id,)).fetchone()
    remedy = f"It is a run: `watcher inspect {campaign_id}` shows it." if known else "`watcher recoveries` lists them."
    if imported:
        remedy = f"It came with an imported run: `watcher recovery {campaign_id}` shows it; nothing of it runs here."
    return NotFound(f"no campaign {campaign_id[:100]!r} in {folder}", remedy=remedy)
