"""What a notebook keeps of its panels: without the kernel that showed them, JupyterLab shows their HTML, not an error.

Live panels are replaced by their HTML at their end, also in a page that was opened after they were shown. What is still
live when its kernel goes is shown by our part in JupyterLab, from the HTML that lies in the same output.
"""

import re

import nbformat
import pytest
from e2e_tools import CURRENT
from nbformat.sign import NotebookNotary
from test_e2e_browser import AGAIN, FAIL, HALF, LIVE, LONG, RECOVER, SETUP, assert_nothing_sticks_out

VIEW = "application/vnd.jupyter.widget-view+json"
DECIDE = "\n".join(
    f"recovery.{call}('{key}', {who}='Ada', reason='{why}')"
    for call, key, who, why in (
        ("approve", HALF, "approved_by", "half is enough"),
        ("reject", "sequence-64", "rejected_by", "no"),
        ("reject", "sequence-32", "rejected_by", "no"),
    )
)
START = f"{DECIDE}\nrecovery.start()"
# JupyterLab's own, for what it had asked the kernel that died.
OF_THE_KILLED = "Canceled future for"
KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
CELLS = [SETUP, FAIL, RECOVER.replace("--confirmation-runs 2", "--confirmation-runs 1"), START, AGAIN, KILLED]
RUN, FAILED, PLANNED, STARTED, WAITING, KILL = range(6)


def wait_until_settled(lab, *numbers):
    """Wait until no output of these cells holds the view of a widget."""
    lab.page.wait_for_function(
        f"""numbers => numbers.every(number => {CURRENT}.content.widgets[number].model.outputs.toJSON()
            .every(one => !('{VIEW}' in (one.data ?? {{}}))))""",
        arg=list(numbers),
    )


def save(lab):
    """Save the notebook and return what the file holds."""
    lab.command("docmanager:save")
    lab.page.wait_for_function(f"() => !{CURRENT}.context.model.dirty")
    return nbformat.read(lab.folder / f"{lab.folder.name}.ipynb", 4)


def reload(lab):
    """Load the page again, while the kernel goes on."""
    lab.page.reload()
    lab.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    lab.page.wait_for_function(f"() => {CURRENT}?.sessionContext?.session?.kernel?.status === 'idle'")


def reopen_with_a_fresh_kernel(lab):
    """End the kernel and open the file again."""
    lab.page.evaluate(f"() => {CURRENT}.sessionContext.shutdown()")
    reload(lab)


def reopen_without_a_kernel(lab, home):
    """End the kernel and open the file again as one that names a kernel which is not there."""
    lab.page.evaluate(f"() => {CURRENT}.sessionContext.shutdown()")
    address = lab.page.url
    lab.page.goto("about:blank")  # a page that is open would write the file again
    path = lab.folder / f"{lab.folder.name}.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.metadata["kernelspec"] = {"name": "not-there", "display_name": "Not there"}
    nbformat.write(notebook, path)
    NotebookNotary(data_dir=home["JUPYTER_DATA_DIR"]).sign(notebook)  # else the view is refused, and HTML chosen
    lab.page.goto(address)
    lab.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    lab.page.get_by_role("button", name=re.compile("Cancel|No Kernel")).first.click()


def views(notebook, number):
    """Return which outputs of a cell of the file hold the view of a widget."""
    return [VIEW in one.get("data", {}) for one in notebook.cells[number].outputs]


@pytest.mark.parametrize("front", ["lab", pytest.param("notebook", marks=pytest.mark.long)])
def test_a_saved_panel_is_its_html_once_its_kernel_is_gone(front, open_notebook):
    lab = open_notebook(f"saved-{front}", CELLS, front)
    lab.run_cell(RUN)
    lab.run_cell(FAILED)
    wait_until_settled(lab, RUN)  # the run has ended, in another cell
    lab.run_cell(PLANNED)
    lab.run_cell(STARTED)
    the_end_is_seen_by_a_page_that_was_opened_later(lab, front)
    lab.run_cell(WAITING)
    assert views(save(lab), WAITING) == [True]
    its_buttons_go_with_a_kernel_that_is_killed(lab, front)
    reopen_with_a_fresh_kernel(lab)
    assert_its_html_is_shown(lab, f"{front}-saved-fresh")
    errors = [one for one in lab.errors if OF_THE_KILLED not in one]
    assert not errors, errors


@pytest.mark.long
def test_without_any_kernel_a_panel_does_not_load_for_ever(open_notebook, jupyter_home):
    lab = open_notebook("saved-none", [*CELLS[:PLANNED], "", "", AGAIN])
    for number in (RUN, FAILED, WAITING):
        lab.run_cell(number)
    save(lab)
    reopen_without_a_kernel(lab, jupyter_home)
    assert_its_html_is_shown(lab, "lab-saved-none")


def its_buttons_go_with_a_kernel_that_is_killed(lab, front):
    from playwright.sync_api import expect

    start = lab.output(WAITING).locator(".wml-start")
    expect(start).to_be_visible()
    expect(lab.output(WAITING).locator(".wml-kept")).to_have_count(0)
    lab.page.evaluate(f"() => {{ {CURRENT}.content.activeCellIndex = {KILL} }}")
    lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    expect(start).to_be_hidden()  # nobody would answer it, in the kernel that the server has started instead
    lab.page.get_by_role("button", name="Ok", exact=True).click()  # of JupyterLab, which tells that the kernel died
    assert_its_html_is_shown(lab, f"{front}-killed")
    lab.page.wait_for_function(f"() => {CURRENT}.sessionContext.session?.kernel?.status === 'idle'")


def the_end_is_seen_by_a_page_that_was_opened_later(lab, front):
    from playwright.sync_api import expect

    live = save(lab)
    assert [views(live, number) for number in (RUN, PLANNED, STARTED)] == [[False], [True], [True]]
    reload(lab)
    for number in (PLANNED, STARTED):
        expect(lab.output(number).locator(".wml-panel .wml-progress")).to_contain_text(LIVE)
        expect(lab.output(number).locator(".wml-kept")).to_have_count(0)
    (lab.folder / "go").touch()
    wait_until_settled(lab, PLANNED, STARTED)
    for number in (PLANNED, STARTED):
        expect(lab.output(number).locator(".wml-verdict")).to_contain_text('"sequence_length": 128')
        assert_nothing_sticks_out(lab.output(number))
    expect(lab.output(PLANNED)).to_contain_text("The plan: proposals")
    lab.shot(lab.output(PLANNED), f"{front}-saved-verdict")
    ended = save(lab)
    assert not any(any(views(ended, number)) for number in (RUN, PLANNED, STARTED))
    assert LONG in str(ended.cells[RUN].outputs[0].data["text/html"])


def assert_its_html_is_shown(lab, name):
    from playwright.sync_api import expect

    output = lab.output(WAITING)
    expect(output.locator(".wml-kept")).to_contain_text("none may run yet")
    expect(output.locator(".wml-kept")).to_contain_text("the kernel of that time is gone. %watcher plan RUN_ID")
    expect(output.get_by_text(re.compile("Error displaying widget|Loading widget"))).to_be_hidden()
    assert_nothing_sticks_out(output)
    lab.shot(output, name)
