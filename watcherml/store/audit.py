"""The audit trail: sealed documents on record, campaigns, their events and trials. Append-only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from watcherml.errors import NotFound, NotOnRecord
from watcherml.store import absent, resolution
from watcherml.store.claims import backed
from watcherml.store.database import Database
from watcherml.store.runs import Row, where
from watcherml.store.sound import each, sound


class Audit:
    """Reads and appends of what a campaign did."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_record(self, digest: str, kind: str, document: str, at: float, campaign_id: str | None = None) -> None:
        """Put a sealed document on record; the same digest again changes nothing."""
        with self._database.writing() as connection:
            _put(connection, digest, kind, document, at, campaign_id)

    def is_on_record(self, digest: str, kind: str) -> bool:
        """Tell whether this store made a document of this kind with this digest."""
        if not self._database.exists:
            return False
        with self._database.reading() as connection:
            row = connection.execute("SELECT 1 FROM records WHERE digest = ? AND kind = ?", (digest, kind)).fetchone()
        return row is not None

    def record(self, digest: str, kind: str) -> str:
        """Return a document on record; ``NotOnRecord`` if this store never made it."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT document FROM records WHERE digest = ? AND kind = ?", (digest, kind)
            ).fetchone()
        if row is None:
            raise NotOnRecord(
                f"this {kind} is not on record",
                expected=f"one that was made in {self._database.folder}",
                got=digest,
                remedy="Prepare it again in this store, or use the store that made it.",
            )
        return str(row[0])

    def records(self, campaign_id: str, kind: str) -> list[str]:
        """Return a campaign's documents of one kind, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT document FROM records WHERE campaign_id = ? AND kind = ? ORDER BY at, rowid",
                (campaign_id, kind),
            ).fetchall()
        return [str(row[0]) for row in rows]

    def open_campaign(
        self,
        row: Row,
        documents: list[tuple[str, str, str]],
        happened: Sequence[tuple[str, Mapping[str, Any]]],
        runs: Callable[[Row], bool],
    ) -> str | None:
        """Open a campaign with its documents and first events, in one transaction.

        Returns the campaign that is in the way, and opens none: one of that id, or one of the same plan that ``runs``.
        """
        with self._database.writing() as connection:
            name, at = row["campaign_id"], row["created_at"]
            if connection.execute("SELECT 1 FROM campaigns WHERE campaign_id = ?", (name,)).fetchone():
                return str(name)
            if (other := _running(connection, name, row["plan_digest"], runs)) is not None:
                return other
            connection.execute(
                "INSERT INTO campaigns VALUES (:campaign_id, :project, :source_run_id, :plan_digest, :created_at)", row
            )
            for digest, kind, document in documents:
                _put(connection, digest, kind, document, at, name)
            for event, body in happened:
                _event(connection, name, event, body, at)
        return None

    def take_campaign(
        self, campaign_id: str, kind: str, process: Mapping[str, Any], at: float, runs: Callable[[Row], bool]
    ) -> str | None:
        """Append the event of a supervisor that takes a campaign, unless another campaign of its plan ``runs``.

        Returns that other campaign, None if the campaign was taken.
        """
        with self._database.writing() as connection:
            plan = "SELECT plan_digest FROM campaigns WHERE campaign_id = ?"
            digest = connection.execute(plan, (campaign_id,)).fetchone()[0]
            other = _running(connection, campaign_id, digest, runs)
            if other is None:
                _event(connection, campaign_id, kind, process, at)
        return other

    def add_event(self, campaign_id: str, kind: str, body: Mapping[str, Any], at: float) -> int:
        """Append an event and return its number within the campaign."""
        with self._database.writing() as connection:
            return _event(connection, campaign_id, kind, body, at)

    def events(self, campaign_id: str, after: int = 0) -> list[Row]:
        """Return the events with a number above ``after``, bodies decoded; ``DamagedRow`` for a damaged one."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT seq, at, type, body FROM events WHERE campaign_id = ? AND seq > ? ORDER BY seq",
                (campaign_id, after),
            ).fetchall()
        # Refused as a whole: events are read in order, and one that is missing would make another life of it.
        found = [sound("events", {"campaign_id": campaign_id, **dict(row)}) for row in rows]
        return [{key: row[key] for key in ("seq", "at", "type", "body")} for row in found]

    def start_trial(self, trial: Row, request: tuple[str, str, str], body: Mapping[str, Any]) -> None:
        """Put a trial's request (digest, kind, document) and its start on record, in one transaction."""
        with self._database.writing() as connection:
            digest, kind, document = request
            _put(connection, digest, kind, document, trial["started_at"], trial["campaign_id"])
            connection.execute(
                "INSERT INTO trials (trial_id, campaign_id, seq, role, proposal_id, run_id, request_digest, started_at)"
                " VALUES (:trial_id, :campaign_id, :seq, :role, :proposal_id, :run_id, :request_digest, :started_at)",
                trial,
            )
            _event(connection, trial["campaign_id"], "trial_started", body, trial["started_at"])

    def end_trial(self, campaign_id: str, end: Row, result: tuple[str, str, str], body: Mapping[str, Any]) -> None:
        """Put a trial's result and its end on record, in one transaction."""
        with self._database.writing() as connection:
            digest, kind, document = result
            _put(connection, digest, kind, document, end["ended_at"], campaign_id)
            connection.execute(
                "INSERT INTO trial_ends VALUES (:trial_id, :result_digest, :outcome, :sentence, :steps, :peak_bytes,"
                " :wall_seconds, :gpu_seconds, :ended_at)",
                end,
            )
            _event(connection, campaign_id, "trial_ended", body, end["ended_at"])

    def end_campaign(
        self,
        campaign_id: str,
        verdict: Row,
        documents: list[tuple[str, str, str]],
        body: Mapping[str, Any],
        resolves: tuple[str, str, str] | None = None,
    ) -> None:
        """Put ranking, verdict and chain on record and close the campaign, in one transaction.

        ``resolves`` is the run whose failure that resolves, by whom and how; a person's own mark stays.
        """
        with self._database.writing() as connection:
            for digest, kind, document in documents:
                _put(connection, digest, kind, document, verdict["at"], campaign_id)
            connection.execute(
                "INSERT INTO verdicts VALUES (:campaign_id, :digest, :status, :reason_code, :sentence, :candidate_id,"
                " :device_kind, :at)",
                verdict,
            )
            _event(connection, campaign_id, "ended", body, verdict["at"])
            if resolves is not None:
                run_id, by, note = resolves
                resolution.mark_in(connection, run_id, verdict["at"], by, note)

    def campaign(self, campaign_id: str) -> Row:
        """Return a campaign with its summary; ``NotFound`` if there is none."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT s.*, c.plan_digest FROM campaign_summary s JOIN campaigns c USING (campaign_id)"
                " WHERE campaign_id = ?",
                (campaign_id,),
            ).fetchone()
            found = None if row is None else backed(connection, sound("campaigns", row))
            if found is None:
                raise absent.no_campaign(connection, campaign_id, self._database.folder)
        return found

    def campaigns(
        self,
        *,
        project: str | None = None,
        source_run_id: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Row]:
        """Return ``campaign_summary`` rows, newest first, ``offset`` of them passed over."""
        clauses, values = where(project=project, source_run_id=source_run_id)
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT * FROM campaign_summary {clauses} ORDER BY created_at DESC, campaign_id LIMIT ? OFFSET ?",
                (*values, -1 if limit is None else limit, offset),
            ).fetchall()
            return each(rows, lambda row: backed(connection, sound("campaigns", row)))

    def trials(self, campaign_id: str | None = None) -> list[Row]:
        """Return ``trial_summary`` rows in order."""
        clauses, values = where(campaign_id=campaign_id)
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT * FROM trial_summary {clauses} ORDER BY started_at, seq", values
            ).fetchall()
        return [sound("trials", row) for row in rows]

    def trial_documents(self, trial_id: str) -> tuple[str, str]:
        """Return the request and the result of a finished trial as they are on record; ``NotFound`` for any other."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT q.document, r.document FROM trials t JOIN trial_ends x USING (trial_id)"
                " JOIN records q ON q.digest = t.request_digest JOIN records r ON r.digest = x.result_digest"
                " WHERE t.trial_id = ?",
                (trial_id,),
            ).fetchone()
        if row is None:
            raise NotFound(f"no finished trial {trial_id[:100]!r}")
        return str(row[0]), str(row[1])


