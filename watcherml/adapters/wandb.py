"""``WandbSink``: runs, failures and verdicts of a store as offline runs of Weights & Biases."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from watcherml.adapters.mirror import RESULT_FILE, Picture, Sink, check_seconds, look, pages, storage_of
from watcherml.errors import MissingDependency
from watcherml.platform import expanded, write_atomically
from watcherml.store.runs import Row
from watcherml.store.storage import Storage

try:
    import wandb
except ImportError as error:
    raise MissingDependency(
        "watcherml.adapters.wandb",
        expected="wandb in this environment",
        got=str(error),
        remedy="Install it with: pip install wandb",
    ) from error

_MOST_TEXT = 5_000
_NOT_IN_A_PROJECT = re.compile(r"[/\\#?%:]")  # wandb's own check refuses the whole run for one of these
_NOT_IN_AN_ID = re.compile(r"[^\w\-]", re.ASCII)
# Nothing of this process is W&B's business: no console, code, git, packages, host name or statistics.
_QUIET: dict[str, Any] = {
    "console": "off", "save_code": False, "disable_code": True, "disable_git": True, "disable_job_creation": True,
    "x_disable_stats": True, "x_disable_meta": True, "x_disable_machine_info": True, "x_save_requirements": False,
    "silent": True, "host": "watcherml",
}  # fmt: skip


class WandbSink(Sink):
    """Mirrors runs to offline runs of W&B in ``folder``/wandb; ``wandb sync`` uploads them whenever you like.

    Each run has one offline folder, written as a whole: where the store has news, a new one takes its place under the
    same id, since W&B replaces a run that is uploaded again. ``project`` defaults to the run's, with ``-`` for what W&B
    refuses in it (``/`` and others); ``folder`` to the working directory at the time of the call. Steps stand in the
    metric ``step``, which is the axis of all others.
    ``every_seconds`` is how often ``follow`` mirrors a run that goes on; by default only its end.
    """

    def __init__(
        self,
        storage: Storage | str | os.PathLike[str] | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        project: str | None = None,
        every_seconds: float | None = None,
    ) -> None:
        super().__init__(storage_of(storage), check_seconds(every_seconds))
        self._folder = expanded(folder).absolute() if folder is not None else Path.cwd()
        self._project = project

    def _send(self, run_id: str) -> str:
        picture = look(self.storage, run_id)
        there = _NOT_IN_AN_ID.sub("-", run_id)[-64:]
        last = max((page[-1]["point"] for page in pages(self.storage, run_id)), default=0)
        fingerprint = picture.fingerprint(last)
        marker = self._folder / "wandb" / f"watcherml-{there}.json"
        before = _read(marker)
        old = self._folder / "wandb" / str(before.get("folder", ""))
        if before.get("fingerprint") == fingerprint and before.get("folder") and old.is_dir():
            return there
        new = self._write(picture, there)
        write_atomically(marker, json.dumps({"folder": new.name, "fingerprint": fingerprint}).encode())
        if before.get("folder") and old.is_dir() and old != new and old.name.endswith(there):
            shutil.rmtree(old, ignore_errors=True)
        return there

    def _write(self, picture: Picture, there: str) -> Path:
        row = picture.run
        self._folder.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=_NOT_IN_A_PROJECT.sub("-", self._project or row["project"])[:128],
            id=there, name=(row.get("title") or row["run_id"])[:128],
            dir=str(self._folder), mode="offline", reinit="create_new", config=row["config"], job_type=row["role"],
            tags=[_short(tag) for tag in _labels(picture)], notes=_notes(picture)[:_MOST_TEXT],
            settings=wandb.Settings(**_QUIET),
        )  # fmt: skip
        code = 1
        try:
            run.define_metric("*", step_metric="step")
            for page in pages(self.storage, row["run_id"]):
                for step in _steps(page):
                    run.log(step)
            run.summary.update({name: text[:_MOST_TEXT] for name, text in picture.tags.items()})
            for campaign_id, document in picture.results.items():
                # As a file of the run: an artifact would be staged in the person's home until it is uploaded.
                file = Path(run.dir) / "watcherml" / campaign_id / RESULT_FILE
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(document, "utf-8")
                run.save(str(file), base_path=run.dir, policy="end")
            code = 0 if row["status"] in ("success", "running") else 1
        finally:
            run.finish(exit_code=code)
        return Path(run.dir).parent


def _steps(page: list[Row]) -> Iterator[dict[str, Any]]:
    """Yield what was logged at the same step in a row as one entry, as W&B wants its history."""
    entry: dict[str, Any] = {}
    for point in page:
        step = point["step"]
        if entry and (entry.get("step") != step or point["name"] in entry):
            yield entry
            entry = {}
        entry.update({} if step is None else {"step": step})
        entry[point["name"] if point["name"] != "step" else "step (metric)"] = point["value"]
    if entry:
        yield entry


def _labels(picture: Picture) -> list[str]:
    names = ("watcherml.status", "watcherml.failure.class", "watcherml.recovery.status")
    return ["watcherml", *(picture.tags[name] for name in names if name in picture.tags)]


def _notes(picture: Picture) -> str:
    names = ("watcherml.failure.sentence", "watcherml.recovery.sentence")
    return "\n\n".join(picture.tags[name] for name in names if name in picture.tags)


def _short(tag: str) -> str:
    return tag[:64]


def _read(marker: Path) -> dict[str, Any]:
    try:
        found = json.loads(marker.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
