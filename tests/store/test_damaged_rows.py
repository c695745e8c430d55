"""A value that nobody wrote: the row is refused by table, id and column, and hides no other row of a list."""

import json
import shutil
import sqlite3

import pytest
from builders import FAILED_CONFIG, good_trials
from stored import record, recorded_plan, rename

import watcherml
from watcherml import frames
from watcherml.api import data, surroundings
from watcherml.api.glance import glance
from watcherml.campaign import events
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.cli.main import main
from watcherml.errors import DamagedRow
from watcherml.sealed.canonical import digest
from watcherml.store import pages, sound
from watcherml.store.pages import Cut
from watcherml.store.sound import DamagedRowWarning
from watcherml.store.storage import Storage


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A failed run with a verified campaign and a prepared one, and a run that ended well."""
    folder = tmp_path_factory.mktemp("sound") / ".watcherml"
    storage = Storage(folder)
    plan = recorded_plan(storage, FAILED_CONFIG)
    record(storage, "campaign-1", plan, rename(good_trials(plan), "campaign-1"))
    Ledger.open_new(storage, "campaign-2", plan, (), {}, Settings("/nowhere", "python"))
    with watcherml.Run("demo", {"batch_size": 1}, storage, quiet=True) as run:
        run.log_metric("loss", 1.0, step=1)
    return folder, plan.source.run_id, run.run_id


@pytest.fixture
def damage(made, tmp_path):
    """Return a call that puts a value into a column of a copy, and the copy's folder."""

    def change(table, column, value, where):
        folder = tmp_path / ".watcherml"
        if not folder.exists():
            shutil.copytree(made[0], folder)
        with sqlite3.connect(folder / "watcherml.db") as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            changed = connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
            assert changed.rowcount == 1
        connection.close()
        return folder

    return change


RUN = "run_id = (SELECT source_run_id FROM campaigns LIMIT 1)"
FIRST = "campaign_id = 'campaign-1' AND seq = 1"
# Where it is damaged, and the commands that have to refuse it or to leave it out; RUN stands for the failed run.
DAMAGED = {
    "runs.config": (("runs", "config", "{", RUN), ["runs"], ["inspect"]),
    "runs.facts": (("runs", "facts", "[" * 100_000, RUN), [], ["inspect"]),
    "runs.device": (("runs", "device", "no json", RUN), ["runs", "failures"], ["inspect"]),
    "runs.started_at": (("runs", "started_at", "yesterday", RUN), ["runs"], ["inspect"]),
    "runs.project": (("runs", "project", b"\xff", RUN), ["runs", "failures"], ["inspect"]),
    "runs.last_step": (("runs", "last_step", "many", RUN), ["runs"], ["inspect"]),
    "capsules.sentence": (("capsules", "sentence", b"\xff", RUN), ["failures"], ["inspect"]),
    "capsules.created_at": (("capsules", "created_at", float("inf"), RUN), ["failures"], ["inspect"]),
    "campaigns.created_at": (("campaigns", "created_at", "x", "campaign_id = 'campaign-1'"), ["recoveries"],
                             ["recovery", "verify"]),
    "verdicts.at": (("verdicts", "at", b"x", "campaign_id = 'campaign-1'"), ["recoveries"], ["recovery", "verify"]),
    "events.body": (("events", "body", "no json", FIRST), [], ["recovery", "verify"]),
    "events.body is a list": (("events", "body", "[1]", FIRST), [], ["recovery", "verify"]),
    "events.at": (("events", "at", "x", FIRST), [], ["recovery"]),
    "trials.started_at": (("trials", "started_at", "x", FIRST), [], ["recovery"]),
}  # fmt: skip


