"""Recovery: prepare, authorize, start, follow, and read back with everything recomputed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from watcherml.api.result import RecoveryResult
from watcherml.api.telling import OnEvent, Teller, check_callback
from watcherml.campaign import resume, source, supervisor
from watcherml.campaign.ledger import Ledger, Settings
from watcherml.campaign.prepare import PrepareOptions, check_config, prepare, resolve_root
from watcherml.contract.budget import RecoveryBudget
from watcherml.contract.contract import VerificationRequirements
from watcherml.contract.entrypoint import TrainingEntrypoint
from watcherml.contract.permissions import InterventionPermissions
from watcherml.errors import CampaignError, InvalidValue, NotAuthorized, NotFound, NotOnRecord, StoreError, TrustError
from watcherml.planning.authorize import approvals_given, authorize, check_authorization, rejections_given
from watcherml.planning.plan import approval_ids, automatic_ids
from watcherml.platform import interpreter
from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.recorder import ids
from watcherml.recorder.redact import redact_text
from watcherml.sealed.fields import CampaignId
from watcherml.sealed.record import checked
from watcherml.sealed.shown import Shown
from watcherml.store.storage import Storage
from watcherml.trials.check_entrypoint import EntrypointCheck, check_entrypoint
from watcherml.trials.logs import with_tails

_LOOK_SECONDS = 0.2
# A campaign without a supervisor for so long is not about to get one.
_START_SECONDS = 30.0


def validate_entrypoint(
    spec: TrainingEntrypoint | str,
    project_root: str | os.PathLike[str] = ".",
    require_max_steps: bool = True,
    *,
    python: str | None = None,
) -> EntrypointCheck:
    """Import an entrypoint in a child process and return its parameters and code digests.

    ``python`` is the child's interpreter (default: this one). Raises ``InvalidEntrypoint`` with the reason and the
    remedy.
    """
    entrypoint = _entrypoint(spec, ".")
    return check_entrypoint(entrypoint, project_root, require_max_steps=require_max_steps, python=python)


class RecoveryPreparation(Shown):
    """A sealed plan on record in one store, before any compute.

    ``secrets`` says where trials find the values that were redacted (path to ``env:NAME``). It is no part of the plan:
    after ``from_json`` it is empty, and ``start_recovery(..., secrets=...)`` has to name them again.
    """

    def __init__(self, plan: RecoveryPlan, storage: Storage, secrets: Mapping[str, str] | None = None) -> None:
        self.plan = plan
        self.storage = storage
        self.secrets = dict(secrets or {})

    def __repr__(self) -> str:
        return f"<RecoveryPreparation {self.plan.source.run_id}: {len(self.plan.proposals)} proposals>"

    @property
    def policy_plan(self) -> RecoveryPlan:
        """The plan with its proposals."""
        return self.plan

    @property
    def automatic_proposal_ids(self) -> tuple[str, ...]:
        """The proposals that need no approval, in the order in which they would be tried."""
        return automatic_ids(self.plan)

    @property
    def approval_required_proposal_ids(self) -> tuple[str, ...]:
        """The proposals that run only with an authorization."""
        return approval_ids(self.plan)

    def authorize(self, proposal_id: str, *, approved_by: str, reason: str) -> Authorization:
        """Put one person's approval on record, bound to this plan's and that proposal's digest, and return it.

        Secrets in name and reason are redacted. Raises ``NotFound`` for another proposal, ``InvalidValue`` for an empty
        name or reason.
        """
        now = self.storage.clock()
        who, why = (redact_text(text) if isinstance(text, str) else text for text in (approved_by, reason))
        given = authorize(self.plan, proposal_id, approved_by=who, reason=why, now=now)
        self.storage.audit.put_record(given.digest, given.KIND, given.to_json(), now)
        return given

    def to_json(self) -> str:
        """Return the plan as its sealed document."""
        return self.plan.to_json()

    @classmethod
    def from_json(
        cls, text: str | bytes, *, storage: Storage | str | os.PathLike[str] | None = None
    ) -> RecoveryPreparation:
        """Read a plan that this store prepared.

        Raises ``InvalidRecord`` if the document was changed, ``NotOnRecord`` if this store did not make it,
        ``TrustError`` if the failure it was made for is not on record here as the plan tells it.
        """
        where = _storage(storage)
        plan = RecoveryPlan.from_json(text)
        _require_on_record(plan, where)
        return cls(plan, where)


class Campaign(Shown):
    """A handle on a campaign that runs in its own process. Losing the handle changes nothing."""

    def __init__(self, campaign_id: str, storage: Storage) -> None:
        self.campaign_id = campaign_id
        self.storage = storage
        storage.audit.campaign(campaign_id)

    def __repr__(self) -> str:
        return f"<Campaign {self.campaign_id} {self.lifecycle}>"

    @property
    def lifecycle(self) -> Literal["prepared", "running", "interrupted", "ended"]:
        """Where the campaign stands."""
        return resume.lifecycle(self.storage, self.campaign_id)

    @property
    def is_under_way(self) -> bool:
        """Whether the campaign comes to its end by itself: its supervising process runs, or may still start."""
        return resume.is_under_way(self.storage, self.campaign_id)

    @property
    def sentence(self) -> str:
        """Where it stands, in a sentence."""
        return resume.sentence(self.storage, self.campaign_id)

    @property
    def plan(self) -> RecoveryPlan:
        """The plan it runs."""
        return Ledger(self.storage, self.campaign_id).plan()

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the events with a number above ``after``: dicts with seq, at, type, body."""
        return self.storage.audit.events(self.campaign_id, after)

    def trials(self) -> list[dict[str, Any]]:
        """Return one row a trial, running ones included; ``log_tail`` has the last lines of those that failed."""
        return with_tails(self.storage.path, self.storage.audit.trials(self.campaign_id))

    def stop(self, by: str = "the SDK") -> None:
        """Ask for the campaign's end; does nothing if it has ended."""
        if self.lifecycle == "running":
            resume.request_stop(self.storage, self.campaign_id, by)

    def wait(self, timeout: float | None = None, *, on_event: OnEvent | None = None) -> RecoveryResult:
        """Wait for the end and return the result; KeyboardInterrupt passes and the campaign goes on.

        ``on_event`` is called in this thread with each event of the campaign, those from before the call too, in order:
        a dict with campaign_id, seq (from 1), at (seconds since 1970), type (prepared, started, trial_started,
        trial_ended, ranked, ended and others), body, and words, one line for a person. An exception of it is one
        warning, after which it is not called any more; the campaign goes on.
        Raises ``CampaignError`` after ``timeout`` seconds, or if the supervisor was lost or never started.
        """
        began = time.monotonic()
        deadline = None if timeout is None else began + timeout
        tell = Teller(self.campaign_id, self.events, on_event)
        while (state := self.lifecycle) in ("running", "prepared"):
            tell.new()
            if deadline is not None and time.monotonic() > deadline:
                raise CampaignError(
                    f"campaign {self.campaign_id} is still running", expected=f"an end in {timeout:g} s"
                )
            if state == "prepared" and time.monotonic() - began > _START_SECONDS:
                break
            time.sleep(_LOOK_SECONDS)
        tell.new()
        if state != "ended":
            raise CampaignError(
                f"campaign {self.campaign_id} has no supervisor ({state})",
                got=self.sentence,
                remedy=f"Resume it with `watcher resume {self.campaign_id}`.",
            )
        return self.result()

    def result(self) -> RecoveryResult:
        """Return the finished campaign's result, recomputed; ``CampaignError`` while it has none."""
        return RecoveryResult.of_campaign(self.campaign_id, self.storage)


