"""Importing: a run arrives whole as somebody else's claim, or not at all; nothing of it is ever on record."""

import json
import re
import signal
import time

import archive_case
import pytest
from archive_case import dumped, rebuilt

import watcherml
from watcherml import frames
from watcherml.api import data
from watcherml.api.archive import export_run, import_run, imported_campaigns, imported_result
from watcherml.api.recover import RecoveryPreparation, prepare_oom_recovery
from watcherml.api.result import RecoveryResult
from watcherml.errors import InvalidRecord, InvalidValue, NotFound, NotOnRecord, RecoveryRefused, TrustError
from watcherml.store.storage import Storage


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return archive_case.Case(tmp_path_factory.mktemp("import"))


@pytest.fixture
def there(tmp_path):
    return Storage(tmp_path / "there")


@pytest.mark.parametrize("which", ["whole", "failed"])
def test_an_imported_run_exported_again_is_the_same_file(case, there, tmp_path, which):
    path = getattr(case, f"{which}_zip")
    made = import_run(path, storage=there)
    assert made.run_id == getattr(case, which) and not made.already
    again = export_run(made.run_id, tmp_path / "again.zip", storage=there)
    assert (tmp_path / "again.zip").read_bytes() == path.read_bytes() and again.points == made.points
    archive_case.sound(there)


def test_an_imported_run_appears_everywhere_as_imported(case, there):
    for path in (case.whole_zip, case.failed_zip):
        import_run(path, storage=there)
    assert {row["origin"] for row in there.list_runs()} == {"imported"} and len(there.list_runs()) == 2
    assert set(frames.runs(there)["origin"]) == {"imported"}
    assert len(frames.metrics(case.whole, there)) == 18
    assert data.capsule(there, case.failed).digest == data.capsule(case.storage, case.failed).digest
    (row,) = data.campaigns(there)
    assert (row["campaign_id"], row["status"], row["lifecycle"]) == ("first", "imported", "imported")
    assert row["sentence"].startswith("Verified elsewhere, not by this store: ")
    assert data.campaign(there, "first") == row and data.campaigns(there, verified=True) == []
    assert data.campaigns(there, source_run_id="other") == [] and data.campaigns(there, project="other") == []
    origin = there.get_run(case.failed)["facts"]["imported"]
    assert origin["file"] == "failed.zip" and origin["run_id"] == case.failed


def test_nothing_of_an_import_is_on_record(case, there):
    import_run(case.failed_zip, storage=there)
    with there.database.reading() as connection:
        for table in ("records", "campaigns", "verdicts", "trials", "trial_ends", "events"):
            assert connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] == 0, table
        assert connection.execute("SELECT COUNT(*) FROM imports").fetchone()[0] == 2
    with pytest.raises(NotOnRecord):
        RecoveryPreparation.from_json(case.plan_text, storage=there)
    result = imported_result(there, "first")
    loaded = RecoveryResult.from_json(result.to_json(), storage=there)
    for one in (result, loaded):
        assert (one.standing, one.verified, one.status) == ("unrecorded", False, "unrecorded")
        assert one.verified_config is None and one.sentence.startswith("Verified elsewhere")
    with pytest.raises(NotFound):
        RecoveryResult.of_campaign("first", there)


def test_a_recovery_of_an_imported_run_is_refused(case, there, requirements, tmp_path, monkeypatch):
    import_run(case.failed_zip, storage=there)
    monkeypatch.chdir(case.folder)
    with pytest.raises(RecoveryRefused, match="was imported: it was not recorded here"):
        prepare_oom_recovery(case.failed, "ent:train", requirements, storage=there)


def test_a_plan_on_record_does_not_stand_on_an_imported_capsule(case, there):
    # As if the plan had been made here for a run that is gone, and its export came back.
    plan = watcherml.RecoveryPreparation.from_json(case.plan_text, storage=case.storage).plan
    there.audit.put_record(plan.digest, plan.KIND, plan.to_json(), 1.0)
    import_run(case.failed_zip, storage=there)
    with pytest.raises(TrustError, match="not on record as the plan tells it"):
        RecoveryPreparation.from_json(case.plan_text, storage=there)