ORDINARY = ("runs.config", "runs.device", "capsules.created_at", "campaigns.created_at", "events.body")
ROWS = [one if one in ORDINARY else pytest.param(one, marks=pytest.mark.long) for one in DAMAGED]


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_is_named_and_hides_no_other(name, made, damage, capsys):
    change, lists, refusals = DAMAGED[name]
    folder, failed, good = damage(*change), made[1], made[2]

    def run(command):
        target = {"inspect": [failed], "recovery": ["campaign-1"], "verify": ["campaign-1"]}.get(command, [])
        code = main(["--data-dir", str(folder), command, *target])
        return code, *capsys.readouterr()

    for command in ("runs", "failures", "recoveries"):
        code, out, err = run(command)
        assert code == 0 and ("table " in err) is (command in lists), (command, err)
        assert command != "runs" or good in out
        assert command != "recoveries" or "campaign-2" in out
    for command in refusals:
        code, out, err = run(command)
        told = out + err
        assert code == 1 and "table " in told and "row " in told and name.split(" ")[0].split(".")[1][:2] in told, told
        assert "unexpected" not in told and "verified" not in out


def test_a_campaign_whose_supervisor_cannot_be_read_hides_no_other(made, damage):
    storage = Storage(damage("events", "body", "{}", "campaign_id = 'campaign-2' AND seq = 1"))
    Ledger(storage, "campaign-2").event(events.STARTED, {"pid": "x"})
    with pytest.warns(DamagedRowWarning, match="table events, row campaign-2: body"):
        rows = data.campaigns(storage)
    assert [row["campaign_id"] for row in rows] == ["campaign-1"]
    with pytest.warns(DamagedRowWarning):
        assert len(glance(storage, 10).runs) == 2
    with pytest.raises(DamagedRow, match="the parts of Settings"):
        Ledger(storage, "campaign-2").settings()


def test_a_damaged_run_that_counts_as_running_keeps_nobody_from_recording(made, damage):
    damage("runs", "facts", "no json", RUN)
    damage("runs", "heartbeat_at", "x", RUN)
    folder = damage("runs", "status", "running", RUN)
    with watcherml.Run("demo", {}, Storage(folder), quiet=True) as run:
        run.log_metric("loss", 0.5, step=1)
    storage = Storage(folder)
    assert {row["run_id"]: row["status"] for row in data.runs(storage)}[run.run_id] == "success"
    with pytest.raises(DamagedRow, match=f"table runs, row {made[1]}: heartbeat_at"):
        storage.get_run(made[1])


@pytest.mark.parametrize(
    ("column", "value"),
    [("digest", "sha256:" + "1" * 64), ("sentence", "Verified on every GPU."), ("candidate_id", "batch-16x4")],
)
def test_a_row_that_says_verified_is_held_to_the_sealed_verdict(column, value, made, damage):
    folder = damage("verdicts", column, value, "campaign_id = 'campaign-1'")
    _is_believed_nowhere(Storage(folder))


def test_a_verdict_that_says_otherwise_is_not_listed_as_verified(made, damage):
    storage = Storage(damage("verdicts", "status", "verified", "campaign_id = 'campaign-1'"))
    with storage.database.reading() as connection:
        row = connection.execute("SELECT document FROM records JOIN verdicts USING (digest)").fetchone()
    sealed = json.loads(row[0])
    value = {**sealed["value"], "status": "not_recovered"}
    other = digest(sealed["kind"], sealed["version"], value)
    storage.audit.put_record(other, sealed["kind"], json.dumps({**sealed, "digest": other, "value": value}), 1.0)
    damage("verdicts", "digest", other, "campaign_id = 'campaign-1'")
    _is_believed_nowhere(storage)


def test_a_damaged_mark_of_a_failure_hides_no_other_remedy(made, damage):
    with Storage(made[0]).database.reading() as connection:
        whole = pages.remedies(connection, Cut(9)).rows
    storage = Storage(damage("capsules", "resolved_at", "yesterday", RUN))
    with storage.database.reading() as connection:
        with pytest.warns(DamagedRowWarning, match=f"table capsules, row {made[1]}: resolved_at"):
            found = pages.remedies(connection, Cut(9)).rows
    assert found == [row for row in whole if row["kind"] == "verified"] != []


