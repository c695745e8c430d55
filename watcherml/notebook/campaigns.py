"""Magics about plans and campaigns: show a plan, follow a campaign, take it up, end it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from watcherml.api.plans import find_plan
from watcherml.api.recover import RecoveryPreparation, resume_recovery
from watcherml.campaign.ledger import Ledger
from watcherml.errors import CampaignError
from watcherml.notebook.command import is_a, require_variable
from watcherml.notebook.held import HeldMemory
from watcherml.notebook.modules import pin_folders
from watcherml.notebook.others import going_on
from watcherml.notebook.panels.base import Page, Panel, calls_html, calls_text, notice
from watcherml.notebook.panels.plan import PlanPanel
from watcherml.notebook.panels.progress import ProgressPanel
from watcherml.notebook.panels.verdict import claim_page
from watcherml.options import Parser, add_machine_flags, secrets
from watcherml.report.html import html_plan
from watcherml.report.text import text_plan

if TYPE_CHECKING:
    from watcherml.notebook.session import Session


def declare_plan(parser: Parser) -> None:
    """Declare which plan is shown, and what no plan holds of this machine."""
    parser.add_argument("wanted", metavar="ID", help="a run (its newest plan), a campaign, or a plan's digest")
    parser.add_argument("--name", default="recovery", metavar="VAR",
                        help="variable for the panel of a plan that waits (default: %(default)s)")  # fmt: skip
    add_machine_flags(parser)


def plan(session: Session, values: Namespace) -> Panel:
    """Show a plan: one that waits can be decided on and started, of a campaign's what was decided."""
    storage = session.storage()
    preparation, campaign_id = find_plan(storage, values.wanted)
    if campaign_id is not None:
        return _of_campaign(preparation, campaign_id)
    require_variable(session, values.name, (PlanPanel, ProgressPanel))
    pin_folders(values)
    made = RecoveryPreparation(preparation.plan, storage, secrets(values))
    panel = PlanPanel(
        made,
        name=values.name,
        started=session.note_campaign,
        held=HeldMemory(session),
        project_root=values.project_root,
        python=values.python_executable,
    )
    session.shell.user_ns[values.name] = panel
    return panel


def _of_campaign(preparation: RecoveryPreparation, campaign_id: str) -> Page:
    ledger = Ledger(preparation.storage, campaign_id)
    approved, rejected = tuple(one.proposal_id for one in ledger.authorizations()), tuple(ledger.rejected())
    told = notice(f"This is the plan of campaign {campaign_id}, as it was decided when that was started.", "calm")
    calls = [f"%watcher recovery {campaign_id}"]
    return Page(
        f"{told.text()}\n\n{text_plan(preparation.plan, approved, rejected)}{calls_text('Next', calls)}",
        told.html() + html_plan(preparation.plan, approved, rejected) + calls_html("Next", calls),
    )


def declare_campaign(parser: Parser) -> None:
    """Declare a campaign that may be left out."""
    parser.add_argument("campaign_id", nargs="?", metavar="CAMPAIGN_ID", help="default: the last one")


def recovery(session: Session, values: Namespace) -> Panel:
    """Follow a campaign, also after a restart of the kernel."""
    claim = claim_page(session.storage(), values.campaign_id)
    return claim or _follow(session, ProgressPanel(session.campaign(values.campaign_id)))


def resume(session: Session, values: Namespace) -> Panel:
    """Take up a campaign that lost its supervisor."""
    campaign = session.campaign(values.campaign_id)
    return _follow(session, ProgressPanel(resume_recovery(campaign.campaign_id, campaign.storage)))


def stop(session: Session, values: Namespace) -> Panel:
    """End a running campaign. Without an id that is the last one, or if it has ended, the one that goes on."""
    campaign = session.campaign(values.campaign_id)
    if values.campaign_id is None and campaign.lifecycle != "running":
        running = [one for one in going_on(campaign.storage) if one.lifecycle == "running"]
        if len(running) > 1:
            names = ", ".join(f"`%watcher stop {one.campaign_id}`" for one in running)
            raise CampaignError(
                f"the last campaign, {campaign.campaign_id}, is not running, and {len(running)} others are",
                expected="the id of the one to end", remedy=f"One of {names}.",
            )  # fmt: skip
        campaign = running[0] if running else campaign
    return ProgressPanel(campaign, "").stop()  # no variable holds this panel


def _follow(session: Session, panel: ProgressPanel) -> Panel:
    session.note_campaign(panel.campaign)
    present = session.shell.user_ns.get(panel.name)
    if present is None or is_a(present, Panel):
        session.shell.user_ns[panel.name] = panel  # so that the calls which the panel names work
    else:
        panel.name = ""  # the variable is the person's, so that the panel names magics
    return panel.follow()
