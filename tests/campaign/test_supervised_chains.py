"""Whatever happens to a campaign, what its supervisor puts on record is one chain, and the verdict follows from it."""

import random

import pytest
from builders import CAMPAIGN, DEVICE, approve, planned, source
from builders import result as make_result
from hypothesis import given, settings
from hypothesis import strategies as st

from watcherml.campaign.lanes import Lanes
from watcherml.campaign.ledger import Settings
from watcherml.campaign.run import CampaignRun, Interrupted
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import VerificationRequirements
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidValue
from watcherml.protocol.result import Failure, Progress, Trial
from watcherml.sealed.device import Device
from watcherml.verdict.verify import verify

EPOCH = 1_000_000.0
SILENT = ("timeout", "killed", "exited", "host_oom", "lost")
CUDA = Device("cuda", "NVIDIA H200", 80 * 2**30)


class Machine:
    """Ledger, clock and executor of one campaign in memory; ``outcome_of(request)`` says how a trial ends."""

    campaign_id = CAMPAIGN

    def __init__(self, plan, outcome_of, authorizations=(), set_back=lambda: 0.0, wall_of=lambda request: 1.0):
        self._plan, self._authorizations = plan, authorizations
        self._outcome_of, self._set_back, self._wall_of = outcome_of, set_back, wall_of
        self.requests, self.ended, self.running = [], [], {}
        self.passed, self.now = 0.0, EPOCH
        self.storage = self
        self.turned_down = frozenset()

    def plan(self):
        return self._plan

    def authorizations(self):
        return self._authorizations

    def rejected(self):
        return self.turned_down

    def settings(self):
        return Settings("/nowhere", "python")

    def trials(self):
        return tuple(self.ended)

    def event(self, kind, body):
        pass

    def stop_requested(self):
        return False

    def next_number(self):
        return len(self.requests) + 1

    def start_trial(self, request, number):
        self.requests.append(request)

    def end_trial(self, request, result):
        self.ended.append(Trial(request, result))

    path = "nowhere"

    def clock(self):
        return self.now

    def get_run(self, run_id):
        raise KeyError(run_id)

    def submit(self, request, launch):
        self.running[request.trial_id] = request, self.now
        self.now += 0.01

    def poll(self, trial_id):
        request, started = self.running.pop(trial_id)
        made = self.result_of(request, self._outcome_of(request), started, self._wall_of(request))
        self.passed += made.wall_seconds
        self.now += made.wall_seconds - self._set_back()
        return made

    def result_of(self, request, outcome, started, wall):
        known, failed = self._plan.source, outcome in ("oom", "training_failed")
        kind = known.failure_class if outcome == "oom" else "unclassified"
        changes = {"failure": Failure(kind, "", "E", "m", known.requested_bytes, known.phase) if failed else None}
        if outcome in SILENT:
            changes = {"progress": Progress(0, "none"), "execution_id": None, "identity": None, "peak": None,
                       "knobs": (), "device": None, "failure": None, "exit_code": None}  # fmt: skip
        return make_result(request, outcome, started_at=started, wall_seconds=wall, gpu_seconds=wall, **changes)

    def lose(self):
        """Give the trials that ran when the supervisor went their end."""
        done = {one.request.trial_id for one in self.ended}
        for request in self.requests:
            if request.trial_id not in done:
                self.end_trial(request, self.result_of(request, "lost", self.now, 1.0))
        self.running.clear()

    def run(self, interrupted=lambda: False, **options):
        """Run to the end, with a new supervisor after each that was interrupted; returns the verdict."""
        while True:
            run = CampaignRun(
                self,
                self,
                interrupted=interrupted,
                monotonic=lambda: self.passed,
                sleep=lambda seconds: None,
                **options,
            )
            run.conclude = lambda ending: verify(CAMPAIGN, self._plan, self._authorizations, self.trials(), ending)
            try:
                return run.run()
            except Interrupted:
                self.lose()


def made_plan(device=DEVICE, runs=2, **budget):
    requirements = VerificationRequirements(50, (), runs)
    return planned(source(None, device), device, budget=RecoveryBudget(**budget), verification=requirements,
                   permissions=InterventionPermissions(True, True, True))  # fmt: skip


def recovers(request):
    return "oom" if request.role == "control" else "completed"


