"""One proposal of a plan with its buttons, and the fields for who decides and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from watcherml.notebook.panels import base
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Proposal
from watcherml.report import palette, terms
from watcherml.report.html_plan import html_proposal


class DecisionRow:
    """The widgets of one proposal. ``decide`` is called with approve, reject or withdraw, and the reason."""

    def __init__(self, plan: RecoveryPlan, proposal: Proposal, decide: Callable[[str, str, str], None]) -> None:
        self.proposal = proposal
        self._plan = plan
        self._words = base.html_box()
        self._words.layout.width = "auto"
        self._words.layout.flex = "1 1 320px"
        self._words.layout.min_width = "0"
        self._buttons = (
            self._with_approval(decide) if proposal.authority == "approval_required" else self._simple(decide)
        )
        w = base.widgets()
        layout = {"width": "100%", "border_top": palette.RULE, "padding": "6px 0", "align_items": "flex-start"}
        controls = w.HBox(self._buttons, layout={"flex": "0 0 auto", "flex_flow": "row wrap", "align_items": "center"})
        controls.layout.max_width = "100%"
        if proposal.authority == "approval_required":
            self._words.layout.flex = "0 0 auto"  # in a column a basis would be a height
            self._words.layout.width = "100%"
            self.box = w.VBox([self._words, controls], layout=_borders(layout))
        else:
            self.box = w.HBox([self._words, controls], layout=_borders({**layout, "flex_flow": "row wrap"}))

    def draw(self, state: terms.State, decided: str, locked: bool) -> None:
        """Show a state; ``decided`` says who decided and why, ``locked`` that nothing can be decided now."""
        self._words.value = html_proposal(self._plan, self.proposal, state, decided)
        if self.proposal.authority == "approval_required":
            for one in self._buttons:
                one.disabled = locked or state != "waiting"
        else:
            toggle = self._buttons[0]
            toggle.disabled = locked
            toggle.value = state == "rejected"

    def _with_approval(self, decide: Callable[[str, str, str], None]) -> list[Any]:
        key = self.proposal.proposal_id
        reason = base.text_field(
            f"wml-reason-{key}", "Reason, for the record", name=f"Reason for {key}, for the record"
        )
        return [
            reason,
            base.button("Approve", f"wml-approve-{key}", lambda: decide("approve", key, reason.value),
                        icon="check", tooltip=f"Let exactly this proposal run: {key}"),
            base.button("Reject", f"wml-reject-{key}", lambda: decide("reject", key, reason.value),
                        icon="times", tooltip=f"Never try this proposal in this campaign: {key}"),
        ]  # fmt: skip

    def _simple(self, decide: Callable[[str, str, str], None]) -> list[Any]:
        key = self.proposal.proposal_id
        toggle = base.widgets().ToggleButton(
            value=False,
            description="Leave out",
            layout={"width": "100px", "margin": "2px 0"},
            tooltip=f"Do not try this proposal: {key}",
        )
        toggle.add_class(f"wml-reject-{key}")

        def changed(change: Any) -> None:
            decide("reject" if change["new"] else "withdraw", key, "")

        toggle.observe(changed, names="value")
        return [toggle]


def _borders(layout: dict[str, str]) -> dict[str, str]:
    # ipywidgets 7 has one `border` for all sides; 8 has them one by one.
    if hasattr(base.widgets().Layout, "border_top"):
        return layout
    return {key: value for key, value in layout.items() if key != "border_top"}
