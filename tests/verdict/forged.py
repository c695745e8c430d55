"""Campaigns that must not be verified, at least one for every check of the verifier.

Each row breaks one thing of a campaign that verifies, and leaves everything else, digests included, as consistent as a
forger would. ``FORGED`` maps a check to its rows; a row that only this check can refuse is what shows that the check
is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from builders import CAMPAIGN, CODE, DEVICE, MIB, approve, good_trials, plan, planned, source, trial

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.identity import CodeIdentity
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan, RuledOut
from watcherml.protocol.proposal import ALLOCATOR_VARIABLES, config_digest
from watcherml.protocol.result import Failure, KnobReading, MeasuredIdentity, Peak, Progress, Trial
from watcherml.protocol.verdict import Ending
from watcherml.sealed.device import Device

DIGEST = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64
CUDA = Device("cuda", "H", 96 * MIB)


DECIDED = Ending("decided")


@dataclass(frozen=True)
class Campaign:
    """The parts that a verdict is made from."""

    plan: RecoveryPlan
    trials: tuple[Trial, ...]
    authorizations: tuple[Authorization, ...] = ()
    ending: Ending = DECIDED
    campaign_id: str = CAMPAIGN


PLAN = plan()
GOOD = good_trials(PLAN)
CUDA_PLAN = plan(device=CUDA)
CUDA_GOOD = good_trials(CUDA_PLAN)
TIMED = plan(budget=PLAN.contract.budget.replace(max_gpu_seconds=100.0))
TIMED_GOOD = good_trials(TIMED)
SHORT = plan(budget=PLAN.contract.budget.replace(campaign_timeout_seconds=150.0, trial_timeout_seconds=100.0))
SHORT_GOOD = good_trials(SHORT)
UNCONTROLLED = plan(control=False)


def swap(position, good=GOOD, **changes):
    """Replace fields of one trial's result."""
    trials = list(good)
    old = trials[position]
    trials[position] = Trial(old.request, old.result.replace(**changes))
    return tuple(trials)


def ask(position, good=GOOD, result_changes=None, **changes):
    """Replace fields of one trial's request, with its result bound to the new request."""
    trials = list(good)
    old = trials[position]
    made = old.request.replace(**changes)
    bound = {"request_digest": made.digest, "trial_id": made.trial_id, "run_id": made.run_id}
    trials[position] = Trial(made, old.result.replace(**{**bound, **(result_changes or {})}))
    return tuple(trials)


def everywhere(good, **changes):
    """Replace fields of every trial's result but the control's."""
    return tuple(one if one.request.role == "control" else Trial(one.request, one.result.replace(**changes))
                 for one in good)  # fmt: skip


def simple(trials, **parts):
    """Return the good plan with other trials."""
    return Campaign(PLAN, tuple(trials), **parts)


def measured(**changes):
    """Return the identity that a good trial measures, with some fields changed."""
    return MeasuredIdentity(None, "sha256:" + "e" * 64, None, "gpt", CODE).replace(**changes)


def _allocator_campaign(*states):
    made = planned(source(device=CUDA, slack_bytes=40 * MIB), CUDA)
    trials = good_trials(made, "expandable-segments")
    knobs = tuple(KnobReading("allocator_configuration", state, "as read") for state in states)
    return Campaign(made, everywhere(trials, knobs=knobs), (approve(made, "expandable-segments"),))


def _ruled_out_campaign():
    """A plan that proposes what its own diagnosis rules out, which no planner here makes."""
    made = plan()
    names = ("micro_batch_size", "gradient_accumulation_steps")
    ruled = made.source.replace(supports=(), ruled_out=tuple(RuledOut(name, "C15", "no activations") for name in names))
    forged = made.replace(source=ruled)
    return Campaign(forged, good_trials(forged))


# Memory piles up, and would fill the device by itself at step 386.
LEAKING = planned(source(horizon_step=386))


def ran(steps, source="optimizer"):
    """What a trial of so many steps says of them."""
    return {"progress": Progress(steps, source, float(steps)), "metrics": {"steps_completed": steps, "val_loss": 0.4}}


LEAKING_GOOD = everywhere(good_trials(LEAKING), **ran(386))


def _leaking(steps, proposal_id="batch-32x2", source="optimizer"):
    trials = everywhere(good_trials(LEAKING, proposal_id), **ran(steps, source))
    return Campaign(LEAKING, trials, (approve(LEAKING, proposal_id),))


def _recorded_data(fingerprint):
    made = planned(source(dataset_fingerprint=DIGEST))
    good = good_trials(made)
    return Campaign(made, everywhere(good, identity=measured(dataset_fingerprint=fingerprint)))


