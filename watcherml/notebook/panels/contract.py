"""The fields with what may be changed of a plan before it is sealed and started, and the reading of what was typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watcherml.errors import UsageError
from watcherml.notebook.panels import base
from watcherml.report import markup
from watcherml.report.markup import Html

_GUARDS = "Metrics to guard"
_GUARD = "NAME:minimize|maximize:BASELINE:TOLERANCE, one a line"
# Name of the change, its label, what an empty field means (None: it has to be filled), and a hint.
_NUMBERS: tuple[tuple[str, str, bool, str], ...] = (
    ("minimum_progress_steps", "Steps to reach", False, "optimizer steps of full and confirmation runs"),
    ("confirmation_runs", "Confirmations", False, "fresh processes that must keep all of it, 1 to 3"),
    ("max_trials", "Trials at most", True, "processes in all; empty: as many as usual"),
    ("max_peak_vram_gib", "Peak at most, GiB", True, "ceiling for the peak of device memory; empty: none"),
)


class ContractFields:
    """Fields that hold the present values, and a button. ``prepare`` is called with what was changed into."""

    def __init__(self, prepare: base.Action) -> None:
        w = base.widgets()
        self.button = base.button("Prepare again", "wml-prepare", prepare, icon="refresh",
                                  tooltip="Make another plan from these values; nothing is run")  # fmt: skip
        self.metrics = w.Textarea(
            placeholder=_GUARD, continuous_update=False,
            layout={"width": "100%", "max_width": "640px", "height": "64px"},
        )  # fmt: skip
        self.metrics.add_class("wml-metrics")
        self._fields = {}
        for name, label, _, hint in _NUMBERS:
            self._fields[name] = base.text_field(f"wml-{name.replace('_', '-')}", hint, name=f"{label}: {hint}")
        rows = [self._row(_GUARDS, base.named(self.metrics, f"{_GUARDS}: {_GUARD}"))]
        rows += [self._row(label, self._fields[name], hint) for name, label, _, hint in _NUMBERS]
        self._open = w.ToggleButton(description="Change the contract", icon="pencil",
                                    layout={"width": "auto", "min_width": "160px", "margin": "2px 0 4px 0",
                                            "align_self": "flex-start"},
                                    tooltip="What counts as success and what may be spent")  # fmt: skip
        self._open.add_class("wml-change")
        self._inside = w.VBox([*rows, self.button], layout={"display": "none", "padding": "2px 0 4px 0"})
        self._open.observe(self._toggled, names="value")
        self.box = w.VBox([self._open, self._inside], layout={"width": "100%", "margin": "8px 0 0 0"})

    def show(self, values: Mapping[str, Any], metrics: tuple[str, ...], usual: Mapping[str, Any]) -> None:
        """Show values, the guards that are in the plan or that a person may want in it, and what empty fields mean."""
        self.metrics.value = "\n".join(metrics)
        for name, field in self._fields.items():
            value = values.get(name)
            field.placeholder = str(usual.get(name, "none"))
            field.value = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    def lock(self, locked: bool) -> None:
        """Take no more changes, or take them again."""
        for one in (self.metrics, self.button, *self._fields.values()):
            one.disabled = locked

    def changes(self) -> dict[str, Any]:
        """Return everything that the fields hold. Raises ``UsageError`` naming the field that is not a number."""
        found: dict[str, Any] = {
            "metrics": tuple(line.strip() for line in str(self.metrics.value).splitlines() if line.strip())
        }
        for name, label, optional, hint in _NUMBERS:
            text = str(self._fields[name].value).strip()
            if not text and optional:
                found[name] = None
                continue
            kind: type[int] | type[float] = float if name == "max_peak_vram_gib" else int
            try:
                found[name] = kind(text)
            except ValueError:
                expected = f"a number ({hint})" if kind is float else f"a whole number ({hint})"
                raise UsageError(label, expected=expected, got=repr(text)[:80]) from None
        return found

    def _row(self, label: str, field: Any, hint: str = "") -> Any:
        name = _beside(markup.escape(label), "0 0 150px")
        parts = [name, field]
        if hint:
            field.layout.width = "110px"
            parts.append(_beside(markup.quiet(markup.escape(hint)), "0 1 auto"))
        layout = {"width": "100%", "align_items": "center", "flex_flow": "row wrap"}
        return base.widgets().HBox(parts, layout=layout)

    def _toggled(self, change: Any) -> None:
        self._inside.layout.display = None if change["new"] else "none"


def _beside(words: Html, flex: str) -> Any:
    made = base.html_box(markup.root(words))
    made.layout.width, made.layout.flex = "auto", flex
    return made
