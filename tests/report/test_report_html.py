"""The HTML faces: what may stand in them, what a hostile value becomes, and the facts they show."""

import base64
import html
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from watcherml.forensics.evidence import NAMES
from watcherml.report import markup
from watcherml.report.html import (
    html_campaigns_table,
    html_failure,
    html_failures_table,
    html_plan,
    html_progress,
    html_run,
    html_runs_table,
    html_verdict,
)
from watcherml.report.html_evidence import data_tree

TAGS = {
    "details", "div", "img", "li", "pre", "span", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"alt", "class", "colspan", "open", "src", "style", "title"}
# What JupyterLab 4.6 keeps of an untrusted output, as far as it is used here (measured in its sanitizer).
PROPERTIES = {
    "background", "border", "border-bottom", "border-collapse", "border-left", "border-radius", "cursor", "display",
    "flex", "flex-direction", "font-family", "font-size", "font-weight", "height", "justify-content", "line-height",
    "margin", "max-height", "max-width", "min-width", "opacity", "overflow", "overflow-wrap", "overflow-x", "padding",
    "padding-left", "table-layout", "text-align", "vertical-align", "white-space", "width",
}  # fmt: skip
LOST = {"overflow-wrap:anywhere", "color:inherit"}

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' style='position:fixed",
    "</pre></details></div></td></table><h1>",
    "javascript:alert(1) &lt;b&gt; &#x3c;i&#x3e;",
    "\x00\x1b[31m\u202e\u2066\x9b",
    "a\r\nb\n\nc",
)
FACES = {
    "failure": lambda make, text: html_failure(
        make.capsule(text),
        {"sentence": text.format("s"), "kept": [{"name": text.format("n"), "bytes": 1, "what": text.format("w")}]},
    ),
    "failure-data": lambda make, text: html_failure(make.capsule(long=text)),
    "plan": lambda make, text: html_plan(make.plan(text), {"P4"}, {"P3"}),
    "progress": lambda make, text: html_progress(make.plan(text), hostile_trials(make, text), text, text),
    "verdict": lambda make, text: html_verdict(
        make.verdict(text, config={**make.CONFIG, text: text}), make.plan(text), hostile_trials(make, text)
    ),
    "verdict-standing": lambda make, text: html_verdict(make.verdict(text), make.plan(text), [], text),
    "run": lambda make, text: html_run(
        {**make.run_row(text), "run_id": text, "status": text, "config": {text: text},
         "facts": {text: {text: [text, {text: text}]}, "git": text}},
        make.metrics(text), make.samples(), make.artifacts(text),
    ),
    "runs": lambda make, text: html_runs_table([{**make.run_row(text), "run_id": text, "failure_class": text}]),
    "failures": lambda make, text: html_failures_table([{"run_id": text, "sentence": text, "failure_class": text}]),
    "campaigns": lambda make, text: html_campaigns_table([{"campaign_id": text, "status": text, "last_change": text}]),
}  # fmt: skip


def hostile_trials(make, text):
    return [{**make.trials(text)[1], "role": text, "proposal_id": text, "outcome": text}, *make.trials(text)]


