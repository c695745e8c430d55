"""The read model: views that any SQLite tool reads, and lists that look at no other run's points or samples."""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys

import places
import pytest
from big_store import NAMES, STARTED, fill
from hypothesis import given, settings
from hypothesis import strategies as st

import watcherml
from watcherml.errors import InvalidValue
from watcherml.store import points

VIEWS = {
    "run_summary", "metric_points", "failure_summary", "campaign_summary", "trial_summary", "cell_history",
    "sample_points", "gpu_points", "proposal_summary",
}  # fmt: skip
RUN = "project-3-run-000003"


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Sixty runs of a hundred points and twenty samples."""
    storage = watcherml.Storage(tmp_path_factory.mktemp("many") / "store")
    fill(storage, runs=60, points=100, samples=20)
    return storage


@pytest.fixture
def logged(storage):
    """Log values under one name and return (connection, run id); a value may come with its step."""
    opened = []

    def log(values, name="loss"):
        with watcherml.Run("demo", {}, storage, quiet=True) as run:
            for step, value in enumerate(values):
                run.log_metric(name, value, step=step)
        opened.append(sqlite3.connect(storage.database.path))
        return opened[-1], run.run_id

    yield log
    for connection in opened:
        connection.close()


# -- any SQLite tool ---------------------------------------------------------------------------------------------


def test_another_program_reads_every_view_with_nothing_but_sqlite(many):
    code = (
        "import json, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1])\n"
        "names = [row[0] for row in c.execute(\"SELECT name FROM sqlite_master WHERE type = 'view'\")]\n"
        "print(json.dumps({name: len(c.execute(f'SELECT * FROM {name}').fetchall()) for name in names}))\n"
    )
    words = [sys.executable, "-I", "-c", code, str(many.database.path)]
    counts = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert set(counts) == VIEWS
    assert counts["run_summary"] == 60 and counts["metric_points"] == 6_000 and counts["sample_points"] == 1_200
    assert counts["failure_summary"] == 6


def test_special_values_have_a_word_in_the_view(logged):
    connection, run_id = logged([1.5, math.nan, math.inf, -math.inf])
    rows = connection.execute("SELECT value, special FROM metric_points WHERE run_id = ? ORDER BY point", (run_id,))
    assert rows.fetchall() == [(1.5, None), (None, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]


def test_a_run_has_the_peaks_of_its_own_samples(many):
    (row,) = [row for row in many.list_runs() if row["run_id"] == RUN]
    with many.database.reading() as connection:
        own = connection.execute(
            "SELECT MAX(rss_bytes), MAX(device_reserved_bytes) FROM samples WHERE run_id = ?", (RUN,)
        ).fetchone()
    assert (row["peak_rss_bytes"], row["peak_device_bytes"]) == tuple(own)


# -- what is looked at -------------------------------------------------------------------------------------------

# Every list that a surface or a frame asks for.
LISTS = {
    "runs": "SELECT * FROM run_summary WHERE role = 'user' ORDER BY started_at DESC, run_id LIMIT 100",
    "runs of a project": "SELECT * FROM run_summary WHERE project = 'p' ORDER BY started_at DESC, run_id LIMIT 100",
    "runs by status": "SELECT * FROM run_summary WHERE status = 'killed' ORDER BY started_at DESC, run_id LIMIT 100",
    "runs going on": "SELECT run_id, pid FROM runs WHERE status = 'running'",
    "failures": "SELECT * FROM failure_summary WHERE role = 'user' ORDER BY created_at DESC LIMIT 100",
    "campaigns": "SELECT * FROM campaign_summary ORDER BY created_at DESC, campaign_id LIMIT 100",
    "campaigns of a run": "SELECT * FROM campaign_summary WHERE source_run_id = 'r' ORDER BY created_at DESC",
    "trials": "SELECT * FROM trial_summary WHERE campaign_id = 'c' ORDER BY started_at, seq",
    "cells": "SELECT * FROM cell_history ORDER BY started_at DESC, seq DESC LIMIT 100",
    "cells of a run": "SELECT * FROM cell_history WHERE run_id = 'r' ORDER BY started_at, seq",
    "proposals of a campaign": "SELECT * FROM proposal_summary WHERE campaign_id = 'c'",
    "points": "SELECT * FROM metric_points WHERE run_id = 'r' ORDER BY point",
    "points of two runs": "SELECT * FROM metric_points WHERE run_id IN ('r', 's') AND name = 'loss'",
    "points across": points.across("WHERE g.run_id IN (SELECT value FROM json_each('[]')) AND n.name = 'loss'"),
    "samples": "SELECT * FROM sample_points WHERE run_id IN (SELECT value FROM json_each('[]')) ORDER BY run_id, at",
    "GPU samples": "SELECT * FROM gpu_points WHERE run_id = 'r' ORDER BY run_id, at",
}
BIG = ("metrics", "samples", "gpu_samples", "m", "s", "g", "metric_ranges")
OWN_POINTS = "USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"


def plan(connection, text, values=()):
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]


def strays(steps):
    """Return the steps that look at more of the big tables than one run's own rows."""
    found = []
    for step in steps:
        words = step.split()
        if words[0] not in ("SCAN", "SEARCH") or words[1] not in BIG:
            continue
        by_points = words[1] in ("m", "metrics")
        own = "(rowid=?)" in step or (OWN_POINTS if by_points else "(run_id=?") in step
        if words[0] == "SCAN" or not own:
            found.append(step)
    return found


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("analyzed", [False, True])
def test_no_list_scans_points_or_samples_of_other_runs(name, analyzed, many):
    with sqlite3.connect(":memory:") as copy, many.database.reading() as connection:
        connection.backup(copy)
        if analyzed:  # another tool may have done so, and SQLite then plans by the statistics
            copy.execute("ANALYZE")
        steps = plan(copy, LISTS[name])
    copy.close()
    assert not strays(steps), steps


