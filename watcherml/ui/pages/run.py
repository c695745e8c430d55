"""A run: the report's own page of it, then processor and GPUs, cells, code and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request

from watcherml.api import data
from watcherml.errors import NotFound
from watcherml.report.curves import Curve
from watcherml.report.html_evidence import data_tree
from watcherml.report.html_run import MAX_CHARTS, html_curves, html_run
from watcherml.report.units import format_bytes
from watcherml.store import coarse, pages, points
from watcherml.store.pages import Cut
from watcherml.store.runs import Row
from watcherml.store.storage import Storage
from watcherml.ui import asking
from watcherml.ui.asking import Pager, item
from watcherml.ui.pages import common
from watcherml.ui.render import Page, face
from watcherml.ui.site import Site

# A drawing has 480 columns; more points than this are not seen in it.
_POINTS = 900
_STRETCHES = 300
# Points of a run from which on the curves show what lies in each stretch instead of single points.
_MANY = 50_000
_CELLS = 20
_PATCH_CHARACTERS = 200_000
_SAID = {"renamed": "The run has its new name.", "unnamed": "The run is called by its id again."}


def show(site: Site, request: Request) -> Page:
    """Return the page; ``NotFound`` for an unknown run."""
    run_id, storage = site.run_id(request.path_params["run_id"]), site.storage
    charts, cells = asking.number(request, "metrics"), asking.number(request, "cells")
    row = data.run(storage, run_id)
    storage.fold(run_id)
    found = _read(storage, run_id, asking.cut(charts, MAX_CHARTS), asking.cut(cells, _CELLS))
    metrics = found.names[1]
    samples = storage.runs.samples(run_id, max_points=_POINTS)
    campaigns = data.campaigns(storage, source_run_id=run_id)
    values = {
        **_about(site, row),
        "face": face(html_run(row, found.points, samples, storage.runs.artifacts(run_id))),
        "many": found.total if found.total > _MANY else 0,
        "metric_pager": _pager(request, "metrics", charts, metrics, MAX_CHARTS, "#metrics"),
        "resources": face(html_curves("Processor and GPUs", [*_processor(samples), *_gpus(found.gpus)])),
        "cells": found.cells.rows,
        "cell_pager": _pager(request, "cells", cells, found.cells.total, _CELLS, "#cells"),
        "code": _code(storage, _fact(row, "git")),
        "environment": _environment(_fact(row, "environment")),
        "campaigns": common.campaigns_table(campaigns, "Project", "Source run"),
        "said": _SAID.get(request.query_params.get("said", ""), ""),
    }
    return Page("run.html", "/runs", str(row.get("title") or run_id), values, has_form=True)


def _about(site: Site, row: Row) -> dict[str, Any]:
    """Return who made the run, its failure if it has one, and whether it can be named."""
    run_id, storage = str(row["run_id"]), site.storage
    try:
        failed = str(storage.evidence.capsule(run_id)["sentence"])
    except NotFound:
        failed = ""
    campaign = row.get("campaign_id") if row.get("role") == "trial" else None
    return {
        "row": row,
        "failed": failed,
        "failure_link": item("failures", run_id) if failed else "",
        "campaign_link": item("campaigns", campaign) if campaign else "",
        "imported": row.get("origin") == "imported",
        "running": row["status"] == "running",
        "writable": storage.writable,
    }


class _Found(NamedTuple):
    names: tuple[list[str], int]
    total: int
    points: list[Row]
    gpus: list[Row]
    cells: pages.Found


def _read(storage: Storage, run_id: str, charts: Cut, cells: Cut) -> _Found:
    with storage.database.reading() as connection:
        names, total = pages.metric_names(connection, run_id, charts), coarse.count(connection, run_id)
        thin = points.thinned if total <= _MANY else coarse.coarse
        return _Found(
            names,
            total,
            thin(connection, run_id, names[0], _POINTS if total <= _MANY else _STRETCHES),
            pages.gpu_series(connection, run_id, _STRETCHES),
            pages.cells(connection, run_id, cells),
        )


def _pager(request: Request, name: str, page: int, total: int, rows: int, anchor: str) -> Pager:
    return asking.pager(request, page, total, rows=rows, name=name, anchor=anchor)


def _fact(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    facts = row.get("facts")
    found = facts.get(name) if isinstance(facts, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def _processor(samples: Sequence[Row]) -> list[Curve]:
    start = min((one["at"] for one in samples), default=0.0)
    found = []
    for key, name in (("tree_cpu_percent", "processor, with child processes"), ("cpu_percent", "processor")):
        points = tuple((one["at"] - start, one[key]) for one in samples if one.get(key) is not None)
        if points:
            found.append(Curve(name, "time", points, _percent))
    if len(found) == 2 and [y for _, y in found[0].points] == [y for _, y in found[1].points]:
        return found[1:]  # without children it is one curve twice
    return found


def _gpus(rows: Sequence[Row]) -> list[Curve]:
    found = []
    for index in sorted({row["gpu_index"] for row in rows}):
        mine = [row for row in rows if row["gpu_index"] == index]
        start, total = mine[0]["at"], next((row["total_bytes"] for row in mine if row["total_bytes"]), None)
        for key, name, words in (
            ("utilization_percent", "utilisation", _percent),
            ("used_bytes", "memory in use by everybody", format_bytes),
            ("own_bytes", "memory of this process", format_bytes),
        ):
            points = tuple((row["at"] - start, float(row[key])) for row in mine if row[key] is not None)
            if points:
                whole = f", of {format_bytes(total)}" if total and key == "used_bytes" else ""
                found.append(Curve(f"GPU {index}: {name}{whole}", "time", points, words))
    return found


def _code(storage: Storage, git: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of the code, and the text of its patch."""
    digest, patch, problem = git.get("patch"), "", ""
    if isinstance(digest, str):
        try:
            patch = storage.evidence.blob(digest).decode("utf-8", "replace")
        except NotFound:
            problem = "The patch itself is not in this store."
    facts = {key: value for key, value in git.items() if key != "patch"}
    long = len(patch) > _PATCH_CHARACTERS
    return {
        "facts": Markup(data_tree(facts)) if facts else "",
        "patch": patch[:_PATCH_CHARACTERS],
        "left_out": f"{len(patch) - _PATCH_CHARACTERS:,} characters more are in what `watcher export` writes."
        if long else "",
        "problem": problem,
    }  # fmt: skip


def _environment(found: Mapping[str, Any]) -> dict[str, Any]:
    packages = found.get("packages")
    listed = sorted(packages.items()) if isinstance(packages, Mapping) else []
    facts = {key: value for key, value in found.items() if key != "packages" and value not in (None, {}, [])}
    return {"facts": Markup(data_tree(facts)) if facts else "", "packages": [(str(a), str(b)) for a, b in listed]}
