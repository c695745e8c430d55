"""What the pages show: every view of a full, an empty, a big and an old store, and errors as pages."""

import html.parser
import os
import re
import shutil
from urllib.parse import quote, urljoin

import pytest
import stored
import ui_store
from builders import FAILED_CONFIG, trial
from ui_tools import Client

import watcherml
from watcherml.api import data
from watcherml.api.archive import ALTERED, export_run, import_run
from watcherml.api.rename import rename
from watcherml.store.storage import Storage

VIEWS = ["/", "/projects", "/runs", "/failures", "/campaigns", "/memory", "/guide", "/settings", "/compare"]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
EXPECTED = {
    "Content-Security-Policy": POLICY, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
}  # fmt: skip
NAMES = ["Overview", "Projects", "Runs", "Failures", "Campaigns", "Memory", "Guide", "Settings"]


class Elements(html.parser.HTMLParser):
    """Every element of a page with its attributes, and the text between."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def links(self):
        return [attributes["href"] for tag, attributes in self.found if tag == "a" and "href" in attributes]


@pytest.fixture(scope="module")
def asked(full, ids):
    return pages_of(full, ids)


def pages_of(client, ids):
    single = [f"/runs/{ids['rich']}", f"/runs/{ids['long']}", f"/runs/{ids['imported']}", f"/runs/{ids['hostile']}"]
    single += [f"/failures/{ids[one]}" for one in ("failed", "recovered", "shape", "nan", "hostile", "imported")]
    single += [f"/campaigns/{ids[one]}" for one in ("verified", "ended", "imported_campaign")]
    single += ["/runs/nobody", "/runs?page=none", "/nowhere"]
    return [(path, client.get(path)) for path in VIEWS + single]


def shown(answer):
    assert answer.status_code == 200, answer.text
    return " ".join(Elements(answer.text).text.split())


def test_no_page_holds_a_script_a_style_or_an_address_of_its_own_making(asked):
    for path, answer in asked:
        for tag, attributes in Elements(answer.text).found:
            assert tag != "style", path
            assert not [name for name in attributes if name.startswith("on")], (path, tag, attributes)
            if tag == "script":
                assert attributes["src"] in ("/static/theme.js", "/static/ui.js"), (path, attributes)
            for name in ("src", "href", "action", "data-stream"):
                if name in attributes:
                    assert re.match(r"(/(?!/)|#|data:image/svg\+xml;base64,)", attributes[name]), (path, attributes)
        assert "Traceback" not in answer.text or path.startswith("/failures/"), path


def test_every_answer_carries_the_headers(full, asked):
    refused = full.get("/", headers={"host": "evil"})
    answers = [*asked, ("asset", full.get("/static/ui.css")), ("refused", refused)]
    for path, answer in answers:
        for name, value in EXPECTED.items():
            if name == "Referrer-Policy" and re.match(r"/(runs|failures)/.", path) and answer.status_code == 200:
                value = "same-origin"  # the pages with a form; see watcherml/ui/app.py
            assert answer.headers[name] == value, (path, name)
        assert "server" not in answer.headers


def test_the_links_of_every_page_lead_to_pages(full, asked):
    chosen = {}
    for path, answer in asked:
        for link in Elements(answer.text).links():
            if link.startswith("#"):
                continue
            target = urljoin(path, link).partition("#")[0]
            # Of each kind of link some: a kind is a view with its filters.
            kind = re.sub(r"^(/\w+/).*", r"\1", target.partition("?")[0]) + str(re.findall(r"(\w+)=", target))
            chosen.setdefault(kind, set()).add(target)
    assert len(chosen) > 15
    for targets in chosen.values():
        for target in sorted(targets)[:1]:
            assert full.get(target).status_code == 200, target


def test_a_run_page_has_curves_readings_cells_code_and_packages(full, ids):
    answer = full.get(f"/runs/{ids['rich']}")
    text = shown(answer)
    for words in ("baseline, cosine schedule", ids["rich"], "train_loss", "1 not finite", "GPU 1: utilisation",
                  "of 80.00 GiB", "processor, with child processes", "1 to 20 of 25", "ValueError", "4f2c9d1e",
                  "+lr = 2", "checkpoints/final.pt", "starlette"):  # fmt: skip
        assert words in text, words
    assert answer.text.count("data:image/svg+xml;base64,") >= 3 + 3 + 2 + 6
    assert "6 to 20" not in text and "21 to 25 of 25" in shown(full.get(f"/runs/{ids['rich']}?cells=2"))


def test_metrics_are_shown_a_page_at_a_time(tmp_path):
    with watcherml.Run("many", {}, Storage(tmp_path / "store"), quiet=True) as run:
        for number in range(30):
            run.log_metric(f"metric-{number:02d}", 1.0, step=0)
    client = Client(tmp_path / "store")
    first, last = shown(client.get(f"/runs/{run.run_id}")), shown(client.get(f"/runs/{run.run_id}?metrics=3"))
    assert "metric-11" in first and "metric-12" not in first and "1 to 12 of 30" in first
    assert "metric-24" in last and "metric-29" in last and "metric-23" not in last


def test_a_failure_page_is_the_capsule_with_what_to_do_next(full, ids):
    text = shown(full.get(f"/failures/{ids['failed']}"))
    for words in ("CUDA out of memory", "17.0 MiB were missing", "Evidence: ", "Mark as resolved", "campaign-5"):
        assert words in text, words
    assert f"prepare-recovery {ids['failed']} --entrypoint MODULE:FUNCTION" in text or "was verified" in text
    assert "cannot recover a failure of this kind" in shown(full.get(f"/failures/{ids['shape']}"))
    resolved = shown(full.get(f"/failures/{ids['nan']}"))
    assert "by Ann: Halved the learning rate" in resolved and "Open it again" in resolved


def test_a_campaign_page_is_the_recomputed_verdict_with_its_trail_and_plan(full, ids):
    text = shown(full.get(f"/campaigns/{ids['verified']}"))
    assert re.search(r"Checks: (\d+) of \1 passed", text)
    for words in ("Verified", "plan sealed", "campaign ended", "The contract"):
        assert words in text, words
    assert 'id="live"' not in full.get(f"/campaigns/{ids['verified']}").text


def test_what_came_from_elsewhere_is_never_simply_verified(full, ids):
    page = shown(full.get(f"/campaigns/{ids['imported_campaign']}"))
    assert "Verified elsewhere, not by this store" in page and "Imported: verified elsewhere" in page
    rows = shown(full.get("/campaigns?status=imported"))
    assert "imported" in rows and "Verified elsewhere, not by this store" in rows
    assert "recorded elsewhere, not by this store" in shown(full.get(f"/runs/{ids['imported']}"))
    memory = full.get("/memory").text
    assert memory.count("verified elsewhere<") == 1 and "Verified elsewhere, not by this store: Verified on" in memory
    # The mark on an imported failure is the importer's own; no command offers a recovery of it.
    assert "prepare-recovery" not in full.get(f"/failures/{ids['imported']}").text


def test_a_stream_is_begun_only_for_somebody_who_reads_it(own, ids):
    own.site.streams.extend(["campaign-1"] * 40)
    path = f"/live/{ids['verified']}"
    assert own.get(path).status_code == 503
    answer = own.head(path)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")


def test_an_imported_campaign_that_recovered_nothing_is_not_called_verified(tmp_path):
    other, storage = Storage(tmp_path / "other"), Storage(tmp_path / "store")
    plan = stored.recorded_plan(other, FAILED_CONFIG)
    control = [trial(plan, "control", 1, outcome="completed")]
    stored.record(other, "campaign-nothing", plan, stored.rename(control, "campaign-nothing"))
    export_run(plan.source.run_id, tmp_path / "nothing.zip", storage=other)
    import_run(tmp_path / "nothing.zip", storage=storage)
    page = shown(Client(storage.path).get("/campaigns/campaign-nothing"))
    assert "Imported: run and judged elsewhere, not by this store." in page and "erified elsewhere" not in page


@pytest.mark.parametrize("asked", ["ÄPFEL", "Äpfel", "äPFEL Über", "größe"])
def test_a_name_is_found_as_it_is_written(tmp_path, asked):
    storage = Storage(tmp_path / "store")
    with watcherml.Run(f"Größe {asked}", {}, storage, quiet=True) as run:
        pass
    rename(run.run_id, f"Größe {asked}", storage=storage)
    client = Client(storage.path)
    assert run.run_id in client.get("/runs", params={"q": asked}).text
    assert "No project is called like that" not in client.get("/projects", params={"q": asked}).text


def test_an_altered_verdict_is_told_and_claims_nothing(own, ids):
    with own.storage.database.writing() as connection:
        connection.execute("DROP TRIGGER records_never_change")
        changed = connection.execute(
            "UPDATE records SET document = replace(document, '\"val_loss\":0.44', '\"val_loss\":0.99')"
            " WHERE campaign_id = ? AND kind LIKE '%result%'", (ids["verified"],)
        ).rowcount  # fmt: skip
    assert changed
    text = shown(own.get(f"/campaigns/{ids['verified']}"))
    assert "does not hold together, so nothing is claimed" in text and "101 of 101" not in text
    assert "trial started" in text


def test_an_altered_import_claims_nothing_and_hides_nothing_else(own, ids):
    with own.storage.database.writing() as connection:
        connection.execute("UPDATE imports SET document = replace(document, '\"val_loss\":0.44', '\"val_loss\":0.99')")
    text = shown(own.get(f"/campaigns/{ids['imported_campaign']}"))
    assert "does not hold together, so nothing is claimed" in text and "erified elsewhere" not in text
    for path in (f"/failures/{ids['imported']}", f"/runs/{ids['imported']}"):
        answer = own.get(path)
        assert answer.status_code == 200 and ALTERED in shown(answer), path
    assert own.get("/campaigns/nobody").status_code == 404
    with own.storage.database.writing() as connection:
        connection.execute("UPDATE capsules SET document = replace(document, 'demo', 'omed')")
    answer = own.get(f"/failures/{ids['imported']}")
    assert answer.status_code == 500 and "changed after it was sealed" in answer.text
    assert "A record of this store does not hold together: $.digest" in answer.text
    rows = [row for row in data.campaigns(own.storage) if row["sentence"] == ALTERED]
    assert [(row["campaign_id"], row["status"]) for row in rows] == [(ids["imported_campaign"], "imported")]


def test_memory_says_what_failed_what_fixed_it_and_where(full, ids):
    text = shown(full.get("/memory"))
    for words in ("batch_size 64 → 32", "sequence_length 128 → 64", "resolved by a person", "Halved the learning rate",
                  "— Ann", ids["nan"], "NaN or exploding loss"):  # fmt: skip
        assert words in text, words
    assert text.index("NaN or exploding loss in vision") < text.index("batch_size 64 → 32")  # the newest first
    only = shown(full.get("/memory?class=nan_or_exploding_loss"))
    assert "Halved" in only and "batch_size" not in only


def test_the_guide_explains_evidence_phases_ranking_verification_and_cost(nothing):
    text = shown(nothing.get("/guide"))
    for words in ("EV-1 ", "EV-11 ", "control", "probe", "full trial", "confirmation", "Ranking is provisional",
                  "A green probe is not a recovered model", "at most 10 trials", "another store made"):  # fmt: skip
        assert words.lower() in text.lower(), words


@pytest.mark.parametrize("view", VIEWS)
def test_an_empty_store_says_what_to_do_next(nothing, tmp_path, view):
    empty = Client(tmp_path / "empty")
    empty.storage.create()
    for client in (nothing, empty):
        answer = client.get(view)
        text = shown(answer)
        assert [text.count(name) > 0 for name in NAMES] == [True] * 8
        if view not in ("/guide", "/settings", "/compare"):
            assert 'class="empty"' in answer.text, view
            assert re.search(r"watcher |watcherml\.|open failure|kept here for the next time", text), view
    assert not nothing.storage.path.exists()


def test_a_store_of_0_1_is_labelled_and_never_written(old):
    before = {one.name: one.stat().st_mtime_ns for one in old.storage.path.rglob("*")}
    for view in VIEWS:
        assert "written by WatcherML 0.1" in shown(old.get(view))
    campaigns = old.storage.audit.campaigns()
    for one in campaigns:
        text = shown(old.get(f"/campaigns/{one['campaign_id']}"))
        assert "Claimed by WatcherML 0.1" in text and "cannot be checked again here" in text
    memory = old.get("/memory").text
    assert "claimed by 0.1<" in memory and ">verified<" not in memory
    runs = old.storage.list_runs()
    assert len(runs) == 5
    for row in runs:
        page = old.get(f"/runs/{row['run_id']}")
        assert "cannot be written from here" in shown(page) and "<form" in page.text and "/rename" not in page.text
        if row["failure_class"]:
            assert "Recorded by WatcherML 0.1" in shown(old.get(f"/failures/{row['run_id']}"))
    refused = old.change("/rename", run_id=runs[0]["run_id"], title="x")
    assert refused.status_code == 409 and "only read" in refused.text
    assert {one.name: one.stat().st_mtime_ns for one in old.storage.path.rglob("*")} == before


def test_a_read_only_folder_is_shown_and_left_as_it_is(template, ids, tmp_path, monkeypatch):
    shutil.copytree(template[0].path, tmp_path / "store")
    real = os.access
    # We may be root, whom no permission binds.
    monkeypatch.setattr(os, "access", lambda path, mode, **more: not mode & os.W_OK and real(path, mode, **more))
    client = Client(tmp_path / "store")
    before = {one: (one.stat().st_size, one.stat().st_mtime_ns) for one in (tmp_path / "store").rglob("*")}
    for path, answer in pages_of(client, ids):
        assert answer.status_code in (200, 400, 404), path
    assert "cannot be written from here" in shown(client.get(f"/failures/{ids['failed']}"))
    assert "read-only: nothing can be changed here" in shown(client.get("/settings"))
    refused = client.change("/resolve", run_id=ids["failed"], by="Ann", note="", reopen="no")
    assert refused.status_code == 409 and "Nothing was changed" in refused.text
    after = {one: (one.stat().st_size, one.stat().st_mtime_ns) for one in (tmp_path / "store").rglob("*")}
    assert after == before


def test_a_damaged_store_is_a_page_that_says_so(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "watcherml.db").write_text("these are notes\n" * 20)
    client = Client(tmp_path / "store")
    answer = client.get("/runs")
    assert answer.status_code == 503 and "cannot be read as a store" in answer.text and "left alone" in answer.text
    assert client.get("/guide").status_code == 200 and client.get("/settings").status_code == 200


def test_lists_are_paged_and_filtered(big):
    first, second = big.get("/runs"), big.get("/runs?page=2")
    assert "1 to 50 of 2,000" in shown(first) and "51 to 100 of 2,000" in shown(second)
    names = [re.findall(r"project-\d-run-\d{6}", Elements(one.text).text) for one in (first, second)]
    assert names[0][0].endswith("001999") and names[1][0].endswith("001949") and len(set(names[0])) == 50
    filtered = shown(big.get("/runs?project=project-2&status=failed"))
    assert "project-2-run-" in filtered and "project-3-run-" not in filtered
    assert filtered.count("project-2-run-") == 28
    assert "1 to 50 of 286" in shown(big.get("/runs?project=project-2"))
    assert "project-3-run-001067" in shown(big.get("/runs?q=RUN-001067"))
    assert "No run matches" in shown(big.get("/runs?q=zzz"))
    assert "There is no page 99" in shown(big.get("/runs?page=99"))
    # Whatever else stands in the address is kept, by whatever name.
    assert "51 to 100 of 2,000" in shown(big.get("/runs?path=x&self=y&kind=z&page=2"))
    assert "1 to 50 of 200" in shown(big.get("/failures")) and "7 projects" in shown(big.get("/"))
    # Filters stay while pages are turned.
    links = Elements(big.get("/runs?project=project-2&status=success").text).links()
    assert "/runs?project=project-2&status=success&page=2" in links


ODD = [
    ("/runs?page=0", "page"), ("/runs?page=-1", "page"), ("/runs?page=1e3", "page"), ("/runs?page=" + "9" * 30, "page"),
    ("/runs?page=²", "page"), ("/runs?status=broken", "status"), ("/failures?state=maybe", "state"),
    ("/campaigns?status=<script>", "status"), ("/runs?q=" + "x" * 500, "q"), ("/runs?trials=perhaps", "trials"),
    ("/runs/" + "x" * 300, "the id of a run"), ("/runs/%2e%2e%2fetc%2fpasswd", "the id of a run"),
    ("/failures/..%2f..%2fwatcherml.db", "the id of a run"), ("/campaigns/a%00b", "the id of a campaign"),
    ("/campaigns/%3Cscript%3E", "the id of a campaign"), ("/live/..%2fx", "the id of a campaign"),
    ("/live/campaign-1?after=x", "after"), ("/compare?first=same&second=same", "RUN_B"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "field"), ODD)
def test_a_value_that_cannot_be_used_names_the_field_what_was_expected_and_the_remedy(full, path, field):
    answer = full.get(path)
    text = " ".join(Elements(answer.text).text.split())
    assert answer.status_code == 400 and f"Field{field}Expected" in re.sub(r"<[^>]*>|\n", "", answer.text)
    assert "Expected" in text and "Got" in text and 'class="remedy"' in answer.text and "overview" in text


UNKNOWN = ["/runs/nobody", "/failures/nobody", "/campaigns/nobody", "/live/nobody", "/compare?first=a&second=b"]
NO_PAGE = [
    "/nowhere",
    "/static/",
    "/static/app.py",
    "/static/%2e%2e/app.py",
    "/static/..%2fapp.py",
    "/admin",
    "/runs.json",
]


@pytest.mark.parametrize("path", UNKNOWN + NO_PAGE)
def test_what_is_not_there_is_a_page_with_a_way_back(full, path):
    answer = full.get(path)
    text = Elements(answer.text).text
    assert answer.status_code == 404 and ("no run" in text or "no campaign" in text or "no page" in text)
    assert {"/", "/runs", "/failures", "/campaigns"} <= set(Elements(answer.text).links())


def test_a_run_without_a_failure_has_no_failure_page(full, ids):
    answer = full.get(f"/failures/{ids['rich']}")
    assert answer.status_code == 404 and "has no failure capsule" in answer.text


def test_an_error_of_ours_is_a_page_without_its_trace(full, monkeypatch, capsys):
    monkeypatch.setattr(type(full.storage.runs), "artifacts", lambda *_, **__: 1 // 0)
    rich = full.get("/runs?q=char-gpt")
    name = re.search(r'href="(/runs/char-gpt-[^"]+)"', rich.text)[1]
    answer = full.get(name)
    assert answer.status_code == 500 and "ZeroDivisionError" in answer.text and "Traceback" not in answer.text
    said = capsys.readouterr().err
    assert "watcher ui: GET /runs/char-gpt" in said and "ZeroDivisionError" in said and "Traceback" not in said


def test_hostile_names_are_shown_as_they_are_and_cut(full, ids):
    run = full.get(f"/runs/{ids['hostile']}")
    assert "<script>document" not in run.text and "&lt;script&gt;document" in run.text
    for path in ("/", "/runs", "/projects", "/failures", f"/runs/{ids['shape']}", f"/failures/{ids['shape']}"):
        answer = full.get(path)
        assert answer.status_code == 200 and "<script>document" not in answer.text, path
        # The whole name stands in a title; what is laid out is a part of it.
        assert "x" * 2_000 not in Elements(answer.text).text, path
    listed = full.get("/runs?project=" + quote(ui_store.HUGE))
    assert "1 run" not in listed.text and ids["shape"] in listed.text


def test_a_run_that_goes_on_is_shown_with_its_points_so_far(tmp_path):
    storage = Storage(tmp_path / "store")
    run = watcherml.Run("live", {}, storage, quiet=True).start()
    try:
        run.log_metric("loss", 1.5, step=7)
        client = Client(tmp_path / "store")
        assert "1 run in 1 project, 1 going on now" in shown(client.get("/"))
        page = client.get(f"/runs/{run.run_id}")
        assert "last 1.5" in shown(page) and 'id="metrics" data-refresh="5"' in page.text
    finally:
        run.finish()


def test_a_page_says_what_it_leaves_out(tmp_path):
    with watcherml.Run("demo", {}, Storage(tmp_path / "store"), quiet=True) as run:
        run.log_metric("loss", 0.5, step=1)
    client = Client(tmp_path / "store")
    told = "1 damaged row of this store is left out here."
    assert told not in client.get("/runs").text
    with client.storage.database.writing() as connection:
        connection.execute("UPDATE runs SET last_step = 'many <b>'")
    page = client.get("/runs").text
    assert told in page and f"row {run.run_id}: last_step" in page and "<b>" not in page
    assert told not in client.get("/guide").text
