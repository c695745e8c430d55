"""The panel of a recovery: the plan and its decisions, then the campaign, then the verdict."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

from watcherml.api.recover import Campaign, RecoveryPreparation, new_campaign_id, start_recovery
from watcherml.api.result import RecoveryResult
from watcherml.errors import CampaignError, InvalidValue, NotFound, StoreError
from watcherml.notebook import others
from watcherml.notebook.panels import base
from watcherml.notebook.panels.held import Held
from watcherml.notebook.panels.plan_view import PlanView
from watcherml.notebook.panels.progress import ProgressPanel
from watcherml.notebook.spec import RecoverySpec
from watcherml.protocol.authorization import Authorization
from watcherml.report import terms
from watcherml.report.html import html_plan
from watcherml.report.palette import Tone
from watcherml.report.text import text_plan
from watcherml.report.units import plural

_MOST_SUGGESTED = 6  # guards that a field offers: more of them is no choice any more
_UNSAID = ("the notebook", "left out")  # a rejection without a name and a reason

Notes = Callable[[RecoverySpec], Iterable[str]]


class PlanPanel(base.Panel):
    """A prepared recovery. Every button calls the public method of the same name; nothing runs before ``start``.

    ``name`` is the variable that holds the panel. ``notes`` are sentences shown with the plan, or a function that
    makes them for a spec. ``started`` is called with the campaign once it runs. ``spec`` is what the plan was prepared
    from, which lets it be prepared again; ``held`` what this kernel still holds. ``options`` go to ``start_recovery``.
    """

    def __init__(
        self,
        preparation: RecoveryPreparation,
        *,
        name: str = "recovery",
        notes: tuple[str, ...] | Notes = (),
        approver: str = "",
        started: Callable[[Campaign], None] = lambda campaign: None,
        spec: RecoverySpec | None = None,
        held: Held | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.preparation = preparation
        self.plan = preparation.plan
        self.name = name
        self.approver = approver
        self.message: tuple[str, Tone] = ("", "calm")
        self.suggestions = () if spec is None else spec.suggested_metrics()[-_MOST_SUGGESTED:]
        self._notes = notes
        self._held = held
        self._started = started
        self._options = options
        self._lock = threading.RLock()
        self._authorizations: dict[str, Authorization] = {}
        self._rejections: dict[str, tuple[str, str]] = {}
        self._preparing = False
        self._shown: PlanView | None = None
        self.progress: ProgressPanel | None = None

    def __repr__(self) -> str:
        stage = "not started" if self.progress is None else repr(self.progress)
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
            person = approved_by.strip() or self.approver
            for field, value, wanted, place in (
                ("approved_by", person, "the name of the person who approves", "above the proposals"),
                ("reason", reason.strip(), "why it may run, in a few words", "beside the button"),
            ):
                if not value:
                    raise InvalidValue(field, expected=wanted, got="nothing", remedy=(
                        f'Type it into the field {place}, or give {field}="..." in the call; both stand on record.'
                    ))  # fmt: skip
            if proposal_id not in self._authorizations:
                self._authorizations[proposal_id] = self.preparation.authorize(
                    proposal_id, approved_by=person, reason=reason.strip()
                )
            self._rejections.pop(proposal_id, None)
            self.approver = person
        return self._tell(f"{person} approved {proposal_id}.")

    def reject(self, proposal_id: str, *, rejected_by: str = "", reason: str = "") -> base.Page:
        """Leave a proposal out of the campaign; rejecting again changes nothing.

        Raises ``NotFound`` for another proposal, ``CampaignError`` once the campaign has started.
        """
        with self._lock:
            self._decidable(proposal_id)
            self._authorizations.pop(proposal_id, None)
            who = rejected_by.strip()[:400] or self.approver or _UNSAID[0]
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
        self._require_open()
        return proposal

    def _require_open(self) -> None:
        """Raise where nothing can be decided: a campaign runs what it was started with."""
        if self.progress is not None:
            raise CampaignError("the campaign has started", expected="decisions before the start",
                                remedy="Stop it and prepare the recovery again to decide otherwise.")  # fmt: skip
        if self._preparing:
            raise CampaignError("another plan is being prepared", expected="one change at a time",
                                remedy="Wait until it is shown, and decide on that one.")  # fmt: skip

    def of_plan(self, digest: str, action: base.Action) -> object:
        """Do what a button of a plan says; ``CampaignError`` if another plan has taken its place before the click."""
        with self._lock:
            if digest != self.plan.digest:
                raise CampaignError("this was a click on the plan before", expected="a decision on the plan shown now",
                                    remedy="Nothing was decided or started; look at this plan first.")  # fmt: skip
            return action()

    def decide(self, verb: str, proposal_id: str, person: str, reason: str) -> object:
        """Do what a button says: approve, reject or withdraw; a decision that is there already is left as it is."""
        if verb == "approve":
            return self.approve(proposal_id, approved_by=person, reason=reason)
        if verb == "reject":
            rejected = proposal_id in self._rejections
            return rejected or self.reject(proposal_id, rejected_by=person, reason=reason)
        return proposal_id not in self._rejections or self.withdraw(proposal_id)

    # -- another plan -----------------------------------------------------------------------------------------

    def change(self, **changes: Any) -> base.Page:
        """Prepare another plan, which replaces this one; nothing is run.

        ``metrics`` (texts ``NAME:minimize|maximize:BASELINE:TOLERANCE[:TARGET]``), ``minimum_progress_steps``,
        ``max_trials`` and ``confirmation_runs`` (counts), ``max_peak_vram_gib`` (GiB, None for no ceiling); what is not
        named stays. Takes as long as the first preparation. Decisions are bound to one plan, so that those made before
        are dropped. Raises ``CampaignError`` once the campaign has started or where nothing says what the plan was
        prepared from, and what ``RecoverySpec.prepare`` raises; this plan stays in place then.
        """
        with self._lock:
            self._require_open()
            if self.spec is None:
                raise CampaignError("this plan cannot be prepared again from here",
                                    remedy="Call watcherml.prepare_oom_recovery with the other values.")  # fmt: skip
            self._preparing = True
        try:
            if isinstance(changes.get("metrics"), str):
                changes["metrics"] = (changes["metrics"],)
            spec = self.spec.changed(**changes)
            preparation = spec.prepare()
        except BaseException as error:
            self._preparing = False  # first, so that everything can be pressed again once the error is shown
            self.say(f"The plan stays as it was. {error}", "bad")
            raise
        return self._replace(spec, preparation)

    def _replace(self, spec: RecoverySpec, preparation: RecoveryPreparation) -> base.Page:
        with self._lock:
            dropped = len(self._authorizations) + len(self._rejections)
            self._authorizations, self._rejections = {}, {}
            self.spec, self.preparation, self.plan = spec, preparation, preparation.plan
            self._preparing = False  # not before: nothing may be started between two plans
        text = "Another plan was prepared and takes the place of the one before."
        if dropped:
            text += f" {plural(dropped, 'decision')} made on that one {'was' if dropped == 1 else 'were'} dropped:"
            text += " a decision is bound to one plan."
        return self._tell(text)

    # -- memory -----------------------------------------------------------------------------------------------

    def free(self) -> base.Page:
        """Give back the memory that the failed cell still holds in this kernel; again it does nothing."""
        if self._held is None or not self._held.releasable:
            return base.notice("The failed cell holds no memory that could be given back.")
        return self._tell(self._held.free())

    @property
    def can_free(self) -> bool:
        """Whether ``free`` would give something back."""
        return self._held is not None and self._held.releasable

    def held_words(self) -> str:
        """Return what this kernel still holds of the failed cell; nothing where a trial would not miss it."""
        if self._held is None or not (self.can_free or self.plan.contract.device.kind == "cuda"):
            return ""
        return self._held.words()

    # -- the campaign -----------------------------------------------------------------------------------------

    @property
    def campaign(self) -> Campaign | None:
        """The campaign, None before the start."""
        return None if self.progress is None else self.progress.campaign

    @property
    def result(self) -> RecoveryResult | None:
        """The campaign's result, None until it has one."""
        return None if self.progress is None else self.progress.result

    def start(self) -> ProgressPanel:
        """Start the campaign and return its progress at once; starting again returns the same.

        Raises ``CampaignError`` if nothing may run, or while another campaign of the same run goes on.
        """
        with self._lock:
            if self.progress is None:
                self._require_open()
                self._check_start()
                others.refuse_second(self.preparation)
                options = {"campaign_id": new_campaign_id(self.preparation), **self._options}
                try:
                    campaign = start_recovery(
                        self.preparation, self._authorizations, rejections=self._rejections, **options
                    )
                except KeyboardInterrupt:  # detaches: what is on record by now is not started a second time
                    with contextlib.suppress(NotFound, StoreError):
                        self._take_off(Campaign(options["campaign_id"], self.preparation.storage))
                    raise
                progress = self._take_off(campaign)
            else:
                progress = self.progress
            progress.follow()
        self.redraw()
        return progress

    def _take_off(self, campaign: Campaign) -> ProgressPanel:
        self.message = ("", "calm")
        self.progress = ProgressPanel(campaign, self.name)
        self.progress.put_into(self)
        self._started(campaign)
        return self.progress

    def wait(self, timeout: float | None = None) -> RecoveryResult | None:
        """Wait for the verdict and return the result; see ``ProgressPanel.wait``.

        Raises ``CampaignError`` if the campaign was not started.
        """
        return self._running().wait(timeout)

    def stop(self) -> base.Page:
        """Ask the campaign to end; see ``ProgressPanel.stop``. Raises ``CampaignError`` if it was not started."""
        return self._running().stop()

    def _running(self) -> ProgressPanel:
        working = None if self._shown is None else self._shown.working
        if working is not None:
            working.join()
        if self.progress is None:
            raise CampaignError("the campaign was not started",
                                remedy=others.note(self.preparation) or f"Call {self.name}.start() first.")  # fmt: skip
        return self.progress

    def _check_start(self) -> None:
        if self.plan.proposals and not any(state in ("automatic", "approved") for state in self.states().values()):
            raise CampaignError("nothing may run", expected="an approved or automatic proposal",
                                got=self.headline())  # fmt: skip

    # -- faces ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the plan, the progress or the verdict as text, with the calls for what comes next."""
        plan = text_plan(self.plan, tuple(self._authorizations), tuple(self._rejections))
        if self.progress is not None:
            return self.progress.text() + ("" if self.progress.live else f"\n{plan}")
        notes = "".join(base.notice(note).text() + "\n" for note in [*self._noted(), self.held_words()] if note)
        return f"{plan}\n{notes}".rstrip() + "\n" + base.calls_text("Next", self._calls())

    def html(self) -> str:
        """Return the plan, the progress or the verdict as HTML, with the calls for what comes next."""
        if self.progress is not None:
            return self.progress.html() + base.classed("wml-plan", base.fold_html(base.PLAN_FOLD, self.plan_html()))
        calls = base.calls_html("Next", self._calls())
        held = self.held_words()
        above = self.notes_html() + (base.notice_html(held, "warn", "wml-held") if held else "")
        return base.classed("wml-plan", above, self.plan_html(), calls)

    def plan_html(self) -> str:
        """Return the whole plan as HTML."""
        return html_plan(self.plan, tuple(self._authorizations), tuple(self._rejections))

    def notes_html(self) -> str:
        """Return the notes as HTML."""
        return "".join(base.notice_html(note, "warn") for note in self._noted())

    def _noted(self) -> list[str]:
        goes_on = [one for one in (others.note(self.preparation),) if one]
        if not callable(self._notes):
            return [*goes_on, *self._notes]
        return goes_on if self.spec is None else [*goes_on, *self._notes(self.spec)]

    def states(self) -> dict[str, terms.State]:
        """Return where each proposal stands, by its id."""
        return {
            one.proposal_id: terms.state_of(one, self._authorizations, self._rejections) for one in self.plan.proposals
        }

    def headline(self) -> str:
        """Return what is proposed and what a person has to do next."""
        return terms.plan_headline(self.plan, self._authorizations, self._rejections)

    def _calls(self) -> list[str]:
        lines = []
        person = base.literal(self.approver) if self.approver else '"..."'
        for key in [key for key, state in self.states().items() if state == "waiting"]:
            lines.append(f'{self.name}.approve({base.literal(key)}, approved_by={person}, reason="...")')
            lines.append(f'{self.name}.reject({base.literal(key)}, reason="...")')
        if self.plan.proposals:
            first = self.plan.proposals[0].proposal_id
            if not lines:
                lines.append(f"{self.name}.reject({base.literal(first)})  # leaves one out")
            lines.append(f"{self.name}.withdraw({base.literal(first)})  # takes a decision back")
        if self.spec is not None:
            lines.append(self._change_call())
        if self.can_free:
            lines.append(f"{self.name}.free()  # gives back what the failed cell still holds")
        return [*lines, f"{self.name}.start()", f"{self.name}.wait()  # until the verdict; Ctrl-C detaches"]

    def _change_call(self) -> str:
        """Return the call that prepares another plan, with the present values or the run's own in it."""
        assert self.spec is not None
        values = self.spec.values
        metrics = ", ".join(base.literal(one) for one in values["metrics"] or self.suggestions[-1:])
        given = [f"metrics=[{metrics}]", f"minimum_progress_steps={values['minimum_progress_steps']}"]
        return f"{self.name}.change({', '.join(given)})  # another plan"

    def decided(self, key: str) -> str:
        """Return who decided on a proposal and why, and how it is taken back; empty if nobody did."""
        back = f"{self.name}.withdraw({base.literal(key)}) takes it back."
        if key in self._rejections:
            who, why = self._rejections[key]
            return f"Left out. {back}" if (who, why) == _UNSAID else f"Rejected by {who}: {why}. {back}"
        if (given := self._authorizations.get(key)) is not None:
            return f"Approved by {given.approved_by}: {given.reason}. {back}"
        return ""

    # -- the live view ----------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """Whether there is something to decide, or a campaign to follow."""
        return self.progress is None or self.progress.live

    def again(self) -> str:
        """Return the magic that shows the plan or the campaign in another kernel."""
        plan = f"`%watcher plan {self.plan.source.run_id}` shows the plan with its buttons; decisions are made anew."
        return plan if self.progress is None else self.progress.again()

    @property
    def busy(self) -> bool:
        """Whether another plan is being prepared."""
        return self._preparing

    def say(self, text: str, tone: Tone) -> None:
        """Show a sentence in the live view."""
        self.message = (text, tone)
        self.redraw()

    def redraw(self) -> None:
        """Bring the live view, if there is one, to what is known."""
        with self._lock:
            if self._shown is not None:
                self._shown.draw()

    def _build(self) -> Any:
        self._shown = PlanView(self)
        self.redraw()
        return self._shown.box

    def _tell(self, text: str) -> base.Page:
        self.say(text, "good")
        return base.notice(f"{text} {self.headline()}", "good")
