"""Two recorded runs beside each other: what differs, most suspicious first."""

from __future__ import annotations

from watcherml.api import data
from watcherml.errors import InvalidValue
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.difference import Point, difference
from watcherml.forensics.earlier import side_of
from watcherml.forensics.neighbours import Compared, Comparison
from watcherml.store.runs import Row
from watcherml.store.storage import Storage

# Of each metric; its lowest, highest and last value are among them.
MOST_POINTS = 2_000


def compare(storage: Storage, first: str, second: str) -> Comparison:
    """Return what changed from the first run to the second, judged by the failure of the second, else of the first.

    Raises ``NotFound`` for an unknown id, and ``InvalidValue`` if both are the same.
    """
    if first == second:
        raise InvalidValue(
            "RUN_B", expected="another run than RUN_A", got=second[:100], remedy="`watcher runs` lists them."
        )
    rows = [data.run(storage, run_id) for run_id in (first, second)]
    capsules = [data.capsule(storage, str(row["run_id"])) for row in rows]
    judge = capsules[1] or capsules[0]
    sides = [side_of(storage, row, _points(storage, row)) for row in rows]
    found = difference(
        sides[0],
        sides[1],
        judge.failure.class_ if judge else "",
        subkind=judge.failure.subkind if judge else "",
        phase=judge.failure.phase if judge else "",
        backwards=capsules[1] is None,
    )
    compared = [_compared(row, capsule) for row, capsule in zip(rows, capsules, strict=True)]
    return Comparison(compared[0], compared[1], judge.run_id if judge else "", found)


def _points(storage: Storage, row: Row) -> list[Point]:
    points = storage.get_metrics(str(row["run_id"]), max_points=MOST_POINTS)
    return [(point["name"], point["step"], point["value"]) for point in points]


def _compared(row: Row, capsule: Capsule | None) -> Compared:
    return Compared(
        run_id=row["run_id"],
        project=row["project"] or "project",
        status=row["status"],
        origin=row.get("origin") or "here",
        started_at=row["started_at"],
        last_step=row.get("last_step"),
        failure_class=capsule.failure.class_ if capsule else "",
        headline=capsule.headline[:600] if capsule else "",
    )