def prepare_oom_recovery(
    failed_run_id: str,
    entrypoint: TrainingEntrypoint | str,
    verification: VerificationRequirements,
    budget: RecoveryBudget | None = None,
    permissions: InterventionPermissions | None = None,
    *,
    project_root: str | os.PathLike[str] = ".",
    working_directory: str = ".",
    include_approval_required: bool = True,
    storage: Storage | str | os.PathLike[str] | None = None,
    secrets: Mapping[str, str] | None = None,
    **options: Any,
) -> RecoveryPreparation:
    """Check, seal and plan a recovery without running a trial.

    ``secrets`` maps each redacted path of the configuration to ``env:NAME``: trials read the value from that variable,
    which is never stored. ``options`` are the remaining fields of ``PrepareOptions``: max_proposals, declarations,
    progress_metric, control, python, predict (False makes the plan without predicted peaks), and despite, the ids of
    causes such as "C10" whose refusal is overruled: every proposal then needs approval.
    Raises what ``watcherml.campaign.prepare.prepare`` raises.
    """
    where = _storage(storage)
    plan = prepare(
        where,
        failed_run_id,
        _entrypoint(entrypoint, working_directory),
        verification,
        budget or RecoveryBudget(),
        permissions or InterventionPermissions(),
        PrepareOptions(
            project_root=os.fspath(project_root),
            include_approval_required=include_approval_required,
            secrets={} if secrets is None else secrets,
            **options,
        ),
    )
    return RecoveryPreparation(plan, where, secrets)


