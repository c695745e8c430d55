"""The whole flow as a person sees it, in JupyterLab and in Notebook 7: a cell dies, and panel by panel it is recovered.

Training here needs no PyTorch: it raises the text of an out of memory above a sequence length, and waits for a file
where a test has to see it running.
"""

import re

import pytest

FRONTS = ("lab", "notebook")
OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
    " free. Including non-PyTorch memory, this process has 7.50 GiB memory in use. Of the allocated memory 7.10 GiB"
    " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)
LONG = "long" * 50  # a name without any place to break it
CONFIG = {"batch_size": 1, "sequence_length": 256, "training_steps": 6, LONG: LONG}
SETUP = f"""%load_ext watcherml
import watcherml
run = watcherml.init({LONG!r}, {CONFIG!r})
for step in range(8):
    run.log_metric("loss", 2 / (1 + step), step=step)
run"""
FAIL = f"raise RuntimeError({OOM!r})"
FLAGS = (
    "--allow-approval-required --allow-semantic-changes --max-full-trials 1 --max-probe-trials 2"
    " --termination-grace 0.1"
)
RECOVER = f"""%%watcher recover {FLAGS} --confirmation-runs 2
import os, time

def train(config, max_steps=None):
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    if config["sequence_length"] > 128:
        raise RuntimeError({OOM!r})
    print("waiting at step 1", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.05)
    return {{"steps_completed": steps, "loss": 0.4}}
"""
ATTACH = "%load_ext watcherml\n%watcher recovery"
AGAIN = RECOVER.replace("--confirmation-runs 2", "--confirmation-runs 1 --name again --file again_entrypoint.py")
START = "again.approve('sequence-128', approved_by='Ada', reason='half is enough')\nagain.start()"
CELLS = [SETUP, FAIL, RECOVER, ATTACH, AGAIN, START]
RUN, FAILURE, RECOVERY, ATTACHED, AGAIN_PLANNED, STARTED = range(6)
HALF = "sequence-128"
LIVE = f"Probe of {HALF} started"


def theme(lab, name):
    from playwright.sync_api import expect

    lab.command("apputils:change-theme", theme=f"JupyterLab {name}")
    expect(lab.page.locator("body")).to_have_attribute("data-jp-theme-light", "true" if name == "Light" else "false")


def assert_nothing_sticks_out(output):
    """Nothing of a panel is wider than the panel, but what scrolls in a box of its own."""
    too_wide = output.evaluate(
        """box => [...box.querySelectorAll('.wml-panel, .wml-failure, .watcherml-report')]
            .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth)
            .map(one => `${one.className}: ${one.scrollWidth} in ${one.clientWidth}`)"""
    )
    assert too_wide == []
    assert output.evaluate("box => box.scrollWidth - box.clientWidth") <= 1


@pytest.mark.parametrize("front", ["lab", "notebook"])
def test_a_person_is_led_from_the_failure_to_the_verdict(front, open_notebook):
    lab = open_notebook(f"flow-{front}", CELLS, front)
    theme(lab, "Light")
    see_the_run_and_its_failure(lab, front)
    decide_edit_and_start(lab, front)
    restart_attach_and_read_the_verdict(lab, front)
    stop_another_campaign(lab, front)
    assert not lab.errors, lab.errors


def see_the_run_and_its_failure(lab, front):
    from playwright.sync_api import expect

    lab.run_cell(RUN)
    live = lab.output(RUN).locator(".wml-run").first
    expect(live).to_contain_text("is going on")
    expect(live.locator("img").first).to_be_visible()
    assert_nothing_sticks_out(lab.output(RUN))
    lab.shot(lab.output(RUN), f"{front}-run-light")

    lab.run_cell(FAILURE)
    failure = lab.output(FAILURE).locator(".wml-failure")
    expect(failure).to_contain_text("ran out of memory")
    expect(failure).to_contain_text("other processes")
    traceback = lab.output(FAILURE).locator(".jp-OutputArea-child").first
    expect(traceback).to_contain_text("RuntimeError")
    assert traceback.bounding_box()["y"] < failure.bounding_box()["y"]
    expect(live).to_contain_text("failed")  # the panel of the run has seen its end
    assert_nothing_sticks_out(lab.output(FAILURE))
    lab.shot(lab.output(FAILURE), f"{front}-failure-light")