@pytest.mark.parametrize("text", [points._PAGE, points._SERIES, points._THINNED, points._THINNED_SAMPLES])
def test_reading_one_run_scans_no_table_of_points_or_samples(text, many):
    names = ("run_id", "names", "after", "limit", "whole", "buckets", "most")
    with many.database.reading() as connection:
        steps = plan(connection, text, dict.fromkeys(names))
    assert not strays(steps), steps


@pytest.mark.parametrize("name", ["runs", "runs by status", "cells"])
def test_a_list_with_a_limit_sorts_only_what_it_shows(name, many):
    with many.database.reading() as connection:
        steps = plan(connection, LISTS[name])
    assert not [step for step in steps if step == "USE TEMP B-TREE FOR ORDER BY"], steps


def test_the_peaks_of_a_run_are_read_from_an_index(many):
    with many.database.reading() as connection:
        steps = plan(connection, LISTS["runs"])
    assert "SEARCH s USING COVERING INDEX samples_by_rss (run_id=?)" in steps
    assert "SEARCH s USING INDEX samples_by_device (run_id=?)" in steps


@pytest.mark.parametrize("clause", ["", "WHERE g.run_id IN (SELECT value FROM json_each('[]'))"])
def test_points_of_many_runs_come_in_order_without_being_sorted(clause, many):
    with many.database.reading() as connection:
        steps = plan(connection, points.across(clause))
    assert not [step for step in steps if "TEMP B-TREE FOR" in step], steps


# -- paging and thinning -----------------------------------------------------------------------------------------


def test_pages_of_a_run_join_to_the_whole(many):
    with many.database.reading() as connection:
        whole = points.page(connection, RUN)
        joined, last = [], 0
        while page := points.page(connection, RUN, after=last, limit=7):
            joined += page
            last = page[-1]["point"]
        assert len(whole) == 100 and repr(joined) == repr(whole)
        assert [row["name"] for row in points.page(connection, RUN, ["lr"], limit=2)] == ["lr", "lr"]
        assert points.page(connection, "nobody") == points.page(connection, RUN, []) == []


def by_hand(values, buckets):
    """The same as ``points.series``, in plain Python."""
    found: dict[int, list[tuple[int, float]]] = {}
    for number, value in enumerate(values):
        found.setdefault(number * buckets // len(values), []).append((number, value))
    for part in found.values():
        finite = [value for _, value in part if math.isfinite(value)]
        nan = math.nan
        yield (
            part[0][0], part[-1][0], min(finite, default=nan), max(finite, default=nan),
            math.fsum(finite) / len(finite) if finite else nan, part[-1][1], len(part), len(part) - len(finite),
        )  # fmt: skip


def same(one, other):
    return (math.isnan(one) and math.isnan(other)) or one == pytest.approx(other)


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=60),
       st.integers(1, 12))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_series_is_what_a_loop_over_the_points_would_find(values, buckets):
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(
            "CREATE TABLE metric_ranges (run_id, source_id, first_point, last_point);"
            "CREATE TABLE metric_names (source_id, key, name); CREATE TABLE metrics (key, step, value, at);"
            "INSERT INTO metric_names VALUES (1, 0, 'loss'), (1, 1, 'other')"
        )
        rows = [(key, step, value, float(step)) for step, value in enumerate(values) for key in (0, 1)]
        connection.executemany("INSERT INTO metrics (key, step, value, at) VALUES (?, ?, ?, ?)", rows)
        connection.execute("INSERT INTO metric_ranges VALUES ('r', 1, 1, ?)", (len(rows),))
        found = points.series(connection, "r", "loss", buckets)
    connection.close()
    expected = list(by_hand(values, buckets))
    assert len(found) == len(expected) <= buckets
    for one, other in zip(found, expected, strict=True):
        assert all(same(left, right) for left, right in zip(one, other, strict=False)), (one, other)
        assert (one.first_at, one.last_at) == (one.first_step, one.last_step)


