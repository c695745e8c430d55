"""A store of WatcherML 0.1: read in every surface, never written, and what it claims is never taken for verified."""

import json
import shutil
import sqlite3
import subprocess
import sys

import old_store
import pytest

from watcherml.api import data
from watcherml.cli.main import main
from watcherml.errors import NotAStore, NotFound, StoreError
from watcherml.store.storage import Storage

VERIFIED, FAILED = "recovery-c6276c2dd5d1", "recovery-090ffbd739b5"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the sample; whatever a test does, nothing in it may have changed afterwards."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(old_store.DATA / "store-0.1", tmp_path / "old")
    before = old_store.tree(tmp_path / "old")
    yield tmp_path / "old"
    assert old_store.tree(tmp_path / "old") == before


@pytest.fixture
def old(folder):
    return Storage(folder)


def test_runs_are_listed_in_the_shape_of_ours(old, tmp_path):
    fresh = Storage(tmp_path / "fresh")
    fresh.create()
    with fresh.database.reading() as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(run_summary)")]
    rows = old.list_runs()
    assert [list(row) for row in rows] == [columns] * 5
    assert [row["run_id"] for row in rows] == [
        "demo-925a63", "vision-03885b", "demo-77e29e", "demo-79632f", "demo-a10a6d",
    ]  # fmt: skip
    assert {row["origin"] for row in rows} == {"0.1"} and {row["role"] for row in rows} == {"user"}
    assert len(old.runs.listing(role=None)) == 14 and [r["run_id"] for r in old.list_runs("vision")] == [
        "vision-03885b"
    ]
    assert [row["status"] for row in rows] == ["failed"] * 4 + ["success"]


def test_one_run_has_its_configuration_and_facts(old):
    row = old.get_run("demo-a10a6d")
    assert row["config"]["batch_size"] == 16 and row["last_step"] == 19
    assert row["facts"]["dataset"] == {"fingerprint": "f49ee0d622d9"}
    assert row["facts"]["environment"]["packages"]["torch"] == "2.13.0+cpu"
    with pytest.raises(NotFound):
        old.get_run("nobody")


def test_every_point_is_there_with_infinity(old, folder):
    connection = sqlite3.connect(f"{(folder / 'watcher.db').as_uri()}?immutable=1", uri=True)
    for row in old.runs.listing(role=None):
        expected = connection.execute(
            "SELECT name, step, value, timestamp FROM metrics WHERE run_id = ? ORDER BY rowid", (row["run_id"],)
        ).fetchall()
        assert [(p["name"], p["step"], p["value"], p["at"]) for p in old.get_metrics(row["run_id"])] == expected
    connection.close()
    assert float("inf") in [point["value"] for point in old.get_metrics("vision-03885b")]


def test_samples_and_artifacts_are_there(old):
    (sample,) = old.runs.samples("demo-79632f")
    assert sample["cpu_percent"] == 100.0 and sample["at"] == pytest.approx(1795984087.632, abs=0.01)
    (artifact,) = old.runs.artifacts("demo-a10a6d")
    assert (artifact["path"], artifact["size_bytes"]) == ("final.pt", 1000)
    assert artifact["sha256"] is None, "half of a checksum is not a SHA-256"


def test_failures_are_listed_and_open_as_capsules(old):
    rows = old.evidence.failures()
    assert [row["run_id"] for row in rows] == ["demo-925a63", "demo-77e29e", "demo-79632f"]
    assert [row["run_id"] for row in old.evidence.failures(unresolved=True)] == ["demo-925a63", "demo-77e29e"]
    assert rows[2]["resolved_note"].startswith("Claimed by 0.1: ")
    assert old.get_capsule("demo-79632f")["capsule_schema_version"] == "1.0"
    for row in rows:
        capsule = data.capsule(old, row["run_id"])
        assert (capsule.run_id, capsule.failure.class_) == (row["run_id"], row["failure_class"])
    capsule = data.capsule(old, "demo-79632f")
    assert capsule.memory.requested_bytes == 2 * 2**30 and capsule.diagnosis.shortfall_bytes is not None
    assert capsule.completeness.present == 8 and capsule.device.kind == "none"
    assert data.capsule(old, "demo-a10a6d") is None


