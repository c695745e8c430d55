"""Builders of sample values: a failure on the simulated device, its plan, trials, verdict and run page.

``text`` is a pattern that every free text passes through: ``make.capsule("<b>{}</b>")`` is hostile everywhere.
"""

from types import SimpleNamespace

import pytest

from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import RecoveryContract, VerificationRequirements
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.guards import MetricGuard
from watcherml.contract.identity import CodeIdentity, WorkloadIdentity
from watcherml.contract.permissions import InterventionPermissions
from watcherml.forensics.capsule import Capsule, Cause, Completeness, Diagnosis, FailureFacts, MemoryFacts
from watcherml.forensics.evidence import NAMES, missing, present
from watcherml.protocol.plan import RecoveryPlan, RuledOut, Skipped, Source, Trait
from watcherml.protocol.proposal import (
    ALLOCATOR,
    ALLOCATOR_VARIABLES,
    Capability,
    Change,
    Proposal,
    apply_changes,
    config_digest,
)
from watcherml.protocol.verdict import Check, Verdict
from watcherml.sealed.device import Device

MIB = 2**20
DIGEST = "sha256:" + "ab" * 32
RUN = "tomato-disease-20260301-7f3kq2"
NOW = 1_772_366_405.0
SIMULATED = Device("simulated", "simulated-cpu-budget", 96 * MIB)
CUDA = Device("cuda", "NVIDIA H200", 140 * 1024 * MIB)
CONFIG = {
    "model": "tiny-gpt",
    "batch_size": 64,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": False,
    "optimizer": {"name": "adamw", "lr": 0.0003, "betas": [0.9, 0.95]},
    "training_steps": 500,
}
TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/project/train.py", line 31, in train
    loss = model(batch).loss
  File "/home/ada/project/model.py", line 88, in forward
    x = self.mlp(x)
watcherml.simulated.error.SimulatedOutOfMemoryError: [SIMULATED memory-budgeted CPU device (no GPU); op=aten.mm.default]
"""
EVIDENCE = {
    "EV-1": {"config": CONFIG, "lossy_paths": []},
    "EV-2": {"last_step": 12, "micro_step": None, "batch_shape": [64, 128]},
    "EV-3": {"pid": 4711, "argv": ["train.py", "--epochs", "3"], "rss_bytes": 812_646_400, "uptime_s": 41.25},
    "EV-4": {"samples": [{"at": NOW, "rss_bytes": 812_646_400, "cpu_percent": 96.5}]},
    "EV-6": {"torch": "2.13.0+cpu", "allocator": {"simulated_current_bytes": 95_000_000, "peak_bytes": 100_000_000}},
    "EV-7": {"commit": "0f3c9a1", "branch": "main", "dirty": True},
    "EV-8": {"python": "3.11.7", "packages": {"torch": "2.13.0", "numpy": "2.1.0"}},
    "EV-9": {"fingerprint": DIGEST, "files": 1200, "size_bytes": 734_003_200},
    "EV-10": {"loss": [[10, 2.31], [11, 2.28], [12, 2.27]]},
}


def printable(text):
    """A metric's name holds no control characters; everything else may be in it."""
    return "".join(char for char in text if char.isprintable() or char == " ")


def memory(**changes):
    values = {
        "requested_bytes": 16 * MIB,
        "capacity_bytes": 96 * MIB,
        "free_bytes": int(5.4 * MIB),
        "allocated_bytes": int(90.6 * MIB),
        "reserved_unallocated_bytes": 0,
        "source": "the exception's message",
    }
    return MemoryFacts(**{**values, **changes})


def cuda_memory(**changes):
    gib = 1024 * MIB
    values = {
        "requested_bytes": 5 * gib,
        "capacity_bytes": 24 * gib,
        "free_bytes": 1 * gib,
        "allocated_bytes": 17 * gib,
        "reserved_unallocated_bytes": 3 * gib,
        "source": "the exception's message",
    }
    return MemoryFacts(**{**values, **changes})