def test_the_same_file_again_changes_nothing(case, there):
    first = import_run(case.failed_zip, storage=there)
    before = dumped(there)
    for as_id in (None, "another-name"):
        again = import_run(case.failed_zip, storage=there, as_id=as_id)
        assert again.already and again.run_id == first.run_id
    assert dumped(there) == before


def test_an_id_that_is_taken_is_refused_and_another_can_be_given(case, there, tmp_path):
    archive_case.plain_run(there, case.whole)
    before = dumped(there)
    with pytest.raises(InvalidValue, match=r"expected an id that is free.*recorded here.*--as NEW_ID"):
        import_run(case.whole_zip, storage=there)
    for bad in ("../up", "", "a b", "<script>", "x" * 129, ".hidden", "a/b"):
        with pytest.raises(InvalidValue, match="--as"):
            import_run(case.whole_zip, storage=there, as_id=bad)
    assert dumped(there) == before
    made = import_run(case.whole_zip, storage=there, as_id="theirs")
    assert (made.run_id, made.original_run_id) == ("theirs", case.whole)
    assert len(there.get_metrics("theirs")) == 18 and there.get_metrics(case.whole) == []
    # Under another name it travels on, and still says what it was recorded as.
    export_run("theirs", tmp_path / "on.zip", storage=there)
    further = import_run(tmp_path / "on.zip", storage=tmp_path / "further")
    assert (further.run_id, further.original_run_id) == ("theirs", case.whole)


def test_an_import_into_its_own_store_lives_beside_the_original(case, tmp_path):
    import shutil

    shutil.copytree(case.storage.path, tmp_path / "copy")
    storage = Storage(tmp_path / "copy")
    own = dumped(storage)
    for path, name in ((case.whole_zip, "copy-1"), (case.failed_zip, "copy-2")):
        import_run(path, storage=storage, as_id=name)
    assert set(own.splitlines()) <= set(dumped(storage).splitlines())
    assert len(storage.evidence.cells(run_id=case.whole)) == len(storage.evidence.cells(run_id="copy-1")) == 2
    assert data.campaign(storage, "first")["lifecycle"] == "ended"  # a campaign of its own comes first
    assert RecoveryResult.of_campaign("first", storage).verified
    archive_case.sound(storage)


def test_a_run_that_was_going_on_arrives_as_interrupted(storage, there, tmp_path):
    run = watcherml.Run("p", {}, storage, quiet=True).start()
    run.join_facts()
    run.log_metric("loss", 1.0, 1)
    export_run(run.run_id, tmp_path / "x.zip", storage=storage)
    run.finish()
    import_run(tmp_path / "x.zip", storage=there)
    there.settle()
    row = there.get_run(run.run_id)
    assert row["status"] == "interrupted" and "when it was exported" in row["end_reason"]


# -- what is refused --------------------------------------------------------------------------------------------------


def edit(*path, to):
    """Return a change of ``run.json`` that sets one value; the members derived from it are left alone."""

    def change(members):
        document = json.loads(members["run.json"])
        place = document
        for key in path[:-1]:
            place = place[key]
        if to is KeyError:
            del place[path[-1]]
        else:
            place[path[-1]] = to
        members["run.json"] = json.dumps(document).encode()

    return change


def raw(old, new, member="run.json"):
    def change(members):
        assert old in members[member]
        members[member] = members[member].replace(old, new, 1)

    return change


def put(name, text):
    def change(members):
        members[name] = text if isinstance(text, bytes) else text.encode()

    return change


def drop(name):
    return lambda members: members.pop(name)


