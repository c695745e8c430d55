"""A plan is changed before it is started: another one takes its place, and what was decided on the first is dropped."""

import gc
import threading
import weakref

import pytest
from notebook_shell import CONFIG, OOM, SHORT, TRAIN, wait_for
from test_notebook_panels import everything_shown, one, widgets

from watcherml.errors import CampaignError, InvalidValue, UsageError
from watcherml.notebook.held import HeldMemory
from watcherml.notebook.panels.plan import PlanPanel
from watcherml.notebook.session import Session

NEEDS, FREE = "sequence-128", "batch-16x2"
GUARD = "loss:minimize:0.5:0.05"


@pytest.fixture
def panel(notebook):
    """A plan whose run logged a loss that nobody guards."""
    notebook.run(f"import watcherml\nrun = watcherml.init('demo', {dict(CONFIG, sequence_length=256)!r})")
    notebook.run(f"run.log_metric('loss', 0.5, 2)\nraise RuntimeError({OOM!r})")
    flags = f"{SHORT} --allow-approval-required --allow-semantic-changes"
    return notebook.run(f"%%watcher recover {flags}\n{TRAIN}").value


def guards(panel):
    return panel.plan.contract.verification.metric_guards


def test_the_fields_hold_what_the_failed_run_gives(panel):
    assert one(panel, "wml-metrics").value == GUARD
    assert one(panel, "wml-minimum-progress-steps").value == "6"
    assert one(panel, "wml-confirmation-runs").value == "1"
    assert one(panel, "wml-max-trials").value == ""
    assert "none is guarded" in panel.text() and "recovery.change(metrics=[" in panel.text() and GUARD in panel.text()
    assert guards(panel) == ()  # nothing is sealed that nobody asked for


def test_every_field_has_a_name_of_its_own_for_a_screen_reader(panel):
    fields = ["approved-by", "metrics", "minimum-progress-steps", "confirmation-runs", "max-trials"]
    fields += ["max-peak-vram-gib", *(f"reason-{key}" for key, state in panel.states().items() if state == "waiting")]
    found = [one(panel, f"wml-{name}") for name in fields]
    names = [field.description for field in found]
    assert len(names) > 7 and all(names) and len(set(names)) == len(names)
    assert f"Reason for {NEEDS}, for the record" in names
    assert [field.style.description_width for field in found] == ["0px"] * len(found)  # what is seen stands beside it


def test_another_plan_takes_the_place_of_the_first_and_drops_its_decisions(panel, notebook):
    panel.approve(NEEDS, approved_by="Ada", reason="half is enough")
    panel.reject(FREE)
    panel.view()
    before = panel.plan
    changes = {"minimum_progress_steps": 5, "max_trials": 7, "confirmation_runs": 2, "max_peak_vram_gib": 2}
    said = panel.change(metrics=[GUARD], **changes)
    assert "2 decisions made on that one were dropped" in " ".join(said.text().split())
    contract = panel.plan.contract
    assert panel.plan.digest != before.digest and panel.preparation.plan is panel.plan
    assert (contract.verification.minimum_progress_steps, contract.verification.confirmation_runs) == (5, 2)
    assert contract.budget.max_trials == 7 and contract.verification.max_peak_vram_bytes == 2 * 2**30
    assert [guard.name for guard in guards(panel)] == ["loss"]
    assert panel._authorizations == {} and panel._rejections == {}
    assert "none is guarded" not in panel.text() + everything_shown(panel)
    assert one(panel, "wml-minimum-progress-steps").value == "5" and one(panel, "wml-max-trials").value == "7"
    assert not one(panel, f"wml-approve-{NEEDS}").disabled  # undecided again
    assert "loss at most 0.55" in one(panel, "wml-contract").value
    assert notebook.store.audit.campaigns() == []  # nothing was run


CANNOT_BE = [
    ({"metrics": ["loss"]}, UsageError, "NAME:DIRECTION:BASELINE"),
    ({"metrics": "loss:minimize:x:0.1"}, UsageError, "BASELINE"),
    ({"minimum_progress_steps": 0}, InvalidValue, "minimum_progress_steps"),
    ({"minimum_progress_steps": "many"}, InvalidValue, "minimum_progress_steps"),
    ({"max_trials": 2, "confirmation_runs": 3}, InvalidValue, "max_trials"),
    ({"confirmation_runs": 9}, InvalidValue, "confirmation_runs"),
    ({"max_peak_vram_gib": -1}, UsageError, "max-peak-vram-gib"),
    ({"bananas": 1}, UsageError, "bananas"),
]


