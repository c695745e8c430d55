"""``%%watcher entrypoint FILE``: the body of a cell as an importable module for recoveries."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

from watcherml.api.recover import validate_entrypoint
from watcherml.errors import UsageError
from watcherml.notebook.modules import Module, add_body_flags, module_of, pin_folders
from watcherml.notebook.panels import base
from watcherml.notebook.panels.base import Page, Panel
from watcherml.notebook.panels.offer import offered
from watcherml.options import Parser, add_code_flags
from watcherml.report import markup, plain

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

PROGRAM = "%%watcher entrypoint"


def parser() -> Parser:
    """Return the flags of the magic's line."""
    made = Parser(prog=PROGRAM, add_help=False, description=(
        "Write the cell's body to a module and check in a child process that it can be imported. A file that no cell"
        " has written, or that was changed since, is not overwritten."
    ))  # fmt: skip
    made.add_argument("file", metavar="FILE", help="the module's file name, for example train_entrypoint.py")
    add_body_flags(made)
    add_code_flags(made)
    return made


def entrypoint(session: Session, values: Namespace, source: str) -> Panel:
    """Write and check the module and return how it is named from now on; or offer what its body lacks.

    Raises ``UsageError`` for the file's name and for a file of the person's, ``InvalidEntrypoint`` for a body that is
    no module; the file is then as it was before.
    """
    if not source.strip():
        raise UsageError(PROGRAM, expected="a cell body with the training function", got="nothing")
    values.typed_root = values.project_root
    pin_folders(values)
    module = module_of(session, values, source, values.file, "FILE")
    write = partial(_write, session, values, module)
    if module.completed.copied and not values.copy_names:
        return offered(session, module, write, f"writes {module.path.name}")
    return write()


def _write(session: Session, values: Namespace, module: Module) -> Page:
    with module.written(session.storage()) as target:
        check = validate_entrypoint(target, values.project_root, python=values.python_executable)
    return _page(module, check.parameters, values)


def _page(module: Module, parameters: tuple[str, ...], values: Namespace) -> Page:
    target = module.entrypoint.target
    sentences = [f"A fresh process has imported it; {target} takes {', '.join(parameters)}."]
    if module.path.stem in sys.modules:
        sentences.append(f"This kernel has imported {module.path.stem} before and keeps that; trials read the file.")
    root = "" if values.typed_root == "." else f" --project-root {shlex.quote(values.typed_root)}"
    calls = [f"%watcher recover --entrypoint {target}{root}"]
    headline = f"{module.path.name} is written"
    text = plain.finish([*plain.wrap(f"{headline}. {' '.join(sentences)}")])
    banner = markup.banner("good", markup.mono(target), markup.shown(headline), *(markup.escape(s) for s in sentences))
    return Page(
        f"{text}{base.calls_text('Next', calls)}",
        base.classed("wml-entrypoint", markup.root(banner), base.calls_html("Next", calls)),
    )
