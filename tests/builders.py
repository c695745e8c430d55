"""Valid values for tests of the pure core, and a whole campaign's chain that verifies."""

from __future__ import annotations

import os

from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import RecoveryContract, VerificationRequirements
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.guards import MetricGuard
from watcherml.contract.identity import CodeIdentity, WorkloadIdentity
from watcherml.contract.permissions import InterventionPermissions
from watcherml.planning.authorize import authorize
from watcherml.planning.discover import discover
from watcherml.planning.plan import make_plan
from watcherml.planning.rules.allocator import with_environment
from watcherml.protocol.plan import Source
from watcherml.protocol.proposal import config_digest
from watcherml.protocol.request import TrialRequest
from watcherml.protocol.result import Failure, KnobReading, MeasuredIdentity, Peak, Progress, Trial, TrialResult
from watcherml.protocol.verdict import Ending, RecoveryChain
from watcherml.sealed.device import Device
from watcherml.sealed.floats import whole_floats
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

MIB = 2**20
# Not the same in two processes: trials are found, and killed, by their ids.
CAMPAIGN = f"recovery-demo-{os.getpid()}"
CODE = CodeIdentity({"ent.py": "sha256:" + "c" * 64})
DEVICE = Device("simulated", "simulated-cpu-budget", 96 * MIB)
CONFIG = {
    "batch_size": 64,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": False,
    "sequence_length": 128,
    "training_steps": 50,
}
CLASSES = {"simulated": "simulated_out_of_memory", "cuda": "cuda_out_of_memory", "none": "cuda_out_of_memory"}
DECIDED = Ending("decided")


def source(config=None, device=DEVICE, **changes):
    values = {
        "run_id": "demo-run-1",
        "project": "demo",
        "config": CONFIG if config is None else config,
        "float_paths": whole_floats(CONFIG if config is None else config),
        "capsule_digest": "sha256:" + "a" * 64,
        "failure_class": CLASSES[device.kind],
        "last_step": 3,
        "logging_gap": 1,
        "requested_bytes": 12 * MIB,
        "shortfall_bytes": 4 * MIB,
        "slack_bytes": 0,
        "phase": "forward",
        "dataset_fingerprint": None,
        "half_precision": ("bf16",),
        "allocator": "",
        "traits": (),
        "ruled_out": (),
        "supports": ("micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing"),
    }
    values.update(changes)
    return Source(**values)


def contract(made_source, device=DEVICE, budget=None, verification=None, control=True, permissions=None):
    verification = verification or VerificationRequirements(
        minimum_progress_steps=50,
        metric_guards=(MetricGuard("val_loss", "minimize", 0.42, 0.03),),
        max_peak_vram_bytes=80 * MIB,
        workload_identity=WorkloadIdentity(model_identifier="gpt"),
    )
    resolved = (budget or RecoveryBudget()).resolve(
        confirmation_runs=verification.confirmation_runs,
        minimum_progress_steps=verification.minimum_progress_steps,
        control=control,
    )
    return RecoveryContract(
        source_run_id=made_source.run_id,
        source_capsule_digest=made_source.capsule_digest,
        source_failure_class=made_source.failure_class,
        source_config_digest=config_digest(made_source.config),
        entrypoint=TrainingEntrypoint("ent:train"),
        verification=verification,
        budget=resolved,
        permissions=permissions or InterventionPermissions(True, True, False),
        code=CODE,
        device=device,
        control=control,
    )


def planned(
    made_source,
    device=DEVICE,
    include_approval_required=True,
    max_proposals=16,
    declarations=None,
    half="bf16",
    **options,
):
    """Return the plan for a source; ``options`` go into its contract."""
    made_contract = contract(made_source, device, **options)
    capabilities, skipped = discover(made_source.config, declarations, half=half)
    capabilities = with_environment(capabilities, skipped, declarations, made_source.allocator)
    return make_plan(
        made_contract,
        made_source,
        capabilities,
        skipped,
        include_approval_required=include_approval_required,
        max_proposals=max_proposals,
    )


def plan(config=None, device=DEVICE, **options):
    """Return the plan for the usual failure of a configuration."""
    return planned(source(config, device), device, **options)


