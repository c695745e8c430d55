"""The two things that can be changed here: a run's name, and the mark on a failure. Both are notes for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from watcherml.api.rename import rename
from watcherml.api.resolve import resolve
from watcherml.errors import InvalidValue
from watcherml.ui.asking import address, item
from watcherml.ui.site import Site

Fields = Mapping[str, str]


def rename_run(site: Site, fields: Fields) -> str:
    """Name a run; returns the address to go to."""
    _only(fields, "run_id", "title")
    done = rename(site.run_id(fields["run_id"]), fields["title"], storage=site.storage)
    return address(item("runs", done.run_id), said="renamed" if done.title else "unnamed")


def resolve_failure(site: Site, fields: Fields) -> str:
    """Mark a failure as resolved by an author with a note, or open it again; returns the address to go to."""
    _only(fields, "run_id", "by", "note", "reopen")
    if fields["reopen"] not in ("yes", "no"):
        raise InvalidValue("reopen", expected="yes or no", got=repr(fields["reopen"][:60]))
    reopen = fields["reopen"] == "yes"
    run_id, author = site.run_id(fields["run_id"]), fields["by"].strip()
    if not reopen and not author:
        raise InvalidValue("by", expected="the name of who says so", got="nothing", remedy="Go back and put a name in.")
    done = resolve(run_id, by=author, note="" if reopen else fields["note"], reopen=reopen, storage=site.storage)
    said = ("opened" if reopen else "resolved") if done.changed else "already"
    return address(item("failures", run_id), said=said)


CHANGES: dict[str, Callable[[Site, Fields], str]] = {"rename": rename_run, "resolve": resolve_failure}


def _only(fields: Fields, *names: str) -> None:
    for name in names:
        if name not in fields:
            raise InvalidValue(name, expected="this field of the form", got="nothing")
    strange = sorted(set(fields) - set(names))
    if strange:
        raise InvalidValue(strange[0][:60], expected=f"only {', '.join(names)}", got="another field")
