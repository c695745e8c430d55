"""Who may ask and what can be changed: foreign hosts and origins, tokens, methods, and the two writes."""

import pytest
from starlette.routing import Route
from ui_tools import ADDRESS, Client

from watcherml.errors import InvalidValue, UsageError
from watcherml.ui.app import create_app
from watcherml.ui.changes import CHANGES
from watcherml.ui.hosts import Names, address_of, bind, names_for

FOREIGN_HOSTS = [
    "evil.example", "evil.example:7331", "127.0.0.1.evil.example", "localhost.evil.example:7331", "192.168.1.5:7331",
    "10.0.0.1", "0.0.0.0:7331", "[2001:db8::1]:7331", "", "127.0.0.1:7331, evil", "127.0.0.1@evil.example",
    "127.0.0.1:x", "[::1", "2130706433", "localhost:7331:1",
]  # fmt: skip
OUR_HOSTS = ["127.0.0.1:7331", "127.0.0.1", "localhost:9000", "LOCALHOST", "localhost.", "[::1]:7331", "127.0.0.2:1"]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_refused(full, host):
    for path in ("/", "/runs", "/static/ui.css", "/live/campaign-1", "/nowhere"):
        answer = full.get(path, headers={"host": host})
        assert answer.status_code == 403 and "does not answer to that name" in answer.text, path


@pytest.mark.parametrize("host", OUR_HOSTS)
def test_names_of_this_machine_are_answered_whatever_the_port(full, host):
    assert full.get("/guide", headers={"host": host}).status_code == 200


FOREIGN_ORIGINS = ["https://evil.example", "http://evil.example:7331", "null", "https://127.0.0.1:7331",
                   "http://127.0.0.1:7332", "http://localhost:7331", "http://127.0.0.1", "file://", ""]  # fmt: skip


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_foreign_origin_is_refused_for_reading_and_for_changing(own, ids, origin):
    assert own.get("/runs", headers={"origin": origin}).status_code == 403
    answer = own.change("/rename", run_id=ids["rich"], title="stolen", headers={"origin": origin})
    assert answer.status_code == 403 and "another site" in answer.text
    assert own.storage.get_run(ids["rich"])["title"] == "baseline, cosine schedule"


def test_a_change_without_an_origin_is_refused(own, ids):
    fields = {"token": own.site.token, "run_id": ids["rich"], "title": "x"}
    assert own.post("/rename", data=fields).status_code == 403
    assert own.storage.get_run(ids["rich"])["title"] == "baseline, cosine schedule"


def test_pages_are_not_given_to_other_sites_as_pictures_or_scripts(full):
    for mode, status in (("no-cors", 403), ("cors", 403), ("navigate", 200)):
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode}
        assert full.get("/runs", headers=headers).status_code == status


@pytest.mark.parametrize("token", ["", "wrong", "ü", "x" * 10_000])
@pytest.mark.parametrize("change", ["rename", "resolve"])
def test_a_form_without_the_servers_token_changes_nothing(own, ids, token, change):
    fields = {"rename": {"title": "stolen"}, "resolve": {"by": "me", "note": "", "reopen": "no"}}[change]
    answer = own.change(f"/{change}", token=token, run_id=ids["failed"], **fields)
    assert answer.status_code == 403 and "token" in answer.text and "Open the page again" in answer.text
    without = own.post(f"/{change}", data={"run_id": ids["failed"], **fields}, headers={"origin": ADDRESS})
    assert without.status_code == 403
    row = own.storage.evidence.capsule(ids["failed"])
    assert row["resolved_at"] is None and own.storage.get_run(ids["failed"])["title"] is None


def test_the_token_is_of_one_server(own, template):
    assert Client(template[0].path).site.token != own.site.token and len(own.site.token) > 40
    assert own.site.token not in repr(own.site)


def test_only_two_addresses_change_anything(full):
    app = create_app(full.site)._app
    writing = {route.path for route in app.routes if isinstance(route, Route) and route.methods - {"GET", "HEAD"}}
    assert writing == {"/rename", "/resolve"} == {f"/{name}" for name in CHANGES}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/runs", "/runs/x", "/campaigns/x", "/live/x", "/static/ui.css", "/settings"])
