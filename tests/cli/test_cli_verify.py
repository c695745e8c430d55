"""``watcher verify``: a real campaign by id, as a file and in a ZIP, and many ways to alter it."""

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import zipfile

import builders
import pytest

import watcherml
from watcherml.api import verify as verifying
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.cli.main import main
from watcherml.planning.authorize import authorize
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.verdict import Ending, RecoveryChain
from watcherml.sealed.canonical import canonical_bytes
from watcherml.store.storage import Storage
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

KEYS = {
    "target", "kind", "standing", "campaign_id", "status", "reason_code", "sentence", "verified", "checks_passed",
    "checks_total", "problems", "documents",
}  # fmt: skip
WORDS = ("--entrypoint", "ent:train", "--max-probe-trials", "3", "--max-full-trials", "1", "--confirmation-runs", "1")


class Here:
    """A store with two verified campaigns and one that is not recovered, its plan, and the results as documents."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "ent.py").write_text(builders.TEXT_ENTRYPOINT)
        self.storage = Storage(folder / ".watcherml")
        run = watcherml.Run("demo", builders.FAILED_CONFIG, self.storage, quiet=True)
        with pytest.raises(RuntimeError), run:
            raise RuntimeError(builders.OOM_TEXT)
        self.run_id = run.run_id
        guard = ("--metric", "val_loss:minimize:0.42:0.03")
        assert self.watcher("prepare-recovery", run.run_id, *WORDS, *guard, "--out", "plan.json") == 0
        for name in ("first", "second"):
            assert self.watcher("recover", "--plan", "plan.json", "--yes", "--campaign-id", name) == 0
        words = [*WORDS, "--yes", "--campaign-id", "third"]
        words[1] = "ent:constant"
        assert self.watcher("recover", run.run_id, *words) == 4
        self.plan_text = (folder / "plan.json").read_text()
        self.plan = RecoveryPlan.from_json(self.plan_text)
        self.chains = {name: Ledger(self.storage, name).chain() for name in ("first", "second", "third")}
        self.chain = self.chains["first"]

    def watcher(self, *words):
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            return main(["--data-dir", str(self.storage.path), "--quiet", *words])
        finally:
            os.chdir(before)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return Here(tmp_path_factory.mktemp("here"))


@pytest.fixture
def check(here, capsys, tmp_path, monkeypatch):
    """Return a call that verifies a target from another folder and returns the exit code and the JSON document."""
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()

    def run(target, storage=here.storage):
        code = main(["--data-dir", str(storage.path), "verify", str(target), "--format", "json"])
        said = capsys.readouterr()
        if not said.out:
            return code, json.loads(said.err)["error"]
        document = json.loads(said.out)
        assert set(document) == KEYS and all(set(one) == KEYS for one in document["documents"]) and said.err == ""
        assert all(set(one) == {"path", "expected", "got"} for one in document["problems"])
        assert code == {"on_record": 0, "altered": 1, "unrecorded": 4}[document["standing"]]
        if code:
            assert document["verified"] is False
        return code, document

    return run


@pytest.fixture
def written(tmp_path):
    def write(data, name="recovery-result.json"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in members.items():
            target.writestr(name, data)
    return path


def sealed(chain, **changes):
    """Return the chain with parts changed, and ranking, verdict and every digest made to fit again."""
    made = chain.replace(**changes)
    parts = (made.plan, made.authorizations, made.trials)
    return made.replace(ranking=rank(*parts), verdict=verify(made.campaign_id, *parts, made.ending))


def with_plan(chain, plan, campaign_id=None, **results):
    """Return the chain under another plan, every digest that names it made to fit; ``results`` change each result."""
    trials = []
    for one in chain.trials:
        changes = {"plan_digest": plan.digest, "contract_digest": plan.contract.digest}
        if campaign_id:
            changes["campaign_id"] = campaign_id
        request = one.request.replace(**changes)
        trials.append(one.replace(request=request, result=one.result.replace(request_digest=request.digest, **results)))
    return sealed(chain, plan=plan, trials=tuple(trials), campaign_id=campaign_id or chain.campaign_id)


def loosened(plan):
    """Return a plan with a guard that lets more through, sealed again."""
    wanted = plan.contract.verification
    guard = wanted.metric_guards[0].replace(max_regression=5.0)
    return plan.replace(contract=plan.contract.replace(verification=wanted.replace(metric_guards=(guard,))))


# -- what is on record --------------------------------------------------------------------------------------------


def test_a_campaign_is_verified_by_its_id_its_file_and_a_zip(here, check, tmp_path, written):
    artifact = here.storage.path / "artifacts" / "first" / "recovery-result.json"
    for target in ("first", artifact, written(here.chain.to_json()), written(here.chain.to_json() + "\n", "any.name")):
        code, document = check(target)
        assert (code, document["target"], document["kind"]) == (0, str(target), "recovery-result")
        assert (document["standing"], document["verified"], document["problems"]) == ("on_record", True, [])
        assert (document["campaign_id"], document["status"]) == ("first", "verified")
        assert document["reason_code"] == "verified_recovery" and document["sentence"].startswith("Verified on")
        assert document["checks_passed"] == document["checks_total"] == len(here.chain.verdict.checks) > 20
    code, document = check(
        zipped(tmp_path / "one.zip", {"artifacts/first/recovery-result.json": artifact.read_bytes()})
    )
    assert (code, document["kind"], document["verified"]) == (0, "archive", True)
    (inside,) = document["documents"]
    assert (inside["target"], inside["verified"]) == ("artifacts/first/recovery-result.json", True)


def test_a_verdict_that_is_not_verified_is_on_record_all_the_same(here, check, written):
    for target in ("third", written(here.chains["third"].to_json())):
        code, document = check(target)
        assert (code, document["standing"], document["verified"]) == (0, "on_record", False)
        assert (document["status"], document["reason_code"]) == ("not_recovered", "source_failure_not_reproduced")
        assert document["checks_passed"] < document["checks_total"]


def test_a_plan_is_on_record_where_it_was_prepared(here, check, written, tmp_path):
    code, document = check(written(here.plan_text, "plan.json"))
    assert (code, document["kind"], document["standing"], document["verified"]) == (
        0, "recovery-plan", "on_record", False,
    )  # fmt: skip
    assert [document[key] for key in ("campaign_id", "status", "reason_code", "checks_total")] == [None] * 4
    code, document = check(tmp_path / "plan.json", Storage(tmp_path / "empty"))
    assert (code, document["standing"]) == (4, "unrecorded") and "Prepared elsewhere" in document["sentence"]


def test_in_another_store_it_is_a_claim(here, check, written, tmp_path, capsys):
    other = Storage(tmp_path / "other")
    for create in (False, True):
        if create:
            other.create()
        code, document = check(written(here.chain.to_json()), other)
        assert (code, document["standing"], document["status"]) == (4, "unrecorded", "verified")
        assert document["sentence"].startswith("Verified elsewhere, not by this store: ")
        assert document["problems"] == []
    assert main(["--data-dir", str(other.path), "verify", "recovery-result.json"]) == 4
    shown = capsys.readouterr().out
    assert "not on record here" in shown and "Claim" in shown and "Verdict" not in shown
    code, error = check("first", other)
    assert (code, error["code"]) == (3, "not_found")


def test_the_text_says_what_was_found(here, capsys, written, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert here.watcher("verify", "first") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("first (recovery result): on record here, recomputed and equal")
    assert "verified (verified_recovery)" in shown and "passed" in shown and "Verified on" in shown
    assert here.watcher("verify", str(written(here.chain.to_json().replace("first", "frist")))) == 1
    shown = capsys.readouterr().out
    assert "altered" in shown and "expected sha256:" in shown.replace("\n", " ") and "erified" not in shown
    assert here.watcher("verify", "third", "--output", str(tmp_path / "told.txt")) == 0
    assert "not recovered" in (tmp_path / "told.txt").read_text()


def test_the_real_program_ends_with_these_codes(here, written, tmp_path):
    def code(*words):
        command = [sys.executable, "-m", "watcherml", "--data-dir", str(here.storage.path), "verify", *words]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode

    assert code("first") == 0 and code(str(written("{"))) == 1 and code("nobody") == 3 and code() == 2
    assert code(str(written(here.plan.replace(notes=("x",)).to_json()))) == 4


# -- what was altered ---------------------------------------------------------------------------------------------


def refused(check, written, text):
    code, document = check(written(text))
    assert (code, document["standing"], document["verified"], document["status"]) == (1, "altered", False, None)
    assert document["problems"] and all(
        one["path"] and one["expected"] and one["got"] and one["expected"] != one["got"] for one in document["problems"]
    )
    return document["problems"]


def test_no_field_of_the_document_can_be_changed_or_left_out(here, check, written):
    document = json.loads(here.chain.to_json())
    assert set(document["value"]) == {
        "campaign_id", "plan", "authorizations", "trials", "ending", "ranking", "verdict",
    }  # fmt: skip
    for where in (document, document["value"]):
        for key in list(where):
            kept = where.pop(key)
            refused(check, written, canonical_bytes(document))
            for other in (None, "x", [7], {}, 7, True):
                where[key] = other
                refused(check, written, canonical_bytes(document))
            where[key] = kept
    assert check(written(canonical_bytes(document)))[0] == 0
    for key, other in (("digest", "sha256:" + "0" * 64), ("version", 2), ("version", True), ("kind", "recovery-plan"),
                       ("kind", "watcherml.recovery-result"), ("schema", {"name": "watcherml.recovery-result",
                                                                         "version": "1.0"})):  # fmt: skip
        refused(check, written, canonical_bytes({**document, key: other}))


def altered(here):
    """Return named documents, each altered and made consistent again as far as digests can be."""
    chain, other, plan = here.chain, here.chains["second"], here.plan
    loose = loosened(plan)
    third = here.chains["third"]
    last = chain.trials[-1]
    better = last.replace(result=last.result.replace(metrics={**last.result.metrics, "val_loss": 0.1}))
    approval = authorize(plan, plan.proposals[0].proposal_id, approved_by="a@example.org", reason="fine", now=1.0)
    flipped = third.verdict.replace(status="verified", reason_code="verified_recovery", sentence="Verified.")
    fewer = (chain.trials[0], *chain.trials[2:])
    return {
        "a guard loosened": with_plan(chain, loose),
        "a guard loosened in the plan only": chain.replace(plan=loose),
        "a guard loosened, verdict made again": sealed(chain, plan=loose),
        "a better metric": sealed(chain, trials=(*chain.trials[:-1], better)),
        "a better metric, verdict kept": chain.replace(trials=(*chain.trials[:-1], better)),
        "a failing trial removed": sealed(chain, trials=fewer),
        "a failing trial removed, verdict kept": chain.replace(trials=fewer),
        "the control removed": sealed(chain, trials=chain.trials[1:]),
        "every trial removed": sealed(chain, trials=()),
        "a trial twice": sealed(chain, trials=(*chain.trials, last)),
        "trials in another order": sealed(chain, trials=chain.trials[::-1]),
        "a trial of another campaign": sealed(chain, trials=(*chain.trials, other.trials[-1])),
        "a trial of another campaign, verdict kept": chain.replace(trials=(*chain.trials, other.trials[-1])),
        "the trials of another campaign": sealed(chain, trials=other.trials),
        "the trials of another campaign, verdict kept": chain.replace(trials=other.trials),
        "the verdict of another campaign": chain.replace(verdict=other.verdict),
        "an approval more": sealed(chain, authorizations=(approval,)),
        "an approval more, verdict kept": chain.replace(authorizations=(approval,)),
        "another ending": sealed(chain, ending=Ending("stopped_by_user")),
        "another ending, verdict kept": chain.replace(ending=Ending("stopped_by_user")),
        "an ending with other words": sealed(chain, ending=Ending("decided", "really")),
        "the verdict turned to verified": third.replace(verdict=flipped),
        "the verdict turned to not recovered": chain.replace(verdict=chain.verdict.replace(status="not_recovered")),
        "the sentence": chain.replace(verdict=chain.verdict.replace(sentence="Verified on CUDA.")),
        "the device": chain.replace(verdict=chain.verdict.replace(device_kind="cuda")),
        "the checks removed": chain.replace(verdict=chain.verdict.replace(checks=())),
        "a check turned": third.replace(
            verdict=third.verdict.replace(checks=tuple(one.replace(outcome="pass") for one in third.verdict.checks))
        ),
        "the ranking emptied": chain.replace(ranking=chain.ranking.replace(order=())),
        "the ranking of nobody": chain.replace(ranking=third.ranking),
        "the plan of another campaign": sealed(chain, plan=third.plan),
        "the plan of another campaign, verdict kept": chain.replace(plan=third.plan),
        "another name of a campaign of this store": sealed(chain, campaign_id="second"),
    }


def test_whatever_is_altered_and_sealed_again_is_never_on_record(here, check, written):
    made = altered(here)
    for name, chain in made.items():
        assert refused(check, written, chain.to_json()), name
        assert RecoveryChain.from_json(chain.to_json()).digest == chain.digest, name  # as far as seals go it is whole
    dropped = refused(check, written, made["a failing trial removed"].to_json())
    assert {"path": "$.value.trials", "expected": "5 entries", "got": "4 entries"} in dropped
    metric = refused(check, written, made["a better metric"].to_json())
    place = next(one for one in metric if "val_loss" in one["path"])
    assert place == {"path": "$.value.trials[4].result.metrics.val_loss", "expected": "0.4", "got": "0.1"}
    turned = refused(check, written, made["the verdict turned to verified"].to_json())
    assert turned[0]["path"].startswith("$.value.verdict.")


def test_consistent_and_of_no_campaign_here_is_elsewhere(here, check, written):
    code, document = check(written(with_plan(here.chain, loosened(here.plan), "another").to_json()))
    assert (code, document["standing"], document["verified"]) == (4, "unrecorded", False)
    assert document["campaign_id"] == "another" and "elsewhere" in document["sentence"]


def test_the_order_of_a_ranking_cannot_be_swapped(check, written):
    plan = builders.plan()
    trials = [*builders.good_trials(plan), builders.trial(plan, "full", 6, "batch-16x4")]
    chain = builders.chain(plan, tuple(trials))
    assert len(chain.ranking.order) == 2
    assert check(written(chain.to_json()))[0] == 4
    swapped = chain.replace(ranking=chain.ranking.replace(order=chain.ranking.order[::-1]))
    (first, *_) = refused(check, written, swapped.to_json())
    assert first["path"].startswith("$.value.ranking.order[0]")


def test_a_plan_that_was_altered_is_refused_and_one_sealed_again_is_elsewhere(here, check, written):
    refused(check, written, here.plan_text.replace('"max_full_trials":1', '"max_full_trials":2'))
    refused(check, written, here.plan_text[:-20])
    code, document = check(written(loosened(here.plan).to_json()))
    assert (code, document["kind"], document["standing"]) == (4, "recovery-plan", "unrecorded")


SPELLINGS = {
    "pretty-printed": lambda text: json.dumps(json.loads(text), indent=2).encode(),
    "keys in another order": lambda text: json.dumps(dict(reversed(json.loads(text).items()))).encode(),
    "a key twice": lambda text: text[:-1] + b',"version":1}',
    "a key twice at the front": lambda text: b'{"kind":"recovery-result",' + text[1:],
    "garbage behind": lambda text: text + b"garbage",
    "another document behind": lambda text: text + b"\n" + text,
    "a NUL behind": lambda text: text + b"\0",
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "a byte that is no UTF-8": lambda text: text.replace(b"demo", b"dem\xff", 1),
    "a number spelled otherwise": lambda text: text.replace(b'"val_loss":0.4', b'"val_loss":0.40', 1),
    "NaN": lambda text: text.replace(b'"val_loss":0.4', b'"val_loss":NaN', 1),
    "half of it": lambda text: text[: len(text) // 2],
    "without its end": lambda text: text[:-1],
    "nothing": lambda _: b"",
    "blanks": lambda _: b" \n" * 5_000,
    "a list": lambda text: b"[" + text + b"]",
    "a text": lambda _: b'"recovery-result"',
    "an empty object": lambda _: b"{}",
    "another kind": lambda _: b'{"kind":"recovery-verdict","value":{}}',
    "deep nesting": lambda _: b'{"kind":' + b"[" * 100_000,
    "binary": lambda _: bytes(range(256)) * 100,
    "a picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(100),
    "the start of a ZIP": lambda _: b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_another_spelling_is_no_document(name, here, check, written):
    text = here.chain.to_json().encode()
    changed = SPELLINGS[name](text)
    assert changed != text
    refused(check, written, changed)


# -- files that are none ------------------------------------------------------------------------------------------


def test_two_hundred_megabytes_of_zeros_are_refused_unread(check, tmp_path, monkeypatch):
    path = tmp_path / "zeros.json"
    with path.open("wb") as stream:
        stream.truncate(200 * 2**20)
    read = []
    opened = verifying._opened

    class Counted:
        def __init__(self, stream):
            self.stream = stream

        def read(self, size=-1):
            read.append(size)
            return self.stream.read(size)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.stream.close()

    monkeypatch.setattr(verifying, "_opened", lambda target: Counted(opened(target)))
    code, document = check(path)
    assert (code, document["standing"]) == (1, "altered") and document["problems"][0]["path"] == "$"
    assert read == [4_096]


def test_a_document_beyond_every_limit_is_refused(here, check, written, monkeypatch):
    monkeypatch.setattr(verifying, "MAX_DOCUMENT_BYTES", 10_000)
    (problem,) = refused(check, written, here.chain.to_json())
    assert problem["expected"] == "at most 10000 bytes"


def test_folders_pipes_and_devices_are_no_files(check, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("folder", "folder"), ("pipe", "pipe"), ("/dev/zero", "device"), (".", "folder")):
        code, error = check(name)
        assert (code, error["code"]) == (3, "not_found") and words in error["got"]


def test_a_file_that_cannot_be_read_is_an_error(here, check, written):
    path = written(here.chain.to_json())
    path.chmod(0)
    if not os.access(path, os.R_OK):
        code, error = check(path)
        assert code == 1 and "can be read" in error["expected"] and "denied" in error["got"]
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    if os.path.exists("/proc/self/mem"):  # a regular file whose reading fails, for root too
        code, error = check("/proc/self/mem")
        assert code == 1 and "can be read" in error["expected"] and error["got"].startswith("/proc/self/mem")


@pytest.mark.parametrize(
    "name",
    ["", " ", "a\0b", "a\nb\x1b[31m", "../../nobody", "x" * 300, "y" * 50_000, "<script>alert(1)</script>", "-",
     "\ud800", "\udcff", "~nobody/x", "C:\\x", "%s%n", "'; DROP TABLE records; --", "first\n", "First", "a/" * 3_000,
     "nobody.json"],
    ids=lambda name: ascii(name)[:30],
)  # fmt: skip
def test_a_name_of_nothing_is_not_found(name, check, capsys, here):
    code, error = check(name)
    assert (code, error["code"]) == (3, "not_found") and error["remedy"]
    assert main(["--data-dir", str(here.storage.path), "verify", name]) == 3
    said = capsys.readouterr()
    assert said.out == "" and "Traceback" not in said.err and "\x1b" not in said.err.replace("\x1b[31m", "")


@pytest.mark.parametrize("words", [["verify"], ["verify", "a", "b"], ["verify", "--nonsense"], ["verify", "-x"]])
def test_wrong_usage_ends_with_2(words, here, capsys):
    assert main(["--data-dir", str(here.storage.path), *words]) == 2


def test_a_file_wins_over_a_campaign_of_its_name_and_a_folder_does_not(here, check, written, tmp_path, capsys):
    (tmp_path / "second").mkdir()
    assert check("second")[1]["campaign_id"] == "second"
    written(here.plan_text, "first")
    assert check("first")[1]["kind"] == "recovery-plan"
    assert main(["verify", "--help"]) == 0
    assert "the file is checked" in " ".join(capsys.readouterr().out.split())


def test_a_campaign_without_a_result_says_so(here, check, tmp_path, written):
    shutil.copytree(here.storage.path, tmp_path / "copy")
    storage = Storage(tmp_path / "copy")
    Ledger.open_new(storage, "waiting", here.plan, (), {}, Settings(".", sys.executable))
    code, error = check("waiting", storage)
    assert (code, error["code"]) == (1, "campaign") and "no result yet" in error["message"]
    code, document = check(written(sealed(here.chain, campaign_id="waiting").to_json()), storage)
    assert code == 1 and document["problems"][0]["path"] == "$.value.campaign_id"


def test_a_campaign_whose_record_was_damaged_is_altered(here, check, tmp_path, capsys):
    shutil.copytree(here.storage.path, tmp_path / "copy")
    connection = sqlite3.connect(tmp_path / "copy" / "watcherml.db")
    connection.execute("DELETE FROM capsules")
    connection.commit()
    code, document = check("first", Storage(tmp_path / "copy"))
    assert (code, document["standing"], document["status"]) == (1, "altered", None)
    assert document["problems"][0]["path"] == "plan.source.capsule_digest"
    connection.execute("DROP TRIGGER records_never_change")
    connection.execute("UPDATE records SET document = replace(document, '0.4', '0.3') WHERE kind = 'recovery-result'")
    connection.commit()
    connection.close()
    code, document = check("first", Storage(tmp_path / "copy"))
    assert (code, document["standing"]) == (1, "altered") and document["problems"][0]["path"] == "$.digest"
    for form in ("text", "json"):  # of an ended campaign it shows what it came to, and that is recomputed too
        shown = main(["--data-dir", str(tmp_path / "copy"), "stop", "first", "--format", form]), capsys.readouterr()
        assert shown[0] == 1 and "Verified" not in "".join(shown[1])


# -- archives -----------------------------------------------------------------------------------------------------


def test_of_several_documents_the_worst_counts(here, check, tmp_path):
    good, plan = here.chain.to_json(), here.plan_text
    foreign = with_plan(here.chain, loosened(here.plan), "another").to_json()
    forged = here.chain.replace(verdict=here.chain.verdict.replace(checks=())).to_json()
    path = tmp_path / "several.zip"
    for members, expected, standings in (
        ({"r.json": good, "p.json": plan}, 0, ["on_record", "on_record"]),
        ({"r.json": good, "f.json": foreign}, 4, ["on_record", "unrecorded"]),
        ({"x.json": forged, "f.json": foreign, "r.json": good}, 1, ["altered", "unrecorded", "on_record"]),
        ({"r.json": good, "torn.json": good[:5_000]}, 1, ["on_record", "altered"]),
        ({"r.json": good, "recovery-plan.json": "{}"}, 1, ["on_record", "altered"]),
        ({"r.json": good, "capsule.json": '{"kind": "x"}', "notes.json": "{", "a.txt": "b"}, 0, ["on_record"]),
    ):
        code, document = check(zipped(path, members))
        assert (code, [one["standing"] for one in document["documents"]]) == (expected, standings)
        assert document["verified"] is (expected == 0)
        assert document["campaign_id"] is None and document["problems"] == []
    code, document = check(zipped(path, {"p.json": plan}))
    assert (code, document["verified"]) == (0, False)  # a plan shows nothing yet
    code, document = check(zipped(path, {"r.json": good, "n.json": here.chains["third"].to_json()}))
    assert (code, document["verified"]) == (0, False)


def test_the_text_of_an_archive_has_an_entry_for_each_document(here, tmp_path, capsys):
    path = zipped(tmp_path / "several.zip", {"r.json": here.chain.to_json(), "p.json": here.plan_text})
    assert here.watcher("verify", str(path)) == 0
    shown = capsys.readouterr().out
    assert "(archive)" in shown and "r.json (recovery result)" in shown and "p.json (recovery plan)" in shown


def test_an_archive_is_held_to_its_manifest(here, check, tmp_path):
    text = here.chain.to_json().encode()
    listed = {"r.json": {"sha256": hashlib.sha256(text).hexdigest(), "size": len(text)}}
    path = tmp_path / "listed.zip"
    assert check(zipped(path, {"r.json": text, "manifest.json": json.dumps({"files": listed})}))[0] == 0
    for change in (
        {"r.json": {**listed["r.json"], "size": 1}},
        {"r.json": {**listed["r.json"], "sha256": "0" * 64}},
        {**listed, "more.json": listed["r.json"]},
        {},
    ):
        code, document = check(zipped(path, {"r.json": text, "manifest.json": json.dumps({"files": change})}))
        assert (code, document["standing"]) == (1, "altered") and document["problems"]
        assert document["documents"][0]["standing"] == "on_record"
    code, document = check(zipped(path, {"r.json": text, "manifest.json": "[]"}))
    assert (code, document["documents"]) == (1, []) and "manifest" in document["problems"][0]["path"]


def test_an_archive_that_is_not_to_be_trusted_is_refused(here, check, tmp_path):
    text = here.chain.to_json()
    path = tmp_path / "bad.zip"
    for members, words in (
        ({"../r.json": text}, "way out"),
        ({"r.json": text, "R.JSON": text}, "too"),
        ({"r.json": text, "bomb": bytes(10 * 2**20)}, "bytes or more"),
        ({}, "none"),
        ({"readme.txt": "nothing of ours"}, "none"),
    ):
        code, document = check(zipped(path, members))
        assert (code, document["standing"], document["kind"]) == (1, "altered", "archive")
        assert words in document["problems"][0]["got"]
    whole = zipped(path, {"r.json": text}).read_bytes()
    path.write_bytes(whole[:-30])
    assert check(path)[0] == 1


# -- WatcherML 0.1 --------------------------------------------------------------------------------------------------


def old(name, **changes):
    document = {
        "campaign": {"campaign_id": "recovery-0a1b", "status": "verified", "verified": True, "trials": []},
        "schema": {"name": f"watcherml.{name}", "version": "1.0"},
        "verified": True,
    }
    return json.dumps({**document, **changes})


def test_a_result_of_01_is_a_claim_that_cannot_be_checked(check, written, tmp_path):
    for target in (
        written(old("recovery-result")),
        written(old("recovery-result", verified=False, more=[1])),
        zipped(tmp_path / "old.zip", {"recovery-result.json": old("recovery-result")}),
        zipped(tmp_path / "renamed.zip", {"renamed.json": old("recovery-result")}),
    ):
        code, document = check(target)
        one = (document["documents"] or [document])[0]
        assert (code, one["standing"], one["verified"], one["status"]) == (4, "unrecorded", False, None)
        assert one["sentence"] == "Claimed by WatcherML 0.1; its trials cannot be checked here."
        assert (one["kind"], one["campaign_id"]) == ("recovery-result", "recovery-0a1b")
    code, document = check(written(old("recovery-preparation", campaign=None)))
    assert (code, document["kind"], document["campaign_id"]) == (4, "recovery-plan", None)
    assert check(written(old("recovery-result", campaign={"campaign_id": "a\nb"})))[1]["campaign_id"] is None
    refused(check, written, old("something-else"))
    refused(check, written, old("recovery-result", kind="recovery-result"))
    refused(check, written, old("recovery-result", schema={"name": "watcherml.recovery-result", "version": "9.0"}))
    refused(check, written, old("recovery-result")[:-1])
