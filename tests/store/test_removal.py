"""Deleting: whole or not at all, with a record of what was on record, and with the space given back."""

import os
import shutil
import signal
import sqlite3
import subprocess
import time

import archive_case
import pytest
from archive_case import dumped, plain_run

import watcherml
from watcherml.api import removal
from watcherml.api.archive import export_run, import_run, imported_campaigns
from watcherml.api.recover import RecoveryPreparation
from watcherml.api.removal import carry_out, plan_deletion, plan_prune
from watcherml.api.result import RecoveryResult
from watcherml.errors import CampaignError, InvalidValue, NotFound, NotOnRecord, RunError, StoreError
from watcherml.platform import this_process
from watcherml.store import removal as rows
from watcherml.store.removal import Deletion, Removal
from watcherml.store.storage import Storage


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with a run of every kind, and a failed run with two campaigns of one plan."""
    folder = tmp_path_factory.mktemp("removal")
    before = os.getcwd()
    os.chdir(folder)
    try:
        storage = Storage(folder / "store")
        archive_case.full_run(storage, folder)
        run_id = archive_case.failed_run(storage)
        plan = archive_case.recovered(storage, folder, run_id, "first", "second")
    finally:
        os.chdir(before)
    return storage, run_id, plan


@pytest.fixture
def copy(original, tmp_path):
    """A copy of that store to delete from, the failed run's id, and the plan's text."""
    shutil.copytree(original[0].path, tmp_path / "copy")
    return Storage(tmp_path / "copy"), original[1], original[2]


def deleted(storage, identifier, **options):
    return carry_out(plan_deletion(identifier, storage=storage, **options), by="tester", storage=storage)


def tombstones(storage):
    with storage.database.reading() as connection:
        found = connection.execute("SELECT document FROM records WHERE kind = 'deletion' ORDER BY at").fetchall()
    return [Deletion.from_json(row[0]) for row in found]


def words_in(storage, *words):
    """Return which of the words stand anywhere in the store's files."""
    found = set()
    for path in storage.path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found |= {word for word in words if word.encode() in data}
    return found


def test_a_run_goes_with_everything_that_is_its_own(copy):
    storage, failed, _ = copy
    plain_run(storage, "other", points=100)
    storage.runs.note("whole-run", {"long": "x" * 20_000})  # whole pages, whatever the other facts of this machine take
    planned = plan_deletion("whole-run", storage=storage)
    assert planned.measure.runs == 1 and planned.measure.points == 18 and planned.measure.database_bytes > 1_000
    done = carry_out(planned, storage=storage)
    assert done.given_back_bytes > 0 and done.deletion is None and done.problems == ()
    with storage.database.reading() as connection:
        for table in ("runs", "samples", "gpu_samples", "artifacts", "cells", "metric_sources", "metric_ranges"):
            assert connection.execute(f"SELECT COUNT(*) FROM {table} WHERE run_id = 'whole-run'").fetchone()[0] == 0
        assert connection.execute("SELECT COUNT(*) FROM blobs").fetchone()[0] == 0
    archive_case.sound(storage)
    assert len(storage.get_metrics("other")) == 100 and storage.get_run(failed)
    assert RecoveryResult.of_campaign("first", storage).verified
    assert words_in(storage, "my best run", "alert(1)") == set()
    with pytest.raises(NotFound):
        plan_deletion("whole-run", storage=storage)


def test_bytes_that_another_run_needs_stay(copy):
    storage = copy[0]
    git = storage.get_run("whole-run")["facts"]["git"]
    plain_run(storage, "other")
    storage.runs.note("other", {"git": git})
    deleted(storage, "whole-run")
    assert storage.evidence.blob(git["patch"]) == archive_case.PATCH
    deleted(storage, "other")
    with pytest.raises(NotFound):
        storage.evidence.blob(git["patch"])


