"""One proposal of a plan with its buttons, and the fields for who decides and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from watcherml.notebook.panels import base
from watcherml.protocol.proposal import Proposal
from watcherml.report import markup, palette, terms
from watcherml.report.markup import Html
from watcherml.report.palette import Tone

_TONES: dict[terms.State, Tone] = {"automatic": "good", "approved": "good", "rejected": "quiet", "waiting": "warn"}
_SEMANTIC = "changes what is computed"


class DecisionRow:
    """The widgets of one proposal. ``decide`` is called with approve, reject or withdraw, and the reason."""

    def __init__(self, proposal: Proposal, decide: Callable[[str, str, str], None]) -> None:
        self.proposal = proposal
        self._words = base.html_box()
        self._words.layout.width = "auto"
        self._words.layout.flex = "1 1 auto"
        self._buttons = (
            self._with_approval(decide) if proposal.authority == "approval_required" else self._simple(decide)
        )
        w = base.widgets()
        layout = {"width": "100%", "border_top": palette.RULE, "padding": "4px 0", "align_items": "flex-start"}
        controls = w.HBox(self._buttons, layout={"flex": "0 0 auto", "flex_flow": "row wrap", "align_items": "center"})
        if proposal.authority == "approval_required":
            self.box = w.VBox([self._words, controls], layout=_borders(layout))
        else:
            self.box = w.HBox([self._words, controls], layout=_borders(layout))

    def draw(self, state: terms.State, decided: str, locked: bool) -> None:
        """Show a state; ``decided`` says who decided and why, ``locked`` that nothing can be decided any more."""
        self._words.value = row_html(self.proposal, state, decided)
        if self.proposal.authority == "approval_required":
            for one in self._buttons:
                one.disabled = locked or state != "waiting"
        else:
            toggle = self._buttons[0]
            toggle.disabled = locked
            toggle.value = state == "rejected"

    def _with_approval(self, decide: Callable[[str, str, str], None]) -> list[Any]:
        key = self.proposal.proposal_id
        reason = base.text_field(f"wml-reason-{key}", "Reason, for the record")
        return [
            reason,
            base.button("Approve", f"wml-approve-{key}", lambda: decide("approve", key, reason.value),
                        icon="check", tooltip="Let exactly this proposal run"),
            base.button("Reject", f"wml-reject-{key}", lambda: decide("reject", key, reason.value),
                        icon="times", tooltip="Never try this proposal in this campaign"),
        ]  # fmt: skip

    def _simple(self, decide: Callable[[str, str, str], None]) -> list[Any]:
        key = self.proposal.proposal_id
        toggle = base.widgets().ToggleButton(
            value=False,
            description="Leave out",
            layout={"width": "100px", "margin": "2px 0"},
            tooltip="Do not try this proposal",
        )
        toggle.add_class(f"wml-reject-{key}")

        def changed(change: Any) -> None:
            decide("reject" if change["new"] else "withdraw", key, "")

        toggle.observe(changed, names="value")
        return [toggle]


def row_html(proposal: Proposal, state: terms.State, decided: str) -> Html:
    """Return a proposal in a few lines; the ones that need a decision with what a person has to know for it."""
    chips = [markup.chip(terms.STATE_WORDS[state], _TONES[state])]
    if proposal.semantic:
        chips.append(markup.chip(_SEMANTIC, "warn"))
    title = markup.join(
        [markup.mono(proposal.proposal_id), markup.strong(markup.shown(proposal.title, 160)), *chips], " "
    )
    lines = [title, *(markup.quiet(markup.mono(line, 240)) for line in terms.change_lines(proposal))]
    if proposal.authority == "approval_required":
        lines.append(markup.shown(proposal.expected_effect, markup.SENTENCE_LIMIT))
        lines += [
            Html(f"{markup.strong(markup.escape('Caution:'))} {markup.shown(one, markup.SENTENCE_LIMIT)}")
            for one in proposal.cautions
        ]
    if decided:
        lines.append(markup.quiet(markup.shown(decided, markup.SENTENCE_LIMIT)))
    return markup.root(*[Html(f'<div style="margin:1px 0">{line}</div>') for line in lines])


def _borders(layout: dict[str, str]) -> dict[str, str]:
    # ipywidgets 7 has one `border` for all sides; 8 has them one by one.
    if hasattr(base.widgets().Layout, "border_top"):
        return layout
    return {key: value for key, value in layout.items() if key != "border_top"}
