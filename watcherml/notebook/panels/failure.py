"""What is shown under the traceback of a failed cell."""

from __future__ import annotations

from typing import Any

from watcherml.forensics.capsule import Capsule
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.notebook.panels.base import Page, classed
from watcherml.report import markup, plain
from watcherml.report.html import html_failure
from watcherml.report.markup import Html
from watcherml.report.text import text_failure

_FRESH = "Changes of the configuration can be tried in fresh processes; nothing starts before you say so."
_RECOVER = [
    "%%watcher recover",
    "def train(config, max_steps=None):",
    "    ...  # data, model and optimizer, made here from config; at most max_steps optimizer steps if it is given",
    '    return {"steps_completed": steps}',
    "",
    "# or, with the function in a file train_entrypoint.py:",
    "%watcher recover --entrypoint train_entrypoint:train",
]


def failure_page(
    capsule: Capsule,
    state: str,
    release: dict[str, Any] | None = None,
    *,
    folded: bool = False,
    on_record: bool = True,
) -> Page:
    """Return a capsule as a panel.

    ``state`` says what became of the run, ``release`` what was given back (``Release.to_data()``). With ``folded``
    the capsule is one line until it is opened, for failures that need no more. A recovery is offered where the failure
    is ``on_record``: it starts from the run.
    """
    if folded:
        text = plain.finish(plain.wrap(f"WatcherML: {state}"))
        body = markup.root(markup.fold(markup.shown(f"WatcherML: {state}", 400), Html(html_failure(capsule, release))))
        return Page(text, classed("wml-failure", body))
    # The traceback stands right above; a second copy would push the rest out of sight.
    short = capsule.replace(failure=capsule.failure.replace(traceback=""))
    oom = capsule.failure.class_ in OOM_CLASSES and on_record
    next_text, next_html = _next([state, _FRESH] if oom else [state], _RECOVER if oom else [])
    return Page(
        text_failure(short, release) + next_text, classed("wml-failure", html_failure(capsule, release), next_html)
    )


def _next(sentences: list[str], calls: list[str]) -> tuple[str, Html]:
    words = [line for sentence in sentences for line in plain.wrap(sentence, "  ", "  ")]
    lines = [*words, "", *(f"  {call}".rstrip() for call in calls)] if calls else words
    block = markup.block(markup.escape_lines("\n".join(calls))) if calls else markup.EMPTY
    paragraphs = (markup.paragraph(markup.shown(sentence, 400)) for sentence in sentences)
    return plain.finish(plain.section("Next", lines, False)), markup.root(markup.section("Next", *paragraphs, block))
