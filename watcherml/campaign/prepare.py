"""From a recorded failure to a sealed plan on record. Zero trial compute."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from watcherml.campaign.despite import refused_by
from watcherml.campaign.predicting import dry_run_for, predictions_of
from watcherml.campaign.source import shortfall_of, told_control_only
from watcherml.contract import limits
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import RecoveryContract, VerificationRequirements
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import InvalidConfig, InvalidValue, RecoveryRefused
from watcherml.forensics.capsule import Capsule
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.forensics.causes.diagnose import refuses, ruled_out, supported_capabilities
from watcherml.planning.candidates import Candidates
from watcherml.planning.discover import discover
from watcherml.planning.equivalence import traits_of
from watcherml.planning.plan import make_plan
from watcherml.planning.rules.allocator import with_environment
from watcherml.protocol.plan import RecoveryPlan, RuledOut, Skipped, Source
from watcherml.protocol.proposal import ALLOCATOR_VARIABLES, config_digest
from watcherml.recorder import resupply
from watcherml.sealed.canonical import canonical_bytes
from watcherml.sealed.floats import whole_floats
from watcherml.store.storage import Storage
from watcherml.trials.check_entrypoint import EntrypointCheck, check_entrypoint, resolved_root
from watcherml.trials.dry_run import DryRun

_SHOWN_PATHS = 50
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class PrepareOptions:
    """What a person may ask of a plan beyond the contract's main parts.

    ``despite`` names the causes whose refusal is overruled, as ``refused_by`` reads it; all of them, or it stays.
    ``predict`` has the peaks of a simulated device predicted, which takes some seconds.
    """

    project_root: str = "."
    include_approval_required: bool = True
    max_proposals: int = limits.DEFAULT_PROPOSALS
    declarations: Mapping[str, Any] | None = None
    progress_metric: str = limits.DEFAULT_PROGRESS_METRIC
    control: bool = True
    python: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    despite: Sequence[str] = ()
    predict: bool = True


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
    baseline that cannot be repeated), ``InvalidEntrypoint``, ``InvalidValue`` (numbers that do not hold together, a
    secret that is resupplied for another path than a redacted one or not as ``env:NAME``, or a cause in ``despite``
    that refuses nothing).
    """
    if not 1 <= options.max_proposals <= limits.MAX_PROPOSALS:
        raise InvalidValue("max_proposals", expected=f"1 to {limits.MAX_PROPOSALS}", got=str(options.max_proposals))
    row = storage.get_run(failed_run_id)
    _check_origin(row)
    capsule = Capsule.from_json(storage.evidence.capsule(failed_run_id)["document"])
    _check_class(capsule)
    refused_by(capsule.diagnosis, options.despite)  # before a child process is started
    check_config(row, options.secrets)
    with dry_run_for(capsule.device, options.python, options.predict) as dry:
        contract, found = _contract(row, capsule, entrypoint, verification, budget, permissions, options)
        plan = _plan(row, capsule, contract, found, dry, options)
    storage.audit.put_record(plan.digest, plan.KIND, plan.to_json(), storage.clock())
    return plan


def _plan(
    row: Mapping[str, Any],
    capsule: Capsule,
    contract: RecoveryContract,
    found: EntrypointCheck,
    dry: DryRun | None,
    options: PrepareOptions,
) -> RecoveryPlan:
    source = source_of(row, capsule, options.declarations, options.despite)
    half = (source.half_precision or ("bf16",))[0]
    capabilities, skipped = discover(row["config"], options.declarations, half=half)
    capabilities = with_environment(capabilities, skipped, options.declarations, source.allocator)
    refused = refuses(capsule.diagnosis)
    if refused and source.still_refused_by:
        capabilities, skipped = (), (Skipped("every intervention", refused),)
    candidates = Candidates(contract, source, capabilities, skipped, options.include_approval_required)
    known = check_config(row, options.secrets)
    predictions = predictions_of(dry, contract, candidates, options.project_root, known, bool(found.uses_torch))
    return make_plan(
        contract,
        source,
        capabilities,
        skipped,
        include_approval_required=options.include_approval_required,
        max_proposals=options.max_proposals,
        predictions=predictions,
    )


def _contract(
    row: Mapping[str, Any],
    capsule: Capsule,
    entrypoint: TrainingEntrypoint,
    verification: VerificationRequirements,
    budget: RecoveryBudget,
    permissions: InterventionPermissions,
    options: PrepareOptions,
) -> tuple[RecoveryContract, EntrypointCheck]:
    resolved = budget.resolve(
        confirmation_runs=verification.confirmation_runs,
        minimum_progress_steps=verification.minimum_progress_steps,
        control=options.control,
    )
    found = check_entrypoint(entrypoint, options.project_root, python=options.python)
    contract = RecoveryContract(
        source_run_id=row["run_id"],
        source_capsule_digest=capsule.digest,
        source_failure_class=capsule.failure.class_,
        source_config_digest=config_digest(row["config"]),
        entrypoint=entrypoint,
        verification=verification,
        budget=resolved,
        permissions=permissions,
        code=found.code,
        environment_fingerprint=found.environment_fingerprint,
        device=capsule.device,
        progress_metric=options.progress_metric,
        control=options.control,
    )
    return contract, found


