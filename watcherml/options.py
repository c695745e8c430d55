"""The flags of contract, budget and policy, once for the command line and the magics.

The values are imported where they are made: every command line passes here, and most make none of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from watcherml.contract import limits
from watcherml.errors import UsageError

if TYPE_CHECKING:
    from watcherml.contract.budget import RecoveryBudget
    from watcherml.contract.contract import VerificationRequirements
    from watcherml.contract.permissions import InterventionPermissions


DEFAULT_LIMIT = 100  # rows of a list


class Help(argparse.HelpFormatter):
    """Help as wide as the terminal.

    argparse makes one for every option it is told of, and asks shutil for the width, with five archive modules behind.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


class RawHelp(Help, argparse.RawDescriptionHelpFormatter):
    """The same, with the description's and the epilog's own lines."""


class Parser(argparse.ArgumentParser):
    """A parser that raises ``UsageError`` instead of ending the process."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", Help)
        # An abbreviation that works today means something else with the next flag.
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError`` with the usage line as remedy."""
        raise UsageError(message, remedy=f"`{self.prog} --help` lists the options.")


# SQLite takes no number above 2**63 and Python reads none of 4,300 digits; nothing here is as large as this.
_MOST_DIGITS = 18


def columns() -> int:
    """Return what ``shutil.get_terminal_size().columns`` says."""
    told = os.environ.get("COLUMNS", "")[:_MOST_DIGITS]
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


def count(text: str) -> int:
    """Read a whole number of at least 1, for argparse."""
    number = int(text[:_MOST_DIGITS]) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text[:40]!r}")
    return number


def add_list_flags(parser: argparse.ArgumentParser, statuses: Sequence[str] = ()) -> None:
    """Add which rows of a list are shown: ``--project``, ``--status`` (one of ``statuses``, if any) and ``--limit``."""
    parser.add_argument("--project", metavar="NAME", help="only this project")
    if statuses:
        parser.add_argument("--status", choices=tuple(statuses), help="only this status")
    parser.add_argument("--limit", type=count, default=DEFAULT_LIMIT, metavar="N", help="default: %(default)s")


def check_verified(values: argparse.Namespace) -> None:
    """Raise ``UsageError`` for ``--verified`` beside another ``--status``."""
    if values.verified and values.status not in (None, "verified"):
        raise UsageError("--verified", expected="no other --status beside it", got=values.status)


def add_file_flags(parser: argparse.ArgumentParser, default: str) -> None:
    """Add where a file is written; ``default`` is its name."""
    parser.add_argument("--out", metavar="FILE", help=f"a file or a folder (default: {default} here)")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")


def add_resolve_flags(parser: argparse.ArgumentParser) -> None:
    """Add how a failure is marked."""
    parser.add_argument("--note", metavar="TEXT", default="", help="what resolved it, at most 2000 characters")
    parser.add_argument("--by", metavar="NAME", default="", help="who says so (default: this user)")
    parser.add_argument("--reopen", action="store_true", help="take the mark away")


def check_resolve(values: argparse.Namespace) -> None:
    """Raise ``UsageError`` for flags that contradict each other."""
    if values.reopen and (values.note or values.by):
        raise UsageError(
            "--reopen", expected="neither --note nor --by beside it", got="--note" if values.note else "--by"
        )


def add_contract_flags(parser: argparse.ArgumentParser) -> None:
    """Add what would count as success and what may be spent."""
    group = parser.add_argument_group("contract")
    shape = "NAME:DIRECTION:BASELINE:MAX_REGRESSION[:TARGET]"
    group.add_argument("--metric", action="append", default=[], metavar=shape,
                       help="guard a metric; repeat for several (direction: minimize or maximize)")  # fmt: skip
    group.add_argument("--minimum-progress-steps", type=int, metavar="N",
                       help="optimizer steps that full and confirmation runs must reach")  # fmt: skip
    group.add_argument("--confirmation-runs", type=int, default=limits.DEFAULT_CONFIRMATIONS, metavar="N",
                       help="independent confirmations, 1 to 3 (default: %(default)s)")  # fmt: skip
    group.add_argument("--max-peak-vram-gib", type=float, metavar="GIB", help="ceiling for the peak of device memory")
    group.add_argument("--progress-metric", default=limits.DEFAULT_PROGRESS_METRIC, metavar="NAME",
                       help="metric that reports finished steps (default: %(default)s)")  # fmt: skip
    group.add_argument("--no-control", action="store_true", help="skip the control trial; the verdict will say so")
    for name in ("dataset-fingerprint", "environment-fingerprint", "git-commit", "model-identifier"):
        group.add_argument(f"--{name}", metavar="VALUE", help="identity that each trial must measure and match")
    budget = parser.add_argument_group("budget")
    for flag, kind, text in (
        ("--max-trials", int, f"trials in all, at most {limits.MAX_TRIALS} (default: {limits.DEFAULT_TRIALS})"),
        ("--max-probe-trials", int, f"control and probes (default: {limits.DEFAULT_PROBES})"),
        ("--max-full-trials", int, f"full trials (default: {limits.DEFAULT_FULL})"),
        ("--max-parallel-probes", int, "probes at once, one GPU each (default: 1)"),
        ("--probe-steps", int, f"steps of a probe (default: {limits.DEFAULT_PROBE_STEPS})"),
        ("--trial-timeout", float, f"seconds a trial may take (default: {limits.DEFAULT_TRIAL_SECONDS:g})"),
        ("--campaign-timeout", float, f"seconds in all (default: {limits.DEFAULT_CAMPAIGN_SECONDS:g})"),
        ("--max-gpu-seconds", float, "GPU seconds in all (default: no limit)"),
        ("--termination-grace", float, f"seconds between SIGTERM and SIGKILL ({limits.DEFAULT_GRACE_SECONDS:g})"),
    ):
        budget.add_argument(flag, type=kind, metavar="N" if kind is int else "SECONDS", help=text)


