"""``%watcher compare RUN_A RUN_B`` as a panel."""

from __future__ import annotations

from collections.abc import Sequence

from watcherml.api.compare import compare
from watcherml.errors import UsageError
from watcherml.forensics.neighbours import Comparison
from watcherml.notebook.panels.base import Page, classed
from watcherml.report.html import html_compare
from watcherml.report.safe import one_line
from watcherml.report.text import text_compare
from watcherml.store.storage import Storage


def comparison_page(found: Comparison) -> Page:
    """Return a comparison as a panel."""
    return Page(text_compare(found), classed("wml-compare", html_compare(found)))


def compare_runs(storage: Storage, words: Sequence[str]) -> Page:
    """Return the panel for the two run ids that were typed; ``UsageError`` if there are not two."""
    if len(words) != 2:
        raise UsageError(
            "%watcher compare", expected="two run ids", got=one_line(" ".join(words), 120) or "nothing",
            remedy="`%watcher runs` lists them.",
        )  # fmt: skip
    return comparison_page(compare(storage, words[0], words[1]))