def test_a_run_that_campaigns_stand_on_goes_only_with_them(copy):
    storage, failed, plan = copy
    before = dumped(storage)
    with pytest.raises(CampaignError, match=r"campaigns stand on it.*--campaigns.*first, second"):
        plan_deletion(failed, storage=storage)
    assert dumped(storage) == before
    chains = {name: RecoveryResult.of_campaign(name, storage).chain for name in ("first", "second")}
    result = chains["first"].to_json()
    planned = plan_deletion(failed, campaigns=True, storage=storage)
    assert planned.measure.campaigns == 2 and planned.measure.trials == len(planned.removal.runs) - 1
    assert planned.measure.file_bytes > 0
    done = carry_out(planned, by="tester", reason="no longer needed", storage=storage)
    assert done.problems == ()
    (one,) = tombstones(storage)
    assert one.digest == done.deletion and (one.deleted_by, one.reason) == ("tester", "no longer needed")
    assert set(one.campaign_ids) == {"first", "second"} and failed in one.run_ids
    gone = {(part.kind, part.digest) for part in one.records}
    for chain in chains.values():
        parts = [chain, chain.plan, chain.ranking, chain.verdict, *chain.authorizations]
        parts += [part for trial in chain.trials for part in (trial.request, trial.result)]
        assert {(part.KIND, part.digest) for part in parts} <= gone
    with storage.database.reading() as connection:
        for table in ("campaigns", "events", "trials", "trial_ends", "verdicts", "capsules"):
            assert connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] == 0, table
        assert [row[0] for row in connection.execute("SELECT kind FROM records")] == ["deletion"]
    assert os.listdir(storage.path / "trials") == os.listdir(storage.path / "artifacts") == []
    archive_case.sound(storage)
    assert RecoveryResult.from_json(result, storage=storage).standing == "unrecorded"
    with pytest.raises(NotOnRecord):
        RecoveryPreparation.from_json(plan, storage=storage)


@pytest.mark.parametrize(("name", "other"), [("first", "second"), ("second", "first")])
def test_a_campaign_goes_whole_and_its_sister_can_still_be_verified(copy, name, other):
    storage, failed, plan = copy
    deleted(storage, name)
    assert RecoveryResult.of_campaign(other, storage).verified
    with pytest.raises(NotFound):
        storage.audit.campaign(name)
    assert [row["campaign_id"] for row in storage.audit.campaigns()] == [other]
    assert not any(one.startswith(f"{name}-t") for one in os.listdir(storage.path / "trials"))
    assert {row["campaign_id"] for row in storage.runs.listing(role="trial")} == {other}
    assert tombstones(storage)[0].campaign_ids == (name,)
    assert RecoveryPreparation.from_json(plan, storage=storage).plan.source.run_id == failed
    archive_case.sound(storage)


def test_what_two_campaigns_share_stays_for_the_other(storage, tmp_path):
    """The rankings of two campaigns without a candidate are one document, whose row names the first of them."""
    (tmp_path / "ent.py").write_text(archive_case.builders.TEXT_ENTRYPOINT)
    run_id = archive_case.failed_run(storage)
    words = ("--entrypoint", "ent:constant", *archive_case.BUDGET, *archive_case.GUARD, "--out", "plan.json")
    assert archive_case.watcher(storage, tmp_path, "prepare-recovery", run_id, *words) == 0
    for name in ("one", "two"):
        words = ("recover", "--plan", "plan.json", "--yes", "--campaign-id", name)
        assert archive_case.watcher(storage, tmp_path, *words) == 4
    chains = [RecoveryResult.of_campaign(name, storage).chain for name in ("one", "two")]
    assert chains[0].ranking == chains[1].ranking
    deleted(storage, "one")
    assert RecoveryResult.of_campaign("two", storage).standing == "on_record"
    deleted(storage, "two")
    with storage.database.reading() as connection:
        kinds = [row[0] for row in connection.execute("SELECT DISTINCT kind FROM records ORDER BY kind")]
    assert kinds == ["deletion", "recovery-plan"]


def test_the_run_of_a_trial_does_not_go_alone(copy):
    storage, _, _ = copy
    trial = storage.audit.trials("first")[0]["run_id"]
    with pytest.raises(CampaignError, match="is a trial of campaign first"):
        plan_deletion(trial, storage=storage)