def diagnosis(text="{}", shortfall=int(10.6 * MIB)):
    def cause(cid, name, size, sentence):
        return Cause(cid, text.format(name), size, ("EV-1", "EV-6"), text.format(sentence))

    return Diagnosis(
        status="diagnosed",
        shortfall_bytes=shortfall,
        phase="forward",
        sufficient=(cause("C21", "activations of one batch", 71 * MIB, "Activations scale with batch_size 64."),),
        contributing=(cause("C15b", "optimizer state", 4 * MIB, "Adam keeps two values a parameter."),),
        excluded=(
            cause("C8", "fragmentation", 0, "Nothing is reserved and unused."),
            cause("C10", "leak across steps", 0, "Memory after each step is flat over 12 steps."),
        ),
        unknown=(cause("C4", "another process", None, "Nobody asked the driver."),),
        rules_version=1,
        sentence=text.format("The activations of one batch of 64 need more than the budget leaves."),
        action=text.format("use a smaller micro-batch with accumulation"),
    )


def capsule(text="{}", facts=None, device=SIMULATED, found=None, long=None):
    pieces = tuple(
        present(key, EVIDENCE[key], text.format("the run")) if key in EVIDENCE else missing(key, text.format("no GPU"))
        for key in NAMES
    )
    if long is not None:
        pieces = (present("EV-1", {long[:300]: {long: [long, {long: long}]}}, text.format("the run")), *pieces[1:])
    failure = FailureFacts(
        class_="simulated_out_of_memory" if device.kind == "simulated" else "cuda_out_of_memory",
        subkind=text.format("")[:2000],
        rule=text.format("simulated-label"),
        rules_version=1,
        matched=text.format("SIMULATED"),
        exception_type=text.format("SimulatedOutOfMemoryError"),
        message=long or text.format("CUDA out of memory. Tried to allocate 16.00 MiB."),
        traceback=long or text.format(TRACEBACK),
        phase=text.format("forward"),
        step=12,
        where=text.format("train.py:31 in train"),
    )
    return Capsule(
        schema_version="2.0",
        run_id=RUN,
        project=text.format("tomato-disease"),
        created_at=NOW,
        headline=text.format(
            "The forward pass needed 10.6 MiB more than the budget has. Next: prepare a recovery; a smaller batch fits."
        ),
        failure=failure,
        device=device,
        memory=facts or memory(),
        diagnosis=found or diagnosis(text),
        evidence=pieces,
        completeness=Completeness(sum(piece.status == "present" for piece in pieces), 11),
    )


def proposal(pid, title, changes, text="{}", config=CONFIG, **values):
    names = {path: text.format({"batch_size": "micro_batch_size"}.get(path, path)) for path in changes}
    changes = tuple(Change(names[path], (path,), config[path], after) for path, after in changes.items())
    # A hostile name is no control of the batch.
    values.setdefault("effective_batch", "preserved")
    if "micro_batch_size" not in names.values():
        values["effective_batch"] = "untouched"
    given = {
        "environment": {},
        "authority": "automatic",
        "risk": "low",
        "semantic": False,
        "effective_batch": "preserved",
        "policy_rule": "batch-ladder",
        "evidence_ids": ("EV-1", "EV-6"),
        "expected_effect": text.format("Activations fall with the micro-batch; each update sees the same samples."),
        "cautions": (),
        "predicted_peak_bytes": 61 * MIB,
        **values,
    }
    digest = config_digest(apply_changes(config, changes))
    return Proposal(proposal_id=pid, title=text.format(title), changes=changes, config_digest=digest, **given)


def proposals(text="{}", config=CONFIG):
    return (
        proposal(
            "P1", "Micro-batch 32, accumulate 2",
            {"batch_size": 32, "gradient_accumulation_steps": 2}, text, config,
        ),
        proposal(
            "P2", "Micro-batch 16, accumulate 4",
            {"batch_size": 16, "gradient_accumulation_steps": 4}, text, config, predicted_peak_bytes=49 * MIB,
        ),
        proposal(
            "P3", "Recompute activations", {"gradient_checkpointing": True}, text, config,
            effective_batch="untouched", predicted_peak_bytes=58 * MIB,
        ),
        proposal(
            "P4", "Expandable allocator segments", {"batch_size": 48}, text, config,
            environment=dict.fromkeys(ALLOCATOR_VARIABLES, "expandable_segments:True"), authority="approval_required",
            risk="high", semantic=True, effective_batch="changed", predicted_peak_bytes=None,
            cautions=(text.format("Changes the number of updates per epoch."), text.format("BatchNorm sees less.")),
        ),
    )  # fmt: skip