@pytest.mark.parametrize("seconds", [200 / 3, 3600 / 7, 0.1006])
def test_a_time_limit_of_many_digits_is_kept_and_costs_no_verdict(seconds):
    budget = {"trial_timeout_seconds": seconds, "campaign_timeout_seconds": 6e5}
    machine = Machine(made_plan(**budget), recovers, wall_of=lambda request: 0.05)
    assert machine.run().status == "verified"
    assert all(request.timeout_seconds <= seconds for request in machine.requests)


@pytest.mark.parametrize("after", ["control", "probe", "full", "confirmation"])
def test_a_clock_that_is_set_back_costs_no_verdict(after):
    machine = Machine(made_plan(), recovers, set_back=lambda: 30.0 if machine.requests[-1].role == after else 0.0)
    verdict = machine.run()
    assert verdict.status == "verified", verdict.sentence
    starts = [one.result.started_at for one in machine.ended]
    assert starts == sorted(starts)


def test_a_clock_that_is_set_back_after_an_approval_does_not_undo_it():
    plan = made_plan()
    name = next(one.proposal_id for one in plan.proposals if one.authority != "automatic")
    given = approve(plan, name).replace(approved_at=EPOCH + 3600)
    machine = Machine(plan, recovers, (given,))
    machine.turned_down = frozenset(one.proposal_id for one in plan.proposals if one.proposal_id != name)
    verdict = machine.run()
    assert (verdict.status, verdict.candidate_id) == ("verified", name), verdict.sentence


def test_gpu_seconds_are_those_of_every_visible_gpu_from_the_first_trial_on():
    machine = Machine(made_plan(CUDA, max_gpu_seconds=800.0), lambda request: "timeout", wall_of=lambda _: 100.0)
    machine.run(gpus=lambda plan: 8)
    assert [request.timeout_seconds for request in machine.requests] == [100.0]
    assert [one.result.gpu_seconds for one in machine.ended] == [800.0]


def test_a_trial_that_told_of_its_gpus_is_charged_for_those():
    machine = Machine(made_plan(CUDA), lambda request: "completed")
    machine.run(gpus=lambda plan: 8)
    assert [one.result.gpu_seconds for one in machine.ended] == [1.0]


OUTCOMES = st.sampled_from(["completed"] * 6 + ["oom", "oom", "training_failed", *SILENT])


@given(
    st.integers(2, 10), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.1, 200 / 3, 3600 / 7, 60.0]),
    st.sampled_from([None, 0.3, 20.0, 100 / 7]), st.integers(1, 3), st.lists(OUTCOMES, min_size=10, max_size=10),
    st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_whatever_happens_the_trials_form_one_chain(total, runs, full, seconds, gpu, lanes, outcomes, seed):
    rng = random.Random(seed)
    try:
        plan = made_plan(runs=runs, max_trials=total, max_full_trials=full, trial_timeout_seconds=seconds,
                         max_gpu_seconds=gpu, max_parallel_probes=lanes)  # fmt: skip
    except InvalidValue:
        return  # numbers that do not hold together are refused before anything runs
    ends = iter(outcomes)
    machine = Machine(
        plan,
        lambda request: "oom" if request.role == "control" and rng.random() < 0.9 else next(ends),
        set_back=lambda: rng.choice([0.0, 0.0, 40.0, -40.0]),
        wall_of=lambda request: round(rng.uniform(0, request.timeout_seconds), 3),
    )
    kills = rng.choice([0.0, 0.0, 0.1])
    verdict = machine.run(lambda: rng.random() < kills, lanes=lambda _: Lanes((None,) * lanes))
    assert verdict.reason_code != "broken_chain", verdict.sentence
    assert len(machine.requests) <= total
    done = {one.proposal_id: [] for one in plan.proposals}
    for one in machine.ended:
        if one.request.proposal_id and one.result.outcome != "lost":
            done[one.request.proposal_id].append((one.request.role, one.result.outcome))
    confirmed = {
        name for name, trials in done.items()
        if trials.count(("confirmation", "completed")) == runs and {outcome for _, outcome in trials} == {"completed"}
    }  # fmt: skip
    controls = {one.result.outcome for one in machine.ended if one.request.role == "control"} - set(SILENT)
    assert (verdict.status == "verified") == (bool(confirmed) and controls == {"oom"}), verdict.sentence
    assert verdict.candidate_id is None or verdict.candidate_id in confirmed