def test_the_record_is_append_only_before_and_after(copy):
    storage = copy[0]
    deleted(storage, "first")
    for statement in (
        "DELETE FROM records",
        "DELETE FROM events",
        "UPDATE records SET at = 1",
        "UPDATE verdicts SET at = 1",
    ):
        with pytest.raises(StoreError, match="append-only"), storage.database.writing() as connection:
            connection.execute(statement)


def test_imported_runs_and_campaigns_go_without_a_record_of_it(copy, tmp_path):
    storage, failed, _ = copy
    export_run(failed, tmp_path / "x.zip", storage=storage)
    there = Storage(tmp_path / "there")
    import_run(tmp_path / "x.zip", storage=there)
    assert plan_deletion("second", storage=there).what == "imported campaign second"
    deleted(there, "second")
    assert removal.plan_deletion(failed, storage=there).what == f"imported run {failed}"
    deleted(there, failed)
    with there.database.reading() as connection:
        for table in ("runs", "imports", "records", "capsules"):
            assert connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] == 0
    assert not import_run(tmp_path / "x.zip", storage=there).already


def test_a_result_that_came_with_two_imports_goes_with_the_last_of_them(copy, tmp_path):
    storage, failed, _ = copy
    export_run(failed, tmp_path / "later.zip", storage=storage)
    deleted(storage, "second")
    export_run(failed, tmp_path / "earlier.zip", storage=storage)
    there = Storage(tmp_path / "there")
    import_run(tmp_path / "earlier.zip", storage=there)
    import_run(tmp_path / "later.zip", storage=there, as_id="later")
    # What both brought travels with each of them.
    assert export_run("later", tmp_path / "on.zip", storage=there).campaigns == ("first", "second")
    for gone, left in ((failed, {"first": "later", "second": "later"}), ("later", {})):
        deleted(there, gone)
        assert {one["campaign_id"]: one["source_run_id"] for one in imported_campaigns(there)} == left


