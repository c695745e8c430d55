"""An executed notebook as a page: the static faces are all there, and nothing waits for a widget."""

import pytest
from test_e2e_browser import FAIL, RECOVER, SETUP, assert_nothing_sticks_out

DECIDE = """recovery.reject("sequence-64", rejected_by="Ada", reason="too short")
recovery.approve("sequence-128", approved_by="Ada", reason="half is enough")"""
ONE = RECOVER.replace("--confirmation-runs 2", "--confirmation-runs 1")
# What a panel shows ends as the verdict; this keeps how it looked while it could be decided on.
KEEP = """from IPython.display import display
display({"text/plain": recovery.text(), "text/html": recovery.html()}, raw=True)"""
START = f"open('go', 'w').close()\nprogress = recovery.start()\n{KEEP}\nprogress"
CELLS = [SETUP, FAIL, ONE, KEEP, DECIDE, "recovery", START, "recovery.wait()", "recovery"]
RUN, FAILURE, ENDED, PLAN, DECIDED, DECISIONS, STARTED, WAITED, VERDICT = range(9)


@pytest.fixture(scope="module")
def page(run_notebook, tmp_path_factory):
    """The notebook with its outputs, and the HTML that nbconvert makes of it."""
    nbconvert = pytest.importorskip("nbconvert")
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.cells[FAILURE].metadata["tags"] = ["raises-exception"]
    done = run_notebook(notebook, tmp_path_factory.mktemp("nbconvert"))
    html, _ = nbconvert.HTMLExporter().from_notebook_node(done)
    return done, html


def face(notebook, number, kind="text/html"):
    return "\n".join(output.data.get(kind, "") for output in notebook.cells[number].outputs if "data" in output)


def test_the_page_holds_every_static_face_and_no_widget(page):
    notebook, html = page
    for css in ("wml-run", "wml-failure", "wml-plan", "wml-progress", "wml-verdict"):
        assert f'class="{css}"' in html, css
    assert "widget-view" not in html and "widget-state" not in html and "model_id" not in html
    assert "widgets" not in notebook.metadata  # no state is stored, so that the static faces are what is shown
    assert '"sequence_length": 128' in html.replace("&quot;", '"')


def test_each_face_says_the_calls_that_its_buttons_make(page):
    notebook, _ = page
    plan = face(notebook, PLAN).replace("&quot;", '"')
    for call in ('recovery.approve("sequence-128"', 'recovery.reject("sequence-128"', "recovery.change(metrics=[",
                 "recovery.start()", "recovery.wait()"):  # fmt: skip
        assert call in plan and call in face(notebook, PLAN, "text/plain"), call
    for kind in ("text/html", "text/plain"):
        ended = face(notebook, ENDED, kind)
        assert "Verified" in ended and "sequence-128" in ended and "recovery.approve(" not in ended
    assert "approved" in face(notebook, DECISIONS) and "rejected" in face(notebook, DECISIONS)
    assert "Verified" in face(notebook, VERDICT) and "recovery.result.verified_config" in face(notebook, VERDICT)


def test_the_page_fits_and_shows_its_pictures(page, chromium, tmp_path):
    from e2e_tools import Lab

    (tmp_path / "page.html").write_text(page[1], encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1100, "height": 900}, offline=True)
    shown, errors = context.new_page(), []
    shown.goto((tmp_path / "page.html").as_uri(), wait_until="domcontentloaded")
    outputs = shown.locator(".jp-Cell-outputArea")
    for number in range(outputs.count()):
        assert_nothing_sticks_out(outputs.nth(number))
        Lab(shown, errors, tmp_path).shot(outputs.nth(number), f"nbconvert-{number}")
    pictures = shown.evaluate("() => [...document.images].map(one => one.naturalWidth)")
    assert len(pictures) >= 3 and all(pictures)
    context.close()
