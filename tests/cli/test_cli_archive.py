"""``watcher export``, ``import``, ``pack`` and ``verify`` of what they make, as a person types them."""

import json
import struct
import zipfile
import zlib
from pathlib import Path

import archive_case
import pytest

from watcherml.cli.main import main
from watcherml.store.storage import Storage


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return archive_case.Case(tmp_path_factory.mktemp("cli-archive"))


@pytest.fixture
def watcher(tmp_path, monkeypatch, capsys):
    """Return a call that runs a command in a folder of its own and returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WATCHERML_DIR", raising=False)

    def run(storage, *words):
        capsys.readouterr()
        code = main(["--data-dir", str(getattr(storage, "path", storage)), *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def verified(watcher, storage, path):
    code, out, _ = watcher(storage, "verify", path, "--format", "json")
    document = json.loads(out)
    assert code == {"on_record": 0, "altered": 1, "unrecorded": 4}[document["standing"]]
    return code, document


def test_export_says_what_it_wrote(case, watcher):
    code, out, err = watcher(case.storage, "export", case.failed)
    assert (code, err) == (0, "") and f"watcher-{case.failed}.zip" in out and "capsule.json" in out and "first" in out
    assert Path(f"watcher-{case.failed}.zip").read_bytes() == case.failed_zip.read_bytes()
    code, out, err = watcher(case.storage, "export", case.failed)
    assert code == 1 and "--force" in err and out == ""
    code, out, _ = watcher(case.storage, "export", case.failed, "--force", "--format", "json")
    document = json.loads(out)
    assert code == 0 and document["kind"] == "export" and document["campaigns"] == ["first"]
    assert document["members"]["capsule.json"] > 0 and document["path"] == f"watcher-{case.failed}.zip"
    assert watcher(case.storage, "export", "nobody")[0] == 3
    assert watcher(case.storage, "export")[0] == 2
    assert watcher(case.storage, "export", case.whole, "--out", "no/such/folder.zip")[0] == 1


def test_verify_knows_an_export_of_this_store(case, watcher):
    for path, documents in ((case.whole_zip, 1), (case.failed_zip, 2)):
        code, document = verified(watcher, case.storage, path)
        assert (code, document["kind"], document["problems"]) == (0, "archive", [])
        assert [one["standing"] for one in document["documents"]] == ["on_record"] * documents
        assert document["documents"][0]["kind"] == "exported-run"
    assert verified(watcher, case.storage, case.failed_zip)[1]["verified"] is True
    assert "exported run" in watcher(case.storage, "verify", case.whole_zip)[1]


def test_verify_of_an_export_elsewhere_is_4_also_after_its_import(case, watcher, tmp_path):
    there = Storage(tmp_path / "there")
    for _ in range(2):
        for path in (case.whole_zip, case.failed_zip):
            code, document = verified(watcher, there, path)
            assert (code, document["verified"]) == (4, False)
            assert {one["standing"] for one in document["documents"]} == {"unrecorded"}
            watcher(there, "import", path)
    code, document = verified(watcher, there, "first")
    assert (code, document["verified"]) == (4, False)


def patched(data, member, change):
    """Return a ZIP with one byte of a member's packed content changed."""
    at = data.index(member.encode(), 0) + len(member)
    return data[: at + change] + bytes([data[at + change] ^ 1]) + data[at + change + 1 :]


def rezipped(path, target, change):
    with zipfile.ZipFile(path) as source:
        members = [(name, source.read(name)) for name in source.namelist()]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in change(members):
            made.writestr(name, data)


def manifest_edit(edit):
    def change(members):
        listed = dict(members)
        document = json.loads(listed["manifest.json"])
        edit(document)
        return [*((name, data) for name, data in members if name != "manifest.json"),
                ("manifest.json", json.dumps(document))]  # fmt: skip

    return change


def stored_edit(data):
    """Change a checksum in the manifest, which is stored, and make its own checksum fit again."""
    at = data.rindex(b'"sha256": "') + 11
    changed = bytearray(data)
    changed[at] = ord("0") if changed[at] != ord("0") else ord("1")
    start = data.rindex(b"PK\x03\x04")
    (size,) = struct.unpack_from("<L", data, start + 18)
    content = bytes(changed[start + 30 + 13 : start + 30 + 13 + size])
    struct.pack_into("<L", changed, start + 14, zlib.crc32(content))
    struct.pack_into("<L", changed, data.rindex(b"PK\x01\x02") + 16, zlib.crc32(content))
    return bytes(changed)