def start_recovery(
    preparation: RecoveryPreparation,
    authorizations: Mapping[str, Authorization] | Iterable[Authorization] = (),
    *,
    rejections: Mapping[str, tuple[str, str]] | None = None,
    project_root: str | os.PathLike[str] = ".",
    campaign_id: str | None = None,
    python: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Campaign:
    """Start a campaign's supervisor process and return a handle; does not wait.

    ``rejections`` maps a proposal to (who, why); it will not be tried. ``secrets`` replaces the preparation's own.
    Raises ``InvalidValue`` for what is no approval, no rejection or no interpreter, ``NotAuthorized`` if an approval is
    not bound to this plan, ``NotOnRecord`` if the plan or an approval is not this store's, ``InvalidConfig`` for
    redacted values that nothing resupplies, ``CampaignError`` while another campaign runs this plan.
    """
    plan, storage = preparation.plan, preparation.storage
    _require_on_record(plan, storage)
    given = approvals_given(authorizations)
    for one in given:
        check_authorization(plan, one)
        storage.audit.record(one.digest, one.KIND)  # raises for an approval that nobody gave here, or that was edited
    for proposal_id in (rejections := rejections_given(rejections)):
        plan.proposal(proposal_id)
        if any(one.proposal_id == proposal_id for one in given):
            raise NotAuthorized(f"proposal {proposal_id}", expected="an approval or a rejection", got="both")
    row = storage.get_run(plan.source.run_id)
    settings = Settings(
        project_root=resolve_root(os.fspath(project_root)),
        python=_startable(python),
        dataset_path=row["facts"].get("dataset", {}).get("path"),
        secrets=check_config(row, preparation.secrets if secrets is None else secrets),
    )
    if campaign_id is not None:
        checked(CampaignId, campaign_id, "campaign_id")  # it becomes the name of a folder
    name = campaign_id or new_campaign_id(preparation)
    Ledger.open_new(storage, name, plan, given, rejections, settings)
    supervisor.spawn(storage, name)
    return Campaign(name, storage)


def run_prepared_recovery(
    preparation: RecoveryPreparation,
    authorizations: Mapping[str, Authorization] | Iterable[Authorization] = (),
    *,
    project_root: str | os.PathLike[str] = ".",
    on_event: OnEvent | None = None,
    **options: Any,
) -> RecoveryResult:
    """Run a prepared plan to its end and return the result. KeyboardInterrupt stops the campaign, then passes.

    ``on_event`` is called with each event as ``Campaign.wait`` describes it. ``options`` are the remaining arguments of
    ``start_recovery``. Raises what ``start_recovery`` and ``Campaign.wait`` raise.
    """
    check_callback(on_event)
    storage = preparation.storage
    # Named here, so that an interrupt while the supervisor comes up still knows what to stop.
    name = options.pop("campaign_id", None) or new_campaign_id(preparation)
    try:
        return start_recovery(preparation, authorizations, project_root=project_root, campaign_id=name, **options).wait(
            on_event=on_event
        )
    except KeyboardInterrupt:
        stop_started(name, storage, "Ctrl-C in the SDK call")
        raise


def stop_started(campaign_id: str, storage: Storage, by: str) -> None:
    """End a campaign that is running or just coming up, and wait for its end; nothing if it was never put on record."""
    try:
        campaign = Campaign(campaign_id, storage)
    except (NotFound, StoreError):
        return
    deadline = time.monotonic() + _START_SECONDS
    while campaign.lifecycle == "prepared" and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    campaign.stop(by)
    if campaign.lifecycle == "running":
        campaign.wait()


def recover_from_oom(
    failed_run_id: str,
    entrypoint: TrainingEntrypoint | str,
    verification: VerificationRequirements,
    budget: RecoveryBudget | None = None,
    *,
    project_root: str | os.PathLike[str] = ".",
    include_approval_required: bool = False,
    storage: Storage | str | os.PathLike[str] | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> RecoveryResult:
    """Prepare a recovery and run its automatic proposals to the end; ``on_event`` as ``Campaign.wait`` describes it.

    What is asked for with ``despite`` is never automatic: prepare it, authorize proposals, and run the prepared plan.
    """
    check_callback(on_event)
    preparation = prepare_oom_recovery(
        failed_run_id,
        entrypoint,
        verification,
        budget,
        project_root=project_root,
        include_approval_required=include_approval_required,
        storage=storage,
        **options,
    )
    python = options.get("python")
    return run_prepared_recovery(preparation, project_root=project_root, python=python, on_event=on_event)


def resume_recovery(campaign_id: str, storage: Storage | str | os.PathLike[str] | None = None) -> Campaign:
    """Take up a campaign that lost its supervisor; ``CampaignError`` if it runs or has ended."""
    where = _storage(storage)
    resume.resume(where, campaign_id)
    return Campaign(campaign_id, where)


def new_campaign_id(preparation: RecoveryPreparation) -> str:
    """Return an id for a campaign of this plan, for ``start_recovery(..., campaign_id=...)``."""
    return ids.new_id(f"recovery-{preparation.plan.source.project}", preparation.storage.clock())


def _storage(storage: Storage | str | os.PathLike[str] | None) -> Storage:
    return storage if isinstance(storage, Storage) else Storage(storage)


def _startable(python: str | None) -> str:
    """Return the interpreter of the trials; ``InvalidValue`` for one that is not there, before any trial is spent."""
    found = interpreter(python)
    if shutil.which(found) is None:
        raise InvalidValue(
            "python",
            expected="an interpreter that can be started",
            got=found[:300],
            remedy="Name one that exists (--python-executable PATH), or leave it out for this one.",
        )
    return found


def _entrypoint(spec: TrainingEntrypoint | str, working_directory: str) -> TrainingEntrypoint:
    return spec if isinstance(spec, TrainingEntrypoint) else TrainingEntrypoint(spec, working_directory)


def _require_on_record(plan: RecoveryPlan, storage: Storage) -> None:
    if not storage.audit.is_on_record(plan.digest, plan.KIND):
        raise NotOnRecord(
            "this plan is not on record",
            expected=f"a plan that was prepared in {storage.path}",
            got=plan.digest,
            remedy="Prepare it in this store; a plan runs only where it was made.",
        )
    for path, expected, got in source.on_record(plan, storage):
        raise TrustError(
            f"the failure that this plan was made for is not on record as the plan tells it ({path})",
            expected=expected,
            got=got,
            remedy="Prepare the recovery again, in a store that has the failure.",
        )