def capabilities_of(made, config):
    """Return the controls that the proposals change, as found in a flat configuration."""
    changes = {change.capability: change for one in made for change in one.changes}
    found = [
        Capability(name, change.path, change.before, "automatic", "low", False) for name, change in changes.items()
    ]
    if any(one.environment for one in made):
        found.append(
            Capability(ALLOCATOR, ALLOCATOR_VARIABLES[:1], "", "approval_required", "medium", False, "environment")
        )
    return tuple(found)


def plan(text="{}", config=CONFIG, device=SIMULATED, offered=None, control=True, budget=None):
    wanted = VerificationRequirements(
        minimum_progress_steps=500,
        metric_guards=(MetricGuard(printable(text.format("validation_loss"))[:200], "minimize", 0.42, 0.03),),
        confirmation_runs=2,
        max_peak_vram_bytes=90 * MIB,
        workload_identity=WorkloadIdentity(dataset_fingerprint=text.format("dataset-1f")),
    )  # fmt: skip
    spend = (budget or RecoveryBudget(max_trials=8)).resolve(
        confirmation_runs=2, minimum_progress_steps=500, control=control
    )
    contract = RecoveryContract(
        source_run_id=RUN,
        source_capsule_digest=DIGEST,
        source_failure_class="simulated_out_of_memory",
        source_config_digest=config_digest(config),
        entrypoint=TrainingEntrypoint("train_entrypoint:train"),
        verification=wanted,
        budget=spend,
        permissions=InterventionPermissions(True, True, True),
        code=CodeIdentity({"train_entrypoint.py": DIGEST, "model.py": DIGEST}),
        device=device,
        control=control,
    )
    source = Source(
        RUN, text.format("tomato-disease"), config, (), DIGEST, "simulated_out_of_memory", 12, 1, 16 * MIB, 5 * MIB, 0,
        "forward", None, ("bf16",), "", (Trait("batch_norm", "seen", text.format("BatchNorm2d")),),
        ("micro_batch_size",), (RuledOut("model_cache", "C13", text.format("attention scores did not fit")),),
    )  # fmt: skip
    made = proposals(text, config) if offered is None else offered
    return RecoveryPlan(
        contract=contract,
        source=source,
        capabilities=capabilities_of(made, config),
        proposals=made,
        skipped=(
            Skipped(text.format("optimizer_bits"), text.format("The optimizer's state is 4 % of the shortfall.")),
            Skipped("allocator_configuration", text.format("Nothing is reserved and unused.")),
        ),
        control_max_steps=500,
        notes=(text.format("The loss is a mean over the micro-batch."),),
        planner_version=1,
    )


def trial(seq, role, proposal_id, outcome, steps, peak, wall, sentence):
    return {
        "seq": seq,
        "trial_id": f"c1-t{seq}",
        "role": role,
        "proposal_id": proposal_id,
        "outcome": outcome,
        "steps": steps,
        "peak_bytes": peak,
        "wall_s": wall,
        "sentence": sentence,
    }


def trials(text="{}"):
    def say(sentence):
        return text.format(sentence)

    return [
        trial(1, "control", None, "oom", 13, 95 * MIB, 9.2, say("Failed as before: 16.0 MiB in forward, step 13.")),
        trial(2, "probe", "P1", "completed", 30, 61 * MIB, 12.0, say("30 steps, peak 61.0 MiB.")),
        trial(3, "probe", "P3", "training_failed", 2, 40 * MIB, 3.1, say("RuntimeError: no checkpoint support.")),
        trial(4, "full", "P1", "running", None, None, None, ""),
    ]


