"""From the flags of contract, budget and policy to a prepared recovery, for the commands that need one."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING

from watcherml import options
from watcherml.errors import UsageError
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.api.recover import RecoveryPreparation
    from watcherml.protocol.plan import RecoveryPlan

# Paths and variables of this machine. A plan holds none, so a plan can be run with them.
_OF_THIS_MACHINE = ("project_root", "python_executable", "secret")
_CHANGE, _LEAST = 2, 16  # the column of a proposal's change, which its id says in short, and what is left of it


def add_flags(parser: argparse.ArgumentParser, *, entrypoint_required: bool) -> None:
    """Add the flags of entrypoint, contract, budget and policy."""
    options.add_entrypoint_flags(parser, required=entrypoint_required)
    options.add_contract_flags(parser)
    options.add_policy_flags(parser)


def prepared(values: argparse.Namespace, storage: Storage) -> RecoveryPreparation:
    """Prepare a recovery of ``values.run_id``; raises what ``prepare_oom_recovery`` raises, flags first."""
    from watcherml.api import data
    from watcherml.api.recover import prepare_oom_recovery

    check_flags(values)
    row = data.run(storage, values.run_id)
    verification = options.requirements(values, options.steps_of(row["config"]), options.steps_below(row["config"]))
    budget, permissions, rest = options.budget(values), options.permissions(values), options.prepare_options(values)
    return prepare_oom_recovery(
        values.run_id, values.entrypoint, verification, budget, permissions, storage=storage, **rest
    )


def check_flags(values: argparse.Namespace) -> None:
    """Raise what is wrong with the flags themselves, before any store is looked at."""
    options.permissions(values)
    options.budget(values)
    options.prepare_options(values)
    options.requirements(values, default_steps=1)


def plan_in_short(
    plan: RecoveryPlan, authorized: Collection[str], *, color: bool = False, room: int | None = None
) -> str:
    """Return a plan in a few lines: proposals one a line, what a person has to weigh, success and spending.

    ``room`` is what a line of the table may take; without it changes stand there in full.
    """
    from watcherml.report import plain, safe, terms
    from watcherml.report.glossary import label

    rows: list[tuple[str, ...]] = []
    for one in plan.proposals:
        state = terms.STATE_WORDS[terms.state_of(one, authorized, ())]
        rows.append((one.proposal_id, state, one.title, terms.predicted(one, plan.contract.device)))
    titles: tuple[str, ...] = ("Proposal", "May run", "Change", "Predicted peak")
    if all(one.predicted_peak_bytes is None for one in plan.proposals):
        titles, rows = titles[:-1], [row[:-1] for row in rows]  # a column of "not predicted" says nothing
    lines = plain.wrap(terms.plan_headline(plan, authorized, ()), "  ", "  ")
    if rows and room is not None:
        others = [max(map(safe.width, column)) for column in zip(titles, *rows, strict=True)]
        left = room - 2 - sum(others) - 2 * (len(others) - 1) + others[_CHANGE]
        rows = [(*row[:_CHANGE], safe.cut(row[_CHANGE], max(left, _LEAST)), *row[_CHANGE + 1 :]) for row in rows]
    if rows:
        lines += plain.columns(titles, rows, color=color, indent="  ")
    for names, reason in () if rows else terms.left_out(plan):
        lines += plain.wrap(f"{', '.join(map(label, names))}: {reason}", "    ", "  ")
    for one in plan.proposals:
        if one.authority == "approval_required":
            for sentence in (one.expected_effect, *one.cautions):
                lines += plain.wrap(f"{one.proposal_id}: {sentence}", "    ", "  ")
    told = (*plan.notes, terms.batch_note(plan), *terms.success_sentences(plan.contract))
    for sentence in filter(None, (*told, *terms.spending_sentences(plan), terms.WRITES_SENTENCE)):
        lines += plain.wrap(sentence, "    ", "  ")
    return plain.finish([*lines, *plain.wrap(f"Plan {plan.digest}", "  ", "  ")])


def refuse_flags_of_a_contract(values: argparse.Namespace) -> None:
    """Raise ``UsageError`` for flags that a sealed plan has settled already, naming them."""
    parser = options.Parser(allow_abbrev=False)
    add_flags(parser, entrypoint_required=False)
    settled = vars(parser.parse_args([]))
    given = [name for name in settled if name not in _OF_THIS_MACHINE and getattr(values, name) != settled[name]]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(
            "--plan",
            expected="no flag that the sealed plan has settled",
            got=flags,
            remedy="Leave them out, or prepare another plan with them.",
        )