# Of each other campaign of a plan that has no verdict: who took it last, else that nobody could. Somebody who failed to
# take it says nothing of the one who did at the same moment.
_UNFINISHED = """
SELECT c.campaign_id, c.created_at, e.type, e.body FROM campaigns c LEFT JOIN events e ON e.campaign_id = c.campaign_id
    AND e.seq = COALESCE(
        (SELECT MAX(seq) FROM events WHERE campaign_id = c.campaign_id AND type IN ('started', 'resumed')),
        (SELECT MAX(seq) FROM events WHERE campaign_id = c.campaign_id AND type = 'start_failed'))
WHERE c.plan_digest = ? AND c.campaign_id <> ? AND NOT EXISTS (SELECT 1 FROM verdicts v
    WHERE v.campaign_id = c.campaign_id)
ORDER BY c.created_at DESC"""


def _running(connection: Any, campaign_id: str, plan_digest: str, runs: Callable[[Row], bool]) -> str | None:
    found = (dict(row) for row in connection.execute(_UNFINISHED, (plan_digest, campaign_id)).fetchall())
    return next((str(row["campaign_id"]) for row in found if runs(row)), None)


def _put(connection: Any, digest: str, kind: str, document: str, at: float, campaign_id: str | None) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO records (digest, kind, campaign_id, document, at) VALUES (?, ?, ?, ?, ?)",
        (digest, kind, campaign_id, document, at),
    )


def _event(connection: Any, campaign_id: str, kind: str, body: Mapping[str, Any], at: float) -> int:
    last = connection.execute("SELECT MAX(seq) FROM events WHERE campaign_id = ?", (campaign_id,)).fetchone()[0]
    seq = int(last or 0) + 1
    connection.execute(
        "INSERT INTO events (campaign_id, seq, at, type, body) VALUES (?, ?, ?, ?, ?)",
        (campaign_id, seq, at, kind, json.dumps(dict(body))),
    )
    return seq