def add_policy_flags(parser: argparse.ArgumentParser) -> None:
    """Add what may be changed."""
    group = parser.add_argument_group("policy")
    group.add_argument("--max-proposals", type=int, default=limits.DEFAULT_PROPOSALS, metavar="N",
                       help=f"proposals in the plan, 1 to {limits.MAX_PROPOSALS} (default: %(default)s)")  # fmt: skip
    group.add_argument("--automatic-only", action="store_true", help="leave out what needs a person's approval")
    for name, text in (
        ("approval-required", "plan changes that a person has to approve one by one"),
        ("semantic-changes", "plan changes of what is computed, such as shorter sequences"),
        ("high-risk", "plan changes of high risk"),
    ):
        group.add_argument(f"--allow-{name}", action="store_true", help=text)
    group.add_argument("--despite", action="append", default=[], metavar="CAUSE",
                       help="insist although the diagnosis refuses for this cause; repeat for several")  # fmt: skip
    group.add_argument("--no-predict", action="store_true",
                       help="plan without predicted peaks (made on the simulated device only)")  # fmt: skip
    group.add_argument("--capabilities", metavar="FILE", help="JSON declarations of where controls are; only tighten")


def add_entrypoint_flags(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add which function trains and where it is imported."""
    group = parser.add_argument_group("entrypoint")
    group.add_argument("--entrypoint", required=required, metavar="MODULE:FUNCTION",
                       help="importable training function, for example train_entrypoint:train")  # fmt: skip
    group.add_argument("--working-directory", default=".", metavar="DIR",
                       help="where trials run, relative to the project root (default: .)")  # fmt: skip
    add_machine_flags(group)


def add_machine_flags(group: argparse._ActionsContainer) -> None:
    """Add the paths and variables of this machine, which no plan holds."""
    add_code_flags(group)
    group.add_argument("--secret", action="append", default=[], metavar="PATH=env:NAME",
                       help="variable that holds the value of a redacted path; repeat for several")  # fmt: skip


def add_code_flags(group: argparse._ActionsContainer) -> None:
    """Add where the code is and which interpreter runs it."""
    group.add_argument("--project-root", default=".", metavar="DIR", help="folder that holds the code (default: .)")
    group.add_argument("--python-executable", metavar="PATH", help="interpreter of the trials (default: this one)")


def requirements(
    values: argparse.Namespace, default_steps: int | None = None, elsewhere: str = ""
) -> VerificationRequirements:
    """Return what the flags require; ``UsageError`` if no progress was named and none can be inferred.

    ``elsewhere`` is what ``steps_below`` found: a guess for a person to confirm, and never taken by itself.
    """
    from watcherml.contract.contract import VerificationRequirements
    from watcherml.contract.guards import parse_guard
    from watcherml.contract.identity import WorkloadIdentity

    steps = values.minimum_progress_steps if values.minimum_progress_steps is not None else default_steps
    if steps is None:
        raise UsageError(
            "--minimum-progress-steps",
            expected="the optimizer steps that a full run makes",
            got="nothing",
            remedy=f"If {elsewhere} counts them, give that number."
            if elsewhere
            else "Give the number, or record training_steps in the run's configuration.",
        )
    gib = values.max_peak_vram_gib
    if gib is not None and not 0 < gib < 1e6:  # also refuses NaN
        raise UsageError("--max-peak-vram-gib", expected="a number above 0", got=repr(gib))
    return VerificationRequirements(
        minimum_progress_steps=steps,
        metric_guards=tuple(parse_guard(text) for text in values.metric),
        confirmation_runs=values.confirmation_runs,
        max_peak_vram_bytes=None if gib is None else round(gib * 2**30),
        workload_identity=WorkloadIdentity(
            values.dataset_fingerprint, values.environment_fingerprint, values.git_commit, values.model_identifier
        ),
    )


def budget(values: argparse.Namespace) -> RecoveryBudget:
    """Return the budget that the flags set; what they leave out is resolved with the contract."""
    from watcherml.contract.budget import RecoveryBudget

    return RecoveryBudget(
        max_trials=values.max_trials,
        max_probe_trials=values.max_probe_trials,
        max_full_trials=values.max_full_trials,
        probe_steps=values.probe_steps,
        trial_timeout_seconds=values.trial_timeout,
        campaign_timeout_seconds=values.campaign_timeout,
        max_gpu_seconds=values.max_gpu_seconds,
        termination_grace_seconds=values.termination_grace,
        max_parallel_probes=values.max_parallel_probes,
    )


def permissions(values: argparse.Namespace) -> InterventionPermissions:
    """Return the campaign's ceilings; ``UsageError`` for flags that contradict each other."""
    from watcherml.contract.permissions import InterventionPermissions

    if values.automatic_only and (
        values.allow_approval_required or values.allow_semantic_changes or values.allow_high_risk
    ):
        raise UsageError("--automatic-only", expected="no --allow-... flag beside it", got="both")
    if values.despite and not values.allow_approval_required:
        raise UsageError(
            "--despite",
            expected="--allow-approval-required beside it",
            got="--automatic-only" if values.automatic_only else "a plan in which nothing may be approved",
            remedy="Add --allow-approval-required: what is tried despite a cause is approved by a person, one by one.",
        )
    return InterventionPermissions(
        values.allow_approval_required, values.allow_semantic_changes, values.allow_high_risk
    )


def prepare_options(values: argparse.Namespace) -> dict[str, Any]:
    """Return the remaining keyword arguments of ``prepare_oom_recovery``."""
    return {
        "project_root": values.project_root,
        "working_directory": values.working_directory,
        "include_approval_required": not values.automatic_only,
        "max_proposals": values.max_proposals,
        "declarations": None if values.capabilities is None else read_declarations(values.capabilities),
        "progress_metric": values.progress_metric,
        "control": not values.no_control,
        "python": values.python_executable,
        "secrets": secrets(values),
        "despite": tuple(values.despite),
        "predict": not values.no_predict,
    }


def secrets(values: argparse.Namespace) -> dict[str, str]:
    """Return ``--secret`` as a mapping of paths to ``env:NAME``; ``UsageError``, which repeats no value, otherwise."""
    found: dict[str, str] = {}
    for text in values.secret:
        path, equals, name = text.rpartition("=env:")
        if not equals or not path or not name:
            got = "text that is not of this form (it is not repeated: it may hold the secret)"
            raise UsageError("--secret", expected="PATH=env:NAME, the name of an environment variable", got=got)
        if path in found:
            raise UsageError("--secret", expected="each path once", got=f"{path[:200]!r} twice")
        found[path] = f"env:{name}"
    return found


def read_declarations(path: str) -> dict[str, Any]:
    """Read ``--capabilities FILE``: a JSON object; ``UsageError`` with the reason otherwise."""
    import json
    from pathlib import Path

    try:
        # Path.expanduser raises where there is no home.
        found = json.loads(Path(os.path.expanduser(path)).read_text("utf-8"))  # noqa: PTH111
    except (OSError, ValueError) as error:
        raise UsageError("--capabilities", expected="a readable JSON file", got=str(error)[:300]) from None
    if not isinstance(found, dict):
        raise UsageError("--capabilities", expected="a JSON object", got=type(found).__name__)
    return found


_DEEPEST_SECTION = 8
_STEPS = ("training_steps", "max_steps", "num_steps", "total_steps", "steps")


def steps_of(config: dict[str, Any]) -> int | None:
    """Return the steps a configuration says a full run makes: training_steps, max_steps, num_steps or steps."""
    for name in _STEPS:
        value = config.get(name)
        if type(value) is int and value > 0:
            return value
    return None


def steps_below(config: Any, path: str = "") -> str:
    """Return the first of those names in a section of a configuration, as ``train.steps = 400``; else an empty text."""
    for key, value in config.items() if isinstance(config, dict) and path.count(".") < _DEEPEST_SECTION else ():
        where = f"{path}.{key}" if path else str(key)
        if path and key in _STEPS and type(value) is int and value > 0:
            return f"{where} = {value}"
        found = steps_below(value, where)
        if found:
            return found
    return ""