def source_of(
    row: Mapping[str, Any],
    capsule: Capsule,
    declarations: Mapping[str, Any] | None = None,
    despite: Sequence[str] = (),
) -> Source:
    """Return what the plan keeps of a failed run; ``InvalidValue`` names a wrong declaration or cause."""
    evidence = {piece.id: piece.data for piece in capsule.evidence}
    state, framework = evidence["EV-2"] or {}, evidence["EV-6"] or {}
    memory, causes = capsule.memory, refused_by(capsule.diagnosis, despite)
    return Source(
        run_id=row["run_id"],
        project=row["project"],
        config=row["config"],
        float_paths=whole_floats(row["config"]),
        capsule_digest=capsule.digest,
        failure_class=capsule.failure.class_,
        last_step=capsule.failure.step,
        logging_gap=int(state.get("logging_gap", 0)),
        requested_bytes=memory.requested_bytes,
        shortfall_bytes=shortfall_of(capsule),
        slack_bytes=memory.reserved_unallocated_bytes,
        phase=capsule.failure.phase,
        dataset_fingerprint=row["facts"].get("dataset", {}).get("fingerprint"),
        half_precision=_half_precision(capsule, framework),
        allocator=_allocator(framework),
        traits=traits_of(row["config"], tuple(framework.get("batch_norm_modules") or ()), declarations),
        supports=supported_capabilities(capsule.diagnosis),
        ruled_out=tuple(RuledOut(*one) for one in ruled_out(capsule.diagnosis)),
        control_only=told_control_only(capsule, causes),
        refused_by=causes,
        horizon_step=capsule.diagnosis.horizon_step,
    )


# Tensor cores for bfloat16 came with compute capability 8.0, fast float16 with 7.0 (CUDA programming guide, table of
# arithmetic throughput); torch emulates bfloat16 below, which saves memory but not time.
_BF16_FROM, _FP16_FROM = 8, 7


def _half_precision(capsule: Capsule, framework: Mapping[str, Any]) -> tuple[Literal["bf16", "fp16"], ...] | None:
    """Return what the device computes natively, best first; None where its generation was not recorded."""
    if capsule.device.kind == "simulated":
        return ("bf16",)  # torch's CPU autocast
    capability = framework.get("compute_capability")
    if capsule.device.kind != "cuda" or not capability:
        return None
    if capability[0] >= _BF16_FROM:
        return ("bf16", "fp16")
    return ("fp16",) if capability[0] >= _FP16_FROM else ()


def _allocator(framework: Mapping[str, Any]) -> str | None:
    """Return the allocator's setting in the failed process; empty where none was set, None without torch."""
    if "allocator_settings" not in framework:
        return None
    settings = framework["allocator_settings"]
    return str(next((settings[name] for name in ALLOCATOR_VARIABLES if settings.get(name)), ""))[:400]


def resolve_root(project_root: str) -> str:
    """Return the project root as the absolute path that trials get."""
    return str(resolved_root(project_root))


def _check_origin(row: Mapping[str, Any]) -> None:
    if row["origin"] != "here":
        raise RecoveryRefused(
            f"run {row['run_id']} was imported: it was not recorded here",
            expected="a failure that this store recorded itself",
            remedy="Run it here until it fails, and recover that run.",
        )


def _check_class(capsule: Capsule) -> None:
    found = capsule.failure.class_
    if found not in OOM_CLASSES:
        raise RecoveryRefused(
            f"run {capsule.run_id} failed as {found}",
            expected="a failure of class " + " or ".join(OOM_CLASSES),
            remedy="Its capsule remains for inspection; trials cannot recover it.",
        )


def check_config(row: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """Refuse a baseline that a fresh process cannot repeat; returns the mapping of redacted paths to ``env:NAME``.

    Raises ``InvalidConfig`` naming each value that is lossy, or redacted and not resupplied; ``InvalidValue`` for a
    resupplied path that is not redacted, or a reference that is not ``env:NAME``.
    """
    known = resupply.checked(secrets, row["redacted_paths"], row["config"])
    missing = [path for path in row["redacted_paths"] if path not in known]
    lossy = row["lossy_paths"]
    baseline = "a baseline that a fresh process can repeat"
    if missing:
        raise InvalidConfig(
            "the source configuration holds values that are redacted",
            expected=baseline,
            got=_listed(missing),
            remedy=_how_to_resupply(missing),
        )
    if lossy:
        raise InvalidConfig(
            "the source configuration holds values that are not JSON",
            expected=baseline,
            got=_listed(lossy),
            remedy="Record them as plain JSON (text, numbers, lists, objects), then record the failure again.",
        )
    size = len(canonical_bytes(row["config"]))
    if size > limits.MAX_CONFIG_BYTES:
        raise InvalidConfig(
            "the source configuration", expected=f"at most {limits.MAX_CONFIG_BYTES} bytes", got=f"{size} bytes"
        )
    return known


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(path[:_SHOWN_CHARACTERS] for path in paths[:_SHOWN_PATHS])
    return shown + (f" and {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else "")


def _how_to_resupply(paths: Sequence[str]) -> str:
    """Say for each redacted path how its value comes back; the variables' names are ours to propose."""
    shown = [path[:_SHOWN_CHARACTERS] for path in paths[:_SHOWN_PATHS]]
    names = [re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_").upper() or "SECRET" for path in shown]
    names = [name if not name[0].isdigit() else f"SECRET_{name}" for name in names]
    mapping = ", ".join(f'{json.dumps(path)}: "env:{name}"' for path, name in zip(shown, names, strict=True))
    flags = " ".join("--secret " + shlex.quote(f"{path}=env:{name}") for path, name in zip(shown, names, strict=True))
    return (
        "Name an environment variable that holds each whole value: secrets={" + mapping + "} in the SDK, or " + flags
        + ". The values are not stored; set the variables where the campaign is started."
    )  # fmt: skip