def _late_import(first, second):
    one = measured(code=CodeIdentity({**CODE.files, "late.py": first}))
    two = measured(code=CodeIdentity({**CODE.files, "late.py": second}))
    return simple(swap(4, swap(3, identity=one), identity=two))


def _edited_after(position):
    """A file imported late has one content in the first trials and another one from then on."""
    trials = GOOD
    for number in range(len(GOOD)):
        content = DIGEST if number <= position else OTHER
        trials = swap(number, trials, identity=measured(code=CodeIdentity({**CODE.files, "late.py": content})))
    return simple(trials)


def _failure(**changes):
    values = {"failure_class": "simulated_out_of_memory", "subkind": "", "exception_type": "E", "message": "m",
              "requested_bytes": 12 * MIB, "phase": "forward"}  # fmt: skip
    return Failure(**{**values, **changes})


BLIND = tuple(KnobReading(name, "not_observable", "no torch")
              for name in ("micro_batch_size", "gradient_accumulation_steps"))  # fmt: skip


def _checkpointing_campaign(peak, role="probe"):
    """Checkpointing beside the smaller batch, and that batch alone, tried to the end with a peak of 60 MiB."""
    good = everywhere(good_trials(PLAN, "batch-16x4+checkpointing"), peak=Peak("simulated", "t", peak, None))
    return simple((*good, trial(PLAN, role, 6, "batch-16x4")))


_EASY = {"batch_size": 1, "training_steps": 1}
_SETTING = dict.fromkeys(ALLOCATOR_VARIABLES, "expandable_segments:True")
_UNKNOWN = trial(PLAN, "probe", 6, "batch-16x4")