def test_thinned_points_are_real_ones_and_keep_the_spike_the_dip_the_nan_and_the_end(logged):
    values = [1.0] * 1_000
    values[300], values[400], values[500], values[-1] = 99.0, -99.0, math.nan, 7.0
    connection, run_id = logged(values)
    found = points.thinned(connection, run_id, max_points=40)
    assert len(found) <= 40 and [row["point"] for row in found] == sorted({row["point"] for row in found})
    at = {row["step"]: row["value"] for row in found}
    assert at[300] == 99.0 and at[400] == -99.0 and math.isnan(at[500]) and at[999] == 7.0
    assert all(values[step] == value or math.isnan(value) for step, value in at.items())


def test_a_short_metric_beside_a_long_one_is_left_whole(storage):
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        for step in range(500):
            run.log_metric("loss", float(step), step=step)
            if step % 25 == 0:
                run.log_metric("val_loss", float(step), step=step)
    found = storage.get_metrics(run.run_id, max_points=20)
    assert [row["step"] for row in found if row["name"] == "val_loss"] == list(range(0, 500, 25))
    assert 10 < len([row for row in found if row["name"] == "loss"]) <= 20
    assert set(found[0]) == {"name", "step", "value", "at"}
    assert storage.get_metrics(run.run_id, ["val_loss"], max_points=500) == storage.get_metrics(
        run.run_id, ["val_loss"]
    )


@pytest.mark.parametrize("most", [4, 5, 17, 100, 10_000])
def test_never_more_points_than_asked_for(most, many):
    found = many.get_metrics(RUN, max_points=most)
    for name in NAMES:
        assert 0 < len([row for row in found if row["name"] == name]) <= most


@pytest.mark.parametrize("most", [3, 0, -1, True, 7.0, "9"])
def test_a_number_of_points_that_makes_no_sense_is_refused(most, many):
    with pytest.raises(InvalidValue, match="max_points"):
        many.get_metrics(RUN, max_points=most)
    with pytest.raises(InvalidValue, match="max_points"):
        many.runs.samples(RUN, max_points=most)


def test_samples_are_the_last_ones_or_the_fullest_of_each_stretch(storage):
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        run._sampler.stop()
    rows = [(run.run_id, STARTED + number, 10**9, 5_000 + (number == 70)) for number in range(100)]
    with storage.database.writing() as connection:
        connection.execute("DELETE FROM samples")
        connection.executemany(
            "INSERT INTO samples (run_id, at, rss_bytes, device_reserved_bytes) VALUES (?, ?, ?, ?)", rows
        )
    assert [row["at"] for row in storage.runs.samples(run.run_id, limit=3)] == [
        STARTED + 97,
        STARTED + 98,
        STARTED + 99,
    ]
    found = storage.runs.samples(run.run_id, max_points=11)
    assert len(found) <= 11 and found[-1]["at"] == STARTED + 99
    assert [row["at"] for row in found if row["device_reserved_bytes"] == 5_001] == [STARTED + 70]
    assert len(storage.runs.samples(run.run_id, max_points=100)) == 100


# -- frames of a folder that nobody may write -------------------------------------------------------------------


def test_frames_of_a_read_only_folder_show_its_journal_and_leave_it_as_it_is(storage):
    code = (
        "import os, signal, sys, watcherml\n"
        "run = watcherml.Run('p', {'lr': 1}, sys.argv[1], quiet=True).start()\n"
        "run.log_metric('loss', 1.0, step=0)\n"
        "run._sampler.stop()\n"
        "run.log_metric('loss', 2.0, step=1)\n"
        "print(run.run_id, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", code, str(storage.path)], capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    folders = [storage.path, storage.runs.spool_folder]
    files = [one for folder in folders for one in folder.iterdir() if one.is_file()]
    reader = (
        "import sys, watcherml; frame = watcherml.frames.metrics(sys.argv[2], sys.argv[1]); print(list(frame['value']))"
    )
    before = {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in files}
    for one in [*files, *folders]:
        one.chmod(0o500)
    try:
        words = [*places.bound_by_permissions(), sys.executable, "-c", reader, str(storage.path), child.stdout.strip()]
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        assert done.stdout.strip() == "[1.0, 2.0]", done.stderr
        assert {one: (one.stat().st_mtime_ns, one.read_bytes()) for one in files} == before
        assert {one for folder in folders for one in folder.iterdir() if one.is_file()} == set(files)
    finally:
        for one in folders:
            one.chmod(0o700)


# -- the full size -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_ten_thousand_runs_with_ten_million_points_are_listed_paged_and_thinned(tmp_path):
    storage = watcherml.Storage(tmp_path / "store")
    fill(storage, runs=10_000, points=1_000)
    assert len(storage.list_runs()) == 100 and len(storage.runs.listing(limit=50, offset=9_980)) == 20
    with storage.database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM metrics").fetchone()[0] == 10_000_000
        assert sum(one.points for one in points.series(connection, RUN, "val_loss", 50)) == 200
    assert len(storage.get_metrics(RUN)) == 1_000
    assert len(watcherml.frames.metrics(storage=storage, limit=1_000, offset=5_000_000)) == 1_000
