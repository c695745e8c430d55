"""JupyterLab's sidebar in a browser: a failure appears and opens as a tab, a campaign ends while a cell is busy."""

import re
import time

import pytest
from e2e_tools import CURRENT

from watcherml.api import registered
from watcherml.api.registered import Registration
from watcherml.platform import this_process

LONG = "n" * 200
OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
    " free. Including non-PyTorch memory, this process has 7.90 GiB memory in use."
)
LOAD = f"""%load_ext watcherml
%watcher project {LONG}
import watcherml
config = {{"batch_size": 32, "gradient_accumulation_steps": 1, "training_steps": 6, "name": "{LONG}"}}"""

FAIL = f"""run = watcherml.init(config=config)
raise RuntimeError({OOM!r})"""

RECOVER = f"""%%watcher recover --confirmation-runs 1 --max-probe-trials 2 --max-full-trials 1
import time

def train(config, max_steps=None):
    if config["batch_size"] > 16:
        raise RuntimeError({OOM!r})
    time.sleep(600)  # until somebody ends it
    return {{"steps_completed": config["training_steps"], "loss": 0.4}}
"""
WAIT = "recovery.start()\nprint('it ended as', recovery.wait().status)"
LOADED, FAILED, PLANNED, BUSY = range(4)


def start_cell(lab, number):
    """Execute a cell of the notebook in front and do not wait for its end."""
    lab.page.evaluate(
        f"() => {{ {CURRENT}.content.activeCellIndex = {number};"
        " void window.jupyterapp.commands.execute('notebook:run-cell') }"
    )


def in_theme(lab, name, light):
    from playwright.sync_api import expect

    lab.command("apputils:change-theme", theme=name)
    expect(lab.page.locator("body")).to_have_attribute("data-jp-theme-light", light)
    expect(lab.page.locator("#jupyterlab-splash")).to_have_count(0)


def fits(locator):
    return locator.evaluate("one => one.scrollWidth <= one.clientWidth")


@pytest.fixture
def other_store(jupyter_home, monkeypatch, tmp_path):
    """A store that another kernel, this process, has registered beside that of the notebook."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", jupyter_home["JUPYTER_RUNTIME_DIR"])
    place = tmp_path / "another project" / ".watcherml"
    file = registered.register(Registration(place, "another-kernel", this_process(), 1.0))
    yield place
    file.unlink()


def test_a_failure_appears_opens_as_a_tab_and_a_campaign_is_stopped_while_a_cell_is_busy(open_notebook, other_store):
    from playwright.sync_api import expect

    lab = open_notebook("beside", [LOAD, FAIL, RECOVER, WAIT])
    page, sidebar = lab.page, lab.page.locator(".wml-Sidebar")
    tab = page.locator('.lm-TabBar-tab[data-id="watcherml-sidebar"]')
    notebook = page.locator(".lm-TabBar-tab", has_text="beside.ipynb")
    lab.run_cell(LOADED)
    expect(tab).to_have_attribute("title", "WatcherML")
    lab.run_cell(FAILED)
    died = time.monotonic()
    expect(tab).to_have_attribute("title", "WatcherML: 1 new failure")
    print(f"the badge came {time.monotonic() - died:.1f} s after the cell had died")
    expect(tab.locator("svg text")).to_have_text("1")
    lab.shot(tab, "sidebar-badge-light")

    tab.click()
    failure = sidebar.locator(".wml-Failures .wml-Item")
    expect(failure).to_contain_text("ran out of memory")
    expect(failure.locator(".wml-New")).to_be_visible()
    expect(sidebar.get_by_role("status")).to_contain_text("1 open failure")
    expect(tab).to_have_attribute("title", "WatcherML")  # somebody has looked
    assert fits(sidebar)
    picker = sidebar.get_by_label("Store")
    picker.select_option(label="another project")
    expect(sidebar).to_contain_text("There is no store in this folder yet")
    expect(sidebar.locator(".wml-Place")).to_have_attribute("title", str(other_store))
    picker.select_option(label="Store of the notebook in front")
    expect(failure).to_be_visible()
    failure.focus()
    page.keyboard.press("Enter")
    capsule = page.locator(".wml-Page")
    face = capsule.frame_locator(".wml-Frame").locator("body")
    expect(face).to_contain_text("Failure capsule")
    expect(face).to_contain_text("7.90 GiB")
    lab.shot(page, "sidebar-failure-light")

    notebook.click()
    lab.run_cell(PLANNED)
    start_cell(lab, BUSY)
    campaign = sidebar.locator(".wml-Campaigns .wml-Row")
    expect(campaign).to_contain_text("Running: probe of", timeout=60_000)
    campaign.locator(".wml-Item").click()
    expect(page.frame_locator(".wml-Page:not(.lm-mod-hidden) .wml-Frame").locator("body")).to_contain_text("Stage")
    in_theme(lab, "JupyterLab Dark", "false")
    shown = page.frame_locator(".wml-Page:not(.lm-mod-hidden) .wml-Frame").locator("html")
    expect(shown).to_have_css("color-scheme", "dark")
    lab.shot(page, "sidebar-campaign-dark")
    notebook.click()
    assert page.evaluate(f"() => {CURRENT}.sessionContext.session.kernel.status") == "busy"
    campaign.get_by_role("button", name=re.compile("^Stop campaign")).click()
    page.locator(".jp-Dialog").get_by_role("button", name="Stop").click()
    expect(lab.output(BUSY)).to_contain_text("it ended as stopped")
    expect(campaign).to_contain_text("stopped ·")
    expect(campaign.locator(".wml-Stop")).to_have_count(0)
    lab.shot(page, "sidebar-stopped-dark")
    in_theme(lab, "JupyterLab Light", "true")
    lab.shot(sidebar, "sidebar-light")
    assert lab.errors == []
