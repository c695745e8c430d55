"""The panels on real widgets: every button does what the call of the same name does, and nothing more."""

import os
import signal
import sys

import pytest
from notebook_shell import CONFIG, OOM, SHORT, TRAIN, wait_for

from watcherml.errors import CampaignError, InvalidValue, NotFound
from watcherml.notebook.panels import base
from watcherml.notebook.panels.progress import ProgressPanel

SEQUENCE = "--allow-approval-required --allow-semantic-changes"
NEEDS, FREE = "sequence-128", "batch-16x2"


def widgets(panel, css):
    """Return the widgets of a panel's view that have a class, in order."""

    def walk(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    return [one for one in walk(panel.view()) if css in one._dom_classes]


def one(panel, css):
    (found,) = widgets(panel, css)
    return found


def everything_shown(panel):
    def walk(widget):
        yield getattr(widget, "value", "") if isinstance(getattr(widget, "value", ""), str) else ""
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    return "\n".join(walk(panel.view()))


@pytest.fixture
def panel(notebook):
    """A plan with a proposal that needs approval and one that does not; nothing started."""
    notebook.run(f"import watcherml\nrun = watcherml.init('demo', {dict(CONFIG, sequence_length=256)!r})")
    notebook.run(f"run.log_metric('loss', 0.5, 2)\nraise RuntimeError({OOM!r})")
    return notebook.run(f"%%watcher recover {SHORT} {SEQUENCE}\n{TRAIN}").value


# -- decisions -------------------------------------------------------------------------------------------------------


def test_approving_needs_a_name_and_a_reason(panel):
    one(panel, f"wml-approve-{NEEDS}").click()
    message = one(panel, "wml-message").value
    assert "approved_by" in message and "field above the proposals" in message
    one(panel, "wml-approved-by").value = "Ada"
    one(panel, f"wml-approve-{NEEDS}").click()
    assert "field beside the button" in one(panel, "wml-message").value
    assert not panel._authorizations
    for missing in ({"reason": "why"}, {"approved_by": "  ", "reason": "why"}, {"approved_by": "Ada"}):
        with pytest.raises(InvalidValue):
            panel.approve("sequence-64", **missing) if "approved_by" in missing else panel.approve(NEEDS, **missing)


def test_a_click_approves_one_proposal_and_ends_its_choice(panel):
    one(panel, "wml-approved-by").value = "Ada"
    one(panel, f"wml-reason-{NEEDS}").value = "half is enough"
    one(panel, f"wml-approve-{NEEDS}").click()
    given = panel._authorizations[NEEDS]
    assert (given.approved_by, given.reason, given.plan_digest) == ("Ada", "half is enough", panel.plan.digest)
    assert one(panel, f"wml-approve-{NEEDS}").disabled and one(panel, f"wml-reject-{NEEDS}").disabled
    assert not one(panel, "wml-approve-sequence-64").disabled
    assert "Approved by Ada: half is enough" in everything_shown(panel)
    assert "[approved]" in panel.text()
    again = panel.approve(NEEDS, approved_by="Bob", reason="other")
    assert panel._authorizations[NEEDS] is given and "approved" in again.text()


def test_rejecting_and_taking_it_back(panel):
    one(panel, f"wml-reject-{NEEDS}").click()
    assert panel._rejections[NEEDS] == ("the notebook", "left out")
    assert one(panel, f"wml-approve-{NEEDS}").disabled
    panel.withdraw(NEEDS)
    assert NEEDS not in panel._rejections and not one(panel, f"wml-approve-{NEEDS}").disabled
    panel.reject(NEEDS, rejected_by="Bob", reason="too short")
    assert "Rejected by Bob: too short" in everything_shown(panel)


def test_an_automatic_proposal_can_only_be_left_out(panel):
    assert widgets(panel, f"wml-approve-{FREE}") == []
    toggle = one(panel, f"wml-reject-{FREE}")
    toggle.value = True
    assert FREE in panel._rejections and "[rejected]" in panel.text()
    toggle.value = False
    assert FREE not in panel._rejections
    panel.reject(FREE, rejected_by="Ada", reason="no time")
    assert toggle.value is True and panel._rejections[FREE] == ("Ada", "no time")
    with pytest.raises(InvalidValue, match="automatic"):
        panel.approve(FREE, approved_by="Ada", reason="why")


def test_a_proposal_that_is_not_in_the_plan_is_refused(panel):
    for call in (panel.reject, panel.withdraw):
        with pytest.raises(NotFound):
            call("<script>")
    with pytest.raises(NotFound):
        panel.approve("nothing", approved_by="Ada", reason="why")


def test_nothing_starts_where_nothing_may_run(panel, notebook):
    for proposal in panel.plan.proposals:
        panel.reject(proposal.proposal_id)
    with pytest.raises(CampaignError, match="nothing may run"):
        panel.start()
    with pytest.raises(CampaignError, match="not started"):
        panel.wait()
    one(panel, "wml-start").click()
    wait_for(lambda: "nothing may run" in one(panel, "wml-message").value)
    wait_for(lambda: not one(panel, "wml-start").disabled)
    assert notebook.store.audit.campaigns() == []


# -- faces -----------------------------------------------------------------------------------------------------------


def test_a_view_is_offered_only_where_a_kernel_answers(panel, notebook):
    bundle = panel._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    notebook.shell.kernel = object()
    try:
        view = panel._repr_mimebundle_()["application/vnd.jupyter.widget-view+json"]
    finally:
        del notebook.shell.kernel
    assert view == {"version_major": 2, "version_minor": 0, "model_id": panel.view().model_id}


def test_without_ipywidgets_everything_is_done_by_calls(panel, notebook, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    notebook.shell.kernel = object()
    try:
        assert set(panel._repr_mimebundle_()) == {"text/plain", "text/html"}
    finally:
        del notebook.shell.kernel
    panel.approve(NEEDS, approved_by="Ada", reason="why")
    panel.reject(FREE)
    assert 'recovery.approve("sequence-64", approved_by="Ada", reason="...")' in panel.text()
    assert panel.view() is None


def test_the_text_names_a_call_for_every_decision(panel):
    for face in (panel.text(), panel.html().replace("&quot;", '"')):
        for proposal_id in (NEEDS, "sequence-64", "sequence-32"):
            assert f'recovery.approve("{proposal_id}", approved_by="...", reason="...")' in face
            assert f'recovery.reject("{proposal_id}", reason="...")' in face
        assert "recovery.start()" in face


def test_hostile_names_are_shown_as_text(notebook):
    evil = "<script>alert(1)</script>"
    config = {**CONFIG, "sequence_length": 256, evil: evil}
    notebook.run(f"import watcherml\nrun = watcherml.init({evil!r}, {config!r})")
    notebook.run(f"run.log_metric({evil!r}, 0.5, 2)\nraise RuntimeError({OOM!r})")
    found = notebook.run(f"%%watcher recover {SEQUENCE} --approved-by '{evil}'\n{TRAIN}").value
    found.approve(NEEDS, reason=evil)
    found.reject(FREE, rejected_by=evil, reason=evil)
    shown = everything_shown(found)
    assert "&lt;script&gt;" in shown
    for html in (found.html(), shown.replace(one(found, "wml-approved-by").value, "")):
        assert "<script" not in html


def test_a_callback_that_breaks_shows_its_error(panel, monkeypatch):
    from watcherml.notebook.panels import plan

    def broken(*_, **__):
        raise OSError("no processes left <b>")

    monkeypatch.setattr(plan, "start_recovery", broken)
    one(panel, "wml-start").click()
    wait_for(lambda: "no processes left &lt;b&gt;" in one(panel, "wml-message").value)
    wait_for(lambda: not one(panel, "wml-start").disabled)


# -- the campaign ----------------------------------------------------------------------------------------------------


def test_start_by_click_runs_to_a_verdict_with_the_configuration(panel, notebook):
    one(panel, "wml-start").click()
    one(panel, "wml-start").click()
    result = panel.wait(timeout=50)
    assert (result.status, result.reason_code) == ("verified", "verified_recovery")
    assert panel.result is result and len(notebook.store.audit.campaigns()) == 1
    (verdict,) = panel.progress.view().children
    for html in (verdict.value, panel.html()):
        assert "wml-verdict" in html and "&quot;batch_size&quot;: 16" in html
    assert '"batch_size": 16' in panel.text() and "result.verified_config" in panel.text()
    with pytest.raises(CampaignError, match="has started"):
        panel.reject(FREE)
    assert panel.start() is panel.progress
    assert "nothing to stop" in panel.stop().text()
    # The result and the campaign have faces of their own, and another session can look at them.
    bundle, _ = notebook.shell.display_formatter.format(result)
    assert "wml-verdict" in bundle["text/html"] and "Verified" in bundle["text/plain"]
    notebook.run("%reload_ext watcherml")
    seen = notebook.run(f"%watcher recovery {result.campaign_id}").value
    assert seen.result.verified and "nothing to stop" in notebook.run("%watcher stop").value.text()
    assert "verified" in notebook.run("%watcher recoveries --verified").value.text()


@pytest.fixture
def slow(notebook):
    """A campaign whose trials take long, just started."""
    notebook.run(f"import watcherml\nrun = watcherml.init('demo', {dict(CONFIG, seconds=20)!r})")
    notebook.run(f"raise RuntimeError({OOM!r})")
    panel = notebook.run(f"%%watcher recover {SHORT} --termination-grace 0.1 --yes\n{TRAIN}").value
    wait_for(lambda: panel.campaign.trials())
    return panel


def test_ctrl_c_detaches_and_stop_ends_it(slow, notebook, monkeypatch):
    campaign = slow.campaign

    def interrupted(self, timeout=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(campaign), "wait", interrupted)
        outcome = notebook.run("recovery.wait()")
    assert outcome.error is None and outcome.value is None
    assert "Detached" in outcome.text and campaign.campaign_id in outcome.text
    assert campaign.lifecycle == "running"
    with pytest.raises(CampaignError, match="still running"):
        slow.wait(timeout=0.1)
    changed = TRAIN.replace("0.4", "0.5")
    refused = notebook.run(f"%%watcher recover --name other\n{changed}").error
    assert "is running the code" in str(refused)
    wait_for(lambda: "Control of unchanged" in everything_shown(slow))
    one(slow, "wml-stop").click()
    result = slow.wait(timeout=30)
    assert (result.status, result.reason_code) == ("stopped", "stopped_by_user")
    assert widgets(slow, "wml-stop") == []


def test_a_lost_supervisor_is_said_and_resumed(slow, notebook):
    campaign_id = slow.campaign.campaign_id
    (started,) = [event["body"] for event in slow.campaign.events() if event["type"] == "started"]
    os.kill(started["pid"], signal.SIGKILL)
    wait_for(lambda: widgets(slow, "wml-resume"))
    assert "supervising process is gone" in slow.text() and f"%watcher resume {campaign_id}" in slow.text()
    with pytest.raises(CampaignError, match="Resume it with"):
        slow.wait(timeout=5)
    resumed = notebook.run("%watcher resume").value
    assert isinstance(resumed, ProgressPanel)
    wait_for(lambda: resumed.campaign.lifecycle == "running")
    notebook.run("%watcher stop")
    assert resumed.wait(timeout=30).status == "stopped"


def test_a_panel_that_cannot_see_the_store_any_more_says_so(slow, monkeypatch):
    from watcherml.notebook.panels import progress

    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    slow.stop()
    slow.wait(timeout=30)
    watcher = ProgressPanel(slow.campaign)
    watcher._result, watcher._look = None, progress._Look("running", [], "")
    monkeypatch.setattr(watcher, "_take_look", lambda: (_ for _ in ()).throw(OSError("gone")))
    watcher.view()
    watcher._watch()
    assert "no longer sees the campaign: gone" in one(watcher, "wml-message").value


def test_a_literal_in_a_call_cannot_break_out_of_it():
    for value in ('a"b', "a\\b", "plain", "line\nfeed"):
        text = base.literal(value)
        assert "\n" not in text
    assert eval(base.literal('a"); evil("')) == 'a"); evil("'