class Page(HTMLParser):
    """Collects what is in a page and checks that its tags close in order."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend((tag, name, value) for name, value in attrs)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    @property
    def text(self):
        return "".join(self.words)

    @property
    def styles(self):
        return [value for _, name, value in self.attributes if name == "style"]


def check_page(source):
    page = Page(source)
    assert page.open == []
    assert set(page.tags) <= TAGS
    assert {name for _, name, _ in page.attributes} <= ATTRIBUTES
    for tag, name, value in page.attributes:
        if name == "src":
            assert tag == "img"
            check_picture(value)
    for style in page.styles:
        for declaration in filter(None, style.split(";")):
            key, _, value = declaration.partition(":")
            assert key in PROPERTIES, declaration
            assert re.fullmatch(r"[a-z0-9 #%.,()-]+", value), declaration
            assert declaration not in LOST
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)
    return page


def check_picture(uri):
    head = "data:image/svg+xml;base64,"
    assert uri.startswith(head)
    tree = ElementTree.fromstring(base64.b64decode(uri[len(head) :]))
    assert {one.tag.rpartition("}")[2] for one in tree.iter()} <= {"svg", "title", "path", "rect"}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_value_is_only_ever_text(make, face, hostile):
    page = check_page(FACES[face](make, hostile.replace("{", "").replace("}", "") + "{}"))
    assert "alert(1)" not in "".join(page.styles)
    if hostile.startswith("<script>"):
        assert "<script>alert(1)</script>" in page.text


@pytest.mark.parametrize("face", FACES)
def test_faces_are_deterministic_and_take_no_colour_for_text(make, face):
    source = FACES[face](make, "x{}")
    assert source == FACES[face](make, "x{}")
    assert [style for style in check_page(source).styles if re.search(r"(^|;)color:", style)] == []


@pytest.mark.parametrize(
    "face", ["failure-data", "progress", "verdict-standing", "run", "runs", "failures", "campaigns"]
)
def test_ten_thousand_characters_do_not_flood_a_page(make, face):
    long = "w" * 10_000
    if face == "verdict-standing":
        source = html_verdict(make.verdict(), make.plan(), hostile_trials(make, long), long)
    elif face == "progress":
        source = html_progress(make.plan(), hostile_trials(make, long), long, long)
    else:
        source = FACES[face](make, long)
    check_page(source)
    outside = re.sub(r"(?s)<pre.*?</pre>", "", source)
    assert max(len(word) for word in Page(outside).text.split()) <= 2 * markup.SENTENCE_LIMIT  # two neighbours
    assert len(source) < 2_000_000


def test_a_long_name_is_cut_and_whole_in_its_title():
    name = "n" * 10_000 + "END"
    page = Page(markup.shown(name))
    assert len(page.text) == markup.NAME_LIMIT
    assert page.text.endswith("END")
    assert ("span", "title", name) in page.attributes
    assert len(markup.shown("x" * 10**6)) < 2 * markup.TITLE_LIMIT


def test_every_face_keeps_long_words_inside(make):
    for face, make_face in FACES.items():
        assert "overflow-wrap:break-word" in Page(make_face(make, "x{}")).styles[0], face


def test_failure_shows_what_where_why_and_what_is_missing(make):
    source = html_failure(make.capsule(), {"sentence": "Gave back 71 MiB."})
    page = check_page(source)
    for fact in (
        "The forward pass needed 10.6 MiB more", "simulated out of memory", "train.py:31 in train",
        "forward, after step 12", "90.6 MiB", "missing 10.6 MiB", "limit 96.0 MiB", "Enough alone", "C21",
        "Excluded (2)", "Not measured (1)", "Evidence: 9 of 11 captured", "no GPU", "Gave back 71 MiB.",
        "Nothing here says anything about a GPU", '"batch_size": 64',
    ):  # fmt: skip
        assert fact in page.text
    assert all(key in page.text for key in NAMES)
    assert page.tags.count("img") == 1
    assert "812,646,400 (775.0 MiB)" in page.text
    alt = next(value for tag, name, value in page.attributes if name == "alt")
    assert alt == "16.0 MiB were requested; free: 5.4 MiB of 96.0 MiB. 10.6 MiB were missing."


def test_cuda_failure_does_not_speak_of_simulation(make):
    capsule = make.capsule(device=make.CUDA, facts=make.cuda_memory(), found=make.diagnosis(shortfall=2**32))
    assert "Simulated device:" not in html_failure(capsule)
    assert "CUDA, NVIDIA H200, 140.00 GiB" in Page(html_failure(capsule)).text


def test_evidence_of_any_size_and_depth_stays_readable(make):
    deep = []
    for _ in range(40):
        deep = [deep, {"k": 1}]
    wide = {f"key-{index}": [{"a": index}] * 50 for index in range(500)}
    for data in (deep, wide, {}, [], None, "text", {"empty": {}, "none": None, "yes": True}):
        source = data_tree(data)
        check_page(source)
        assert len(source) < 600_000
    assert "not all are shown" in data_tree(wide)


def test_plan_shows_each_proposal_with_its_state(make):
    page = check_page(html_plan(make.plan(), {"P4"}, {"P3"}))
    for fact in (
        "4 changes proposed, 3 may run", "Micro-batch 32, accumulate 2", "61.0 MiB of 96.0 MiB", "not predicted",
        "approved", "rejected", "automatic", "preserved", "EV-1, EV-6", "Caution:", "BatchNorm sees less.",
        "expandable_segments:True", "Considered and left out", "At worst 8 trials", "at most 500 steps",
    ):  # fmt: skip
        assert fact in page.text
    assert "needs approval" in Page(html_plan(make.plan())).text


def test_progress_shows_trials_bars_and_stages_to_come(make):
    page = check_page(html_progress(make.plan(), make.trials(), "running", "P1 runs."))
    for fact in ("P1 runs.", "unchanged", "out of memory", "95.0 MiB", "30 steps", "up to 2 trials, not started"):
        assert fact in page.text
    assert "width:63.5%" in "".join(page.styles)  # 61 of 96 MiB
    assert "No trial has started." in Page(html_progress(make.plan(), [], "ended", "")).text


def test_a_peak_above_the_budget_is_a_full_red_bar(make):
    over = [make.trial(1, "probe", "P1", "oom", 1, 200 * make.MIB, 1.0, "")]
    assert "width:100.0%;height:100%;background:#d35060" in html_progress(make.plan(), over, "running", "x")


def test_verdict_shows_word_change_checks_and_the_configuration_to_copy(make):
    source = html_verdict(make.verdict(), make.plan(), make.finished())
    page = check_page(source)
    for fact in ("Verified on the simulated device", "Checks: 8 of 8 passed", "batch_size", "verified_recovery",
                 "tomato-disease-c1-t5", "sha256:abababababab…", "(90.0 MiB)"):  # fmt: skip
        assert fact in page.text
    copied = html.unescape(re.search(r"(?s)<pre[^>]*>(.*?)</pre>", source).group(1))
    assert json.loads(copied) == make.verdict().to_data()["config"]


def test_a_configuration_to_copy_is_never_cut(make):
    config = {**make.CONFIG, "notes": "long \u202e\x00 " * 20_000}
    source = html_verdict(make.verdict(config=config), make.plan(config=config, offered=()), [])
    copied = html.unescape(re.search(r"(?s)<pre[^>]*>(.*?)</pre>", source).group(1))
    assert json.loads(copied)["notes"] == config["notes"]


def test_a_verdict_that_did_not_pass_opens_the_checks_that_failed(make):
    page = check_page(html_verdict(make.verdict(status="not_recovered"), make.plan(), make.finished()[:1]))
    assert "Not recovered" in page.text
    assert "to copy" not in page.text
    assert any(name == "open" for _, name, _ in page.attributes)


@pytest.mark.parametrize(
    ("standing", "words"),
    [("imported", "elsewhere, not by this store"), ("unrecorded", "elsewhere, not by this store"),
     ("claimed_by_0.1", "as claimed by version 0.1")],
)  # fmt: skip
def test_a_verdict_from_elsewhere_says_so_and_is_not_green(make, standing, words):
    source = html_verdict(make.verdict(), make.plan(), [], standing)
    assert f"Verified {words}, on the simulated device" in Page(source).text
    assert "border-left:4px solid #c88a1e" in source


def test_run_page_shows_curves_memory_and_provenance(make):
    unusual = [{"name": "grad", "step": step, "value": value, "at": 0.0}
               for step, value in enumerate([1.0, float("nan"), float("inf"), 2.0])]  # fmt: skip
    page = check_page(html_run(make.run_row(), make.metrics() + unusual, make.samples(), make.artifacts()))
    for fact in ("failed after 41 s at step 119", "SimulatedOutOfMemoryError in forward", "2 not finite", "step 119",
                 "dashed: budget 96.0 MiB", "host memory of the process", "checkpoints/final.pt", "45.9 MiB",
                 "Dataset: not recorded", "0f3c9a1b"):  # fmt: skip
        assert fact in page.text
    assert page.tags.count("img") == 5


def test_many_metrics_are_listed_not_drawn(make):
    points = [{"name": f"m{index}", "step": 1, "value": 1.0, "at": 0.0} for index in range(40)]
    page = check_page(html_run(make.run_row(), points))
    assert page.tags.count("img") == 12
    assert "28 more series" in page.text


@pytest.mark.parametrize("row", [{}, {"run_id": "r"}, {"config": None, "facts": None, "device": None}])
def test_a_run_with_hardly_any_facts_has_a_page(row):
    assert (row.get("run_id") or "?") in check_page(html_run(row)).text


def test_a_sentence_in_a_table_keeps_a_width_that_can_be_read():
    sentence, word = markup.escape("Memory ran out, and why is said at length. " * 4), markup.escape("open")
    table = markup.grid(("State", "What happened"), [(word, sentence), (word, word)], wrapped=(1,))
    assert table.count("min-width:300px") == 1 and table.count("min-width:72px") == 1
