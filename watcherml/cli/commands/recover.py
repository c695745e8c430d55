"""``watcher recover``: observe, plan, authorize, execute, verify."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from watcherml import options
from watcherml.cli.console import Console
from watcherml.cli.contracts import add_flags, check_flags, plan_in_short, prepared, refuse_flags_of_a_contract
from watcherml.cli.shared import add_format, command_line, refuse_other_file, storage_of, write_file
from watcherml.cli.verdicts import deliver_result
from watcherml.errors import Declined, NotFound, UsageError
from watcherml.platform import expanded
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.api.recover import Campaign, RecoveryPreparation
    from watcherml.protocol.authorization import Authorization
    from watcherml.protocol.proposal import Proposal

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_STAGES = ("Observe", "Plan", "Authorize", "Execute", "Verify")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run_id", nargs="?", metavar="RUN_ID", help="the failed run; leave it out with --plan")
    parser.add_argument("--plan", metavar="FILE", help="run a sealed plan that this store prepared")
    add_flags(parser, entrypoint_required=False)
    group = parser.add_argument_group("authorization")
    group.add_argument("--authorize", action="append", default=[], metavar="PROPOSAL_ID",
                       help="approve one proposal of the plan; repeat for several")  # fmt: skip
    group.add_argument("--approved-by", metavar="NAME", help="who approves")
    group.add_argument("--approval-reason", metavar="TEXT", help="why")
    group.add_argument("--no-approval-prompts", action="store_true", help="do not ask about proposals")
    group.add_argument("--yes", action="store_true", help="confirm the compute; approves no proposal")
    group = parser.add_argument_group("execution")
    group.add_argument("--save-plan", metavar="FILE", help="also write the sealed plan to a file")
    group.add_argument("--campaign-id", metavar="ID", help="name the campaign (default: made from the project)")
    group.add_argument("--trials-root", metavar="DIR", help="must be the store's own folder for trials")
    add_format(parser)


def run(values: argparse.Namespace, console: Console) -> int:
    """Do it, and return 0 only for a verified recovery."""
    _check(values)
    storage = storage_of(values)
    _check_trials_root(values, storage)
    recovery = _Recovery(values, console, storage)
    preparation = recovery.plan()
    approvals = recovery.authorize(preparation)
    recovery.confirm(preparation)
    return recovery.execute(preparation, approvals)


def _check(values: argparse.Namespace) -> None:
    if values.plan is not None:
        if values.run_id is not None:
            raise UsageError("RUN_ID", expected="either a run or --plan FILE", got="both")
        if values.save_plan is not None:
            raise UsageError("--save-plan", expected="no --plan beside it", got="both")
        refuse_flags_of_a_contract(values)
    elif values.run_id is None:
        raise UsageError("RUN_ID", expected="a failed run, or --plan FILE", got="neither")
    elif values.entrypoint is None:
        raise UsageError("--entrypoint", expected="MODULE:FUNCTION, for example train_entrypoint:train", got="nothing")
    if values.plan is None:
        check_flags(values)
    refuse_other_file(values.save_plan, "--save-plan")
    if values.authorize and not (values.approved_by and values.approval_reason):
        raise UsageError("--authorize", expected="--approved-by and --approval-reason beside it", got="not both")
    if values.campaign_id is not None and not _ID.fullmatch(values.campaign_id):
        raise UsageError("--campaign-id", expected="letters, digits, '.', '_', '+', '-'", got=values.campaign_id[:100])


def _check_trials_root(values: argparse.Namespace, storage: Storage) -> None:
    own = storage.path / "trials"
    if values.trials_root is not None and expanded(values.trials_root).resolve() != own.resolve():
        raise UsageError(
            "--trials-root",
            expected=f"the store's own folder {own}",
            got=values.trials_root,
            remedy="Trials stand beside their records; move both with --data-dir.",
        )


class _Recovery:
    """One call of the command, stage by stage."""

    def __init__(self, values: argparse.Namespace, console: Console, storage: Storage) -> None:
        self.values, self.console, self.storage = values, console, storage

    def stage(self, number: int) -> None:
        """Head a stage."""
        from watcherml.report import plain

        title = f"[{number + 1}/{len(_STAGES)}] {_STAGES[number]}"
        self.console.say(f"\n{plain.bold(title, self.console.color)}")

    def plan(self) -> RecoveryPreparation:
        """Show the failure, then prepare the plan or read it from its file, and show it."""
        loaded = None if self.values.plan is None else self._loaded(self.values.plan)
        self.console.say(" → ".join(_STAGES))
        self.stage(0)
        self._observe(self.values.run_id if loaded is None else loaded.plan.source.run_id)
        self.stage(1)
        preparation = loaded or prepared(self.values, self.storage)
        shown = plan_in_short(preparation.plan, self.values.authorize, color=self.console.color, room=self.console.room)
        self.console.say(shown)
        if self.values.save_plan is not None:
            write_file(self.values.save_plan, preparation.to_json(), "--save-plan")
            self.console.say(f"Wrote {self.values.save_plan}.")
        return preparation

    def _observe(self, run_id: str) -> None:
        from watcherml.api import data
        from watcherml.report import plain

        data.run(self.storage, run_id)
        capsule = data.capsule(self.storage, run_id)
        if capsule is None:
            raise NotFound(f"run {run_id[:100]!r} has no capsule", remedy="Only a failed run can be recovered.")
        self.console.say("\n".join(plain.wrap(capsule.headline, "  ", "  ")))
        self.console.say(f"  The evidence: {command_line(self.values, 'inspect', run_id)}")

    def _loaded(self, path: str) -> RecoveryPreparation:
        from watcherml.api.recover import RecoveryPreparation

        try:
            text = expanded(path).read_bytes()
        except OSError as error:
            raise UsageError("--plan", expected="a readable file", got=f"{path}: {error.strerror}") from None
        loaded = RecoveryPreparation.from_json(text, storage=self.storage)
        loaded.secrets = options.secrets(self.values)
        return loaded

    def authorize(self, preparation: RecoveryPreparation) -> tuple[Authorization, ...]:
        """Return the approvals that the flags give, then those that a person gives when asked."""
        self.stage(2)
        values = self.values
        given = [
            preparation.authorize(one, approved_by=values.approved_by, reason=values.approval_reason)
            for one in dict.fromkeys(values.authorize)
        ]
        approved = {one.proposal_id for one in given}
        for proposal_id in preparation.approval_required_proposal_ids:
            if proposal_id in approved:
                self.console.say(f"  {proposal_id}: approved by {values.approved_by}")
                continue
            one = self._asked(preparation, preparation.plan.proposal(proposal_id))
            if one is None:
                self.console.say(f"  {proposal_id}: not approved, so it will not run")
            else:
                given.append(one)
        automatic = len(preparation.automatic_proposal_ids)
        self.console.say(f"  {automatic} automatic, {len(given)} approved.")
        return tuple(given)

    def _asked(self, preparation: RecoveryPreparation, proposal: Proposal) -> Authorization | None:
        if self.values.no_approval_prompts or not self.console.can_ask:
            return None
        if not self.console.agrees(f"Approve {proposal.proposal_id}: {proposal.title}?"):
            return None
        name = self.values.approved_by or self.console.ask("Your name or address:")
        reason = self.values.approval_reason or self.console.ask("Reason:")
        if not name or not reason:
            self.console.warn("An approval needs a name and a reason.")
            return None
        return preparation.authorize(proposal.proposal_id, approved_by=name, reason=reason)

    def confirm(self, preparation: RecoveryPreparation) -> None:
        """Have the compute confirmed; ``Declined`` if a person says no or there is nobody to ask."""
        from watcherml.report import terms
        from watcherml.report.units import format_seconds, plural

        if self.values.yes or not (preparation.plan.proposals or preparation.plan.runs_control_only):
            return  # a plan without proposals runs nothing; it puts the refusal on record
        trials = plural(terms.worst_case_trials(preparation.plan), "trial")
        seconds = format_seconds(terms.worst_case_seconds(preparation.plan))
        if not self.console.can_ask:
            raise Declined(
                "nothing was run, because nobody could be asked",
                expected=f"a terminal, or --yes to confirm up to {trials} and {seconds} of wall time",
                got="--format json without --yes" if self.console.json else "no terminal and no --yes",
            )
        if not self.console.agrees(f"Run up to {trials}, at worst {seconds} of wall time?"):
            raise Declined("declined; nothing was run", remedy="The plan stays on record.")

    def execute(self, preparation: RecoveryPreparation, approvals: tuple[Authorization, ...]) -> int:
        """Run the campaign and deliver its verdict."""
        from watcherml.api.recover import start_recovery
        from watcherml.cli.follow import run_campaign

        self.stage(3)
        values = self.values

        def start() -> Campaign:
            return start_recovery(
                preparation,
                approvals,
                project_root=values.project_root,
                campaign_id=values.campaign_id,
                python=values.python_executable,
            )

        campaign, result = run_campaign(self.console, start, "Ctrl-C at watcher recover", self._started)
        self.stage(4)
        return deliver_result(values, self.console, campaign, result)

    def _started(self, campaign: Campaign) -> None:
        self.console.say(f"  Campaign {campaign.campaign_id}; Ctrl-C stops it.")