def test_a_verdict_is_a_claim_and_nothing_is_on_record(old):
    rows = data.campaigns(old)
    assert [(row["campaign_id"], row["status"], row["lifecycle"]) for row in rows] == [
        (FAILED, "claimed_by_0.1", "ended"), (VERIFIED, "claimed_by_0.1", "ended"),
    ]  # fmt: skip
    assert data.campaigns(old, verified=True) == []
    assert {row["candidate_id"] for row in rows} == {None}
    assert "Claimed by WatcherML 0.1: verified" in data.campaign(old, VERIFIED)["sentence"]
    with old.database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM records").fetchone()[0] == 0
        assert connection.execute("SELECT COUNT(*) FROM verdicts WHERE status = 'verified'").fetchone()[0] == 0


def test_trials_are_listed_in_their_order(old):
    rows = old.audit.trials(VERIFIED)
    assert [row["role"] for row in rows] == ["probe"] * 3 + ["full"] + ["confirmation"] * 2
    assert [row["steps"] for row in rows] == [10, 10, 10, 100, 100, 100]
    assert {row["outcome"] for row in rows} == {"completed"}
    assert {row["outcome"] for row in old.audit.trials(FAILED)} == {"oom"}
    assert len(old.audit.trials()) == 9


def run(capsys, *words):
    code = main([*words])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["runs"], "vision-03885b"),
        (["runs", "--trials"], "run-e7f09d1c42af7ab789c98921"),
        (["inspect", "demo-79632f"], "2.00 GiB were requested"),
        (["inspect", "demo-77e29e", "--format", "markdown"], "mat1 and mat2 shapes"),
        (["inspect", "demo-a10a6d"], "train_loss"),
        (["failures"], "CUDA out of memory"),
        (["recoveries"], "claimed by 0.1"),
        (["recovery", VERIFIED], "confirmation"),
        (["recovery", FAILED, "--watch"], "claimed by WatcherML 0.1"),
        (["stop", VERIFIED], "claimed by WatcherML 0.1"),
    ],
)
def test_commands_show_it(folder, capsys, words, shown):
    code, out = run(capsys, "--data-dir", str(folder), *words)
    assert code == 0 and shown.lower() in out.lower()
    assert "verified on" not in out.lower()


def test_the_document_of_a_campaign_says_whose_claim_it_is(folder, capsys):
    code, out = run(capsys, "--data-dir", str(folder), "recovery", VERIFIED, "--format", "json")
    document = json.loads(out)
    assert code == 0 and document["verified"] is False and document["standing"] == "claimed_by_0.1"
    assert len(document["trials"]) == 6 and document["events"][-1]["type"] == "ended"
    assert run(capsys, "--data-dir", str(folder), "verify", VERIFIED)[0] == 4
    assert (
        run(capsys, "--data-dir", str(folder), "recoveries", "--verified", "--format", "json")[1].count(VERIFIED) == 0
    )


def test_frames_show_it(folder):
    pytest.importorskip("pandas")
    from watcherml import frames

    assert len(frames.runs(folder)) == 5 and len(frames.runs(folder, trials=True)) == 14
    assert frames.runs(folder)["config.model"].unique().tolist() == ["tiny"]
    assert len(frames.metrics("demo-a10a6d", folder)) == 21
    assert len(frames.failures(folder)) == 3 and len(frames.trials(VERIFIED, folder)) == 6
    assert set(frames.campaigns(folder)["status"]) == {"claimed_by_0.1"}