def decide_edit_and_start(lab, front):
    from playwright.sync_api import expect

    lab.run_cell(RECOVERY)
    panel = lab.output(RECOVERY)
    approve = panel.locator(f".wml-approve-{HALF}")
    expect(panel.locator(".wml-plan")).to_contain_text("none may run yet")
    for name in ("Your name, for approvals", f"Reason for {HALF}, for the record"):
        expect(panel.get_by_role("textbox", name=name)).to_be_visible()  # as a screen reader finds it
    approve.click()
    expect(panel.locator(".wml-message")).to_contain_text("approved_by")  # nobody has said who approves, and why
    expect(approve).to_be_enabled()
    panel.locator(".wml-reject-sequence-32").click()
    expect(panel).to_contain_text("Left out.")
    lab.shot(panel, f"{front}-plan-light")
    edit_the_contract(lab, panel, front)
    approve_and_start_by_keyboard(lab, panel)
    expect(panel.locator(".wml-progress")).to_contain_text(LIVE)
    expect(panel.locator(".wml-log").last).to_contain_text("waiting at step 1")
    assert_nothing_sticks_out(panel)
    lab.shot(panel, f"{front}-progress-light")


def restart_attach_and_read_the_verdict(lab, front):
    from playwright.sync_api import expect

    lab.restart_kernel()
    lab.run_cell(ATTACHED)
    attached = lab.output(ATTACHED)
    expect(attached.locator(".wml-progress")).to_contain_text(LIVE)
    theme(lab, "Dark")
    lab.shot(attached, f"{front}-progress-dark")
    (lab.folder / "go").touch()
    verdict = attached.locator(".wml-verdict")
    expect(verdict).to_contain_text(re.compile("verified", re.IGNORECASE))
    expect(verdict).to_contain_text('"sequence_length": 128')
    assert_nothing_sticks_out(attached)
    for number, name in ((ATTACHED, "verdict"), (FAILURE, "failure"), (RUN, "run")):
        lab.shot(lab.output(number), f"{front}-{name}-dark")


def stop_another_campaign(lab, front):
    from playwright.sync_api import expect

    (lab.folder / "go").unlink()
    lab.run_cell(AGAIN_PLANNED)
    lab.shot(lab.output(AGAIN_PLANNED), f"{front}-plan-dark")
    lab.run_cell(STARTED)
    panel = lab.output(STARTED)
    expect(panel.locator(".wml-progress")).to_contain_text(LIVE)
    panel.locator(".wml-stop").click()
    expect(panel.locator(".wml-verdict")).to_contain_text("Stopped")
    expect(panel.locator(".wml-stop")).to_have_count(0)
    theme(lab, "Light")
    lab.shot(panel, f"{front}-stopped-light")


def edit_the_contract(lab, panel, front):
    """Ask for what cannot be, then for another number of confirmations, and see the decision dropped."""
    from playwright.sync_api import expect

    panel.locator(".wml-change").click()
    expect(panel.locator(".wml-metrics textarea")).to_be_visible()
    lab.shot(panel, f"{front}-contract-light")
    expect(panel.locator(".wml-metrics textarea")).to_have_value(re.compile("^loss:minimize:0.25:"))
    panel.locator(".wml-confirmation-runs input").fill("many")
    panel.locator(".wml-prepare").click()
    expect(panel.locator(".wml-message")).to_contain_text("a whole number")
    panel.locator(".wml-confirmation-runs input").fill("1")
    panel.locator(".wml-metrics textarea").fill("loss:minimize:0.25:0.5")
    panel.locator(".wml-prepare").click()
    expect(panel.locator(".wml-message")).to_contain_text("1 decision made on that one was dropped")
    expect(panel.locator(".wml-contract")).to_contain_text("1 fresh confirmation run")
    expect(panel.locator(".wml-contract")).to_contain_text("loss at most 0.75")
    panel.locator(".wml-change").click()


def approve_and_start_by_keyboard(lab, panel):
    """From the field with the name on, Tab reaches everything in the order in which it is read."""
    from playwright.sync_api import expect

    press, write = lab.page.keyboard.press, lab.page.keyboard.type
    panel.locator(".wml-approved-by input").focus()
    write("Ada <b>Lovelace</b>")
    press("Tab")
    assert lab.focused() == "reason-sequence-128"
    write("half the context is enough")
    press("Tab")
    assert lab.focused() == "approve-sequence-128"
    press("Enter")
    expect(panel).to_contain_text("Approved by Ada <b>Lovelace</b>: half the context is enough")
    panel.locator(".wml-reason-sequence-64 input").focus()
    seen = []
    for _ in range(9):
        press("Tab")
        seen.append(lab.focused())
        if seen[-1] == "start":
            break
    assert seen == [
        "approve-sequence-64", "reject-sequence-64", "reason-sequence-32", "approve-sequence-32", "reject-sequence-32",
        "change", "start",
    ]  # fmt: skip
    press("Space")
