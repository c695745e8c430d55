"""The panel of a recovery: the plan and its decisions, then the campaign, then the verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from watcherml.api.recover import Campaign, RecoveryPreparation, start_recovery
from watcherml.api.result import RecoveryResult
from watcherml.errors import CampaignError, InvalidValue
from watcherml.notebook.panels import base
from watcherml.notebook.panels.decisions import DecisionRow
from watcherml.notebook.panels.progress import ProgressPanel
from watcherml.protocol.authorization import Authorization
from watcherml.report import markup, terms
from watcherml.report.html import html_plan
from watcherml.report.markup import Html
from watcherml.report.palette import Tone
from watcherml.report.text import text_plan

_UNSAID = ("the notebook", "left out")  # a rejection without a name and a reason


class PlanPanel(base.Panel):
    """A prepared recovery. Every button calls the public method of the same name; nothing runs before ``start``.

    ``name`` is the variable that holds the panel. ``notes`` are sentences shown with the plan. ``started`` is called
    with the campaign once it runs. ``options`` go to ``start_recovery``.
    """

    def __init__(
        self,
        preparation: RecoveryPreparation,
        *,
        name: str = "recovery",
        notes: tuple[str, ...] = (),
        approver: str = "",
        started: Callable[[Campaign], None] = lambda campaign: None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.preparation = preparation
        self.plan = preparation.plan
        self.name = name
        self._notes = notes
        self._approver = approver
        self._started = started
        self._options = options
        self._lock = threading.RLock()
        self._authorizations: dict[str, Authorization] = {}
        self._rejections: dict[str, tuple[str, str]] = {}
        self._progress: ProgressPanel | None = None
        self._starter: threading.Thread | None = None
        self._message: tuple[str, Tone] = ("", "calm")
        self._parts: dict[str, Any] = {}
        self._rows: list[DecisionRow] = []

    def __repr__(self) -> str:
        stage = "not started" if self._progress is None else repr(self._progress)
        return f"<PlanPanel {self.plan.source.run_id}: {len(self.plan.proposals)} proposals, {stage}>"

    # -- decisions --------------------------------------------------------------------------------------------

    def approve(self, proposal_id: str, *, approved_by: str = "", reason: str = "") -> base.Page:
        """Let one proposal run: a person's name and reason, bound to this plan and this proposal.

        Approving again changes nothing. Raises ``NotFound`` for another proposal, ``InvalidValue`` without a name or
        a reason or for a proposal that needs no approval, ``CampaignError`` once the campaign has started.
        """
        with self._lock:
            proposal = self._decidable(proposal_id)
            if proposal.authority == "automatic":
                raise InvalidValue(
                    f"proposal {proposal_id}", expected="one that needs approval", got="an automatic one"
                )
            person = approved_by.strip() or self._approver
            for field, value in (("approved_by", person), ("reason", reason.strip())):
                if not value:
                    raise InvalidValue(field, expected="a few words", got="nothing",
                                       remedy="An approval stands on record with a name and a reason.")  # fmt: skip
            if proposal_id not in self._authorizations:
                self._authorizations[proposal_id] = self.preparation.authorize(
                    proposal_id, approved_by=person, reason=reason.strip()
                )
            self._rejections.pop(proposal_id, None)
            self._approver = person
        return self._tell(f"{person} approved {proposal_id}.")

    def reject(self, proposal_id: str, *, rejected_by: str = "", reason: str = "") -> base.Page:
        """Leave a proposal out of the campaign; rejecting again changes nothing.

        Raises ``NotFound`` for another proposal, ``CampaignError`` once the campaign has started.
        """
        with self._lock:
            self._decidable(proposal_id)
            self._authorizations.pop(proposal_id, None)
            who = rejected_by.strip()[:400] or self._approver or _UNSAID[0]
            self._rejections.setdefault(proposal_id, (who, reason.strip()[:2_000] or _UNSAID[1]))
        return self._tell(f"{proposal_id} is left out.")

    def withdraw(self, proposal_id: str) -> base.Page:
        """Take back the decision on a proposal; raises what ``reject`` raises."""
        with self._lock:
            self._decidable(proposal_id)
            self._authorizations.pop(proposal_id, None)
            self._rejections.pop(proposal_id, None)
        return self._tell(f"The decision on {proposal_id} is taken back.")

    def _decidable(self, proposal_id: str) -> Any:
        proposal = self.plan.proposal(proposal_id)
        if self._progress is not None or self._starter is not None:
            raise CampaignError("the campaign has started", expected="decisions before the start",
                                remedy="Stop it and prepare the recovery again to decide otherwise.")  # fmt: skip
        return proposal

    # -- the campaign -----------------------------------------------------------------------------------------

    @property
    def campaign(self) -> Campaign | None:
        """The campaign, None before the start."""
        return None if self._progress is None else self._progress.campaign

    @property
    def result(self) -> RecoveryResult | None:
        """The campaign's result, None until it has one."""
        return None if self._progress is None else self._progress.result

    def start(self) -> ProgressPanel:
        """Start the campaign and return its progress at once; starting again returns the same.

        Raises ``CampaignError`` if nothing may run.
        """
        with self._lock:
            if self._progress is None:
                self._check_start()
                campaign = start_recovery(
                    self.preparation, self._authorizations, rejections=self._rejections, **self._options
                )
                self._progress = ProgressPanel(campaign, self.name)
                self._started(campaign)
                self._message = ("", "calm")
            self._progress.follow()
        self._draw()
        return self._progress

    def wait(self, timeout: float | None = None) -> RecoveryResult | None:
        """Wait for the verdict and return the result; see ``ProgressPanel.wait``.

        Raises ``CampaignError`` if the campaign was not started.
        """
        return self._running().wait(timeout)

    def stop(self) -> base.Page:
        """Ask the campaign to end; see ``ProgressPanel.stop``. Raises ``CampaignError`` if it was not started."""
        return self._running().stop()

    def _running(self) -> ProgressPanel:
        starter = self._starter
        if starter is not None:
            starter.join()
        if self._progress is None:
            raise CampaignError("the campaign was not started", remedy=f"Call {self.name}.start() first.")
        return self._progress

    def _check_start(self) -> None:
        if self.plan.proposals and not any(state in ("automatic", "approved") for state in self._states().values()):
            raise CampaignError("nothing may run", expected="an approved or automatic proposal",
                                got=self._headline())  # fmt: skip

    # -- faces ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the plan, the progress or the verdict as text, with the calls for what comes next."""
        if self._progress is not None:
            return self._progress.text()
        notes = "".join(base.notice(note).text() + "\n" for note in self._notes)
        plan = text_plan(self.plan, tuple(self._authorizations), tuple(self._rejections))
        return f"{plan}\n{notes}".rstrip() + "\n" + base.calls_text("Next", self._calls())

    def html(self) -> str:
        """Return the plan, the progress or the verdict as HTML, with the calls for what comes next."""
        if self._progress is not None:
            return self._progress.html()
        calls = base.calls_html("Next", self._calls())
        return base.classed("wml-plan", self._notes_html(), self._plan_html(), calls)

    def _plan_html(self) -> str:
        return html_plan(self.plan, tuple(self._authorizations), tuple(self._rejections))

    def _notes_html(self) -> str:
        return "".join(base.notice_html(note, "warn") for note in self._notes)

    def _states(self) -> dict[str, terms.State]:
        return {
            one.proposal_id: terms.state_of(one, self._authorizations, self._rejections) for one in self.plan.proposals
        }

    def _headline(self) -> str:
        return terms.plan_headline(self.plan, self._authorizations, self._rejections)

    def _calls(self) -> list[str]:
        lines = []
        states = self._states()
        person = base.literal(self._approver) if self._approver else '"..."'
        for key in [key for key, state in states.items() if state == "waiting"]:
            lines.append(f'{self.name}.approve({base.literal(key)}, approved_by={person}, reason="...")')
            lines.append(f'{self.name}.reject({base.literal(key)}, reason="...")')
        if self.plan.proposals:
            first = self.plan.proposals[0].proposal_id
            if not lines:
                lines.append(f"{self.name}.reject({base.literal(first)})  # leaves one out")
            lines.append(f"{self.name}.withdraw({base.literal(first)})  # takes a decision back")
        return [*lines, f"{self.name}.start()", f"{self.name}.wait()  # until the verdict; Ctrl-C detaches"]

    # -- the live view ----------------------------------------------------------------------------------------

    def _build(self) -> Any:
        w = base.widgets()
        start = base.button("Start", "wml-start", self._start_clicked, style="primary",
                            tooltip="Run the trials in fresh processes; the notebook stays free")  # fmt: skip
        person = base.text_field("wml-approved-by", "Your name, for approvals", self._approver)
        person.layout.margin = "2px 0 8px 0"
        self._rows = [DecisionRow(one, self._decide) for one in self.plan.proposals]
        self._parts = {
            "head": base.html_box(),
            "start": start,
            "person": person,
            "message": base.html_box(css="wml-message"),
            "whole": base.html_box(),
            "box": w.VBox([], layout={"width": "100%", "max_width": "1000px"}),
        }
        self._parts["box"].add_class("wml-panel")
        self._draw()
        return self._parts["box"]

    def _draw(self) -> None:
        with self._lock:
            parts = self._parts
            if not parts:
                return
            text, tone = self._message
            parts["message"].value = base.notice_html(text, tone) if text else ""
            parts["whole"].value = self._fold()
            if self._progress is not None:
                parts["box"].children = (self._progress.view(), parts["whole"])
                return
            starting = self._starter is not None
            parts["start"].disabled = starting
            parts["head"].value = self._head()
            for row in self._rows:
                key = row.proposal.proposal_id
                row.draw(self._states()[key], self._decided(key), starting)
            approvals = any(one.authority == "approval_required" for one in self.plan.proposals)
            parts["box"].children = (
                parts["head"],
                *([parts["person"]] if approvals else []),
                *[row.box for row in self._rows],
                parts["message"],
                parts["start"],
                parts["whole"],
            )

    def _head(self) -> str:
        kicker = Html(f"{markup.escape('Recovery plan for run ')}{markup.mono(self.plan.source.run_id)}")
        lines = [markup.quiet(markup.shown(note, markup.SENTENCE_LIMIT)) for note in self.plan.notes]
        if self.plan.contract.device.kind == "simulated":
            lines.insert(0, markup.quiet(markup.escape(terms.SIMULATED_NOTE)))
        banner = markup.banner("calm", kicker, markup.escape(self._headline()), *lines)
        return base.classed("wml-plan", markup.root(banner), self._notes_html())

    def _fold(self) -> str:
        title = markup.strong(markup.escape("The whole plan: contract, evidence, what was left out"))
        return markup.root(markup.fold(title, Html(self._plan_html())))

    def _decided(self, key: str) -> str:
        back = f"{self.name}.withdraw({base.literal(key)}) takes it back."
        if key in self._rejections:
            who, why = self._rejections[key]
            return f"Left out. {back}" if (who, why) == _UNSAID else f"Rejected by {who}: {why}. {back}"
        if key in self._authorizations:
            given = self._authorizations[key]
            return f"Approved by {given.approved_by}: {given.reason}. {back}"
        return ""

    def _decide(self, verb: str, key: str, reason: str) -> None:
        person = str(self._parts["person"].value)

        def act() -> object:
            if verb == "approve":
                return self.approve(key, approved_by=person, reason=reason)
            if verb == "reject":
                return key in self._rejections or self.reject(key, rejected_by=person, reason=reason)
            return key not in self._rejections or self.withdraw(key)

        base.guarded(act, self._say)()

    def _start_clicked(self) -> None:
        """Start in a thread: a callback that waits for a process would hold up the kernel's messages."""
        with self._lock:
            if self._starter is not None or self._progress is not None:
                return
            self._starter = threading.Thread(target=self._start_in_thread, name="watcherml-start", daemon=True)
            self._message = ("Starting the campaign …", "calm")
            self._draw()
            self._starter.start()

    def _start_in_thread(self) -> None:
        base.guarded(self.start, self._say)()
        self._starter = None
        self._draw()

    def _say(self, text: str, tone: Tone) -> None:
        self._message = (text, tone)
        self._draw()

    def _tell(self, text: str) -> base.Page:
        self._say(text, "good")
        return base.notice(f"{text} {self._headline()}", "good")