def request(made_plan, role, number, proposal_id=None, **changes):
    proposal = None if proposal_id is None else made_plan.proposal(proposal_id)
    budget = made_plan.contract.budget
    values = {
        "request_id": f"req-{number}",
        "campaign_id": CAMPAIGN,
        "trial_id": f"{CAMPAIGN}-t{number:02d}",
        "run_id": f"run-{number}",
        "role": role,
        "plan_digest": made_plan.digest,
        "contract_digest": made_plan.contract.digest,
        "source_run_id": made_plan.source.run_id,
        "proposal_id": proposal_id,
        "config": made_plan.source.config if proposal is None else made_plan.candidate_config(proposal_id),
        "float_paths": made_plan.source.float_paths,
        "config_digest": made_plan.contract.source_config_digest if proposal is None else proposal.config_digest,
        "environment": {} if proposal is None else proposal.environment,
        "entrypoint": made_plan.contract.entrypoint,
        "device": made_plan.contract.device,
        "progress_metric": made_plan.contract.progress_metric,
        "max_steps": {"control": made_plan.control_max_steps, "probe": budget.probe_steps}.get(role),
        "timeout_seconds": 100.0,
        "grace_seconds": 5.0,
        "changes": None if proposal is None else proposal.changes or None,
    }
    values.update(changes)
    return TrialRequest(**values)


def result(made_request, outcome="completed", steps=None, **changes):
    device = made_request.device
    steps = (made_request.max_steps or 50) if steps is None else steps
    good = outcome == "completed"
    values = {
        "request_digest": made_request.digest,
        "trial_id": made_request.trial_id,
        "run_id": made_request.run_id,
        "outcome": outcome,
        "execution_id": f"exec-{made_request.trial_id}",
        "failure": None if good else Failure(CLASSES[device.kind], "", "E", "out of memory", 12 * MIB, "forward"),
        "metrics": {"steps_completed": float(steps), "val_loss": 0.44} if good else {},
        "progress": Progress(steps, "optimizer", float(steps)) if good else Progress(0, "none"),
        "peak": Peak(device.kind, "tracker", 60 * MIB, None if device.kind == "simulated" else 70 * MIB),
        "identity": MeasuredIdentity(None, "sha256:" + "e" * 64, None, "gpt", CODE),
        "knobs": tuple(KnobReading(one.capability, "not_observable", "") for one in made_request.changes or ()),
        "traits": (),
        "device": device,
        "exit_code": 0 if good else 1,
        "exit_signal": None,
        "started_at": 1000.0,
        "wall_seconds": 10.0,
        "gpu_seconds": 10.0,
        "sentence": "",
    }
    values.update(changes)
    return TrialResult(**values)


def trial(made_plan, role, number, proposal_id=None, outcome="completed", request_changes=None, **changes):
    made_request = request(made_plan, role, number, proposal_id, **(request_changes or {}))
    if outcome != "completed":
        told = made_plan.source
        failure = Failure(told.failure_class, "", "E", "out of memory", told.requested_bytes, told.phase)
        changes = {"failure": failure, **changes}
    return Trial(made_request, result(made_request, outcome, **changes))


def good_trials(made_plan, proposal_id="batch-32x2"):
    """Control, probe, full trial and two confirmations that keep the contract."""
    return (
        trial(made_plan, "control", 1, outcome="oom"),
        trial(made_plan, "probe", 2, proposal_id),
        trial(made_plan, "full", 3, proposal_id),
        trial(made_plan, "confirmation", 4, proposal_id),
        trial(made_plan, "confirmation", 5, proposal_id),
    )


def approve(made_plan, proposal_id):
    return authorize(made_plan, proposal_id, approved_by="a@example.org", reason="reviewed", now=1000.0)


def chain(made_plan, trials, authorizations=(), ending=DECIDED):
    verdict = verify(CAMPAIGN, made_plan, authorizations, trials, ending)
    return RecoveryChain(
        CAMPAIGN, made_plan, authorizations, trials, ending, rank(made_plan, authorizations, trials), verdict
    )


# -- without torch: an entrypoint and its failure, as far as the text goes

OOM_TEXT = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is"
    " free. Including non-PyTorch memory, this process has 7.90 GiB memory in use. Of the allocated memory 7.10 GiB"
    " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)

# A training function without torch that runs out of memory above batch 16, as far as its text goes.
TEXT_ENTRYPOINT = f"""
import json, pathlib, time
OOM = {OOM_TEXT!r}

def train(config, max_steps=None):
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    time.sleep(config.get("seconds", 0))
    if config["batch_size"] > 16 and not config["gradient_checkpointing"]:
        raise RuntimeError(OOM)
    return {{"steps_completed": steps, "val_loss": 0.4}}

def constant(config, max_steps=None):
    return {{"steps_completed": 50.0, "val_loss": 0.4}}

def idle(config, max_steps=None):
    if config["batch_size"] > 16:
        raise RuntimeError(OOM)
    return {{"val_loss": 0.4}}
"""

FAILED_CONFIG = {
    "batch_size": 64,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": False,
    "training_steps": 50,
}
