"""``TrialRequest``: what one fresh process is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.protocol.proposal import Change, Environment
from watcherml.sealed.device import Device
from watcherml.sealed.fields import (
    Bound,
    CampaignId,
    Digest,
    FloatPaths,
    Identity,
    Items,
    Json,
    Later,
    MetricName,
    Name,
    ProposalId,
    RunId,
    Seconds,
    Text,
    TrialId,
)
from watcherml.sealed.record import Record

_SecretPath = Annotated[str, Text(1, 10_000)]
_FromEnvironment = Annotated[str, Text(5, 204, r"env:[A-Za-z_][A-Za-z0-9_]*", "env: and the name of a variable")]
Role = Literal["control", "probe", "full", "confirmation"]


@dataclass(frozen=True, slots=True, eq=False)
class TrialRequest(Record):
    """A sealed order. The worker echoes its digest, so that a result can belong to nothing else.

    ``proposal_id`` is None for the control. ``float_paths`` are whole numbers of ``config`` that are floats.
    ``max_steps`` None means the configured length. ``changes`` are the candidate's, whose effect the worker reads back;
    None where it changes nothing of the configuration. Holds no paths of this machine; those stand in ``Launch``.
    """

    KIND: ClassVar[str] = "trial-request"

    request_id: TrialId
    campaign_id: CampaignId
    trial_id: TrialId
    run_id: RunId
    role: Role
    plan_digest: Digest
    contract_digest: Digest
    source_run_id: RunId
    proposal_id: ProposalId | None
    config: Json
    float_paths: FloatPaths
    config_digest: Digest
    environment: Environment
    entrypoint: TrainingEntrypoint
    device: Device
    progress_metric: MetricName
    max_steps: Annotated[int, Bound(1, 10**12, "steps")] | None
    timeout_seconds: Seconds
    grace_seconds: Seconds
    changes: Annotated[Annotated[tuple[Change, ...], Items(1, 16)] | None, Later()] = None


@dataclass(frozen=True, slots=True, eq=False)
class Launch(Record):
    """Where a trial runs on this machine; never exported and never part of a verdict.

    ``secrets`` maps paths of the configuration that hold a placeholder to ``env:NAME``: the worker takes the value from
    its environment. No value of a secret stands here or in the request. ``gpu`` is the only GPU that the trial may see,
    in the words of ``CUDA_VISIBLE_DEVICES``; None leaves it those that the supervisor sees.
    """

    KIND: ClassVar[str] = "trial-launch"

    request_digest: Digest
    project: Name
    project_root: Name
    store_path: Name
    python: Name
    dataset_path: Identity | None
    log_limit_bytes: Annotated[int, Bound(1_024, 100_000_000, "bytes")] = 1_000_000
    secrets: Mapping[_SecretPath, _FromEnvironment] = field(default_factory=dict)
    gpu: Annotated[Name | None, Later()] = None
