"""The widgets of a plan: who decides, each proposal with its buttons, the contract to change, memory, and Start."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from watcherml.notebook.panels import base
from watcherml.notebook.panels.contract import ContractFields
from watcherml.notebook.panels.decisions import DecisionRow
from watcherml.report import markup, terms
from watcherml.report.html_plan import html_contract
from watcherml.report.markup import Html

if TYPE_CHECKING:
    from watcherml.notebook.panels.plan import PlanPanel


class PlanView:
    """Draws a ``PlanPanel``. Everything that a button does is a call of the panel."""

    def __init__(self, panel: PlanPanel) -> None:
        self._panel = panel
        self._plan_digest = ""
        self._rows: list[DecisionRow] = []
        self._working: threading.Thread | None = None
        self._locked = False  # a click is being carried out
        self._head, self._message, self._whole = base.html_box(), base.html_box(css="wml-message"), base.html_box()
        self._terms, self._memory = base.html_box(css="wml-contract"), base.html_box()
        person = "Your name, for approvals"
        self._person = base.text_field("wml-approved-by", person, panel.approver, margin="2px 0 8px 0")
        self._start: Any = None  # made with each plan
        self._free = base.button("Give it back", "wml-free", base.guarded(panel.free, panel.say),
                                 tooltip="Let go of the frames of the failed cell")  # fmt: skip
        self._fields = ContractFields(self._prepare_clicked)
        w = base.widgets()
        self._held = w.VBox([self._memory, self._free], layout={"width": "100%", "margin": "8px 0 0 0"})
        self.box = base.panel_box()

    @property
    def working(self) -> threading.Thread | None:
        """The thread that a click has started and that is not done."""
        return self._working if self._working is not None and self._working.is_alive() else None

    def draw(self) -> None:
        """Bring the widgets to what the panel knows; they send only what has changed."""
        panel = self._panel
        if self._working is threading.current_thread():
            self._locked = False  # what it draws is what came of it: nothing is locked any more by then
        if panel.progress is not None:
            self._whole.value = base.fold_html(base.PLAN_FOLD, panel.plan_html())
            self.box.children = (panel.progress.view(), self._whole)
            return
        if self._plan_digest != panel.plan.digest:
            self._take_plan()
        locked = panel.busy or self._locked
        self._start.disabled = self._free.disabled = locked
        self._fields.lock(locked)
        self._head.value = self._head_html()
        for row in self._rows:
            key = row.proposal.proposal_id
            row.draw(panel.states()[key], panel.decided(key), locked)
        self.box.children = self._children()
        text, tone = panel.message
        self._message.value = base.notice_html(text, tone) if text else ""  # last: what it tells can be seen by then

    def _children(self) -> tuple[Any, ...]:
        panel = self._panel
        approvals = any(one.authority == "approval_required" for one in panel.plan.proposals)
        held = panel.held_words()
        self._memory.value = base.notice_html(held, "warn", "wml-held") if held else ""
        self._free.layout.display = None if panel.can_free else "none"
        return (
            self._head,
            *([self._person] if approvals else []),
            *[row.box for row in self._rows],
            self._terms,
            *([self._fields.box] if panel.spec is not None else []),
            *([self._held] if held else []),
            self._message,
            self._start,
            self._whole,
        )

    def _take_plan(self) -> None:
        """Show another plan than before: its proposals, its contract, and its values in the fields."""
        panel, plan = self._panel, self._panel.plan
        self._plan_digest = plan.digest
        # A click may come late, and ids of proposals are the same in another plan: each button knows its own.
        self._start = self._start_of(plan.digest)
        self._rows = [DecisionRow(plan, one, partial(self._decide, plan.digest)) for one in plan.proposals]
        self._terms.value = markup.root(_terms(panel))
        self._whole.value = base.fold_html("The contract in full, and what was left out", html_contract(plan))
        if panel.spec is not None:
            values = panel.spec.values
            usual = {"max_trials": plan.contract.budget.max_trials}
            self._fields.show(values, values["metrics"] or panel.suggestions, usual)

    def _head_html(self) -> str:
        panel = self._panel
        kicker = Html(f"{markup.escape('Recovery plan for run ')}{markup.mono(panel.plan.source.run_id)}")
        lines = [markup.quiet(markup.shown(note, markup.SENTENCE_LIMIT)) for note in panel.plan.notes]
        if panel.plan.contract.device.kind == "simulated":
            lines.insert(0, markup.quiet(markup.escape(terms.SIMULATED_NOTE)))
        banner = markup.banner("calm", kicker, markup.escape(panel.headline()), *lines)
        return base.classed("wml-plan", markup.root(banner), panel.notes_html())

    # -- clicks -----------------------------------------------------------------------------------------------

    def _decide(self, digest: str, verb: str, key: str, reason: str) -> None:
        panel, person = self._panel, str(self._person.value)
        base.guarded(lambda: panel.of_plan(digest, lambda: panel.decide(verb, key, person, reason)), panel.say)()

    def _start_of(self, digest: str) -> Any:
        def start() -> None:
            self._work("Starting the campaign …", lambda: self._panel.of_plan(digest, self._panel.start))

        return base.button("Start", "wml-start", start, style="primary",
                           tooltip="Run the trials in fresh processes; the notebook stays free")  # fmt: skip

    def _prepare_clicked(self) -> None:
        self._work(
            "Preparing another plan; the training function is checked again …",
            lambda: self._panel.change(**self._fields.changes()),
        )

    def _work(self, words: str, action: base.Action) -> None:
        """Act in a thread: a callback that waits for a process would hold up the kernel's messages."""
        panel = self._panel
        if self._locked or panel.busy or panel.progress is not None:
            return

        def work() -> None:
            base.guarded(action, panel.say)()
            if self._working is threading.current_thread():
                panel.redraw()  # also what has said nothing

        self._locked = True
        self._working = threading.Thread(target=work, name="watcherml-panel", daemon=True)
        panel.say(words, "calm")
        self._working.start()


def _terms(panel: PlanPanel) -> Html:
    """What counts as success and what it may cost, in the few lines that a person reads before Start."""
    contract = panel.plan.contract
    success = terms.success_sentences(contract)
    rows = [
        ("Success", Html(" ".join(markup.shown(line, 300) for line in success[:-1]))),
        ("Cost", markup.shown(terms.spending_sentences(panel.plan)[0], 400)),
        ("Device", markup.shown(terms.device_sentence(contract.device))),
    ]
    return Html(f'<div style="margin:10px 0 0 0">{markup.pairs(rows)}</div>')
