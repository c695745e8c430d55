"""The endpoints of the sidebar on a real server: what they answer, to whom, and what they refuse."""

import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stored
from builders import FAILED_CONFIG, OOM_TEXT, TEXT_ENTRYPOINT, good_trials
from jupyter_tools import API, register

import watcherml
from watcherml.api import data, registered
from watcherml.store.storage import Storage

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "<script>document.title='owned'</script>"
INTERFACES = dict(
    re.findall(r"export interface I(\w+) \{\n(.*?)\n\}", (ROOT / "extension/src/api.ts").read_text("utf-8"), re.DOTALL)
)


def keys(interface):
    return set(re.findall(r"^  (\w+):", INTERFACES[interface], re.MULTILINE))


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A working directory outside this repository, whose patch would otherwise be gathered with every run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("outside"))
        yield


@pytest.fixture(scope="module")
def full(outside, tmp_path_factory):
    """A store with runs, failures and ended campaigns, one run of them with a hostile name; never changed by a test."""
    storage = Storage(tmp_path_factory.mktemp("full") / ".watcherml")
    plan = stored.recorded_plan(storage, FAILED_CONFIG)
    stored.record(storage, "campaign-1", plan, stored.rename(good_trials(plan), "campaign-1"))
    with watcherml.Run(SCRIPT, {"name": SCRIPT}, storage, quiet=True) as run:
        run.log_metric(SCRIPT, 1.0, step=0)
    return storage, plan.source.run_id, "campaign-1", run.run_id


@pytest.fixture
def store_id(server, full):
    """The full store, registered: there is one kernel in this process, so that each test registers anew."""
    return register(full[0].path)


def test_the_listing_names_registered_stores_with_their_kernels(server, full, store_id):
    (store,) = server.get(API).json()["stores"]
    assert set(store) == keys("Store")
    assert store["id"] == store_id and store["path"] == str(full[0].path)
    assert store["name"] == full[0].path.parent.name and store["kernels"] == ["kernel-of-the-test"]
    assert store["exists"] and not store["older"]


def test_the_overview_has_each_list_in_words(server, full, store_id):
    storage, failed, campaign, hostile = full
    answer = server.get(f"{API}/{store_id}/overview")
    assert answer.headers["cache-control"] == "no-store" and answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert set(found) == keys("Overview")
    for kind, rows in (
        ("runs", data.runs(storage)), ("failures", data.failures(storage)), ("campaigns", data.campaigns(storage))
    ):  # fmt: skip
        assert set(found[kind]) == keys("List") and found[kind]["total"] == len(rows)
        assert all(set(one) == keys("Item") for one in found[kind]["items"])
    assert failed in [one["id"] for one in found["failures"]["items"]]
    by_id = {one["id"]: one for one in found["campaigns"]["items"]}
    assert by_id[campaign]["status"] == "verified" and by_id[campaign]["tone"] == "good"
    assert not by_id[campaign]["stoppable"]
    assert found["runs"]["items"][0]["id"] == hostile and found["runs"]["items"][0]["project"] == SCRIPT


@pytest.mark.parametrize(
    ("kind", "number", "words"),
    [("runs", 1, "Run"), ("runs", 3, "Run"), ("failures", 1, "Failure capsule"), ("campaigns", 2, "Verified")],
)
def test_a_page_is_the_face_of_the_report_and_leads_on(server, full, store_id, kind, number, words):
    name = full[number]
    answer = server.get(f"{API}/{store_id}/{kind}/{name}")
    assert answer.status_code == 200, answer.text
    view = answer.json()
    assert set(view) == keys("View")
    assert all(set(one) == keys("Link") for one in view["links"])
    assert view["id"] == name and words in view["html"] and not view["live"] and not view["stoppable"]
    assert "<script" not in view["html"] and view["html"].count('class="watcherml-report"') >= 1
    if kind == "failures":
        assert {one["kind"] for one in view["links"]} == {"run", "campaign"}
    if kind == "campaigns":
        assert "Audit trail" in view["html"] and [one["kind"] for one in view["links"]] == ["failure", "run"]


ADDRESSES = ("", "/STORE/overview", "/STORE/runs/RUN", "/STORE/failures/RUN", "/STORE/campaigns/CAMPAIGN")


@pytest.mark.parametrize("address", ADDRESSES)
def test_nobody_is_answered_without_the_token(server, full, store_id, address):
    path = address.replace("STORE", store_id).replace("RUN", full[1]).replace("CAMPAIGN", full[2])
    for headers in ({}, {"Authorization": "token wrong"}):
        answer = server.get(f"{API}{path}", headers=headers)
        assert answer.status_code == 403 and "watcherml" not in answer.text.lower()
        assert server.post(f"{API}/{store_id}/campaigns/{full[2]}/stop", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "name",
    ["0" * 32, "0" * 31, "ABCDEF" * 5 + "AB", "..%2f..%2f.watcherml", "%2e%2e", "%2ftmp", "x" * 400, "%00"],
)
def test_a_store_that_no_kernel_has_registered_is_not_found(server, full, store_id, name):
    for rest in ("overview", f"runs/{full[1]}", f"campaigns/{full[2]}"):
        answer = server.get(f"{API}/{name}/{rest}")
        assert answer.status_code == 404, answer.text
        error = answer.json()["error"]
        assert set(error) == keys("Problem") and error["code"] == "not_found" and "%load_ext" in error["remedy"]
    assert server.post(f"{API}/{name}/campaigns/{full[2]}/stop").status_code == 404


def test_a_path_in_place_of_an_id_is_not_found(server, full, store_id):
    told = str(full[0].path).replace("/", "%2F")
    assert server.get(f"{API}/{told}/overview").status_code == 404


