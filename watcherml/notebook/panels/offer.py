"""What a cell's body lacks and earlier cells define: shown as it would be copied, before anything is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from watcherml.notebook.command import is_a
from watcherml.notebook.panels import base
from watcherml.report import markup, plain
from watcherml.report.palette import Tone
from watcherml.report.safe import one_line
from watcherml.report.units import plural

if TYPE_CHECKING:
    from watcherml.notebook.modules import Module
    from watcherml.notebook.session import Session

_MOST_NAMED = 8
_NAME_CHARACTERS = 60


class OfferPanel(base.Panel):
    """Code that waits to be copied above a body. ``accept`` goes on with it; until then nothing is written.

    ``name`` is the variable that holds the panel, ``does`` what accepting does, ``go_on`` does it and returns what is
    shown then.
    """

    def __init__(self, module: Module, go_on: Callable[[], base.Panel], does: str, name: str = "offer") -> None:
        super().__init__()
        self.module = module
        self.name = name
        self._go_on, self._does = go_on, does
        self._lock = threading.RLock()
        self._accepted: base.Panel | None = None
        self._worker: threading.Thread | None = None
        self._message: tuple[str, Tone] = ("", "calm")
        self._parts: dict[str, Any] = {}

    def __repr__(self) -> str:
        state = "waits" if self._accepted is None else "accepted"
        return f"<OfferPanel {', '.join(one.name for one in self.module.completed.copied)}: {state}>"

    @property
    def code(self) -> str:
        """What would be copied above the body."""
        return self.module.completed.code

    def accept(self) -> base.Panel:
        """Go on with the copied code and return what comes next; again returns the same.

        Raises what the magic raises that made the offer; the offer stays then.
        """
        with self._lock:
            if self._accepted is None:
                self._accepted = self._go_on()
                self._accepted.put_into(self)
                self._message = ("", "calm")
        self._draw()
        self.settle()
        return self._accepted

    # -- faces ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the offer, or what came of it, as text."""
        if self._accepted is not None:
            return self._accepted.text()
        lines = plain.wrap(f"{self._headline()} {self._below()}")
        lines += ["", *("  " + line for line in plain.text_block(self.code)), ""]
        lines += [line for caution in self.module.completed.cautions for line in plain.wrap(f"Caution: {caution}")]
        return plain.finish(lines).rstrip() + "\n" + base.calls_text("Next", self._calls())

    def html(self) -> str:
        """Return the offer, or what came of it, as HTML."""
        if self._accepted is not None:
            return self._accepted.html()
        return base.classed("wml-offer", self._head(), base.calls_html("Next", self._calls()))

    def _headline(self) -> str:
        copied = self.module.completed.copied
        names = ", ".join(one_line(one.name, _NAME_CHARACTERS) for one in copied[:_MOST_NAMED])
        more = f" and {len(copied) - _MOST_NAMED} more" if len(copied) > _MOST_NAMED else ""
        return f"The body needs {plural(len(copied), 'definition')} of earlier cells: {names}{more}."

    def _below(self) -> str:
        return f"This would be copied above the body, into {self.module.path.name}. Nothing is written yet."

    def _calls(self) -> list[str]:
        return [f"{self.name}.accept()  # {self._does} with this code", "# or run the cell again with --copy-names"]

    def _head(self) -> str:
        cautions = [base.notice_html(f"Caution: {one}", "warn") for one in self.module.completed.cautions]
        banner = markup.banner(
            "warn", markup.mono(self.module.entrypoint.target), markup.escape(self._headline()),
            markup.quiet(markup.escape(self._below())),
        )  # fmt: skip
        return markup.root(banner, markup.block(markup.escape_lines(self.code))) + "".join(cautions)

    # -- the live view ----------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        """Whether the code waits to be accepted, or what came of it is live."""
        return self._accepted is None or self._accepted.live

    def again(self) -> str:
        """Return what brings the offer, or what came of it, back in another kernel."""
        return "Run the cell again to see it with its button." if self._accepted is None else self._accepted.again()

    def _build(self) -> Any:
        accept = base.button("Copy and go on", "wml-accept", self._clicked, style="primary", icon="check",
                             tooltip=f"{self._does[0].upper()}{self._does[1:]} with this code")  # fmt: skip
        self._parts = {
            # What is in a widget is as wide as its longest word; in such a grid a long name is broken instead.
            "head": base.html_box(
                f'<div style="display:grid;grid-template-columns:minmax(0,1fr)">{self._head()}</div>'
            ),
            "accept": accept,
            "message": base.html_box(css="wml-message"),
            "box": base.panel_box(),
        }
        self._draw()
        return self._parts["box"]

    def _draw(self) -> None:
        with self._lock:
            parts = self._parts
            if not parts:
                return
            if self._accepted is not None:
                view = self._accepted.view()
                parts["box"].children = (view if view is not None else base.html_box(self._accepted.html()),)
                return
            text, tone = self._message
            parts["message"].value = base.notice_html(text, tone) if text else ""
            parts["accept"].disabled = self._worker is not None
            parts["box"].children = (parts["head"], parts["message"], parts["accept"])

    def _clicked(self) -> None:
        """Go on in a thread: the check in a child process would hold up the kernel's messages."""
        with self._lock:
            if self._worker is not None or self._accepted is not None:
                return
            self._message = ("Writing the file and checking it in a fresh process …", "calm")
            self._worker = threading.Thread(target=self._work, name="watcherml-offer", daemon=True)
            self._draw()
            self._worker.start()

    def _work(self) -> None:
        base.guarded(self.accept, self._say)()
        self._worker = None
        self._draw()

    def _say(self, text: str, tone: Tone) -> None:
        self._message = (text, tone)


def offered(session: Session, module: Module, go_on: Callable[[], base.Panel], does: str) -> OfferPanel:
    """Return the offer, held by the first of the variables offer, offer_2 and so on that the person does not use."""
    names = session.shell.user_ns
    number, name = 1, "offer"
    while name in names and not is_a(names[name], OfferPanel):
        number += 1
        name = f"offer_{number}"
    names[name] = panel = OfferPanel(module, go_on, does, name)
    return panel
