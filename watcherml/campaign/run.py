"""Running a campaign: ask what is next, run it, put it on record, until there is a verdict."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import cast

from watcherml.campaign import events
from watcherml.campaign.decide import Next, decide
from watcherml.campaign.ledger import Ledger
from watcherml.platform import make_private_dir, write_atomically
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import Trial, TrialResult
from watcherml.protocol.verdict import Ending, RecoveryChain, Verdict
from watcherml.recorder import ids
from watcherml.trials.runner import Executor
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.5


class CampaignRun:
    """One supervisor's work on one campaign."""

    def __init__(
        self,
        ledger: Ledger,
        executor: Executor,
        *,
        interrupted: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.ledger = ledger
        self.executor = executor
        self.plan: RecoveryPlan = ledger.plan()
        self.authorizations = ledger.authorizations()
        self.rejected = ledger.rejected()
        self.settings = ledger.settings()
        self._interrupted = interrupted
        self._monotonic = monotonic
        self._sleep = sleep
        self._began = monotonic()
        # What earlier supervisors of this campaign used counts too.
        self._used_before = sum(one.result.wall_seconds for one in ledger.trials())

    def run(self) -> Verdict:
        """Run trials until the campaign ends, and put its verdict on record."""
        ranked: list[str] | None = None
        while True:
            trials = self.ledger.trials()
            step = decide(self.plan, self.authorizations, self.rejected, trials)
            cut = self._cut_short()
            # What is verified stays so, also if its last trial used up a limit; a cut settles nothing else.
            if cut is not None and not (isinstance(step, Ending) and self._verified(trials, step)):
                step = cut
            if isinstance(step, Ending):
                return self.conclude(step)
            if step.role == "confirmation":
                order = [one.proposal_id for one in rank(self.plan, self.authorizations, trials).order]
                if order != ranked:
                    ranked = order
                    self.ledger.event(events.RANKED, {"order": order})
            self._trial(step)

    def conclude(self, ending: Ending) -> Verdict:
        """Judge what is on record and close the campaign."""
        trials = self.ledger.trials()
        verdict = verify(self.ledger.campaign_id, self.plan, self.authorizations, trials, ending)
        ranking = rank(self.plan, self.authorizations, trials)
        chain = RecoveryChain(self.ledger.campaign_id, self.plan, self.authorizations, trials, ending, ranking, verdict)
        folder = self.ledger.storage.path / "artifacts" / self.ledger.campaign_id
        make_private_dir(folder)
        write_atomically(folder / "recovery-result.json", chain.to_json().encode())
        self.ledger.finish(chain)
        return verdict

    def _verified(self, trials: tuple[Trial, ...], ending: Ending) -> bool:
        found = verify(self.ledger.campaign_id, self.plan, self.authorizations, trials, ending)
        return found.status == "verified"

    def _cut_short(self) -> Ending | None:
        if self._interrupted() or self.ledger.stop_requested():
            return Ending("stopped_by_user")
        if self._seconds_left() <= 0:
            return Ending("campaign_timeout", f"{self.plan.contract.budget.campaign_timeout_seconds:g} s were allowed.")
        if self._gpu_seconds_left() <= 0:
            return Ending("gpu_seconds_exhausted", f"{self.plan.contract.budget.max_gpu_seconds:g} s were allowed.")
        return None

    def _seconds_left(self) -> float:
        limit = cast(float, self.plan.contract.budget.campaign_timeout_seconds)
        return limit - self._used_before - (self._monotonic() - self._began)

    def _gpu_seconds_left(self) -> float:
        limit = self.plan.contract.budget.max_gpu_seconds
        if limit is None:
            return float("inf")
        return limit - sum(one.result.gpu_seconds for one in self.ledger.trials())

    def _gpus(self) -> float:
        """Return how many GPUs a trial is charged for, as the trials so far were: the first one tells it."""
        charged = [one.result for one in self.ledger.trials() if one.result.wall_seconds > 0]
        return max((round(one.gpu_seconds / one.wall_seconds) for one in charged), default=1) or 1

    def _trial(self, step: Next) -> TrialResult:
        number = self.ledger.next_number()
        request = self._request(step, number)
        self.ledger.start_trial(request, number)
        self.executor.submit(request, self._launch(request))
        looked = self._monotonic()
        stopping = False
        while (result := self.executor.poll(request.trial_id)) is None:
            self._sleep(_POLL_SECONDS)
            if not stopping and self._monotonic() - looked > _LOOK_SECONDS:
                looked = self._monotonic()
                stopping = self._interrupted() or self.ledger.stop_requested()
                if stopping:
                    self.executor.stop(request.trial_id)
        self.ledger.end_trial(request, result)
        return result

    def _request(self, step: Next, number: int) -> TrialRequest:
        plan, budget = self.plan, self.plan.contract.budget
        proposal = None if step.proposal_id is None else plan.proposal(step.proposal_id)
        config = plan.source.config if step.proposal_id is None else plan.candidate_config(step.proposal_id)
        lengths = {"control": plan.control_max_steps, "probe": budget.probe_steps}
        timeout = min(
            cast(float, budget.trial_timeout_seconds), self._seconds_left(), self._gpu_seconds_left() / self._gpus()
        )
        trial_id = f"{self.ledger.campaign_id}-t{number:02d}"
        return TrialRequest(
            request_id=f"req-{uuid.uuid4().hex}",
            campaign_id=self.ledger.campaign_id,
            trial_id=trial_id,
            run_id=ids.new_id(f"{plan.source.project}-{step.role}", self.ledger.storage.clock()),
            role=step.role,
            plan_digest=plan.digest,
            contract_digest=plan.contract.digest,
            source_run_id=plan.source.run_id,
            proposal_id=step.proposal_id,
            config=config,
            float_paths=plan.source.float_paths,
            config_digest=plan.contract.source_config_digest if proposal is None else proposal.config_digest,
            environment={} if proposal is None else proposal.environment,
            entrypoint=plan.contract.entrypoint,
            device=plan.contract.device,
            progress_metric=plan.contract.progress_metric,
            max_steps=lengths.get(step.role),
            timeout_seconds=max(0.1, round(timeout, 3)),
            grace_seconds=cast(float, budget.termination_grace_seconds),
        )

    def _launch(self, request: TrialRequest) -> Launch:
        return Launch(
            request_digest=request.digest,
            project=self.plan.source.project,
            project_root=self.settings.project_root,
            store_path=str(self.ledger.storage.path),
            python=self.settings.python,
            dataset_path=self.settings.dataset_path,
            secrets=self.settings.secrets,
        )
