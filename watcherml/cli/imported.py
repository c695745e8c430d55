"""A campaign that came with an imported run: shown as somebody else's claim."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from watcherml.cli.console import Console
from watcherml.cli.shared import as_json, deliver

if TYPE_CHECKING:
    from watcherml.store.storage import Storage


def show_imported(values: argparse.Namespace, console: Console, storage: Storage) -> None:
    """Deliver the claim, recomputed from the trials that it carries."""
    from watcherml.api.archive import imported_result, trial_rows
    from watcherml.errors import NotFound
    from watcherml.report.documents import verdict_document
    from watcherml.report.text import text_verdict

    result = imported_result(storage, values.campaign_id)
    if result is None:
        raise NotFound(f"no imported campaign {values.campaign_id[:100]!r}")
    verdict, plan, trials = result.verdict, result.chain.plan, trial_rows(result.chain)
    document = verdict_document(verdict, plan, trials, "imported")
    document.update(campaign_id=values.campaign_id, lifecycle="imported", events=[])
    deliver(
        values,
        console,
        {
            "text": lambda color: text_verdict(verdict, plan, trials, "imported", color=color),
            "json": as_json(document, one_line=values.watch),
        },
    )
