"""A face as a whole page: one file that opens anywhere, without a script, a style sheet or a request."""

from __future__ import annotations

import html

from watcherml.report.safe import one_line

_BODY = (
    "margin:24px auto;max-width:1060px;padding:0 20px;font-family:system-ui,-apple-system,'Segoe UI',sans-serif;"
    "background:Canvas;color:CanvasText"
)


def page(title: str, *faces: str) -> str:
    """Return faces under one another as an HTML document that follows the reader's light or dark setting."""
    named = html.escape(one_line(title, 160), quote=True)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
    )
    # Nothing is fetched: the pictures stand in the page as data.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    head += f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{named}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body style="{_BODY}">{"".join(faces)}</body></html>\n'
    )
