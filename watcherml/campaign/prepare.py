"""From a recorded failure to a sealed plan on record. Zero trial compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watcherml.contract import limits
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import RecoveryContract, VerificationRequirements
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidConfig, InvalidValue, RecoveryRefused
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.forensics.causes.diagnose import refuses, supported_capabilities
from watcherml.planning.discover import discover
from watcherml.planning.plan import make_plan
from watcherml.protocol.plan import RecoveryPlan, Skipped, Source
from watcherml.protocol.proposal import config_digest
from watcherml.sealed.canonical import canonical_bytes
from watcherml.store.storage import Storage
from watcherml.trials.check_entrypoint import check_entrypoint


@dataclass(frozen=True)
class PrepareOptions:
    """What a person may ask of a plan beyond the contract's main parts."""

    project_root: str = "."
    include_approval_required: bool = True
    max_proposals: int = limits.DEFAULT_PROPOSALS
    declarations: Mapping[str, Any] | None = None
    progress_metric: str = limits.DEFAULT_PROGRESS_METRIC
    control: bool = True
    python: str | None = None


def prepare(
    storage: Storage,
    failed_run_id: str,
    entrypoint: TrainingEntrypoint,
    verification: VerificationRequirements,
    budget: RecoveryBudget,
    permissions: InterventionPermissions,
    options: PrepareOptions,
) -> RecoveryPlan:
    """Check the entrypoint in a child process, seal the contract, make the plan and put it on record.

    Raises ``NotFound`` (run or capsule), ``RecoveryRefused`` (another class of failure), ``InvalidConfig`` (a
    baseline that cannot be repeated), ``InvalidEntrypoint``, ``InvalidValue`` (numbers that do not hold together).
    """
    if not 1 <= options.max_proposals <= limits.MAX_PROPOSALS:
        raise InvalidValue("max_proposals", expected=f"1 to {limits.MAX_PROPOSALS}", got=str(options.max_proposals))
    row = storage.get_run(failed_run_id)
    capsule = Capsule.from_json(storage.evidence.capsule(failed_run_id)["document"])
    _check_class(capsule)
    _check_config(row)
    contract = _contract(row, capsule, entrypoint, verification, budget, permissions, options)
    capabilities, skipped = discover(row["config"], options.declarations)
    refused = refuses(capsule.diagnosis)
    if refused:
        capabilities, skipped = (), (Skipped("every intervention", refused),)
    plan = make_plan(
        contract,
        source_of(row, capsule),
        capabilities,
        skipped,
        include_approval_required=options.include_approval_required,
        max_proposals=options.max_proposals,
    )
    storage.audit.put_record(plan.digest, plan.KIND, plan.to_json(), storage.clock())
    return plan


def _contract(
    row: Mapping[str, Any],
    capsule: Capsule,
    entrypoint: TrainingEntrypoint,
    verification: VerificationRequirements,
    budget: RecoveryBudget,
    permissions: InterventionPermissions,
    options: PrepareOptions,
) -> RecoveryContract:
    resolved = budget.resolve(
        confirmation_runs=verification.confirmation_runs,
        minimum_progress_steps=verification.minimum_progress_steps,
        control=options.control,
    )
    found = check_entrypoint(entrypoint, options.project_root, python=options.python)
    return RecoveryContract(
        source_run_id=row["run_id"],
        source_capsule_digest=capsule.digest,
        source_failure_class=capsule.failure.class_,
        source_config_digest=config_digest(row["config"]),
        entrypoint=entrypoint,
        verification=verification,
        budget=resolved,
        permissions=permissions,
        code=found.code,
        device=capsule.device,
        progress_metric=options.progress_metric,
        control=options.control,
    )


def source_of(row: Mapping[str, Any], capsule: Capsule) -> Source:
    """Return what the plan keeps of a failed run."""
    state = next((piece.data for piece in capsule.evidence if piece.id == "EV-2"), None) or {}
    return Source(
        run_id=row["run_id"],
        project=row["project"],
        config=row["config"],
        capsule_digest=capsule.digest,
        failure_class=capsule.failure.class_,
        last_step=capsule.failure.step,
        logging_gap=int(state.get("logging_gap", 0)),
        requested_bytes=capsule.memory.requested_bytes,
        phase=capsule.failure.phase,
        dataset_fingerprint=row["facts"].get("dataset", {}).get("fingerprint"),
        supports=supported_capabilities(capsule.diagnosis),
    )


def resolve_root(project_root: str) -> str:
    """Return the project root as the absolute path that trials get."""
    return str(Path(project_root).expanduser().resolve())


def _check_class(capsule: Capsule) -> None:
    found = capsule.failure.class_
    if found not in OOM_CLASSES:
        raise RecoveryRefused(
            f"run {capsule.run_id} failed as {found}",
            expected="a failure of class " + " or ".join(OOM_CLASSES),
            remedy="Its capsule remains for inspection; trials cannot recover it.",
        )


def _check_config(row: Mapping[str, Any]) -> None:
    for paths, what, remedy in (
        (
            row["redacted_paths"],
            "redacted",
            "Take the secret out of the configuration and read it from the environment",
        ),
        (row["lossy_paths"], "not JSON", "Record it as plain JSON (text, numbers, lists, objects)"),
    ):
        if paths:
            raise InvalidConfig(
                f"the source configuration holds values that are {what}",
                expected="a baseline that a fresh process can repeat",
                got=", ".join(paths)[:500],
                remedy=f"{remedy}, then record the failure again.",
            )
    size = len(canonical_bytes(row["config"]))
    if size > limits.MAX_CONFIG_BYTES:
        raise InvalidConfig(
            "the source configuration", expected=f"at most {limits.MAX_CONFIG_BYTES} bytes", got=f"{size} bytes"
        )