BYTES = {
    "member data": lambda data: patched(data, "run.json", 100),
    "a member's name": lambda data: data.replace(b"config.json", b"konfig.json"),
    "a name in the directory only": lambda data: data[: data.rindex(b"config.json")] + b"konfig.json"
    + data[data.rindex(b"config.json") + 11 :],
    "a checksum in the manifest": stored_edit,
    "a time": lambda data: data[: data.rindex(b"PK\x01\x02") + 12] + b"\x01" + data[data.rindex(b"PK\x01\x02") + 13 :],
    "a mode": lambda data: data[: data.rindex(b"PK\x01\x02") + 40] + b"\xff" + data[data.rindex(b"PK\x01\x02") + 41 :],
    "a comment": lambda data: data[:-2] + b"\x04\x00note",
    "bytes behind": lambda data: data + b"\0",
    "a torn end": lambda data: data[:-1],
}  # fmt: skip
MEMBERS = {
    "an added member": lambda members: [*members, ("more.txt", b"more")],
    "a removed member": lambda members: [one for one in members if one[0] != "config.json"],
    "a member twice": lambda members: [*members, ("run.json", b"{}")],
    "a member in other letters": lambda members: [*members, ("RUN.JSON", b"{}")],
    "a link out": lambda members: [*members, ("../x", b"")],
    "no manifest": lambda members: [one for one in members if one[0] != "manifest.json"],
    "a manifest without an entry": manifest_edit(lambda document: document["files"].pop("config.json")),
    "a manifest with another size": manifest_edit(lambda document: document["files"]["run.json"].update(size=1)),
    "a manifest of no packed bytes": manifest_edit(lambda document: document.pop("packed")),
    "a manifest with another run": manifest_edit(lambda document: document.update(run_id="x")),
    "only packed again": list,
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("which", ["whole", "failed"])
@pytest.mark.parametrize("what", [*BYTES, *MEMBERS])
def test_verify_finds_every_change_of_an_export(case, watcher, tmp_path, which, what):
    path, target = getattr(case, f"{which}_zip"), tmp_path / "changed.zip"
    if what in BYTES:
        changed = BYTES[what](path.read_bytes())
        assert changed != path.read_bytes()
        target.write_bytes(changed)
    else:
        rezipped(path, target, MEMBERS[what])
    code, document = verified(watcher, case.storage, target)
    if what == "no manifest" and which == "failed":
        # What is left is a ZIP that holds a result, which is this store's.
        assert code == 0 and [one["kind"] for one in document["documents"]] == ["recovery-result"]
        return
    assert code == 1 and document["problems"] and document["documents"] == []
    assert watcher(tmp_path / "there", "import", target)[0] == 1
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("which", ["value", "status", "config", "capsule"])
def test_verify_finds_an_export_that_was_made_again_with_another_content(case, watcher, tmp_path, which):
    """A whole archive with a manifest that fits proves nothing: the store says something else of that run."""

    def change(members):
        run = json.loads(members["run.json"])
        if which == "value":
            run["metrics"]["value"][0] = 0.001
        elif which == "status":
            run["run"]["status"] = "failed"
        elif which == "config":
            run["run"]["config"]["lr"] = 7
            members["config.json"] = (json.dumps(run["run"]["config"], sort_keys=True, indent=2) + "\n").encode()
        else:
            capsule = case.storage.evidence.capsule(case.failed)["document"]
            from watcherml.forensics.capsule import Capsule

            members["capsule.json"] = Capsule.from_json(capsule).replace(run_id=case.whole).to_json().encode()
        members["run.json"] = (json.dumps(run, sort_keys=True, separators=(",", ":")) + "\n").encode()

    path = archive_case.rebuilt(case.whole_zip, tmp_path / "again.zip", change)
    code, document = verified(watcher, case.storage, path)
    assert code == 1 and document["documents"][0]["standing"] == "altered"
    assert document["documents"][0]["problems"][0]["expected"]
    assert verified(watcher, tmp_path / "elsewhere", path)[0] == 4


def test_an_export_of_a_running_run_stays_true_when_the_run_goes_on(watcher, tmp_path):
    import watcherml

    storage = Storage(tmp_path / "store")
    run = watcherml.Run("p", {"lr": 1}, storage, quiet=True).start()
    run.join_facts()
    run.log_metric("loss", 1.0, 1)
    watcher(storage, "export", run.run_id, "--out", "early.zip")
    assert verified(watcher, storage, "early.zip")[0] == 0
    run.log_metric("loss", 2.0, 2)
    run.finish()
    with storage.database.writing() as connection:
        connection.execute("UPDATE runs SET title = 'renamed'")
    assert verified(watcher, storage, "early.zip")[0] == 0
    watcher(storage, "export", run.run_id, "--out", "late.zip")
    with storage.database.writing() as connection:
        connection.execute("UPDATE runs SET title = 'renamed again'")
    assert verified(watcher, storage, "late.zip")[0] == 0
    with storage.database.writing() as connection:
        connection.execute("UPDATE metrics SET value = 3.0 WHERE rowid = 1")
    assert verified(watcher, storage, "early.zip")[0] == verified(watcher, storage, "late.zip")[0] == 1


def test_import_says_whose_run_it_is_everywhere(case, watcher, tmp_path):
    there = tmp_path / "there"
    code, out, _ = watcher(there, "import", case.failed_zip)
    assert code == 0 and "recorded elsewhere, not by this store" in out
    code, out, _ = watcher(there, "import", case.failed_zip, "--format", "json")
    assert code == 0 and json.loads(out)["already"] is True
    assert "Nothing was changed" in watcher(there, "import", case.failed_zip)[1].replace("\n  ", " ")
    assert "failed, imported" in watcher(there, "runs")[1]
    assert json.loads(watcher(there, "runs", "--format", "json")[1])["runs"][0]["origin"] == "imported"
    for form in ("text", "markdown"):
        assert "recorded elsewhere, not by this store" in watcher(there, "inspect", case.failed, "--format", form)[1]
    assert json.loads(watcher(there, "inspect", case.failed, "--format", "json")[1])["run"]["origin"] == "imported"
    out = watcher(there, "recoveries")[1]
    assert "imported" in out and "Verified elsewhere, not by this store" in out
    assert "first" not in watcher(there, "recoveries", "--verified")[1]
    code, out, _ = watcher(there, "recovery", "first")
    assert code == 0 and out.startswith("Verified elsewhere, not by this store")
    document = json.loads(watcher(there, "recovery", "first", "--format", "json")[1])
    assert (document["standing"], document["status"], document["verified"]) == ("imported", "imported", False)
    code, _, err = watcher(there, "prepare-recovery", case.failed, "--entrypoint", "ent:train", *archive_case.GUARD)
    assert code == 1 and "it was not recorded here" in err
    for command in ("stop", "resume"):
        assert watcher(there, command, "first")[0] == 3


def test_import_refuses_in_a_sentence(case, watcher, tmp_path):
    there = tmp_path / "there"
    watcher(there, "import", case.whole_zip, "--as", "mine")
    assert "mine" in watcher(there, "runs")[1]
    assert watcher(there, "import", "no-such.zip")[0] == 1
    code, _, err = watcher(there, "import", case.failed_zip, "--as", "mine")
    assert code == 1 and "--as NEW_ID" in err
    path = archive_case.rebuilt(
        case.whole_zip, tmp_path / "bad.zip", lambda members: members.update({"run.json": b"{"})
    )
    code, out, err = watcher(there, "import", path, "--format", "json")
    error = json.loads(err)["error"]
    assert (code, out) == (1, "") and error["message"] == "run.json" and error["code"] == "invalid_record"


def test_pack_says_how_it_is_opened_and_verify_reads_it(case, watcher, tmp_path):
    code, out, _ = watcher(case.storage, "pack")
    assert code == 0 and "unzip" in out and Path("watcherml-store.zip").exists()
    assert watcher(case.storage, "pack")[0] == 1
    document = json.loads(watcher(case.storage, "pack", "--force", "--format", "json")[1])
    assert document["kind"] == "pack" and "watcherml.db" in document["members"]
    assert verified(watcher, case.storage, "watcherml-store.zip")[0] == 0
    assert verified(watcher, tmp_path / "there", "watcherml-store.zip")[0] == 4
    data = bytearray(Path("watcherml-store.zip").read_bytes())
    data[len(data) // 2] ^= 4
    Path("watcherml-store.zip").write_bytes(bytes(data))
    assert verified(watcher, case.storage, "watcherml-store.zip")[0] == 1
    empty = Storage(tmp_path / "empty")
    empty.create()
    watcher(empty, "pack", "--out", "empty.zip")
    code, document = verified(watcher, empty, "empty.zip")
    assert code == 0 and "This store packed it" in document["sentence"] and not document["verified"]
    code, document = verified(watcher, case.storage, "empty.zip")
    assert code == 4 and "has not packed it" in document["sentence"]
    assert watcher(tmp_path / "nothing", "pack", "--out", "n.zip")[0] == 1
