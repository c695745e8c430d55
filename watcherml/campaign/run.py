"""Running a campaign: ask what is next, run it, put it on record, until there is a verdict or somebody interrupts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import cast

from watcherml.campaign import events, free_memory
from watcherml.campaign.decide import Next, decide_wave
from watcherml.campaign.lanes import Lanes, charged, gpus_here, lanes_here
from watcherml.campaign.ledger import Ledger, earliest
from watcherml.errors import StoreError, WatcherError
from watcherml.forensics.capsule import Capsule
from watcherml.platform import ProcessId, make_private_dir, write_atomically
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.request import Launch, TrialRequest
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Ending, RecoveryChain, Verdict
from watcherml.recorder import ids
from watcherml.trials.runner import Executor
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.5


class Interrupted(Exception):
    """The supervisor was told to go; the trials that ran are not on record as ended."""


class CampaignRun:
    """One supervisor's work on one campaign.

    ``interrupted`` tells whether this process was told to go. That is nobody's wish to end the campaign, which is an
    event of the store: ``run`` raises ``Interrupted``, and the campaign can be resumed.
    """

    def __init__(
        self,
        ledger: Ledger,
        executor: Executor,
        *,
        interrupted: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        lanes: Callable[[RecoveryPlan], Lanes] = lanes_here,
        gpus: Callable[[RecoveryPlan], int] = gpus_here,
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
        self._lanes = lanes
        self._visible = gpus(self.plan)
        self._began = monotonic()
        # What earlier supervisors of this campaign used counts too.
        self._used_before = sum(one.result.wall_seconds for one in ledger.trials())

    def run(self) -> Verdict:
        """Run trials until the campaign ends, and put its verdict on record; ``Interrupted`` if there is to be none."""
        ranked: list[str] | None = None
        lanes = self._lanes(self.plan)
        if lanes.reason:
            self.ledger.event(events.LANES, {"lanes": len(lanes.gpus), "sentence": lanes.reason})
        while True:
            trials = self.ledger.trials()
            if self._interrupted():
                raise Interrupted
            step = decide_wave(self.plan, self.authorizations, self.rejected, trials, len(lanes.gpus))
            cut = self._cut_short()
            # What is verified stays so, also if its last trial used up a limit; a cut settles nothing else.
            if cut is not None and not (isinstance(step, Ending) and self._verified(trials, step)):
                step = cut
            if isinstance(step, Ending):
                return self.conclude(step)
            if step[0].role == "confirmation":
                order = [one.proposal_id for one in rank(self.plan, self.authorizations, trials).order]
                if order != ranked:
                    ranked = order
                    self.ledger.event(events.RANKED, {"order": order})
            self._wave(step, lanes)

    def conclude(self, ending: Ending) -> Verdict:
        """Judge what is on record and close the campaign; ``StoreError`` if that cannot be put on record."""
        trials = self.ledger.trials()
        verdict = verify(self.ledger.campaign_id, self.plan, self.authorizations, trials, ending)
        ranking = rank(self.plan, self.authorizations, trials)
        chain = RecoveryChain(self.ledger.campaign_id, self.plan, self.authorizations, trials, ending, ranking, verdict)
        folder = self.ledger.storage.path / "artifacts" / self.ledger.campaign_id
        try:
            make_private_dir(folder)
            write_atomically(folder / "recovery-result.json", chain.to_json().encode())
        except OSError as error:
            raise StoreError("cannot write the result of a campaign", got=str(error)) from error
        self.ledger.finish(chain)
        return verdict

    def _verified(self, trials: tuple[Trial, ...], ending: Ending) -> bool:
        found = verify(self.ledger.campaign_id, self.plan, self.authorizations, trials, ending)
        return found.status == "verified"

    def _cut_short(self) -> Ending | None:
        if self.ledger.stop_requested():
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

    def _gpus(self) -> int:
        """Return how many GPUs a trial is charged for: those seen from here, or what the trials so far have told."""
        told = [one.result for one in self.ledger.trials() if one.result.wall_seconds > 0]
        return max(self._visible, *(round(one.gpu_seconds / one.wall_seconds) for one in told), 1)

    def _wave(self, steps: tuple[Next, ...], lanes: Lanes) -> None:
        """Run these trials at once, each on a lane of its own, and put each on record as it ends."""
        probes = steps[0].role == "probe"
        places = lanes.gpus if probes else (None,)
        seen = 1 if probes and places[0] is not None else self._gpus()
        seconds = self._timeout(len(steps), seen)
        not_before = earliest(self.ledger.trials(), self.authorizations)
        running: dict[str, TrialRequest] = {}
        for step, gpu in zip(steps, places, strict=False):
            self._compare_memory(gpu)
            number = self.ledger.next_number()
            request = self._request(step, number, seconds)
            self.ledger.start_trial(request, number)
            self.executor.submit(request, self._launch(request, gpu))
            running[request.trial_id] = request
        looked, stopping = self._monotonic(), False
        while running:
            for trial_id, request in list(running.items()):
                result = self.executor.poll(trial_id)
                if result is not None:
                    result = result.replace(started_at=max(result.started_at, not_before))
                    self.ledger.end_trial(request, charged(result, seen))
                    del running[trial_id]
            if not running:
                return
            if self._interrupted():
                raise Interrupted
            self._sleep(_POLL_SECONDS)
            if not stopping and self._monotonic() - looked > _LOOK_SECONDS:
                looked = self._monotonic()
                stopping = self.ledger.stop_requested()
                for trial_id in running if stopping else ():
                    self.executor.stop(trial_id)

    def _timeout(self, together: int, gpus: float) -> float:
        """Return what each of so many trials may take: what is left of the GPU seconds is divided among them."""
        limit = cast(float, self.plan.contract.budget.trial_timeout_seconds)
        return min(limit, self._seconds_left(), self._gpu_seconds_left() / together / gpus)

    def _compare_memory(self, gpu: str | None) -> None:
        """Say before a trial if less device memory is free than the failed run could use; the trial runs anyway."""
        source = self.plan.source
        if self.plan.contract.device.kind != "cuda":
            return
        try:
            row = self.ledger.storage.get_run(source.run_id)
            capsule = Capsule.from_json(self.ledger.storage.evidence.capsule(source.run_id)["document"])
            failed = ProcessId(row["pid"], row["process_started"], row["boot_id"])
            found = free_memory.look(capsule, gpu, failed if self.ledger.storage.alive(failed) else None)
        except (WatcherError, KeyError, TypeError):
            return  # a capsule that is gone is said elsewhere
        if found.missing_bytes:
            self.ledger.event(events.MEMORY_TAKEN, found.to_event())

    def _request(self, step: Next, number: int, seconds: float) -> TrialRequest:
        plan, budget = self.plan, self.plan.contract.budget
        proposal = None if step.proposal_id is None else plan.proposal(step.proposal_id)
        config = plan.source.config if step.proposal_id is None else plan.candidate_config(step.proposal_id)
        lengths = {"control": plan.control_max_steps, "probe": budget.probe_steps}
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
            # Rounding must not take it above what the contract allows: no verdict would follow from its trials.
            timeout_seconds=min(cast(float, budget.trial_timeout_seconds), max(0.1, round(seconds, 3))),
            grace_seconds=cast(float, budget.termination_grace_seconds),
            changes=(proposal.changes or None) if proposal is not None else None,
        )

    def _launch(self, request: TrialRequest, gpu: str | None) -> Launch:
        return Launch(
            request_digest=request.digest,
            project=self.plan.source.project,
            project_root=self.settings.project_root,
            store_path=str(self.ledger.storage.path),
            python=self.settings.python,
            dataset_path=self.settings.dataset_path,
            secrets=self.settings.secrets,
            gpu=gpu,
        )
