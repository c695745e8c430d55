"""Magics that write what is on record into a file to take along, and show a link to it that works where they run."""

from __future__ import annotations

import contextlib
import importlib.util
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from watcherml.api.archive import export_run, pack_digest, pack_store
from watcherml.errors import WatcherError
from watcherml.notebook.panels.base import Page, Panel
from watcherml.options import Parser, add_file_flags
from watcherml.platform import expanded, is_folder
from watcherml.report import markup
from watcherml.report.markup import Html
from watcherml.report.text_archive import text_export, text_pack
from watcherml.report.units import format_bytes, plural
from watcherml.store.archive import Archive
from watcherml.store.packed import find_pack
from watcherml.store.storage import Storage

if TYPE_CHECKING:
    from watcherml.notebook.session import Session

PACK_NAME = "watcherml-store.zip"


def declare_export(parser: Parser) -> None:
    """Declare one run and where it is written."""
    parser.add_argument("run_id", metavar="RUN_ID", help="as `%%watcher runs` lists it")
    add_file_flags(parser, "watcher-RUN_ID.zip")


def export(session: Session, values: Namespace) -> Panel:
    """Write a run with its evidence into one checksummed ZIP."""
    done = export_run(values.run_id, values.out, storage=session.storage(), force=values.force)
    rows = [
        ("Size", markup.escape(f"{format_bytes(done.size_bytes)}, {done.size_bytes:,} bytes")),
        ("Left out", markup.escape("the bytes of datasets, checkpoints and artifacts")),
        ("Before sharing", markup.escape("configuration, source, paths and tracebacks are in it")),
    ]
    return _written(text_export(done.to_data()), Path(done.path), f"Exported run {done.run_id}", rows)


def declare_download(parser: Parser) -> None:
    """Declare where the store is packed to."""
    add_file_flags(parser, PACK_NAME)


def download(session: Session, values: Namespace) -> Panel:
    """Pack the whole store into one ZIP and offer it to the browser.

    A pack that this store has made before, and nobody has changed, is replaced without ``--force``.
    """
    storage = session.storage()
    target = expanded(values.out or ".")
    target = target / PACK_NAME if is_folder(target) else target
    written = pack_store(values.out, storage=storage, force=values.force or _is_own_pack(target, storage))
    document = {"path": str(written.path), "size_bytes": written.size_bytes, "files": len(written.members)}
    opens = Html(f"{markup.escape('unzip it into a folder, then ')}{markup.mono('watcher --data-dir FOLDER runs')}")
    rows = [
        ("Size", markup.escape(f"{format_bytes(written.size_bytes)}, {written.size_bytes:,} bytes")),
        ("Holds", markup.escape(plural(len(written.members), "file"))),
        ("To open", opens),
    ]
    panel = _written(text_pack(document), written.path, "Packed the store", rows)
    _hand_to_colab(written.path)
    return panel


def _is_own_pack(target: Path, storage: Storage) -> bool:
    with contextlib.suppress(OSError, WatcherError, ValueError):
        if target.is_file():
            with target.open("rb") as stream:
                return find_pack(storage, pack_digest(Archive(stream, target.name))) is not None
    return False


def _hand_to_colab(path: Path) -> None:
    """Let Colab's own module send the file: a link to it does not work there."""
    with contextlib.suppress(ImportError):
        if importlib.util.find_spec("google.colab") is not None:
            from google.colab import files

            files.download(str(path.resolve()))


def _written(text: str, path: Path, done: str, rows: list[tuple[str, Html]]) -> Page:
    link = relative_link(path)
    shown = markup.shown(path.name)
    if link is not None:
        # The attribute keeps JupyterLab from opening the file in a tab of its own.
        shown = Html(f'<a href="{markup.escape(link)}" download="{markup.escape(path.name)}">{shown}</a>')
    banner = markup.banner("good", markup.escape(done), shown)
    place = [("In", markup.mono(path.resolve().parent, 300)), *rows]
    if link is None:
        place.append(("No link", markup.escape("the file is outside the folder that this kernel works in")))
    return Page(text, markup.root(banner, markup.pairs(place)))


def relative_link(path: Path) -> str | None:
    """Return the address of a file for a page of the folder that this kernel works in; None if it lies outside.

    A kernel starts in its notebook's folder, and front ends resolve a relative address from there.
    """
    try:
        return quote(path.resolve().relative_to(Path.cwd().resolve()).as_posix())
    except (ValueError, OSError):
        return None
