"""The eleven pieces of evidence as a tree that opens on a click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watcherml.forensics.evidence import Evidence
from watcherml.report import markup
from watcherml.report.glossary import meaning
from watcherml.report.markup import Html
from watcherml.report.words import value_words

# A tree that cannot be read is of no use, and a saved notebook carries every byte of it.
_MAX_DEPTH = 6
_MAX_ENTRIES = 60
_MAX_NODES = 800


def evidence_tree(pieces: Sequence[Evidence]) -> Html:
    """Return all pieces in order: present ones as folds with their source, missing ones with their reason."""
    return markup.join(_piece(piece) for piece in pieces)


def data_tree(data: Any) -> Html:
    """Return JSON data as pairs and folds; very long or deep parts are cut, and say so."""
    return _Tree().body(data)


def _piece(piece: Evidence) -> Html:
    name = markup.join([markup.mono(piece.id), markup.shown(piece.name)], " ")
    titled = markup.hint(name, meaning("evidence", piece.id))
    if piece.status == "missing":
        reason = markup.join([markup.chip("missing", "warn"), markup.shown(piece.reason, markup.SENTENCE_LIMIT)], " ")
        return Html(f'<div style="margin:4px 0 4px 16px">{titled} {reason}</div>')
    source = markup.quiet(Html(f"from {markup.shown(piece.source)}")) if piece.source else markup.EMPTY
    return markup.fold(Html(f"{titled} {source}"), data_tree(piece.data))


class _Tree:
    """Draws JSON within a budget of nodes."""

    def __init__(self) -> None:
        self.left = _MAX_NODES

    def body(self, data: Any, depth: int = 0) -> Html:
        if not isinstance(data, (Mapping, list, tuple)):
            return markup.paragraph(markup.shown(value_words("", data), markup.SENTENCE_LIMIT))
        entries = list(data.items()) if isinstance(data, Mapping) else list(enumerate(data, 1))
        if not entries:
            return markup.paragraph(markup.quiet(markup.escape("empty")))
        parts: list[Html] = []
        plain: list[tuple[str, Html]] = []
        for key, value in entries[:_MAX_ENTRIES]:
            self.left -= 1
            if self.left < 0:
                break
            if isinstance(value, (Mapping, list, tuple)) and value:
                parts.append(markup.pairs(plain))
                plain = []
                parts.append(self._nested(key, value, depth))
            else:
                plain.append((str(key), markup.shown(value_words(str(key), value), markup.SENTENCE_LIMIT)))
        parts.append(markup.pairs(plain))
        if len(entries) > _MAX_ENTRIES or self.left < 0:
            rest = f"… {len(entries):,} entries; not all are shown"
            parts.append(markup.paragraph(markup.quiet(markup.escape(rest))))
        return markup.join(parts)

    def _nested(self, key: object, value: Any, depth: int) -> Html:
        plain_list = not isinstance(value, Mapping) and not any(
            isinstance(item, (Mapping, list, tuple)) for item in value
        )
        if plain_list or depth + 1 >= _MAX_DEPTH:
            return markup.pairs([(str(key), markup.shown(value_words("", value), markup.SENTENCE_LIMIT))])
        count = markup.quiet(markup.escape(f"({len(value):,})"))
        return markup.fold(Html(f"{markup.shown(key)} {count}"), self.body(value, depth + 1))