def test_pages_are_only_read(full, method, path):
    answer = full.request(method, path, headers={"origin": ADDRESS})
    assert answer.status_code == 405 and "is not done to" in answer.text
    assert set(answer.headers["allow"].replace(" ", "").split(",")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", ["/rename", "/resolve"])
def test_changes_are_not_made_by_reading(full, path):
    assert full.get(path).status_code == 405


def test_a_run_is_renamed_and_called_by_its_id_again(own, ids):
    answer = own.change("/rename", run_id=ids["failed"], title="  first\n try ")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{ids['failed']}?said=renamed")
    assert own.storage.get_run(ids["failed"])["title"] == "first try"
    assert "The run has its new name." in own.get(answer.headers["location"]).text
    assert "first try" in own.get("/runs").text
    assert own.change("/rename", run_id=ids["failed"], title=" ").headers["location"].endswith("said=unnamed")
    assert own.storage.get_run(ids["failed"])["title"] is None


def test_a_secret_in_a_name_is_not_kept(own, ids):
    own.change("/rename", run_id=ids["failed"], title="with password=hunter2hunter2")
    assert "hunter2" not in own.storage.get_run(ids["failed"])["title"]


def test_a_failure_is_resolved_with_author_and_note_and_opened_again(own, ids):
    answer = own.change("/resolve", run_id=ids["failed"], by="Ann <b>", note="smaller\nbatch", reopen="no")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/failures/{ids['failed']}?said=resolved")
    row = own.storage.evidence.capsule(ids["failed"])
    assert (row["resolved_by"], row["resolved_note"]) == ("Ann <b>", "smaller\nbatch") and row["resolved_at"]
    page = own.get(answer.headers["location"]).text
    assert "Ann &lt;b&gt;: smaller" in page and "is marked as resolved" in page
    assert ids["failed"] not in own.get("/failures?state=open").text
    again = own.change("/resolve", run_id=ids["failed"], by="Bob", note="", reopen="no")
    assert again.headers["location"].endswith("said=already")
    opened = own.change("/resolve", run_id=ids["failed"], by="", note="", reopen="yes")
    assert opened.headers["location"].endswith("said=opened")
    assert own.storage.evidence.capsule(ids["failed"])["resolved_at"] is None


BAD_FORMS = [
    ("/rename", {"title": "x" * 401}, "title", 400),
    ("/rename", {"title": "x" * 10_000}, "title", 400),
    ("/rename", {"title": "x" * 70_000}, "the form", 400),
    ("/rename", {}, "title", 400),
    ("/rename", {"title": "x", "status": "success"}, "status", 400),
    ("/rename", {"title": "x", "run_id": "../../etc/passwd"}, "the id of a run", 400),
    ("/rename", {"title": "x", "run_id": "nobody"}, "no run", 404),
    ("/resolve", {"by": "", "note": "n", "reopen": "no"}, "by", 400),
    ("/resolve", {"by": "x" * 401, "note": "n", "reopen": "no"}, "by", 400),
    ("/resolve", {"by": "Ann", "note": "x" * 2_001, "reopen": "no"}, "note", 400),
    ("/resolve", {"by": "Ann", "note": "n"}, "reopen", 400),
    ("/resolve", {"by": "Ann", "note": "n", "reopen": "maybe"}, "reopen", 400),
    ("/resolve", {"by": "Ann", "note": "n", "reopen": "no", "run_id": "nobody"}, "no run", 404),
]


@pytest.mark.parametrize(("path", "fields", "field", "status"), BAD_FORMS)
def test_a_form_that_cannot_be_used_is_a_page_and_changes_nothing(own, ids, path, fields, field, status):
    before = own.storage.database.path.read_bytes()
    answer = own.change(path, **{"run_id": ids["failed"], **fields})
    assert answer.status_code == status and field in answer.text
    assert "Expected" in answer.text or status == 404
    assert own.storage.database.path.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'{"title": "x"}'),
        ("text/plain", b"title=x"),
        ("multipart/form-data; boundary=b", b"--b--"),
        ("application/x-www-form-urlencoded", b"title=%ff"),
        ("application/x-www-form-urlencoded", b"title=a&title=b"),
        ("application/x-www-form-urlencoded", b"a=1&" * 50),
        ("application/x-www-form-urlencoded", "title=ü".encode()),
    ],
)
def test_a_body_that_is_no_form_of_ours_is_refused(own, kind, body):
    answer = own.post("/rename", content=body, headers={"origin": ADDRESS, "content-type": kind})
    assert answer.status_code == 400 and "Expected" in answer.text


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.invalid"])
def test_an_address_that_others_can_reach_is_refused(host):
    with pytest.raises((UsageError, InvalidValue), match="--host"):
        bind(host, 0, allow_remote=False)


def test_with_leave_others_may_connect_and_other_names_still_may_not():
    with bind("0.0.0.0", 0, allow_remote=True) as made:
        assert address_of(made).startswith("http://127.0.0.1:")
    names = names_for("gpu-box", allow_remote=True)
    assert names.allow("gpu-box:7331") and names.allow("192.168.1.5:7331") and names.allow("localhost")
    assert not names.allow("evil.example:7331")
    assert not Names().allow("192.168.1.5:7331")


def test_an_ipv6_loopback_has_an_address_to_open():
    try:
        made = bind("::1", 0, allow_remote=False)
    except InvalidValue:
        pytest.skip("this machine has no IPv6")
    with made:
        assert address_of(made).startswith("http://[::1]:")