@pytest.mark.parametrize("kind", ["runs", "failures", "campaigns"])
@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%2e%2e", "..%5c..", "a%00b", "%2a", "x" * 500, "a%0ab"])
def test_an_id_that_is_none_is_refused(server, store_id, kind, name):
    answer = server.get(f"{API}/{store_id}/{kind}/{name}")
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["code"] == "invalid_value" and "letters, digits" in error["expected"] and len(error["got"]) < 300


@pytest.mark.parametrize("kind", ["runs", "failures", "campaigns"])
def test_an_unknown_id_is_not_found(server, store_id, kind):
    answer = server.get(f"{API}/{store_id}/{kind}/nothing-of-that-name")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "not_found"


def test_a_run_that_did_not_fail_has_no_failure(server, full, store_id):
    answer = server.get(f"{API}/{store_id}/failures/{full[3]}")
    assert answer.status_code == 404 and "no failure capsule" in answer.json()["error"]["message"]


def test_nothing_is_changed_by_a_get_or_from_another_site(server, full, store_id):
    stop = f"{API}/{store_id}/campaigns/{full[2]}/stop"
    assert server.get(stop).status_code == 405
    with contextlib.closing(server.browser()) as browser:
        assert browser.get(API).status_code == 200
        assert browser.post(stop).status_code == 403  # its page did not send the token against forgery
        mine = {"X-XSRFToken": browser.cookies["_xsrf"]}
        foreign = browser.post(stop, headers={**mine, "Origin": "http://elsewhere.example"})
        assert foreign.status_code in (403, 404) and "was" not in foreign.text
        assert browser.post(stop, headers=mine).json() == {"was": "ended"}


def test_an_empty_folder_a_store_of_0_1_and_a_file_that_is_no_store(server, tmp_path):
    empty = register(tmp_path / "none" / ".watcherml")
    found = server.get(f"{API}/{empty}/overview").json()
    assert not found["exists"] and found["runs"] == {"total": 0, "items": []}
    assert server.get(f"{API}/{empty}/runs/anything").status_code == 404
    assert not (tmp_path / "none").exists()

    shutil.copytree(ROOT / "tests" / "data" / "store-0.1", tmp_path / "older")
    older = register(tmp_path / "older")
    found = server.get(f"{API}/{older}/overview").json()
    assert found["runs"]["total"] and "claimed" in str(found["campaigns"]["items"]).lower()
    for kind in ("run", "failure", "campaign"):
        item = found[f"{kind}s"]["items"][0]
        assert server.get(f"{API}/{older}/{kind}s/{item['id']}").status_code == 200, item

    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "watcherml.db").write_bytes(b"this is no database" * 300)
    answer = server.get(f"{API}/{register(broken)}/overview")
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "not_a_store"


def test_a_damaged_row_is_left_out_of_the_overview_and_refused_by_name(server, outside, tmp_path):
    storage = Storage(tmp_path / ".watcherml")
    with watcherml.Run("demo", {}, storage, quiet=True) as run:
        pass
    connection = sqlite3.connect(storage.database.path)
    with contextlib.closing(connection), connection:
        connection.execute("UPDATE runs SET started_at = 9e999")
    made = register(storage.path)
    answer = server.get(f"{API}/{made}/overview")
    assert answer.status_code == 200 and answer.json()["runs"] == {"total": 1, "items": []}, answer.text
    answer = server.get(f"{API}/{made}/runs/{run.run_id}")
    assert set(answer.json()["error"]) == keys("Problem") and "started_at" in answer.text, answer.text


def test_a_store_is_gone_with_the_kernel_that_registered_it(server, tmp_path):
    code = (
        "import sys, time, pathlib\nsys.path[:0] = sys.argv[2:]\nfrom jupyter_tools import register\n"
        "print(register(pathlib.Path(sys.argv[1])), flush=True)\ntime.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".watcherml"), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as kernel:
        made = kernel.stdout.readline().strip()
        assert server.get(f"{API}/{made}/overview").status_code == 200
        kernel.kill()
    assert server.get(f"{API}/{made}/overview").status_code == 404
    assert not [path for path in registered.folder().iterdir() if path.name.startswith(f"{kernel.pid}-")]


def test_a_running_campaign_is_stopped_and_the_store_says_who_asked(server, outside, tmp_path, requirements):
    (tmp_path / "ent.py").write_text(TEXT_ENTRYPOINT)
    storage = Storage(tmp_path / ".watcherml")
    run = watcherml.Run("demo", {**FAILED_CONFIG, "seconds": 600}, storage, quiet=True)
    with pytest.raises(RuntimeError), run:
        raise RuntimeError(OOM_TEXT)
    made = watcherml.prepare_oom_recovery(run.run_id, "ent:train", requirements, storage=storage, project_root=tmp_path)
    campaign = watcherml.start_recovery(made, project_root=tmp_path)
    place = f"{API}/{register(storage.path)}"
    deadline = time.monotonic() + 60
    while not campaign.trials():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    view = server.get(f"{place}/campaigns/{campaign.campaign_id}").json()
    (item,) = server.get(f"{place}/overview").json()["campaigns"]["items"]
    assert view["live"] and view["stoppable"] and item["stoppable"] and item["sentence"].startswith("Running")

    assert server.post(f"{place}/campaigns/{campaign.campaign_id}/stop").json() == {"was": "running"}
    assert campaign.wait(60).reason_code == "stopped_by_user"
    assert [one["body"]["by"] for one in campaign.events() if "by" in one["body"]] == ["the JupyterLab sidebar"]
    view = server.get(f"{place}/campaigns/{campaign.campaign_id}").json()
    assert not view["live"] and not view["stoppable"] and "Stopped" in view["html"]
