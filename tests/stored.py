"""Whole campaigns put on record in a real store, without running a process."""

from __future__ import annotations

from builders import CAMPAIGN, FAILED_CONFIG, OOM_TEXT, approve, chain, good_trials, planned, trial

import watcherml
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.campaign.prepare import source_of
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.permissions import InterventionPermissions
from watcherml.forensics.capsule import Capsule
from watcherml.protocol.verdict import Ending
from watcherml.sealed.device import Device
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

NONE = Device("none")


def recorded_plan(storage, config, **options):
    """Return a plan on record for a failure that was really recorded in the store."""
    run = watcherml.Run("demo", config, storage, quiet=True)
    try:
        with run:
            run.log_metric("val_loss", 0.5, step=3)
            raise RuntimeError(OOM_TEXT)
    except RuntimeError:
        pass
    capsule = Capsule.from_json(storage.evidence.capsule(run.run_id)["document"])
    made = planned(source_of(storage.get_run(run.run_id), capsule), capsule.device, **options)
    storage.audit.put_record(made.digest, made.KIND, made.to_json(), storage.clock())
    return made


def record(storage, campaign_id, plan, trials, authorizations=(), **changes):
    """Put a finished campaign on record as a supervisor does, and return its chain; ``changes`` go into its verdict."""
    ending = Ending("decided")
    ledger = Ledger.open_new(storage, campaign_id, plan, authorizations, {}, Settings("/nowhere", "python"))
    for number, one in enumerate(trials, 1):
        ledger.start_trial(one.request, number)
        ledger.end_trial(one.request, one.result)
    trials = ledger.trials()
    verdict = verify(campaign_id, plan, authorizations, trials, ending).replace(**changes)
    ranking = rank(plan, authorizations, trials)
    made = type(chain(plan, trials))(campaign_id, plan, authorizations, trials, ending, ranking, verdict)
    ledger.finish(made)
    return made


def record_by(storage, campaign_id, changes):
    """Put a campaign on record whose verdict another verifier made."""
    plan = recorded_plan(storage, FAILED_CONFIG)
    return record(storage, campaign_id, plan, rename(good_trials(plan), campaign_id), **changes)


def rename(trials, campaign_id):
    """Return the trials with ids of another campaign."""
    renamed = []
    for one in trials:
        request = one.request.replace(
            campaign_id=campaign_id,
            trial_id=one.request.trial_id.replace(CAMPAIGN, campaign_id),
            run_id=f"{campaign_id}-{one.request.run_id}",
            request_id=f"{campaign_id}-{one.request.request_id}",
        )
        result = one.result.replace(
            request_digest=request.digest,
            trial_id=request.trial_id,
            run_id=request.run_id,
            execution_id=None if one.result.execution_id is None else f"exec-{request.trial_id}",
        )
        renamed.append(type(one)(request, result))
    return tuple(renamed)


def campaigns(storage):
    """Record one campaign of each kind and return their chains, the verified ones first."""
    config = {**FAILED_CONFIG, "sequence_length": 128, "optimizer": {"name": "adam", "betas": [0.9, 0.95], "lr": 3e-4}}
    wide = InterventionPermissions(True, True, True)
    plan = recorded_plan(storage, config, permissions=wide)
    other = recorded_plan(storage, {**config, "batch_size": "48", "use_cache": True}, permissions=wide)
    tight = recorded_plan(storage, config, budget=RecoveryBudget(max_probe_trials=1), permissions=wide)
    semantic = good_trials(plan, "sequence-64")
    approved = (approve(plan, "sequence-64"), approve(plan, "sequence-64").replace(approved_by="b@example.org"))
    failing = (*good_trials(other, "batch-24x2")[:2], trial(other, "full", 3, "batch-24x2", outcome="oom"))
    made = [
        (plan, (*good_trials(plan), trial(plan, "control", 6, outcome="oom")), ()),
        (plan, semantic, approved),
        (other, (*good_trials(other, "batch-24x2"), trial(other, "probe", 6, "checkpointing", "oom")), ()),
        (tight, (good_trials(tight)[0], *good_trials(tight)[2:]), ()),
        (other, failing, ()),
        (plan, (trial(plan, "control", 1),), ()),
    ]
    return [
        record(storage, f"campaign-{number}", one, rename(trials, f"campaign-{number}"), approvals)
        for number, (one, trials, approvals) in enumerate(made, 1)
    ]
