"""``watcher scan``: what stands in a store and still looks like a secret, without showing it."""

import json
import os
import shutil
import stat

import pytest

import watcherml
from watcherml.cli.main import main

KEY = "hf_" + "a1B2c3D4" * 4
KEYS = {"table", "column", "row", "run_id", "path", "kind", "excerpt"}


@pytest.fixture
def leaky(storage):
    """A store into which secrets were written past every rule, as an older version may have done."""
    run = watcherml.Run("demo", {"lr": 0.1}, storage, quiet=True).start()
    run.finish()
    digest = storage.evidence.put_blob(f"+++ b/x\n+KEY = '{KEY}'\n".encode(), "text/x-diff")
    facts = {"git": {"patch": digest}, "argv": ["train.py", "--api-key", "swordfish"]}
    with storage.database.writing() as connection:
        connection.execute(
            "UPDATE runs SET config = ?, facts = ? WHERE run_id = ?",
            (json.dumps({"db": {"password": "swordfish"}, "plain": 1}), json.dumps(facts), run.run_id),
        )
        connection.execute(
            "INSERT INTO cells (session_id, seq, source, status, started_at, seconds) VALUES ('s', 1, ?, 'ok', 1, 1)",
            (f"x = 1\nlogin('{KEY}')\n",),
        )
    folder = storage.path / "trials" / "t1"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("line\n" * 400_000 + "password: swordfish\n")
    (folder / "odd.json").write_text(json.dumps({"url": "redis://:swordfish@h/0"}))
    return run.run_id


def scan(capsys, *words):
    code = main(["scan", "--format", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_a_store_that_was_redacted_has_nothing(storage, capsys):
    with watcherml.Run("demo", {"api_key": KEY, "note": f"with {KEY}"}, storage, quiet=True) as run:
        run.log_metric("loss", 1.0)
    code, document = scan(capsys, "--check")
    assert code == 0
    assert document == {"kind": "scan", "store": str(storage.path), "count": 0, "kinds": {}, "findings": []}
    assert main(["scan"]) == 0
    assert "Nothing looks like a secret" in capsys.readouterr().out


def test_each_finding_names_its_place_and_never_the_value(storage, leaky, capsys):
    code, document = scan(capsys)
    assert code == 0 and document["count"] == len(document["findings"]) == sum(document["kinds"].values())
    text = json.dumps(document)
    assert KEY not in text and "swordfish" not in text
    assert all(set(one) == KEYS for one in document["findings"])
    places = {(one["table"], one["column"], one["path"]): one for one in document["findings"]}
    assert places["runs", "config", "db.password"]["run_id"] == leaky
    assert places["runs", "facts", "argv[2]"]["kind"] == "named_secret"
    assert places["blobs", "data", ""]["run_id"] == leaky  # the run whose patch it is
    cell = places["cells", "source", ""]
    assert cell["row"] == "session_id=s, seq=1" and "login('[redacted:" in cell["excerpt"]
    assert ("file", "trials/t1/odd.json", "url") in places
    assert any(column == "trials/t1/stdout.log" for _, column, _ in places)
    assert len(places) == 6


def test_the_exit_code_tells_only_if_it_is_asked_to(storage, leaky, capsys):
    assert main(["scan"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "may be secrets" in shown and "runs.config db.password" in shown and "swordfish" not in shown
    assert main(["scan", "--check", "--limit", "2"]) == 1
    assert "and 4 more" in capsys.readouterr().out


def test_a_value_of_this_environment_is_found_in_plain_words(storage, capsys, monkeypatch):
    with watcherml.Run("demo", {"note": "log in with tuna-fish-7 please"}, storage, quiet=True):
        pass
    assert scan(capsys)[1]["count"] == 0
    monkeypatch.setenv("SERVICE_PASSWORD", "tuna-fish-7")
    found = scan(capsys)[1]["findings"]
    assert [(one["kind"], one["column"]) for one in found] == [("known_value", "config")]
    assert found[0]["excerpt"] == "log in with [redacted] please"


def test_a_store_that_cannot_be_written_is_scanned_and_left_as_it_is(storage, leaky, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(storage.path, copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    try:
        code, document = scan(capsys, "--data-dir", str(copy))
    finally:
        for path in [copy, *copy.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    assert code == 0 and document["count"] == 6
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_where_there_is_no_store_it_says_so(storage, capsys):
    assert main(["scan"]) == 1
    assert "no WatcherML store" in capsys.readouterr().err


def test_odd_files_of_a_store_are_no_obstacle(storage, leaky, capsys):
    folder = storage.path / "trials" / "t2"
    folder.mkdir()
    (folder / "broken.json").write_bytes(b'{"password": "swordfish", \xff')
    (folder / "deep.json").write_text("[" * 100_000)
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/hostname")
    _, document = scan(capsys)
    assert document["count"] == 7 and "trials/t2/broken.json" in json.dumps(document)
