"""What runs next, as a pure function of what is on record.

Because nothing else is remembered, a campaign that lost its supervisor is resumed by asking again.

Probes may run at once, in waves: the next wave, or whatever follows, is decided when every probe of the last one has
ended. So the order in which they end decides nothing, and two campaigns whose probes end differently run the same
trials. Everything that is not a probe runs alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from watcherml.planning.predict import probing_order
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.cost import kept_probes
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.ranking import Ranked
from watcherml.protocol.request import Role
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Ending
from watcherml.verdict import check
from watcherml.verdict.bindings import authority_check, binding_checks
from watcherml.verdict.control import judge_control
from watcherml.verdict.eligible import probe_checks, trial_checks
from watcherml.verdict.rank import rank
from watcherml.verdict.saving import saving_checks
from watcherml.verdict.workload import workload_changed


@dataclass(frozen=True)
class Next:
    """Run a trial of this role; ``proposal_id`` is None for the control."""

    role: Role
    proposal_id: str | None


DECIDED = Ending("decided")


def decide(
    plan: RecoveryPlan,
    authorizations: tuple[Authorization, ...],
    rejected: frozenset[str],
    trials: tuple[Trial, ...],
) -> Next | Ending:
    """Return the next trial, or the ending once success or failure is proved or the trial budget is spent.

    Order: control, probes in the plan's order until there are as many survivors as full trials are allowed, full
    trials, confirmations of the best-ranked, and, where the budget has room, the control once more: a failure that only
    the first process of a campaign meets (a cold cache, a neighbour on the device) passes then. A lost trial used its
    place in the budget but proves nothing, so it is run again if there is room. Of a cause that lies outside the
    configuration only the control runs.
    """
    found = decide_wave(plan, authorizations, rejected, trials)
    return found if isinstance(found, Ending) else found[0]


def decide_wave(
    plan: RecoveryPlan,
    authorizations: tuple[Authorization, ...],
    rejected: frozenset[str],
    trials: tuple[Trial, ...],
    lanes: int = 1,
) -> tuple[Next, ...] | Ending:
    """Return what ``decide`` returns, as many probes together as there are ``lanes`` and places in the budget.

    ``trials`` have all ended. A wave may hold a probe that turns out not to be needed; it is never more than the
    contract's probes, and it takes no place from the full trial and its confirmations.
    """
    state = _State(plan, authorizations, rejected, trials)
    nothing_to_try = not plan.proposals and not plan.runs_control_only
    if nothing_to_try or workload_changed(plan, trials) or not _of_this_plan(plan, trials):
        return DECIDED
    if plan.contract.control:
        control = state.control()
        if control is not None:
            return control if isinstance(control, Ending) else (control,)
    probes = state.probes(max(1, lanes))
    if probes:
        return probes
    alone = state.full() or state.confirm() or state.closing_control()
    return DECIDED if alone is None else (alone,)


def _of_this_plan(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> bool:
    """Tell whether every trial belongs to the plan: with one that does not nothing is verified, whatever follows.

    So it is where an earlier version of this program began the campaign, whose requests did not name the changes.
    """
    return all(check.all_pass(binding_checks(plan, one)) for one in trials)


class _State:
    def __init__(
        self,
        plan: RecoveryPlan,
        authorizations: tuple[Authorization, ...],
        rejected: frozenset[str],
        trials: tuple[Trial, ...],
    ) -> None:
        self.plan, self.authorizations, self.trials = plan, authorizations, trials
        self.known = tuple(one for one in trials if one.result.outcome != "lost")
        self.candidates = [
            one.proposal_id
            for one in plan.proposals
            if one.proposal_id not in rejected and authority_check(plan, authorizations, one).outcome == "pass"
        ]
        budget = plan.contract.budget
        # A lost trial counts in the total only: its role's place is still owed.
        roles = [one.request.role for one in self.known]
        self.confirmations = plan.contract.verification.confirmation_runs
        self.total_left = (budget.max_trials or 0) - len(trials)
        self.probes_left = (budget.max_probe_trials or 0) - roles.count("probe") - roles.count("control")
        self.full_left = (budget.max_full_trials or 0) - roles.count("full")

    def tried(self, role: Role) -> list[Trial]:
        return [one for one in self.known if one.request.role == role]

    def control(self) -> Next | Ending | None:
        """Return the control if it is still owed, an ending if it settles the campaign, None if it reproduced."""
        controls = self.tried("control")
        if not controls:
            return Next("control", None) if self.probes_left > 0 and self.total_left > 0 else DECIDED
        return None if judge_control(self.plan, controls[-1]).finding == "reproduced" else DECIDED

    def closing_control(self) -> Next | None:
        """Return a second control if a candidate is confirmed and there is room for one."""
        confirmed = any(self._confirmed(one.proposal_id) for one in self.ranked())
        once = self.plan.contract.control and len(self.tried("control")) == 1
        room = self.probes_left > 0 and self.total_left > 0
        return Next("control", None) if confirmed and once and room else None

    def waiting(self) -> list[str]:
        """Return the survivors that have had no full trial yet."""
        done = {one.request.proposal_id for one in self.tried("full")}
        if self.plan.contract.probe_candidates == 0:
            return [one for one in self.candidates if one not in done]
        passed = {
            one.request.proposal_id
            for one in self.tried("probe")
            if check.all_pass(probe_checks(self.plan, self.authorizations, one))
        }
        return [one for one in self.candidates if one in passed and one not in done and self._saves(one)]

    def probes(self, lanes: int) -> tuple[Next, ...]:
        """Return the probes that may run now, none where there are survivors enough."""
        kept = kept_probes(self.plan, lost=len(self.trials) > len(self.known))
        room = min(self.probes_left - kept, self.total_left - self.confirmations - 1 - kept)
        enough = min(self.full_left, max(0, self.total_left - self.confirmations))
        if self.plan.contract.probe_candidates == 0 or room < 1 or len(self.waiting()) >= enough:
            return ()
        return tuple(Next("probe", one) for one in self.unprobed()[: min(lanes, room)])

    def unprobed(self) -> list[str]:
        """Return the candidates that no probe has told of yet, in the order in which they are probed."""
        probed = {one.request.proposal_id for one in self.tried("probe")}
        fresh = [one for one in self.candidates if one not in probed]
        return probing_order(self.plan, fresh, self.known)

    def full(self) -> Next | None:
        waiting = self.waiting()
        if waiting and self.full_left > 0 and self.total_left > self.confirmations:
            return Next("full", waiting[0])
        return None

    def confirm(self) -> Next | None:
        for ranked in self.ranked():
            mine = self._confirmations_of(ranked.proposal_id)
            if not self._all_hold(mine) or not self._saves(ranked.proposal_id):
                continue
            owed = self.confirmations - len(mine)
            if owed <= 0:
                return None
            if owed <= self.total_left:
                return Next("confirmation", ranked.proposal_id)
        return None

    def ranked(self) -> tuple[Ranked, ...]:
        """Return the eligible candidates, best first."""
        return rank(self.plan, self.authorizations, self.known).order

    def _confirmations_of(self, proposal_id: str) -> list[Trial]:
        return [one for one in self.tried("confirmation") if one.request.proposal_id == proposal_id]

    def _all_hold(self, trials: list[Trial]) -> bool:
        return all(check.all_pass(trial_checks(self.plan, self.authorizations, one)) for one in trials)

    def _confirmed(self, proposal_id: str) -> bool:
        mine = self._confirmations_of(proposal_id)
        return len(mine) >= self.confirmations and self._all_hold(mine) and self._saves(proposal_id)

    def _saves(self, proposal_id: str) -> bool:
        """Tell whether no trial shows that a candidate's checkpointing saves nothing, for which it is not verified."""
        return not check.broken(saving_checks(self.plan, proposal_id, self.known))
