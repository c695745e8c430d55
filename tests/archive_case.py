"""A store with what archives are about: a run with everything, and a failed run with a verified campaign."""

import json
import math
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import builders
import pytest

import watcherml
from watcherml.cli.main import main
from watcherml.platform import ProcessId
from watcherml.store import archive_write
from watcherml.store.runs import NewRun
from watcherml.store.storage import Storage

PATCH = b"diff --git a/x b/x\r\n\x00\xff\xfe binary \r\n\nno newline at the end"
VALUES = [1.0, 0.1 + 0.2, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 3.0]
CHECKPOINT = b"the bytes of a checkpoint, which stay where they are" * 50
GUARD = ("--metric", "val_loss:minimize:0.42:0.03")
BUDGET = ("--max-probe-trials", "3", "--max-full-trials", "1", "--confirmation-runs", "1")


def full_run(storage, folder, run_id="whole-run"):
    """Record a run with points of every kind, artifacts, samples, cells, a title, a second blob and a binary patch."""
    run = watcherml.Run("demo <script>", {"lr": 0.1, "deep": {"ü": [1, None, "x"]}, "b": 1}, storage, run_id=run_id,
                        quiet=True).start()  # fmt: skip
    for step, value in enumerate(VALUES):
        run.log_metric("loss/train", value, step)
        run.log_metric("<script>alert(1)</script>", value)
    run.finish()
    (folder / "model.bin").write_bytes(CHECKPOINT)
    storage.runs.add_artifact(run_id, str(folder / "model.bin"), len(CHECKPOINT), "ab" * 32, 1000.5)
    with storage.database.writing() as connection:
        connection.execute(
            "INSERT INTO artifacts (run_id, path, size_bytes, sha256, at) VALUES (?, 'later.bin', 5, NULL, 1001.0)",
            (run_id,),
        )
        connection.execute("UPDATE runs SET title = 'my best run' WHERE run_id = ?", (run_id,))
        connection.execute("DELETE FROM samples WHERE run_id = ?", (run_id,))
        connection.execute("INSERT INTO samples (run_id, at, cpu_percent, rss_bytes) VALUES (?, 5.0, 12.5, 1000)",
                           (run_id,))  # fmt: skip
        connection.execute("INSERT INTO gpu_samples VALUES (?, 5.0, 0, 'GPU-1', 50.0, 1, 2, NULL)", (run_id,))
    patch = storage.evidence.put_blob(PATCH, "text/x-diff")
    other = storage.evidence.put_blob(b"other bytes", "application/octet-stream")
    row = storage.get_run(run_id)["facts"]
    storage.runs.note(run_id, {"git": {**row["git"], "patch": patch, "patch_is": "exact", "untracked": [other]},
                               "odd": {"nan": math.nan, "big": 2**60, "lone": "a\ud800b"}})  # fmt: skip
    for seq in (1, 2):
        storage.evidence.add_cell({
            "session_id": "session", "seq": seq, "run_id": run_id, "execution_count": seq, "cell_id": "c",
            "source": "x = 1\n", "status": "ok", "error_type": None, "error_message": None, "started_at": 10.0 + seq,
            "seconds": 0.25,
        })  # fmt: skip
    return run_id


def failed_run(storage, **config):
    run = watcherml.Run("demo", {**builders.FAILED_CONFIG, **config}, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(builders.OOM_TEXT)
    return run.run_id


def watcher(storage, folder, *words):
    before = os.getcwd()
    os.chdir(folder)
    try:
        return main(["--data-dir", str(storage.path), "--quiet", *words])
    finally:
        os.chdir(before)


def recovered(storage, folder, run_id, *campaign_ids):
    """Run campaigns of one plan, which share its approvals and its ranking's place."""
    (folder / "ent.py").write_text(builders.TEXT_ENTRYPOINT)
    words = ("--entrypoint", "ent:train", *BUDGET, *GUARD, "--out", str(folder / "plan.json"))
    assert watcher(storage, folder, "prepare-recovery", run_id, *words) == 0
    for name in campaign_ids:
        words = ("--plan", str(folder / "plan.json"), "--yes", "--campaign-id", name)
        assert watcher(storage, folder, "recover", *words) == 0
    return (folder / "plan.json").read_text()


class Case:
    """The store, its ids, and the exports of both runs."""

    def __init__(self, folder):
        from watcherml.api.archive import export_run

        self.folder = folder
        self.storage = Storage(folder / "store")
        before = os.getcwd()
        os.chdir(folder)  # outside of any repository
        try:
            self.whole = full_run(self.storage, folder)
            self.failed = failed_run(self.storage)
        finally:
            os.chdir(before)
        self.plan_text = recovered(self.storage, folder, self.failed, "first")
        self.whole_zip = Path(export_run(self.whole, folder / "whole.zip", storage=self.storage).path)
        self.failed_zip = Path(export_run(self.failed, folder / "failed.zip", storage=self.storage).path)


def rebuilt(path, target, change):
    """Write an export again, well-formed and with a manifest that fits, its members changed by ``change(members)``."""
    with zipfile.ZipFile(path) as source:
        members = {name: source.read(name) for name in source.namelist() if name != "manifest.json"}
        facts = json.loads(source.read("manifest.json"))
    change(members)
    kept = {key: facts[key] for key in ("run_id",)}
    archive_write.write_archive(target, facts["archive"], members, overwrite=True, **kept)
    return target


def dumped(storage):
    """Return every row of a store as text."""
    if not storage.exists:
        return ""
    with storage.database.reading() as connection:
        return "\n".join(connection.iterdump())


def sound(storage):
    """Assert that a store is whole: pages, foreign keys, and the triggers of the audit trail."""
    with storage.database.reading() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
        assert {"records_never_change", "records_never_go", "events_never_change", "events_never_go",
                "trials_never_change", "ends_never_change", "verdicts_never_change"} <= names  # fmt: skip
        lost = connection.execute(
            "SELECT COUNT(*) FROM metrics m WHERE NOT EXISTS (SELECT 1 FROM metric_ranges g"
            " WHERE m.rowid BETWEEN g.first_point AND g.last_point)"
        ).fetchone()[0]
        assert lost == 0


def plain_run(storage, run_id, points=0, project="p", started=1000.0, status="success", value=None):
    """Put an ended run with points on record, without a recorder."""
    nobody = ProcessId(2**22 + 1, 1.0, "another boot")
    storage.runs.add(NewRun(run_id, project, "user", started, nobody, {}))
    if status != "running":
        storage.runs.end(run_id, status, "", started + 10, None)
    with storage.database.writing() as connection:
        connection.execute("INSERT INTO metric_sources (run_id, process) VALUES (?, '1')", (run_id,))
        source = connection.execute("SELECT source_id FROM metric_sources WHERE run_id = ?", (run_id,)).fetchone()[0]
        connection.execute("INSERT INTO metric_names VALUES (?, 0, 'loss')", (source,))
        before = connection.execute("SELECT COALESCE(MAX(rowid), 0) FROM metrics").fetchone()[0]
        if points:
            connection.executemany(
                "INSERT INTO metrics (key, step, value, at) VALUES (0, ?, ?, 1000.0)",
                ((step, float(step if value is None else value)) for step in range(points)),
            )
            connection.execute(
                "INSERT INTO metric_ranges VALUES (?, ?, ?, ?)", (run_id, source, before + 1, before + points)
            )
    return run_id


def child(code, *words, **options):
    """Start Python code in a process of its own."""
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], text=True, **options)
