"""What every panel shares: a text face, an HTML face, and a live view where there is a kernel for it.

Plain ipywidgets, in the API that 7.7 and 8 have in common. Stable CSS classes (``wml-...``) name what a person or a
test clicks. Every value enters HTML through ``report.markup``.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable
from typing import Any

from watcherml.errors import WatcherError
from watcherml.notebook.panels.outputs import VIEW, Outputs
from watcherml.report import markup, palette, plain
from watcherml.report.markup import Html
from watcherml.report.palette import Tone
from watcherml.report.safe import many_lines, one_line

Action = Callable[[], object]
PLAN_FOLD = "The plan: proposals, contract, what was left out"
_MARGIN = "2px 6px 2px 0"
_BESIDE_LABEL_PX = 8  # between a label of ipywidgets and its field


class Panel(abc.ABC):
    """Something shown in a notebook. Without a kernel or ipywidgets only its static faces are used."""

    def __init__(self) -> None:
        self._view: Any = None
        self._outputs = Outputs(self._last_face)
        self._around: list[Panel] = []

    @abc.abstractmethod
    def text(self) -> str:
        """Return the panel as text, with the calls that do what its buttons do."""

    @abc.abstractmethod
    def html(self) -> str:
        """Return the panel as HTML that needs no script and no widget."""

    def view(self) -> Any:
        """Return the live widget, made on first use; None if ipywidgets is missing or the panel has nothing live."""
        if self._view is None and widgets() is not None:
            self._view = self._build()
        return self._view

    def _build(self) -> Any:
        return None

    @property
    def live(self) -> bool:
        """Whether there is something to click or to follow; if not, the static faces are all that is shown."""
        return False

    def again(self) -> str:
        """Return what a person can run in another kernel to see the panel alive again; empty if nothing does it."""
        return ""

    def put_into(self, outer: Panel) -> None:
        """Say that this panel is shown inside another one, which stays live as long as this one is."""
        if not any(one is outer for one in self._around):
            self._around.append(outer)

    def settle(self) -> None:
        """Replace the outputs that show the panel by its static face if nothing in it is live any more."""
        if not self.live:
            self._outputs.replace(self._faces)
            for outer in self._around:
                outer.settle()

    def _faces(self) -> dict[str, Any]:
        return {"text/plain": self.text(), "text/html": self.html()}

    def _last_face(self) -> dict[str, Any]:
        """Return the static faces for when the kernel ends, with what shows the panel alive again."""
        faces, again = self._faces(), self.again() if self.live else ""
        if again:
            told = notice(f"The kernel that showed this has ended. {again}", "quiet")
            faces = {"text/plain": f"{told.text()}\n\n{faces['text/plain']}",
                     "text/html": told.html() + faces["text/html"]}  # fmt: skip
        return faces

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        try:
            bundle = self._faces()
            view = self.view() if kernel_here() and self.live else None
        except Exception as error:  # noqa: BLE001 - a store that is gone must not end the cell that shows a panel
            words = notice(f"{self!r} cannot be shown now: {many_lines(error, 1_000)}", "warn")
            return {"text/plain": words.text(), "text/html": words.html()}
        if view is not None:
            bundle[VIEW] = {"version_major": 2, "version_minor": 0, "model_id": view.model_id}
        return bundle

    def _ipython_display_(self, **_: Any) -> None:
        if not (self.live and kernel_here() and widgets() is not None):
            raise NotImplementedError  # IPython then shows the bundle in its usual way
        publisher, bundle = shell_here().display_pub, self._repr_mimebundle_()
        if VIEW in bundle:
            self._outputs.add(publisher, bundle)
            self.settle()  # what has ended meanwhile has not found this output
        else:
            publisher.publish(bundle)


class Page(Panel):
    """A panel with nothing to click."""

    def __init__(self, text: str, html: str) -> None:
        super().__init__()
        self._text, self._html = text, html

    def text(self) -> str:
        """Return the text it was made with."""
        return self._text

    def html(self) -> str:
        """Return the HTML it was made with."""
        return self._html


def notice(text: str, tone: Tone = "calm", css: str = "wml-notice") -> Page:
    """Return a sentence or two with a coloured edge."""
    words = "\n".join(line for part in text.splitlines() for line in plain.wrap(part))
    return Page(words, notice_html(text, tone, css))


def notice_html(text: str, tone: Tone = "calm", css: str = "wml-notice") -> Html:
    """Return lines of text with a coloured edge as HTML."""
    lines = markup.join(Html(f"<div>{markup.escape(line)}</div>") for line in text.splitlines() if line.strip())
    edge = f"border-left:3px solid {palette.mark(tone)};padding:1px 0 1px 10px;margin:4px 0"
    return classed(css, markup.root(Html(f'<div style="{edge}">{lines}</div>')))


def classed(css: str, *parts: str) -> Html:
    """Return markup in a box with a stable class."""
    return Html(f'<div class="{markup.escape(css)}">{"".join(parts)}</div>')


def fold_html(title: str, body: str) -> Html:
    """Return HTML that a click on a title unfolds."""
    return markup.root(markup.fold(markup.strong(markup.escape(title)), Html(body)))


def calls_html(title: str, lines: list[str]) -> Html:
    """Return calls that can be copied, under a title."""
    return markup.root(markup.section(title, markup.block(markup.escape_lines("\n".join(lines)))))


def calls_text(title: str, lines: list[str]) -> str:
    """Return calls that can be copied, under a title, as text."""
    return plain.finish(plain.section(title, [f"  {one_line(line)}" if line else "" for line in lines], False))


def literal(value: str) -> str:
    """Return a text as a Python literal on one harmless line."""
    return one_line(repr(value) if '"' in value or "\\" in value else f'"{value}"')


def widgets() -> Any:
    """Return the module ipywidgets, or None where it is not installed."""
    try:
        import ipywidgets
    except ImportError:
        return None
    return ipywidgets


def shell_here() -> Any:
    """Return the running IPython shell, or None; IPython is only looked at if it is loaded."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def kernel_here() -> bool:
    """Tell whether a Jupyter kernel runs this process: without one nobody answers a widget."""
    return getattr(shell_here(), "kernel", None) is not None