@pytest.mark.parametrize(
    "act",
    [
        lambda storage: storage.create(),
        lambda storage: storage.runs.fold("demo-a10a6d"),
        lambda storage: storage.evidence.put_blob(b"x", "text/plain"),
        lambda storage: storage.audit.put_record("sha256:1", "recovery-plan", "{}", 1.0),
    ],
)
def test_writing_into_it_is_refused_with_the_remedy(old, act):
    with pytest.raises(StoreError, match=r"0\.1.*WATCHERML_DIR"):
        act(old)
    old.settle()


def test_training_goes_on_where_its_folder_cannot_record(folder):
    code = (
        "import warnings, sys, watcherml\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    with watcherml.Run('p', {}, sys.argv[1], quiet=True) as run:\n"
        "        for step in range(50):\n"
        "            run.log_metric('loss', 1.0, step)\n"
        "print(len([one for one in told if 'WatcherML' in str(one.message)]), len(run.problems) >= 50)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 True\n", "")


def test_a_store_of_ours_beside_it_comes_first(tmp_path):
    shutil.copytree(old_store.DATA / "store-0.1", tmp_path / "old")
    other = Storage(tmp_path / "other")
    other.create()
    shutil.copy(tmp_path / "other" / "watcherml.db", tmp_path / "old")
    storage = Storage(tmp_path / "old")
    assert not storage.is_older and storage.list_runs() == []


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda path: path.write_bytes(b""), "tables"),
        (lambda path: path.write_text("hello " * 100), "not a database"),
        (lambda path: path.write_bytes(path.read_bytes()[:9000]), "malformed"),
        (lambda path: change(path, "UPDATE storage_metadata SET version = '3.0'"), "version 3.0"),
        (lambda path: change(path, "ALTER TABLE runs RENAME TO walks"), "walks"),
    ],
)
def test_another_file_of_that_name_is_refused(tmp_path, spoil, word):
    path = tmp_path / "watcher.db"
    shutil.copy(old_store.DATA / "store-0.1" / "watcher.db", path)
    path.chmod(0o600)
    spoil(path)
    before = old_store.tree(tmp_path)
    with pytest.raises(NotAStore, match=word):
        Storage(tmp_path).list_runs()
    assert old_store.tree(tmp_path) == before


def change(path, statement):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute(statement)
    connection.close()


def test_what_0_1_left_half_written_is_still_read(tmp_path):
    """Columns with no JSON, no end, an unknown status, an earlier layout with fewer columns."""
    path = tmp_path / "watcher.db"
    shutil.copy(old_store.DATA / "store-0.1" / "watcher.db", path)
    path.chmod(0o600)
    for statement in (
        "UPDATE runs SET config_json = '{broken', exit_status = NULL, ended_at = NULL WHERE run_id = 'demo-a10a6d'",
        "UPDATE runs SET exit_status = 'exploded', git_json = NULL WHERE run_id = 'vision-03885b'",
        "UPDATE failures SET capsule_json = NULL WHERE run_id = 'demo-77e29e'",
        "UPDATE metrics SET value = NULL WHERE run_id = 'demo-a10a6d' AND step = 3",
        f"UPDATE recovery_campaigns SET ended_at = NULL, status = 'running' WHERE campaign_id = '{FAILED}'",
        "ALTER TABLE runs DROP COLUMN resolved_note",
        "DROP TABLE resource_samples",
    ):
        change(path, statement)
    storage = Storage(tmp_path)
    row = storage.get_run("demo-a10a6d")
    assert (row["status"], row["config"], row["ended_at"]) == ("running", {}, None) and "no end" in row["end_reason"]
    assert storage.get_run("vision-03885b")["status"] == "failed"
    assert [point for point in storage.get_metrics("demo-a10a6d") if point["value"] != point["value"]]
    assert data.capsule(storage, "demo-77e29e").failure.message.startswith("mat1 and mat2")
    assert data.campaign(storage, FAILED)["lifecycle"] == "interrupted"
    assert "cannot be taken up" in data.campaign(storage, FAILED)["sentence"]
    assert storage.runs.samples("demo-a10a6d") == []
