"""A campaign: where it stands, its verdict recomputed, its plan, and its audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request

from watcherml.api import archive, data
from watcherml.api.result import ELSEWHERE, RecoveryResult
from watcherml.errors import InvalidValue, NotFound, TrustError, WatcherError
from watcherml.protocol.plan import RecoveryPlan
from watcherml.report import markup
from watcherml.report.html import html_plan, html_progress, html_verdict
from watcherml.report.html_claim import html_claim
from watcherml.report.tables import event_name
from watcherml.store import pages
from watcherml.store.runs import Row
from watcherml.store.storage import Storage
from watcherml.ui.asking import address, item
from watcherml.ui.pages import common
from watcherml.ui.render import Page, environment, face
from watcherml.ui.site import Site


class Shown(NamedTuple):
    """A campaign at one moment.

    ``events`` are those after the one that was asked for and ``last`` is the last one's number. ``mark`` changes with
    the face, which is None where the reader has it already; ``plan`` is None there too.
    """

    state: str
    events: list[Row]
    last: int
    mark: str
    face: Markup | None
    plan: RecoveryPlan | None


def show(site: Site, request: Request) -> Page:
    """Return the page; ``NotFound`` for an unknown campaign."""
    campaign_id = site.campaign_id(request.path_params["campaign_id"])
    storage = common.current(site.storage)
    row = data.campaign(storage, campaign_id)
    seen = look(storage, campaign_id, 0)
    values = {
        "row": row,
        "state": seen.state,
        "face": seen.face,
        "trail": trail_html(seen.events),
        "claimed": str(row["sentence"]).startswith(ELSEWHERE),
        "live": seen.state in ("running", "prepared"),
        "stream": address(item("live", campaign_id), after=str(seen.last)),
        "interrupted": seen.state == "interrupted",
        "run_link": item("runs", row["source_run_id"]),
        "failure_link": item("failures", row["source_run_id"]),
        "plan": _plan_face(seen),
        "trials": _trial_links(storage, row),
    }
    return Page("campaign.html", "/campaigns", campaign_id, values)


def look(storage: Storage, campaign_id: str, after: int, known: str = "") -> Shown:
    """Return a campaign as it stands, with its events after a number; ``known`` is the mark of the face shown."""
    row = data.campaign(storage, campaign_id)
    state = str(row["lifecycle"])
    events = [] if state == "imported" else data.events(storage, campaign_id, after)
    last = int(events[-1]["seq"]) if events else after
    mark = f"{state} {row['trials']} {last}"
    if mark == known:
        return Shown(state, events, last, mark, None, None)
    drawn, plan = _face(storage, row, events)
    return Shown(state, events, last, mark, face(drawn), plan)


def trail_html(events: Sequence[Row]) -> Markup:
    """Return lines of the audit trail."""
    lines = [{**one, "name": event_name(one)} for one in events]
    return Markup(environment().get_template("trail.html").render(events=lines))


def _face(storage: Storage, row: Row, events: Sequence[Row]) -> tuple[str, RecoveryPlan | None]:
    """Return the report of where a campaign stands, and its plan where there is one that can be read."""
    campaign_id, state = str(row["campaign_id"]), str(row["lifecycle"])
    if storage.is_older:
        return html_claim(row, storage.audit.trials(campaign_id)), None
    try:
        if state == "imported":
            found = archive.imported_result(storage, campaign_id)
            if found is None:
                raise NotFound(f"no imported campaign {campaign_id[:100]}")
            chain = found.chain
            return html_verdict(found.verdict, chain.plan, archive.trial_rows(chain), "imported"), chain.plan
        trials = storage.audit.trials(campaign_id)
        if state == "ended":
            result = RecoveryResult.of_campaign(campaign_id, storage)
            return html_verdict(result.verdict, result.chain.plan, trials, result.standing), result.chain.plan
        plan = RecoveryPlan.from_json(storage.audit.record(str(row["plan_digest"]), RecoveryPlan.KIND))
        sentence = row["sentence"] or (events[-1]["words"] if events else "")
        return html_progress(plan, trials, state, str(sentence)), plan
    except (TrustError, InvalidValue) as error:
        return _untrusted(error), None


def _untrusted(error: WatcherError) -> str:
    """What is on record does not hold together: nothing is claimed, and what was found is said."""
    words = "What is on record of this campaign does not hold together, so nothing is claimed."
    facts = markup.pairs(
        [
            ("Found", markup.shown(error.message, markup.SENTENCE_LIMIT)),
            ("Expected", markup.shown(error.expected, 300) if error.expected else markup.EMPTY),
            ("Got", markup.shown(error.got, 300) if error.got else markup.EMPTY),
            ("Next", markup.escape("`watcher verify` with this campaign's id says where it was altered.")),
        ]
    )
    return markup.root(markup.banner("bad", markup.escape("Recovery campaign"), markup.escape(words)), facts)


def _plan_face(seen: Shown) -> Markup:
    """Return the plan with what a person decided on it; empty where there is none that can be read."""
    if seen.plan is None:
        return Markup("")
    decided: dict[str, list[str]] = {"authorized": [], "rejected": []}
    for event in seen.events:
        if event["type"] in decided:
            decided[event["type"]].append(str(event["body"].get("proposal_id")))
    return face(html_plan(seen.plan, decided["authorized"], decided["rejected"]))


def _trial_links(storage: Storage, row: Row) -> list[dict[str, Any]]:
    """Return the trials whose runs are in this store."""
    if row["lifecycle"] == "imported":
        return []
    trials = storage.audit.trials(str(row["campaign_id"]))
    with storage.database.reading() as connection:
        there = pages.present(connection, [str(one["run_id"]) for one in trials])
    return [{**one, "link": item("runs", one["run_id"])} for one in trials if one["run_id"] in there]
