"""Long metrics as stretches: nothing high, low or odd is lost, whoever logged in between."""

import math
import sqlite3

import big_store
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.store.coarse import coarse, count

VALUES = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf))


def database(batches):
    """A database with these batches of (run, key, value) rows: each batch is one span of its run."""
    connection = sqlite3.connect(":memory:")
    connection.executescript("""
        CREATE TABLE metric_sources (source_id INTEGER PRIMARY KEY, run_id TEXT, process TEXT);
        CREATE TABLE metric_names (source_id INTEGER, key INTEGER, name TEXT, PRIMARY KEY (source_id, key));
        CREATE TABLE metrics (point INTEGER PRIMARY KEY, key INTEGER, step INTEGER, value REAL, at REAL);
        CREATE TABLE metric_ranges (run_id TEXT, source_id INTEGER, first_point INTEGER, last_point INTEGER);
        INSERT INTO metric_sources VALUES (1, 'a', '1'), (2, 'b', '1');
        INSERT INTO metric_names VALUES (1, 0, 'x'), (1, 1, 'y'), (2, 0, 'x'), (2, 1, 'y'), (1, 2, 'p'), (1, 3, 'q');
    """)
    point = 0
    for run, rows in batches:
        first = point + 1
        for key, value in rows:
            point += 1
            kept = None if math.isnan(value) else value
            connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", (point, key, point, kept, float(point)))
        connection.execute("INSERT INTO metric_ranges VALUES (?, ?, ?, ?)", (run, 1 if run == "a" else 2, first, point))
    return connection


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.tuples(st.integers(0, 1), VALUES), min_size=1, max_size=30)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 9),
)
def test_extremes_the_last_value_and_every_nan_stay(batches, stretches):
    connection = database(batches)
    for run in "ab":
        logged = [row for name, rows in batches if name == run for row in rows]
        assert count(connection, run) == len(logged)
        shown = coarse(connection, run, ["x", "y"], stretches)
        # Few metrics are read one by one, many together; x and y are the same either way.
        assert repr(shown) == repr(coarse(connection, run, ["x", "y", "p", "q"], stretches))
        for key, name in enumerate("xy"):
            before = [value for k, value in logged if k == key]
            after = [row["value"] for row in shown if row["name"] == name]
            assert bool(before) == bool(after)
            for kind in (min, max):
                finite = [[v for v in values if not math.isnan(v)] for values in (before, after)]
                assert kind(finite[0], default=None) == kind(finite[1], default=None)
            assert any(map(math.isnan, before)) == any(map(math.isnan, after))
            if before:
                assert after[-1] == before[-1] or (math.isnan(after[-1]) and math.isnan(before[-1]))
            assert len(after) <= 3 * (stretches + len(batches)) + 1


def test_only_the_names_that_were_asked_for_come(storage):
    big_store.fill(storage, runs=3, points=500, samples=1)
    with storage.database.reading() as connection:
        rows = coarse(connection, "project-1-run-000001", ["val_loss"], 10)
        assert {row["name"] for row in rows} == {"val_loss"}
        assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)
        assert coarse(connection, "nobody", ["val_loss"], 10) == [] and count(connection, "nobody") == 0


@pytest.mark.parametrize("run", ["project-1-run-000001"])
def test_a_spike_in_a_long_curve_is_seen(storage, run):
    big_store.fill(storage, runs=2, points=5_000, samples=1)
    with storage.database.writing() as connection:
        first = connection.execute("SELECT first_point FROM metric_ranges WHERE run_id = ?", (run,)).fetchone()[0]
        connection.execute("UPDATE metrics SET value = 99.5 WHERE point = ?", (first + 2_345,))  # 2,345 is of key 0
    with storage.database.reading() as connection:
        assert max(row["value"] for row in coarse(connection, run, ["train_loss"], 20)) == 99.5