def show(panel: Panel) -> None:
    """Show a panel below what is already in the cell's output."""
    from IPython.display import display

    display(panel)  # type: ignore[no-untyped-call]


def html_box(value: str = "", css: str = "") -> Any:
    """Return an HTML widget as wide as its surroundings."""
    made = widgets().HTML(value=value, layout={"width": "100%", "margin": "0"})
    if css:
        made.add_class(css)
    return made


def panel_box() -> Any:
    """Return the column that a live panel is made of, as wide as a page reads well."""
    made = widgets().VBox([], layout={"width": "100%", "max_width": "1000px"})
    made.add_class("wml-panel")
    return made


def text_field(css: str, placeholder: str, value: str = "", *, name: str = "", margin: str = _MARGIN) -> Any:
    """Return a field for one line of text. ``name`` is what a screen reader calls it (default: the placeholder)."""
    # Letter by letter the front end holds back the last ones, and a click on a button overtakes them.
    made = widgets().Text(
        value=value, placeholder=placeholder, continuous_update=False, layout={"width": "320px", "margin": margin}
    )
    made.add_class(css)
    return named(made, name or placeholder)


def named(field: Any, name: str) -> Any:
    """Return a field with a name for those who hear the page: what stands beside it is a widget of its own.

    It is the field's label, without width. ipywidgets joins a label to every field, and an empty one takes even the
    placeholder's part as a name.
    """
    field.description, field.style.description_width = name, "0px"
    top, right, bottom = (field.layout.margin or _MARGIN).split()[:3]
    field.layout.margin = f"{top} {right} {bottom} {-_BESIDE_LABEL_PX}px"
    return field


def button(label: str, css: str, action: Action, *, style: str = "", icon: str = "", tooltip: str = "") -> Any:
    """Return a button. ``action`` has to catch its own errors (see ``guarded``): a callback's traceback is lost."""
    # A column stretches what is in it, and a button as wide as the page looks like a bar.
    layout = {"width": "auto", "min_width": "100px", "margin": _MARGIN, "align_self": "flex-start"}
    made = widgets().Button(description=label, button_style=style, icon=icon, tooltip=tooltip, layout=layout)
    made.add_class(css)
    made.on_click(lambda _: action())
    return made


def guarded(action: Action, say: Callable[[str, Tone], None]) -> Callable[[], None]:
    """Return the action with its errors given to ``say`` as one sentence."""

    def call() -> None:
        try:
            action()
        except WatcherError as error:
            say(str(error), "bad")
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the person who clicked has to see it
            say(f"{type(error).__name__}: {error}", "bad")

    return call