HOSTILE = [
    (edit("run", "run_id", to="<script>alert(1)</script>"), r"run\.json: \$\.run\.run_id"),
    (edit("run", "run_id", to="../../etc/passwd"), r"run\.json: \$\.run\.run_id"),
    (edit("run", "run_id", to="x" * 10_000), r"run\.json: \$\.run\.run_id"),
    (edit("run", "run_id", to=7), r"run\.json: \$\.run\.run_id"),
    (edit("run", "run_id", to="another"), r"manifest\.json\.run_id"),
    (edit("run", "project", to="p" * 10_000), r"run\.json: \$\.run\.project"),
    (edit("run", "project", to=None), r"run\.json: \$\.run\.project"),
    (edit("run", "project", to=""), r"run\.json: \$\.run\.project"),
    (edit("run", "role", to="admin"), r"run\.json: \$\.run\.role"),
    (edit("run", "status", to="verified"), r"run\.json: \$\.run\.status"),
    (edit("run", "status", to=["success"]), r"run\.json: \$\.run\.status"),
    (edit("run", "started_at", to="2026-01-01"), r"run\.json: \$\.run\.started_at"),
    (edit("run", "started_at", to=-1), r"run\.json: \$\.run\.started_at"),
    (edit("run", "started_at", to=1e300), r"run\.json: \$\.run\.started_at"),
    (edit("run", "last_step", to=1.5), r"run\.json: \$\.run\.last_step"),
    (edit("run", "last_step", to=True), r"run\.json: \$\.run\.last_step"),
    (edit("run", "config", to=[1]), r"run\.json: \$\.run \(config\)"),
    (edit("run", "facts", to="x"), r"run\.json: \$\.run \(facts\)"),
    (edit("run", "facts", "dataset", to="x"), r"run\.json: \$\.run \(facts\.dataset\)"),
    (edit("run", "facts", "git", to=[]), r"run\.json: \$\.run \(facts\.git\)"),
    (edit("run", "receipt", to=3), r"run\.json: \$\.run \(receipt\)"),
    (edit("run", "device", to={"kind": "tpu"}), r"run\.json: \$\.run\.device"),
    (edit("run", "device", to={"kind": "simulated", "name": "x", "budget_bytes": None}), r"run\.json: \$\.run\.device"),
    (edit("run", "lossy_paths", to="a"), r"run\.json: \$\.run\.lossy_paths"),
    (edit("run", "pid", to=1), r"run\.json: \$\.run: expected only the keys"),
    (edit("run", "origin", to="here"), r"run\.json: \$\.run: expected only the keys"),
    (edit("run", "title", to=KeyError), r"run\.json: \$\.run\.title: expected a value; got no such key"),
    (edit("metrics", to=KeyError), r"run\.json: \$\.metrics: expected a value; got no such key"),
    (edit("more", to=1), r"run\.json: expected only the keys"),
    (edit("kind", to="recovery-result"), r"run\.json: \$\.kind"),
    (edit("version", to=2), r"run\.json: \$\.version"),
    (edit("version", to=True), r"run\.json: \$\.version"),
    (edit("original_run_id", to="a\nb"), r"run\.json: \$\.original_run_id"),
    (edit("metrics", "names", 0, to="n" * 10_000), r"run\.json: \$\.metrics\.names\[0\]"),
    (edit("metrics", "names", 0, to="a\x1b[31m"), r"run\.json: \$\.metrics\.names\[0\]"),
    (edit("metrics", "names", 0, to="<script>alert(1)</script>"), r"run\.json: \$\.metrics\.names"),
    (edit("metrics", "name", 3, to=99), r"run\.json: \$\.metrics\.name\[3\]"),
    (edit("metrics", "name", 3, to=-1), r"run\.json: \$\.metrics\.name\[3\]"),
    (edit("metrics", "name", 3, to=True), r"run\.json: \$\.metrics\.name\[3\]"),
    (edit("metrics", "step", 0, to="1"), r"run\.json: \$\.metrics\.step\[0\]"),
    (edit("metrics", "value", 2, to="NaN"), r"run\.json: \$\.metrics\.value\[2\]"),
    (edit("metrics", "value", 2, to=None), r"run\.json: \$\.metrics\.value\[2\]"),
    (edit("metrics", "value", 2, to=[[]]), r"run\.json: \$\.metrics\.value\[2\]"),
    (edit("metrics", "value", 2, to={}), r"run\.json: \$\.metrics\.value\[2\]"),
    (edit("metrics", "at", 0, to=1e20), r"run\.json: \$\.metrics\.at\[0\]"),
    (edit("metrics", "at", to=[]), r"run\.json: \$\.metrics\.\w+: expected 0 entries"),
    (edit("metrics", "at", to={}), r"run\.json: \$\.metrics\.at: expected a list"),
    (edit("metrics", to=[]), r"run\.json: \$\.metrics: expected an object"),
    (edit("artifacts", 0, "size_bytes", to=-1), r"run\.json: \$\.artifacts\[0\]\.size_bytes"),
    (edit("artifacts", 0, "size_bytes", to=2**53 - 1 + 0.5), r"run\.json: \$\.artifacts\[0\]\.size_bytes"),
    (edit("artifacts", to={}), r"run\.json: \$\.artifacts: expected a list"),
    (edit("samples", 0, "at", to=KeyError), r"run\.json: \$\.samples\[0\]\.at"),
    (edit("samples", 0, "cpu_percent", to="12"), r"run\.json: \$\.samples\[0\]\.cpu_percent"),
    (edit("gpu_samples", 0, "uuid", to="u" * 10_000), r"run\.json: \$\.gpu_samples\[0\]\.uuid"),
    (edit("cells", 1, "status", to="done"), r"run\.json: \$\.cells\[1\]\.status"),
    (edit("cells", 1, "seq", to=1), r"run\.json: \$\.cells\[1\]\.seq: expected each number once"),
    (edit("cells", 1, to=None), r"run\.json: \$\.cells\[1\]: expected an object"),
    (raw(b'"cpu_percent":12.5', b'"cpu_percent":NaN'), r"run\.json: expected finite numbers"),
    (raw(b'"cpu_percent":12.5', b'"cpu_percent":Infinity'), r"run\.json: expected finite numbers"),
    (raw(b'"cpu_percent":12.5', b'"cpu_percent":1e999'), r"run\.json: expected a number within double range"),
    (raw(b'"rss_bytes":1000', b'"rss_bytes":' + b"9" * 5_000), r"run\.json: expected"),
    (raw(b'"rss_bytes":1000', b'"rss_bytes":9007199254740993'), r"run\.json: expected"),
    (raw(b'"cpu_percent":12.5', b'"cpu_percent":1,"cpu_percent":2'), r"run\.json: expected each key once"),
    (put("run.json", "[" * 100_000), r"run\.json"),
    (put("run.json", "{"), r"run\.json: expected a JSON document"),
    (put("run.json", b"\xff\xfe"), r"run\.json"),
    (put("run.json", "[]"), r"run\.json: expected an object"),
    (put("run.json", "null"), r"run\.json: expected an object"),
    (drop("run.json"), r"run\.json: expected a member"),
    (drop("config.json"), r"config\.json: expected what follows from run\.json; got nothing"),
    (put("config.json", '{"lr": 5}'), r"config\.json: expected what follows from run\.json"),
    (put("environment.json", "{}"), r"environment\.json: expected what follows"),
    (put("requirements.txt", "--index-url http://evil.example\npsutil\n"), r"requirements\.txt: expected what follows"),
    (edit("run", "config", "lr", to=0.2), r"config\.json: expected what follows"),
    (put("patch.diff", b"another patch"), r"patch\.diff: expected bytes with the SHA-256"),
    (put("blobs/" + "0" * 64, b"x"), r"blobs/0+: expected bytes with the SHA-256"),
    (put("blobs/../../x", b"x"), "way out"),
    (put("capsule.json", "{}"), r"capsule\.json: \$"),
    (put("capsule.json", b"\xff"), r"capsule\.json: expected UTF-8"),
    (put("capsules/0001.json", "{}"), r"capsule\.json: expected the last capsule"),
    (put("evil.py", "import os"), r"evil\.py: expected only members that an export has"),
    (put("watcherml.db", b"SQLite format 3\0"), r"watcherml\.db: expected only members"),
    (put("campaigns/x/recovery-result.json", "{}"), r"campaigns/x/recovery-result\.json: \$"),
    (put("campaigns/x/y/recovery-result.json", "{}"), r"expected only members that an export has"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_content_is_refused_with_its_place_and_leaves_nothing(case, there, tmp_path, number):
    change, words = HOSTILE[number]
    archive_case.plain_run(there, "before", points=3)
    before = dumped(there)
    path = rebuilt(case.whole_zip, tmp_path / "bad.zip", change)
    with pytest.raises(InvalidValue) as caught:
        import_run(path, storage=there)
    assert re.search(words, str(caught.value)), str(caught.value)
    assert len(str(caught.value)) < 3_000
    assert dumped(there) == before and imported_campaigns(there) == []


def capsule_of(case, **changes):
    from watcherml.forensics.capsule import Capsule

    return Capsule.from_json(case.storage.evidence.capsule(case.failed)["document"]).replace(**changes)


def test_capsules_and_results_that_do_not_belong_are_refused(case, there, tmp_path):
    name = "campaigns/first/recovery-result.json"
    chain = imported_or_own(case)
    forged = chain.replace(verdict=chain.verdict.replace(status="not_recovered"))
    table = [
        (put(name, forged.to_json()), r"recovery-result\.json: \$\.value\.verdict"),
        (put(name, chain.to_json().replace("val_loss", "val_lost")), r"recovery-result\.json: \$\.digest"),
        (put("campaigns/other/recovery-result.json", chain.to_json()), r"campaigns/other/.*campaign_id"),
        (put("capsule.json", capsule_of(case, run_id="another").to_json()), r"capsule\.json: \$\.value\.run_id"),
        (put("capsule.json", capsule_of(case, headline="x").to_json()), r"capsule_digest: expected a capsule of this"),
        (drop("capsule.json"), r"capsule_digest: expected a capsule of this archive"),
    ]
    for change, words in table:
        with pytest.raises(InvalidRecord, match=words):
            import_run(rebuilt(case.failed_zip, tmp_path / "bad.zip", change), storage=there)
    assert not there.exists


def imported_or_own(case):
    return RecoveryResult.of_campaign("first", case.storage).chain


def test_text_that_is_only_text_arrives_as_it_is(case, there):
    import_run(case.whole_zip, storage=there)
    row = there.get_run(case.whole)
    assert row["project"] == "demo <script>"
    assert {one["name"] for one in there.get_metrics(case.whole)} == {"loss/train", "<script>alert(1)</script>"}


@pytest.mark.parametrize("make", [
    lambda path, case: path.write_bytes(b""),
    lambda path, case: path.write_text("{}"),
    lambda path, case: path.mkdir(),
    lambda path, case: path.write_bytes(case.whole_zip.read_bytes()[:-7]),
    lambda path, case: path.write_bytes(case.whole_zip.read_bytes().replace(b"run.json", b"rum.json")),
    lambda path, case: None,
])  # fmt: skip
def test_what_is_no_export_is_refused(case, there, tmp_path, make):
    path = tmp_path / "x.zip"
    make(path, case)
    with pytest.raises(InvalidValue) as caught:
        import_run(path, storage=there)
    assert caught.value.expected and not there.exists


def test_a_pack_and_other_archives_are_no_export(case, there, tmp_path):
    from watcherml.api.archive import pack_store
    from watcherml.store.archive_write import write_archive

    pack_store(tmp_path / "pack.zip", storage=case.storage)
    write_archive(tmp_path / "other.zip", "something", {"run.json": b"{}"})
    for name in ("pack.zip", "other.zip"):
        with pytest.raises(InvalidValue, match="expected an export"):
            import_run(tmp_path / name, storage=there)


IMPORT = "import sys; from watcherml.api.archive import import_run; print('go', flush=True);" \
         " import_run(sys.argv[1], storage=sys.argv[2])"  # fmt: skip


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_an_import_that_is_killed_brought_all_or_nothing(storage, tmp_path, kills):
    archive_case.plain_run(storage, "big", points=60_000)
    export_run("big", tmp_path / "big.zip", storage=storage)
    for number in range(kills):
        there = Storage(tmp_path / f"there-{number}")
        archive_case.plain_run(there, "before", points=10)
        process = archive_case.child(IMPORT, tmp_path / "big.zip", there.path, stdout=-1)
        process.stdout.readline()
        time.sleep(2.0 * (number + 1) / kills)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        archive_case.sound(there)
        names = {row["run_id"] for row in there.list_runs()}
        assert len(there.get_metrics("before")) == 10
        if "big" in names:
            assert len(there.get_metrics("big")) == 60_000
        assert import_run(tmp_path / "big.zip", storage=there).already == ("big" in names)
        assert len(there.get_metrics("big")) == 60_000
