"""What looks like a secret in a store, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.report import plain
from watcherml.report.safe import one_line
from watcherml.report.units import plural

_NEXT = (
    "A secret that was recorded is known to whoever has the store: change it where it is used. `watcher export` and"
    " `watcher pack` copy it along."
)


def text_scan(document: Mapping[str, Any], *, color: bool = False) -> str:
    """Return the findings of ``watcher scan``; a mapping as its JSON document."""
    store = one_line(document["store"])
    if not document["count"]:
        return plain.finish([plain.paint(f"Nothing looks like a secret in {store}.", "good", color)])
    head = f"{plural(document['count'], 'text')} in {store} may be secrets."
    lines = [plain.paint(line, "warn", color) for line in plain.wrap(head)]
    for one in document["findings"]:
        place = one["column"] if one["table"] == "file" else f"{one['table']}.{one['column']}"
        where = " ".join(part for part in (place, one["path"], one["run_id"] or one["row"]) if part)
        lines += plain.wrap(f"{one['kind']}: {where}", "    ", "  ", 400)
        lines += plain.wrap(one["excerpt"], "      ", "      ", 300)
    left = document["count"] - len(document["findings"])
    if left:
        lines += plain.wrap(f"and {left:,} more; --limit N shows more of them", "  ", "  ")
    return plain.finish([*lines, *plain.wrap(_NEXT)])