def test_a_change_that_cannot_be_leaves_the_plan_and_its_decisions(panel):
    panel.approve(NEEDS, approved_by="Ada", reason="half is enough")
    panel.view()
    before = panel.plan, dict(panel._authorizations), panel.spec
    for changes, kind, words in CANNOT_BE:
        with pytest.raises(kind, match=words):
            panel.change(**changes)
        assert (panel.plan, panel._authorizations, panel.spec) == before, changes
        shown = one(panel, "wml-message").value
        assert "The plan stays as it was." in shown and words.split(":")[0] in shown, changes
        assert not one(panel, "wml-start").disabled, changes


def test_the_button_does_what_the_call_does_and_shows_its_errors(panel):
    one(panel, "wml-confirmation-runs").value = "two"
    one(panel, "wml-prepare").click()
    wait_for(lambda: "expected a whole number" in one(panel, "wml-message").value)
    wait_for(lambda: not one(panel, "wml-prepare").disabled)
    before = panel.plan.digest
    one(panel, "wml-confirmation-runs").value = " 2 "
    one(panel, "wml-prepare").click()
    wait_for(lambda: panel.plan.digest != before)
    assert panel.plan.contract.verification.confirmation_runs == 2
    assert [guard.name for guard in guards(panel)] == ["loss"]  # what the field showed


@pytest.mark.parametrize("confirmations", ["1", "many"])
def test_whoever_reads_what_came_of_a_change_can_press_everything(panel, confirmations):
    panel.view()
    one(panel, "wml-confirmation-runs").value = confirmations
    seen = []

    def told(change):
        if ("plan" in change["new"] and "Preparing" not in change["new"]) or "whole number" in change["new"]:
            fields = ("wml-start", "wml-prepare", f"wml-reason-{NEEDS}", f"wml-approve-{NEEDS}")
            seen.append([name for name in fields if one(panel, name).disabled])

    one(panel, "wml-message").observe(told, names="value")
    one(panel, "wml-prepare").click()
    wait_for(lambda: seen)
    assert seen == [[]]


def test_nothing_is_decided_or_started_while_another_plan_is_being_prepared(panel, monkeypatch):
    inside, go_on = threading.Event(), threading.Event()
    prepare = type(panel.spec).prepare

    def slow(self, **changes):
        inside.set()
        assert go_on.wait(30)
        return prepare(self, **changes)

    monkeypatch.setattr(type(panel.spec), "prepare", slow)
    panel.view()
    one(panel, "wml-prepare").click()
    assert inside.wait(30)
    assert one(panel, "wml-start").disabled and one(panel, f"wml-approve-{NEEDS}").disabled
    calls = {
        "approve": lambda: panel.approve(NEEDS, approved_by="Ada", reason="x"),
        "reject": lambda: panel.reject(FREE),
        "start": panel.start,
        "change": panel.change,
    }
    for call in calls.values():
        with pytest.raises(CampaignError, match="is being prepared"):
            call()
    go_on.set()
    wait_for(lambda: not one(panel, "wml-start").disabled)
    panel.reject(FREE)


def test_a_plan_without_a_spec_says_how_another_is_made(panel):
    bare = PlanPanel(panel.preparation)
    with pytest.raises(CampaignError, match="prepare_oom_recovery"):
        bare.change(max_trials=5)
    assert widgets(bare, "wml-prepare") == [] and ".change(" not in bare.text()


# -- memory that the kernel still holds ------------------------------------------------------------------------------


def keeping(notebook):
    """Return a plan for a failure whose cell keeps its frames.

    Not a fixture: before a test pytest forgets the last error.
    """
    notebook["seen"], notebook["weakref"] = [], weakref
    notebook.run("%watcher keep-frames on")
    notebook.run(f"import watcherml\nrun = watcherml.init('demo', {CONFIG!r})\nclass Tensor: pass")
    fail = f"def fail():\n    tensor = Tensor()\n    seen.append(weakref.ref(tensor))\n    raise RuntimeError({OOM!r})"
    notebook.run(f"{fail}\nfail()")
    return notebook.run(f"%%watcher recover {SHORT}\n{TRAIN}").value


def test_memory_of_the_failed_cell_is_offered_before_the_start(notebook):
    holding = keeping(notebook)
    for face in (holding.text(), holding.html(), everything_shown(holding)):
        assert "still holds its memory" in face
    assert "recovery.free()" in holding.text()
    gc.collect()
    assert notebook["seen"][0]() is not None
    one(holding, "wml-free").click()
    assert notebook["seen"][0]() is None
    assert "Gave back" in one(holding, "wml-message").value or "Cleared" in one(holding, "wml-message").value
    assert widgets(holding, "wml-free") == [] and "still holds its memory" not in holding.text()
    assert "no memory that could be given back" in holding.free().text()


def test_the_call_gives_it_back_too(notebook):
    keeping(notebook).free()
    assert notebook["seen"][0]() is None
    assert not HeldMemory(Session.of(notebook.shell)).releasable
