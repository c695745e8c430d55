"""What is shown under the traceback of a failed cell."""

from __future__ import annotations

from typing import Any

from watcherml.forensics.capsule import Capsule
from watcherml.forensics.capture import OOM_CLASSES
from watcherml.notebook.panels.base import Page, calls_html, calls_text, classed
from watcherml.report import markup, plain
from watcherml.report.html import html_failure
from watcherml.report.markup import Html
from watcherml.report.text import text_failure

_RECOVER = [
    "%%watcher recover",
    "def train(config, max_steps=None):",
    '    ...  # data, model and optimizer, made here from config; at most max_steps optimizer steps if it is given',
    '    return {"steps_completed": steps}',
    "",
    "# or, with the function in a file train_entrypoint.py:",
    "%watcher recover --entrypoint train_entrypoint:train",
]


def failure_page(capsule: Capsule, state: str, release: dict[str, Any] | None = None, *, folded: bool = False) -> Page:
    """Return a capsule as a panel.

    ``state`` says what became of the run, ``release`` what was given back (``Release.to_data()``). With ``folded``
    the capsule is one line until it is opened, for failures that need no more.
    """
    oom = capsule.failure.class_ in OOM_CLASSES
    if folded:
        text = plain.finish(plain.wrap(f"WatcherML: {state}"))
        body = markup.root(markup.fold(markup.shown(f"WatcherML: {state}", 400), Html(html_failure(capsule, release))))
        return Page(text, classed("wml-failure", body))
    steps = ["Changes of the configuration can be tried in fresh processes; nothing starts before you say so."]
    # The traceback stands right above; a second copy would push the rest out of sight.
    short = capsule.replace(failure=capsule.failure.replace(traceback=""))
    text = text_failure(short, release) + plain.finish(["", *plain.wrap(state)])
    html = html_failure(capsule, release) + markup.root(markup.paragraph(markup.shown(state, 400)))
    if oom:
        text += plain.finish(plain.wrap(steps[0])) + calls_text("Next", _RECOVER)
        html += markup.root(markup.paragraph(markup.escape(steps[0]))) + calls_html("Next", _RECOVER)
    return Page(text, classed("wml-failure", html))
