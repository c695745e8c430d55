"""``MLflowSink``: runs, failures and verdicts of a store as runs of an MLflow experiment."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from watcherml.adapters.mirror import RESULT_FILE, Picture, Sink, check_seconds, look, pages, storage_of
from watcherml.errors import MissingDependency
from watcherml.store.runs import Row
from watcherml.store.storage import Storage

try:
    import mlflow
    from mlflow.entities import Metric, Param, RunTag
except ImportError as error:
    raise MissingDependency(
        "watcherml.adapters.mlflow",
        expected="mlflow or mlflow-skinny in this environment",
        got=str(error),
        remedy="Install it with: pip install mlflow",
    ) from error

# MLflow's limits for one call and one text (mlflow.utils.validation); long texts are cut with an ellipsis.
_MOST_METRICS, _MOST_PARAMS, _MOST_TAGS = 1_000, 100, 100
_MOST_NAME, _MOST_PARAM, _MOST_TAG = 250, 6_000, 5_000
_NOT_IN_A_NAME = re.compile(r"[^\w\-. /:]", re.ASCII)
_RUN = "watcherml.run_id"
# The last point that the tracker has: written after the points, so that a break in between sends some twice.
_POINTS = "watcherml.mirrored_point"
_STATUS = {"running": "RUNNING", "success": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "killed": "KILLED"}


class MLflowSink(Sink):
    """Mirrors runs to MLflow: parameters, metrics with their steps and times, status, failure and verdict as tags.

    ``tracking_uri`` as for ``mlflow.set_tracking_uri`` (default: MLflow's own rule). ``experiment`` defaults to the
    run's project. ``every_seconds`` is how often ``follow`` mirrors a run that goes on. The tracker's run is found by
    its tag ``watcherml.run_id``; no run is made active, and nothing of the process is read by MLflow. How long a server
    that does not answer is waited for is MLflow's own setting (MLFLOW_HTTP_REQUEST_MAX_RETRIES and _TIMEOUT).
    """

    def __init__(
        self,
        storage: Storage | str | os.PathLike[str] | None = None,
        *,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        every_seconds: float | None = 30.0,
    ) -> None:
        super().__init__(storage_of(storage), check_seconds(every_seconds))
        self._uri, self._experiment = tracking_uri, experiment

    def _send(self, run_id: str) -> str:
        picture = look(self.storage, run_id)
        client = mlflow.MlflowClient(tracking_uri=self._uri)
        found = self._find(client, picture)
        there, tags = found.info.run_id, found.data.tags
        self._send_tags(client, there, picture)  # first: no point that MLflow refuses keeps a failure from it
        self._send_params(client, there, picture, found.data.params)
        after = int(tags[_POINTS]) if tags.get(_POINTS, "").isdigit() else 0
        names = _Names()
        for page in pages(self.storage, run_id, after):
            for part in _parts([_metric(point, names) for point in page], _MOST_METRICS):
                client.log_batch(there, metrics=part)
            client.set_tag(there, _POINTS, str(page[-1]["point"]))
        for campaign_id, document in picture.results.items():
            if not client.list_artifacts(there, f"watcherml/{campaign_id}"):
                client.log_text(there, document, f"watcherml/{campaign_id}/{RESULT_FILE}")
        status = _STATUS[picture.run["status"]]
        if picture.ended and found.info.status != status:
            client.set_terminated(there, status, int(1_000 * (picture.run["ended_at"] or self.storage.clock())))
        return str(there)

    def _find(self, client: Any, picture: Picture) -> Any:
        name, run_id = self._experiment or picture.run["project"], picture.run["run_id"]
        experiment = client.get_experiment_by_name(name)
        number = client.create_experiment(name) if experiment is None else experiment.experiment_id
        found = client.search_runs([number], f"tags.`{_RUN}` = '{_quoted(run_id)}'", max_results=1)
        if found:
            return found[0]
        title = picture.run.get("title") or run_id
        return client.create_run(number, int(1_000 * picture.run["started_at"]), {_RUN: run_id}, title)

    def _send_params(self, client: Any, there: str, picture: Picture, present: Mapping[str, str]) -> None:
        # A parameter cannot be changed in MLflow, and a run's configuration never changes here.
        names = _Names()
        params = [Param(names.of(key), _cut(text, _MOST_PARAM)) for key, text in picture.params.items()]
        for part in _parts([one for one in params if one.key not in present], _MOST_PARAMS):
            client.log_batch(there, params=part)

    def _send_tags(self, client: Any, there: str, picture: Picture) -> None:
        tags = [RunTag(name, _cut(text, _MOST_TAG)) for name, text in picture.tags.items()]
        note = picture.tags.get("watcherml.recovery.sentence") or picture.tags.get("watcherml.failure.sentence")
        if note:
            tags.append(RunTag("mlflow.note.content", _cut(note, _MOST_TAG)))
        for part in _parts(tags, _MOST_TAGS):
            client.log_batch(there, tags=part)


class _Names:
    """MLflow's names for ours: what it refuses becomes ``_``, with a short hash, so that no two become one."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        found = self._known.get(name)
        if found is None:
            found = _NOT_IN_A_NAME.sub("_", name)
            # What could be read as another path (`a//b`, `../a`, `/a`) is refused by it too.
            plain = all(part and not part.startswith(".") for part in found.split("/"))
            if found != name or not plain or len(found) > _MOST_NAME:
                digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
                found = f"{found.replace('/', '_').lstrip('.')[: _MOST_NAME - 9]}_{digest}"
            self._known[name] = found
        return found


def _metric(point: Row, names: _Names) -> Metric:
    return Metric(names.of(point["name"]), point["value"], int(1_000 * point["at"]), point["step"] or 0)


def _parts(values: Sequence[Any], most: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), most):
        yield list(values[start : start + most])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