def test_what_is_going_on_cannot_be_deleted(copy, tmp_path):
    storage = copy[0]
    run = watcherml.Run("p", {}, storage, quiet=True).start()
    with pytest.raises(RunError, match="while it is going on"):
        plan_deletion(run.run_id, storage=storage)
    assert run.run_id not in plan_prune(keep=0, storage=storage).removal.runs
    run.finish()
    planned = plan_deletion("first", storage=storage)
    folder = storage.path / "artifacts" / "first"
    code = "import sys; from watcherml.platform import exclusive_lock; from pathlib import Path\n" \
           "with exclusive_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"  # fmt: skip
    before = dumped(storage)
    with archive_case.child(code, folder / "lock", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        supervisor.stdout.readline()
        with pytest.raises(CampaignError, match="cannot be deleted while it is going on"):
            carry_out(planned, storage=storage)
        supervisor.stdin.close()
    assert dumped(storage) == before


def test_a_campaign_that_runs_cannot_be_deleted(storage, tmp_path):
    (tmp_path / "ent.py").write_text(archive_case.builders.TEXT_ENTRYPOINT)
    run_id = archive_case.failed_run(storage, seconds=20)
    words = ("--entrypoint", "ent:train", *archive_case.BUDGET, *archive_case.GUARD)
    assert archive_case.watcher(storage, tmp_path, "prepare-recovery", run_id, *words, "--out", "plan.json") == 0
    plan = RecoveryPreparation.from_json((tmp_path / "plan.json").read_text(), storage=storage)
    campaign = watcherml.start_recovery(plan, project_root=tmp_path, campaign_id="live")
    try:
        for identifier, options in (("live", {}), (run_id, {"campaigns": True})):
            with pytest.raises(CampaignError, match="watcher stop live"):
                plan_deletion(identifier, storage=storage, **options)
    finally:
        campaign.stop("the test")
        campaign.wait(60)
    deleted(storage, run_id, campaigns=True)
    archive_case.sound(storage)


def test_a_campaign_that_starts_between_looking_and_deleting_is_not_torn_apart(copy):
    storage, failed, plan = copy
    planned = plan_deletion(failed, campaigns=True, storage=storage)
    digest = RecoveryPreparation.from_json(plan, storage=storage).plan.digest
    row = {"campaign_id": "third", "project": "demo", "source_run_id": failed, "plan_digest": digest, "created_at": 5.0}
    storage.audit.open_campaign(row, [], [], lambda _: False)
    before = dumped(storage)
    with pytest.raises(CampaignError, match="started meanwhile"):
        carry_out(planned, storage=storage)
    assert dumped(storage) == before


# -- prune ------------------------------------------------------------------------------------------------------------

DAY = 86_400.0


@pytest.fixture
def aged(tmp_path):
    """Runs that ended 1 to 6 days ago in two projects, seen at day 10."""
    storage = Storage(tmp_path / "aged", clock=lambda: 10 * DAY)
    for day in range(1, 7):
        for project in ("a", "b"):
            plain_run(storage, f"{project}{day}", points=10, project=project, started=(10 - day) * DAY - 10)
    return storage


@pytest.mark.parametrize(("options", "expected"), [
    ({}, ""),
    ({"older_than_days": 4.5}, "a5 a6 b5 b6"),
    ({"older_than_days": 0}, "a1 a2 a3 a4 a5 a6 b1 b2 b3 b4 b5 b6"),
    ({"older_than_days": 100}, ""),
    ({"keep": 5}, "a6 b6"),
    ({"keep": 0, "project": "b"}, "b1 b2 b3 b4 b5 b6"),
    ({"keep": 2, "older_than_days": 4.5}, "a5 a6 b5 b6"),
    ({"keep": 5, "older_than_days": 2}, "a6 b6"),
    ({"keep": 3, "project": "no such"}, ""),
    ({"trials": True, "keep": 0}, ""),
])  # fmt: skip
def test_which_runs_are_pruned(aged, options, expected):
    planned = plan_prune(storage=aged, **options)
    assert sorted(planned.removal.runs) == expected.split()
    assert planned.measure.points == 10 * len(expected.split()) and planned.empty == (not expected)
    before = {row["run_id"] for row in aged.list_runs()}
    carry_out(planned, storage=aged)
    assert {row["run_id"] for row in aged.list_runs()} == before - set(expected.split())
    archive_case.sound(aged)


@pytest.mark.parametrize("options", [{"older_than_days": -1}, {"older_than_days": float("nan")}, {"keep": -1}])
def test_numbers_that_mean_nothing_are_refused(aged, options):
    with pytest.raises(InvalidValue, match="--"):
        plan_prune(storage=aged, **options)


def test_prune_keeps_runs_that_campaigns_stand_on_and_says_so(copy):
    storage = copy[0]
    planned = plan_prune(keep=0, storage=storage)
    assert planned.removal.runs == ("whole-run",) and "1 run stays: a campaign stands on it" in planned.kept[0]
    carry_out(planned, storage=storage)
    assert RecoveryResult.of_campaign("first", storage).verified


def test_a_pruned_run_takes_its_plans_along_and_the_record_says_so(copy):
    storage, failed, _ = copy
    for name in ("first", "second"):
        deleted(storage, name)
    done = carry_out(plan_prune(keep=0, storage=storage), by="tester", storage=storage)
    assert failed in done.planned.removal.runs
    assert [part.kind for part in tombstones(storage)[-1].records] == ["recovery-plan"]


def test_without_the_working_data_of_its_trials_a_verdict_can_still_be_checked(copy):
    storage = copy[0]
    trials = len(os.listdir(storage.path / "trials"))
    planned = plan_prune(trials=True, storage=storage)
    assert len(planned.removal.runs) == trials > 5 and planned.measure.records == 0
    done = carry_out(planned, storage=storage)
    assert done.deletion is None and os.listdir(storage.path / "trials") == []
    assert storage.runs.listing(role="trial") == [] and len(storage.audit.trials("first")) == trials // 2
    for name in ("first", "second"):
        assert RecoveryResult.of_campaign(name, storage).verified
    archive_case.sound(storage)
    assert plan_prune(trials=True, storage=storage).empty


def test_leftovers_go_and_what_has_a_row_stays(copy):
    storage, _, _ = copy
    run = watcherml.Run("p", {}, storage, quiet=True).start()
    run.log_metric("loss", 1.0)
    kept = [path for top in ("trials", "artifacts", "spool") for path in (storage.path / top).iterdir()]
    for path in ("trials/gone-t01", "artifacts/gone"):
        (storage.path / path).mkdir()
        (storage.path / path / "file").write_text("x" * 1_000)
    outside = storage.path.parent / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    (storage.path / "trials" / "link").symlink_to(outside)
    old, fresh, alive = (
        storage.path / "spool" / f"lost.{pid}-ab12cd.000000.points" for pid in (2**22 + 5, 2**22 + 6, os.getpid())
    )
    for path in (old, fresh, alive):
        path.write_bytes(b"x")
    for path in (old, alive):
        os.utime(path, (time.time() - 2 * DAY,) * 2)
    planned = plan_prune(storage=storage)
    assert sorted(path.name for path in planned.removal.folders) == ["gone", "gone-t01", "link", old.name]
    assert planned.what == "leftovers" and planned.measure.file_bytes >= 2_000
    carry_out(planned, storage=storage)
    assert all(path.exists() for path in [*kept, fresh, alive, outside / "mine"])
    assert not old.exists() and not (storage.path / "trials" / "link").is_symlink()
    run.finish()
    assert plan_prune(storage=storage).empty


# -- space ------------------------------------------------------------------------------------------------------------


def test_the_space_of_a_run_is_given_back_and_points_keep_their_places(tmp_path):
    storage = Storage(tmp_path / "s")
    for name in ("a", "b", "c"):
        plain_run(storage, name, points=60_000, value=ord(name))
    size = rows.database_bytes(storage.database)
    done = deleted(storage, "b")
    assert done.problems == () and rows.database_bytes(storage.database) < 0.75 * size
    assert done.given_back_bytes > 0.25 * size
    for name in ("a", "c"):
        points = storage.get_metrics(name)
        assert len(points) == 60_000 and {point["value"] for point in points} == {float(ord(name))}
    with storage.database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'keeps_rowids'").fetchone()[0] == 0
    archive_case.sound(storage)


def test_vacuum_by_any_tool_leaves_every_point_with_its_run(tmp_path):
    storage = Storage(tmp_path / "s")
    for name in ("a", "b"):
        plain_run(storage, name, points=100, value=ord(name))
    with storage.database.writing() as connection:
        rows.erase(connection, rows.Removal(runs=("a",)), None)
    connection = sqlite3.connect(storage.database.path)
    connection.execute("VACUUM")
    connection.close()
    assert [point["value"] for point in storage.get_metrics("b")] == [98.0] * 100


def test_a_store_in_use_is_shrunk_later(tmp_path, monkeypatch):
    storage = Storage(tmp_path / "s")
    for name in ("a", "b"):
        plain_run(storage, name, points=60_000, value=ord(name))
    monkeypatch.setattr(rows, "_BUSY_SECONDS", 0.2)
    planned = plan_deletion("a", storage=storage)
    with storage.database.writing() as connection:
        rows.erase(connection, planned.removal, None)
    with storage.database.reading() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM runs").fetchone()
        with storage.database.writing() as writer:
            writer.execute("UPDATE runs SET title = 'x'")
            assert "others are using the store" in rows.give_back(storage.database)
    done = carry_out(plan_prune(storage=storage), storage=storage)
    assert done.given_back_bytes > 900_000 and done.problems == ()
    assert len(storage.get_metrics("b")) == 60_000


# -- crashes ----------------------------------------------------------------------------------------------------------

DELETE = "import sys; from watcherml.api.removal import *; p = plan_deletion(sys.argv[2], campaigns=True," \
         " storage=sys.argv[1]); print('go', flush=True); carry_out(p, by='x', storage=sys.argv[1])"  # fmt: skip


@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.long)])
def test_a_deletion_that_is_killed_took_all_or_nothing(original, tmp_path, kills):
    source, failed, _ = original
    shutil.copytree(source.path, tmp_path / "big")
    big = Storage(tmp_path / "big")
    plain_run(big, "kept", points=80_000, value=7)
    plain_run(big, "big", points=120_000)
    outcomes = set()
    for number in range(kills):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        shutil.copytree(big.path, tmp_path / "s")
        storage = Storage(tmp_path / "s")
        target = (failed, "big")[number % 2]
        process = archive_case.child(DELETE, storage.path, target, stdout=subprocess.PIPE)
        assert process.stdout.readline() == "go\n"
        time.sleep(0.6 * (number // 2 + 0.1) / (kills / 2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        archive_case.sound(storage)
        there = {row["run_id"] for row in storage.list_runs()}
        assert len(storage.get_metrics("kept")) == 80_000
        assert {point["value"] for point in storage.get_metrics("kept")} == {7.0}
        outcomes.add(target in there)
        if target in there:
            assert len(storage.get_metrics("big")) == 120_000
            assert RecoveryResult.of_campaign("first", storage).verified
            deleted(storage, target, campaigns=True)
        elif target == failed:
            assert len(tombstones(storage)) == 1
        carry_out(plan_prune(storage=storage), storage=storage)
        archive_case.sound(storage)
        assert target not in {row["run_id"] for row in storage.list_runs()}
        if target == failed:
            assert os.listdir(storage.path / "trials") == os.listdir(storage.path / "artifacts") == []
        assert len(storage.get_metrics("kept")) == 80_000
    assert outcomes


def test_an_error_in_the_middle_leaves_everything_and_the_triggers(copy, monkeypatch):
    storage, failed, _ = copy
    before = dumped(storage)

    def broken(*_):
        raise OSError("in the middle")

    monkeypatch.setattr(rows, "_erase_run", broken)
    with pytest.raises(OSError, match="in the middle"):
        deleted(storage, failed, campaigns=True)
    assert dumped(storage) == before
    archive_case.sound(storage)


def test_a_trainer_that_logs_meanwhile_loses_nothing(tmp_path):
    storage = Storage(tmp_path / "s")
    for number in range(6):
        plain_run(storage, f"old-{number}", points=20_000)
    code = (
        "import sys, watcherml\n"
        "run = watcherml.Run('p', {}, sys.argv[1], run_id='live', quiet=True).start()\n"
        "print('go', flush=True)\n"
        "for step in range(20_000):\n"
        "    run.log_metric('loss', float(step), step)\n"
        "    if step % 500 == 0: run.storage.runs.fold('live')\n"
        "run.finish(); assert not run.problems, run.problems\n"
    )
    with archive_case.child(code, storage.path, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        for number in range(6):
            deleted(storage, f"old-{number}")
        assert process.wait(120) == 0
    assert [point["value"] for point in storage.get_metrics("live")] == [float(step) for step in range(20_000)]
    archive_case.sound(storage)


def test_what_is_deleted_cannot_be_read_from_free_pages(storage):
    plain_run(storage, "gone", points=1)
    storage.runs.note("gone", {"long": "needle" * 2_000})
    assert words_in(storage, "needleneedle")
    with storage.database.writing() as connection:
        connection.execute("PRAGMA secure_delete = OFF")  # some builds of SQLite have it on
        rows.erase(connection, Removal(runs=("gone",)), None)
    assert not words_in(storage, "needleneedle")


def test_a_run_that_goes_on_again_after_planning_stays(storage):
    plain_run(storage, "back", points=1)
    planned = plan_deletion("back", storage=storage)
    with storage.database.writing() as connection:
        connection.execute(
            "UPDATE runs SET status = 'running', pid = ?, process_started = ?, boot_id = ? WHERE run_id = 'back'",
            this_process(),
        )
    with pytest.raises(RunError, match="back"):
        carry_out(planned, by="tester", storage=storage)
    assert storage.get_run("back")["status"] == "running" and len(storage.get_metrics("back")) == 1
