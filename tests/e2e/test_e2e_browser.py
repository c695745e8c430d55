"""The whole flow as a person sees it: a cell dies, a change is approved with a click, the verdict appears."""

import re

SETUP = """%load_ext watcherml
%watcher project browser-demo
import torch
import watcherml
from torch import nn

config = {"batch_size": 1, "sequence_length": 512, "training_steps": 4}"""

TRAIN = """
def train(config, max_steps=None):
    torch.manual_seed(0)
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    mix = nn.Linear(32, 32)
    optimizer = torch.optim.SGD(mix.parameters(), lr=0.01)
    for _ in range(steps):
        x = torch.randn(config["batch_size"], config["sequence_length"], 32)
        loss = ((mix(x) @ x.transpose(1, 2)).softmax(-1) @ x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"steps_completed": steps, "loss": float(loss.detach())}
"""

FAIL = f"""{TRAIN}
run = watcherml.init(config=config)
with watcherml.simulated_device("2 MiB"):
    print(train(config))"""

RECOVER = f"""%%watcher recover --allow-approval-required --allow-semantic-changes --confirmation-runs 1
import torch
from torch import nn
{TRAIN}"""

FAILURE, RECOVERY = 1, 2


def test_a_person_approves_starts_and_reads_the_verdict(open_notebook):
    from playwright.sync_api import expect

    lab = open_notebook("flow", [SETUP, FAIL, RECOVER])
    lab.run_cell(0)
    lab.run_cell(FAILURE)
    failure = lab.output(FAILURE).locator(".wml-failure")
    expect(failure).to_contain_text("ran out of memory")
    expect(failure).to_contain_text("Memory given back")
    lab.shot(failure, "failure-light")

    lab.run_cell(RECOVERY)
    panel = lab.output(RECOVERY)
    approve = panel.locator(".wml-approve-sequence-256")
    expect(approve).to_be_visible()
    expect(panel.locator(".wml-plan")).to_contain_text("none may run yet")
    approve.click()
    expect(panel.locator(".wml-message")).to_contain_text("approved_by")  # nobody has said who approves, and why
    expect(approve).to_be_enabled()

    panel.locator(".wml-approved-by input").fill("Ada <b>Lovelace</b>")
    panel.locator(".wml-reason-sequence-256 input").fill("half the context is enough")
    approve.click()
    expect(approve).to_be_disabled()
    expect(panel).to_contain_text("Approved by Ada <b>Lovelace</b>")
    lab.shot(panel, "plan-light")

    panel.locator(".wml-start").click()
    expect(panel.locator(".wml-progress")).to_contain_text("Probe of sequence-256 started")
    lab.shot(panel, "progress-light")
    verdict = panel.locator(".wml-verdict")
    expect(verdict).to_contain_text(re.compile("verified", re.IGNORECASE))
    expect(verdict).to_contain_text('"sequence_length": 256')
    lab.shot(verdict, "verdict-light")

    lab.command("apputils:change-theme", theme="JupyterLab Dark")
    expect(lab.page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    lab.shot(failure, "failure-dark")
    lab.shot(verdict, "verdict-dark")
    assert lab.errors == []
