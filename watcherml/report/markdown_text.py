"""Text from outside as Markdown in which nothing renders."""

from __future__ import annotations

import re

from watcherml.report.safe import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]!|~])")
# At the start of an item or cell these begin a list, a heading, a rule or a number.
_LEADING = re.compile(r"^(\s*)([-+#=]|[0-9]{1,9}(?=[.)]))")


def escape(value: object, limit: int = 300) -> str:
    """Return any value as one line of Markdown in which no character has a meaning."""
    text = one_line(value, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(r"\\\1", text)
    return _LEADING.sub(
        lambda found: found[1] + (f"\\{found[2]}" if not found[2].isdigit() else f"&#8203;{found[2]}"), text
    )