def finished(text="{}"):
    return [
        *trials(text)[:3],
        trial(4, "full", "P1", "completed", 500, 61 * MIB, 161.0, text.format("500 steps, validation_loss 0.431.")),
        trial(5, "confirmation", "P1", "completed", 500, 61 * MIB, 160.2, text.format("As required.")),
        trial(6, "confirmation", "P1", "completed", 500, 61 * MIB, 163.9, text.format("As required.")),
    ]


def checks(text="{}", good=True):
    fail, gone = ("pass", "pass") if good else ("fail", "missing")
    stage = "confirmation 1: " if good else ""
    return (
        Check("ids.trial", "all different", "6 of 6 different", "pass"),
        Check("budget.trials", "at most 8", "6", "pass"),
        Check("control", "reproduces the failure", "reproduced" if good else "passed", fail),
        Check(f"{stage}progress.steps", text.format("at least 500 steps"), text.format("500"), "pass"),
        Check(f"{stage}peak_bytes", "at most 94371840 bytes", "63963136", "pass"),
        Check(text.format(f"{stage}metric.validation_loss")[:400], "at most 0.45", "0.431", "pass"),
        Check(f"{stage}identity.dataset_fingerprint", "dataset-1f", text.format("dataset-1f"), gone),
        Check(f"{stage}code.model.py", DIGEST, DIGEST, "pass"),
    )


def verdict(text="{}", status="verified", config=CONFIG, **changes):
    good = status == "verified"
    values = {
        "campaign_id": "campaign-01",
        "plan_digest": DIGEST,
        "status": status,
        "verifier_version": 1,
        "reason_code": "verified_recovery" if good else "source_failure_not_reproduced",
        "sentence": text.format(
            "P1 passed two fresh runs of 500 steps on the simulated device."
            if good
            else "The unchanged configuration ran through, so there is nothing to recover. Next: look at what differed."
        ),
        "checks": checks(text, good),
        "candidate_id": "P1" if good else None,
        "config": {**config, "batch_size": 32, "gradient_accumulation_steps": 2} if good else None,
        "confirmation_run_ids": ("tomato-disease-c1-t5", "tomato-disease-c1-t6") if good else (),
        "device_kind": "simulated",
        "cause_addressed": "yes",
    }  # fmt: skip
    return Verdict(**{**values, **changes})


def run_row(text="{}", **changes):
    values = {
        "run_id": RUN,
        "project": text.format("tomato-disease"),
        "status": "failed",
        "end_reason": text.format("SimulatedOutOfMemoryError in forward"),
        "started_at": NOW - 41.3,
        "ended_at": NOW,
        "last_step": 119,
        "config": CONFIG,
        "facts": {
            "git": {"commit": "0f3c9a1b", "branch": text.format("main"), "dirty": True},
            "environment": {"python": "3.11.7", "packages": {"torch": "2.13.0"}},
            "machine": {"cpu": text.format("Xeon"), "cores": 2, "ram_bytes": 8 * 1024 * MIB},
        },
        "device": {"kind": "simulated", "name": text.format("simulated-cpu-budget"), "budget_bytes": 96 * MIB},
    }
    return {**values, **changes}


def metrics(name="loss", count=120):
    points = [
        {"name": name, "step": step, "value": 0.8 + 2.2 / (1 + step / 12) + 0.07 * (step % 5), "at": NOW + step}
        for step in range(count)
    ]
    return points + [
        {"name": "accuracy", "step": step, "value": 1 - 1 / (1 + step / 30), "at": NOW} for step in range(0, count, 4)
    ]


def samples(count=40):
    return [
        {
            "at": NOW + index,
            "rss_bytes": 700 * MIB + index * MIB,
            "device_allocated_bytes": int(40 * MIB + 50 * MIB * (index / count) ** 0.5),
            "device_reserved_bytes": None,
        }
        for index in range(count)
    ]


def artifacts(text="{}"):
    return [{"path": text.format("checkpoints/final.pt"), "size_bytes": 48_123_904, "sha256": "9c" * 32, "at": NOW}]


@pytest.fixture
def make():
    """The builders of this file, by name."""
    return SimpleNamespace(**{name: value for name, value in globals().items() if not name.startswith("_")})