FORGED: dict[str, list[Campaign]] = {
    "ending": [simple(GOOD, ending=Ending(reason, "because")) for reason in (
        "stopped_by_user", "campaign_timeout", "gpu_seconds_exhausted", "supervisor_lost", "integration_error")],
    "campaign_id": [simple(ask(4, campaign_id="other")), simple(GOOD, campaign_id="other")],
    "ids.trial": [simple(ask(4, trial_id=GOOD[3].request.trial_id))],
    "ids.run": [simple(ask(4, run_id="run-4")), simple(ask(4, run_id="run-1")),
                simple(ask(4, run_id=PLAN.source.run_id))],
    "ids.request": [simple(ask(4, request_id="req-4"))],
    "ids.execution": [simple(swap(4, execution_id=GOOD[3].result.execution_id))],
    "budget.trials": [simple((*GOOD, *(trial(PLAN, "full", n, "batch-16x4", "lost") for n in range(6, 12))))],
    "budget.probes": [simple((*GOOD, *(trial(PLAN, "probe", n, "batch-16x4") for n in range(6, 10))))],
    "budget.full": [simple((*GOOD, *(trial(PLAN, "full", n, "batch-16x4") for n in (6, 7))))],
    "budget.seconds": [Campaign(SHORT, tuple(Trial(one.request, one.result.replace(
        started_at=1000.0 + 60 * n, wall_seconds=60.0)) for n, one in enumerate(SHORT_GOOD)))],
    "budget.gpu_seconds": [Campaign(TIMED, swap(2, TIMED_GOOD, gpu_seconds=99.0))],
    "authorization": [simple(GOOD, authorizations=(approve(plan(max_proposals=15), "batch-32x2"),)),
                      simple(GOOD, authorizations=(approve(PLAN, "batch-32x2").replace(proposal_digest=DIGEST),)),
                      simple(GOOD, authorizations=(approve(PLAN, "batch-32x2").replace(proposal_id="batch-16x4"),))],
    "binding.plan": [simple(ask(n, plan_digest=DIGEST)) for n in range(5)],
    "binding.contract": [simple(ask(n, contract_digest=DIGEST)) for n in range(5)],
    "binding.source": [simple(ask(n, source_run_id="other")) for n in range(5)],
    "binding.candidate": [simple(ask(0, proposal_id="batch-32x2")),
                          Campaign(UNCONTROLLED, good_trials(UNCONTROLLED)),
                          simple((*GOOD, Trial(made := _UNKNOWN.request.replace(
                              proposal_id="unheard-of", config_digest=PLAN.contract.source_config_digest,
                              config=PLAN.source.config),
                              _UNKNOWN.result.replace(request_digest=made.digest))))],
    "binding.candidate_config": [simple(ask(n, config=_EASY, config_digest=config_digest(_EASY))) for n in range(5)],
    "binding.config": [simple(ask(n, config=_EASY)) for n in range(5)],
    "binding.floats": [simple(ask(n, float_paths=("/batch_size",))) for n in range(5)],
    "binding.environment": [simple(ask(n, environment=_SETTING)) for n in range(5)],
    "binding.changes": [simple(ask(n, changes=changes)) for n in (1, 2, 3, 4) for changes in (
        None, PLAN.proposal("batch-16x4").changes, PLAN.proposal("batch-32x2").changes[:1])]
    + [simple(ask(0, changes=PLAN.proposal("batch-32x2").changes))],
    "binding.entrypoint": [simple(ask(n, entrypoint=TrainingEntrypoint("ent:other"))) for n in range(5)]
    + [simple(ask(4, entrypoint=TrainingEntrypoint("ent:train", "elsewhere")))],
    "binding.progress_metric": [simple(ask(n, progress_metric="epochs")) for n in range(5)],
    "binding.device": [simple(ask(4, device=CUDA)), simple(ask(4, device=DEVICE.replace(budget_bytes=97 * MIB)))],
    "binding.max_steps": [simple(ask(0, max_steps=3)), simple(ask(0, max_steps=None)), simple(ask(1, max_steps=1)),
                          simple(ask(2, max_steps=50)), simple(ask(4, max_steps=50))],
    "binding.timeout": [simple(ask(n, timeout_seconds=3600.1)) for n in range(5)],
    "binding.grace": [simple(ask(n, grace_seconds=600.0)) for n in range(5)],
    "binding.request": [simple(swap(n, request_digest=DIGEST)) for n in range(5)],
    "binding.trial_id": [simple(swap(n, trial_id="other")) for n in range(5)],
    "binding.run_id": [simple(swap(n, run_id="other")) for n in range(5)],
    "control": [simple(GOOD[1:]), simple(swap(0, outcome="completed", failure=None)),
                simple(swap(0, outcome="timeout")), simple(swap(0, outcome="killed")),
                simple((*GOOD, trial(PLAN, "control", 6))),
                simple((*GOOD, trial(PLAN, "control", 6, outcome="training_failed"))),
                simple((*GOOD, trial(PLAN, "control", 6, outcome="oom", device=CUDA)))],
    "control.outcome": [simple(swap(0, outcome="training_failed")), simple(swap(0, outcome="contract_error"))],
    "control.failure_class": [simple(swap(0, failure=_failure(failure_class="cuda_out_of_memory")))],
    "control.requested_bytes": [simple(swap(0, failure=_failure(requested_bytes=int(12 * MIB * factor))))
                                for factor in (0.94, 1.06, 1.08)]
    + [simple(swap(0, failure=_failure(requested_bytes=None)))],
    "control.phase": [simple(swap(0, failure=_failure(phase="optimizer")))],
    "authority": [Campaign(PLAN, good_trials(PLAN, "sequence-64")),
                  Campaign(PLAN, good_trials(PLAN, "sequence-64"), (approve(PLAN, "sequence-32"),)),
                  Campaign(PLAN, good_trials(PLAN, "sequence-64"),
                           (approve(PLAN, "sequence-64").replace(approved_at=1000.1),))],
    "probe": [
        *(simple(swap(1, identity=measured(code=code))) for code in (None, CodeIdentity({"ent.py": DIGEST}))),
        simple(GOOD[:1] + GOOD[2:]),
        simple((*GOOD, trial(PLAN, "probe", 6, "batch-32x2", outcome="oom"))),
        simple(swap(1, outcome="oom")),
        simple(swap(1, outcome="lost")),
        simple(swap(1, peak=None)),
        simple(swap(1, knobs=())),
        simple(swap(1, knobs=(KnobReading("micro_batch_size", "not_in_effect", "64"), *BLIND))),
        simple(swap(1, progress=Progress(0, "none"))),
        simple(swap(1, device=CUDA)),
    ],
    "cause": [_ruled_out_campaign()],
    "update": [simple(everywhere(GOOD, traits=("batch_norm",))), simple(swap(4, traits=("batch_norm",)))],
    "knob": [_allocator_campaign(), _allocator_campaign("not_observable"), _allocator_campaign("not_in_effect"),
             _allocator_campaign("in_effect", "not_in_effect"),
             simple(swap(4, knobs=(KnobReading("micro_batch_size", "not_in_effect", "64"), *BLIND))),
             *(simple(swap(n, knobs=knobs)) for n in (2, 3, 4) for knobs in (
                 (), BLIND[:1], BLIND[1:], (KnobReading("micro_batch_size", "in_effect", "32"),),
                 (*BLIND[:1], KnobReading("precision", "in_effect", "bf16")))),
             _checkpointing_campaign(60 * MIB), _checkpointing_campaign(58 * MIB),
             _checkpointing_campaign(70 * MIB, role="full")],
    "outcome": [simple(swap(n, outcome=outcome)) for n in (2, 4) for outcome in
                ("oom", "training_failed", "contract_error", "timeout", "killed", "exited", "host_oom")]
    + [simple((*GOOD, trial(PLAN, "full", 6, "batch-32x2", outcome="oom")))],
    "execution": [simple(swap(n, execution_id=None)) for n in (2, 3, 4)],
    "exit": [simple(swap(n, **changes)) for n in (2, 4) for changes in (
        {"exit_code": 137}, {"exit_code": None}, {"exit_signal": "SIGKILL"}, {"failure": _failure()})],
    "device.kind": [simple(swap(n, device=device)) for n in (0, 2, 3, 4) for device in (CUDA, None)],
    "device.name": [Campaign(CUDA_PLAN, swap(n, CUDA_GOOD, device=Device("cuda", "B", 96 * MIB)))
                    for n in (0, 2, 3, 4)],
    "device.budget_bytes": [simple(swap(n, device=DEVICE.replace(budget_bytes=97 * MIB))) for n in (0, 2, 3, 4)]
    + [Campaign(CUDA_PLAN, swap(n, CUDA_GOOD, device=CUDA.replace(budget_bytes=size * MIB)))
       for n in (0, 2, 3, 4) for size in (94, 98, 500)],
    "progress.steps": [simple(swap(4, progress=Progress(49, "marks", None), metrics={"val_loss": 0.4})),
                       simple(swap(4, progress=Progress(0, "none", 50.0)))],
    "progress.metric": [simple(swap(4, progress=Progress(50, "optimizer", None))),
                        simple(swap(4, progress=Progress(50, "optimizer", 49.0))),
                        simple(swap(4, metrics={"steps_completed": 51.0, "val_loss": 0.4})),
                        simple(swap(4, progress=Progress(50, "optimizer", 49.0),
                                    metrics={"steps_completed": 49.0, "val_loss": 0.4})),
                        simple(swap(4, metrics={"val_loss": 0.4}))],
    "progress.claim": [simple(swap(4, progress=Progress(50, "optimizer", 51.0),
                                   metrics={"steps_completed": 51.0, "val_loss": 0.4}))],
    "horizon": [_leaking(50), _leaking(385), _leaking(386, source="claimed"), _leaking(771, "sequence-64"),
                Campaign(LEAKING, swap(4, LEAKING_GOOD, **ran(385)))],
    "metric": [simple(swap(n, metrics={"steps_completed": 50.0, "val_loss": 0.4500001})) for n in (2, 3, 4)]
    + [simple(swap(4, metrics={"steps_completed": 50.0}))],
    "peak_bytes": [simple(swap(n, peak=Peak("simulated", "t", 80 * MIB + 1, None))) for n in (2, 3, 4)]
    + [simple(swap(4, peak=None)), simple(swap(4, peak=Peak("cuda", "t", 1, 1)))],
    "identity": [simple(swap(n, identity=measured(model_identifier=who))) for n in (0, 2, 3, 4)
                 for who in (None, "bert")]
    + [_recorded_data(None), _recorded_data(OTHER)],
    "code": [simple(swap(n, identity=measured(code=code))) for n in (0, 2, 3, 4)
             for code in (None, CodeIdentity({"ent.py": DIGEST}), CodeIdentity({"other.py": DIGEST}))],
    "duration": [simple(swap(n, wall_seconds=100.0 + 5.0 + 60.1)) for n in (2, 4)],
    "order": [simple(tuple(Trial(one.request, one.result.replace(started_at=2e3 - n)) for n, one in enumerate(GOOD))),
              *(simple(swap(n, started_at=999.0)) for n in (1, 2, 3, 4)), simple(swap(0, started_at=1001.0)),
              # A control that gave no answer is no beginning; the one that did came last.
              simple((*swap(0, outcome="timeout"), trial(PLAN, "control", 6, outcome="oom", started_at=1001.0)))],
    "same_workload": [simple(swap(n, identity=measured(**changes))) for n in range(5) for changes in (
        {"environment_fingerprint": None}, {"environment_fingerprint": OTHER}, {"dataset_fingerprint": OTHER})],
    "same_code": [_late_import(DIGEST, OTHER), _edited_after(0), _edited_after(1)],
    "confirmations": [simple(GOOD[:4]), simple(GOOD[:3]), simple((*GOOD, trial(PLAN, "confirmation", 6, "batch-32x2"))),
                      simple((*GOOD[:4], trial(PLAN, "confirmation", 5, "batch-16x4")))],
}  # fmt: skip