def test_a_damaged_time_is_not_the_last_one_of_its_class(made, damage):
    storage = Storage(damage("capsules", "created_at", "yesterday", RUN))
    with storage.database.reading() as connection, pytest.warns(DamagedRowWarning, match="created_at"):
        assert all(isinstance(row["last_at"], (int, float)) for row in pages.failure_classes(connection))


def test_a_frame_leaves_a_damaged_row_out(made, damage):
    pytest.importorskip("pandas")
    for column, value in (("config", "{"), ("device", "no json"), ("last_step", "x"), ("project", b"\xff")):
        folder = damage("runs", column, value, RUN)
        with pytest.warns(DamagedRowWarning, match=made[1]):
            assert list(frames.runs(storage=folder)["run_id"]) == [made[2]]


@pytest.mark.parametrize("table", [*sound.LOOKED_AT, "samples", "gpu_samples"])
def test_every_column_of_the_schema_has_its_kind(made, table):
    numbers = {"capsule_id", "artifact_id"}  # SQLite's own, which no list shows
    with Storage(made[0]).database.reading() as connection:
        cursor = connection.execute(f"SELECT * FROM {sound.LOOKED_AT.get(table, table)}")
        columns = {one[0] for one in cursor.description}
    spelled = dict.fromkeys(columns - numbers, b"\xff")
    kinds = set()
    for column in spelled:
        with pytest.raises(DamagedRow) as caught:  # bytes are nowhere what was written
            sound.sound(table, {column: spelled[column]})
        kinds.add(caught.value.message.rpartition(": ")[2])
    assert kinds == columns - numbers


def test_doctor_names_what_lists_leave_out(made, damage):
    (found,) = surroundings.rows(Storage(damage("runs", "config", "{", RUN)))
    assert found.status == "warn" and f"table runs, row {made[1]}: config" in found.sentence and found.remedy
    (found,) = surroundings.rows(Storage(damage("verdicts", "at", "x", "campaign_id = 'campaign-1'")))
    assert "ended_at" in found.sentence or "1 more" in found.sentence
    (found,) = surroundings.rows(Storage(damage("capsules", "sentence", b"\xff", RUN)))
    assert found.status == "warn" and "table " in found.sentence and "2 more" in found.sentence


def test_nothing_is_removed_where_an_id_cannot_be_read(made, damage, capsys):
    folder = damage("trials", "trial_id", b"x", "seq = 1")
    evidence = folder / "trials" / "campaign-1-t01" / "stdout.log"
    evidence.parent.mkdir(parents=True)
    evidence.write_text("what it printed")
    assert main(["--data-dir", str(folder), "prune"]) == 1
    assert "table trials" in capsys.readouterr().err and evidence.exists()


def _is_believed_nowhere(storage):
    with pytest.raises(DamagedRow, match="table verdicts, row campaign-1"):
        data.campaign(storage, "campaign-1")
    with storage.database.reading() as connection:
        lists = (
            lambda: data.campaigns(storage, verified=True),
            lambda: pages.campaigns(connection, Cut(9), status="verified").rows,
            lambda: [row for row in pages.remedies(connection, Cut(9)).rows if row["kind"] == "verified"],
        )
        for look in lists:
            with pytest.warns(DamagedRowWarning, match="table verdicts, row campaign-1"):
                assert look() == []
        with pytest.warns(DamagedRowWarning, match="table verdicts, row campaign-1"):
            assert [row["verified"] for row in pages.projects(connection, Cut(9)).rows] == [0]
    (found,) = surroundings.rows(storage)
    assert found.status == "warn" and "table verdicts, row campaign-1" in found.sentence
    pytest.importorskip("pandas")
    with pytest.warns(DamagedRowWarning, match="table verdicts, row campaign-1"):
        assert list(frames.campaigns(storage)["campaign_id"]) == ["campaign-2"]
    with pytest.warns(DamagedRowWarning, match="table verdicts, row campaign-1"):
        assert not frames.proposals(storage=storage)["verified"].any()
