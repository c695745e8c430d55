"""Magics that show or mark what is on record: lists, one run, two runs side by side, what a result is worth."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, get_args

from watcherml.api import data
from watcherml.api.resolve import resolve
from watcherml.api.verify import examine
from watcherml.notebook.faces import run_page
from watcherml.notebook.panels.base import Page, Panel
from watcherml.notebook.panels.compare import compare_runs
from watcherml.options import Parser, add_list_flags, add_resolve_flags, check_resolve, check_verified
from watcherml.protocol.verdict import Status
from watcherml.report import markup
from watcherml.report.html import html_campaigns_table, html_failures_table, html_runs_table
from watcherml.report.text import campaigns_table, failures_table, runs_table
from watcherml.report.text_failures import text_resolution
from watcherml.report.text_verify import text_verification
from watcherml.store.runs import STATUSES

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

CAMPAIGN_STATUSES: tuple[str, ...] = get_args(Status)


def declare_runs(parser: Parser) -> None:
    """Declare the flags of ``%watcher runs``."""
    add_list_flags(parser, STATUSES)
    parser.add_argument("--trials", action="store_true", help="also the runs of recovery trials")


def runs(session: Session, values: Namespace) -> Panel:
    """List the recorded runs, newest first."""
    rows = data.runs(
        session.storage(), project=values.project, status=values.status, limit=values.limit, trials=values.trials
    )
    return Page(runs_table(rows), html_runs_table(rows))


def declare_failures(parser: Parser) -> None:
    """Declare the flags of ``%watcher failures``."""
    add_list_flags(parser)
    parser.add_argument("--unresolved", action="store_true", help="only those that nobody marked as resolved")


def failures(session: Session, values: Namespace) -> Panel:
    """List the failures on record, newest first."""
    rows = data.failures(session.storage(), project=values.project, unresolved=values.unresolved, limit=values.limit)
    return Page(failures_table(rows), html_failures_table(rows))


def declare_recoveries(parser: Parser) -> None:
    """Declare the flags of ``%watcher recoveries``."""
    add_list_flags(parser, CAMPAIGN_STATUSES)
    parser.add_argument("--verified", action="store_true", help="only verified ones")


def recoveries(session: Session, values: Namespace) -> Panel:
    """List the campaigns, newest first."""
    check_verified(values)
    rows = data.campaigns(
        session.storage(), project=values.project, status=values.status, verified=values.verified, limit=values.limit
    )
    return Page(campaigns_table(rows), html_campaigns_table(rows))


def declare_run_id(parser: Parser) -> None:
    """Declare one run."""
    parser.add_argument("run_id", metavar="RUN_ID", help="as `%%watcher runs` lists it")


def inspect(session: Session, values: Namespace) -> Panel:
    """Show one run with its metrics and its failure."""
    storage = session.storage()
    return run_page(storage, data.run(storage, values.run_id))


def declare_compare(parser: Parser) -> None:
    """Declare two runs."""
    parser.add_argument("run_ids", nargs="*", metavar="RUN_ID", help="two runs, the earlier one first")


def compare(session: Session, values: Namespace) -> Panel:
    """Show what differs between two runs."""
    return compare_runs(session.storage(), values.run_ids)


def declare_resolve(parser: Parser) -> None:
    """Declare a failed run and how it is marked."""
    parser.add_argument("run_id", metavar="RUN_ID", help="a failed run, as `%%watcher failures` lists it")
    add_resolve_flags(parser)


def resolved(session: Session, values: Namespace) -> Panel:
    """Mark a failure as resolved, or open it again."""
    check_resolve(values)
    done = resolve(values.run_id, by=values.by, note=values.note, reopen=values.reopen, storage=session.storage())
    return _as_printed(text_resolution(done.to_data()))


def declare_verify(parser: Parser) -> None:
    """Declare what is checked."""
    parser.add_argument("target", metavar="TARGET", help="a result or plan file, a ZIP of some, or a campaign's id")


def verify(session: Session, values: Namespace) -> Panel:
    """Recompute a result, a plan, an archive or a campaign, and say what it is worth in this store."""
    return _as_printed(text_verification(examine(values.target, session.storage()).to_data()))


def _as_printed(text: str) -> Page:
    return Page(text, markup.root(markup.block(markup.escape_lines(text.rstrip("\n")))))
