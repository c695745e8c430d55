"""What an exported run is worth here: is it a run that this store recorded, and does it say the same?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

from watcherml.api.archive import Opened, read_run
from watcherml.api.result import MOST_DISAGREEMENTS
from watcherml.campaign import source
from watcherml.campaign.source import Disagreement
from watcherml.store.portable import RUN, Portable
from watcherml.store.storage import Storage

Standing = Literal["on_record", "unrecorded", "altered"]
# A person may rename a run at any time; what an export of a running run says of these has changed since.
_MAY_CHANGE = ("title",)
_CHANGES_UNTIL_THE_END = (
    "status", "end_reason", "ended_at", "heartbeat_at", "last_step", "device", "facts", "receipt",
)  # fmt: skip


def standing_of(opened: Opened, storage: Storage) -> tuple[Standing, str, list[Disagreement]]:
    """Compare an export with the run of that id in a store: its standing, a sentence, and where the two differ.

    On record is a run that was recorded here, if the export says nothing else of it: row, capsules, points, samples,
    artifacts and cells. Of an export that was made while the run was going on, all that it says has to be the beginning
    of what is on record. A capsule that came later is no difference.
    """
    run_id = opened.run.run.run_id
    here = read_run(storage, run_id)
    if here is None:
        return "unrecorded", "No run of that id is in this store; it was recorded elsewhere.", []
    if storage.get_run(run_id)["origin"] != "here":
        return "unrecorded", "A copy was imported into this store; it was recorded elsewhere.", []
    found = list(islice(_differences(here, opened), MOST_DISAGREEMENTS))
    if found:
        sentence = "This store has that run on record, and this is not it: altered, or another store's run of that id."
        return "altered", sentence, found
    return "on_record", "This run was recorded here, and the store says the same of it.", []


def _differences(here: Portable, opened: Opened) -> Iterator[Disagreement]:
    there = opened.run
    going_on = there.run.status == "running"
    expected, got = here.to_data(), there.to_data()
    for key in (*_MAY_CHANGE, *(_CHANGES_UNTIL_THE_END if going_on else ())):
        del expected["run"][key], got["run"][key]
    for key in here.tables:
        if going_on:
            expected[key] = expected[key][: len(got[key])]
    points, claimed = expected.pop("metrics"), got.pop("metrics")
    for key, column in points.items():
        kept = column[: len(claimed[key])] if going_on else column
        # Lists are compared first: a walk over millions of equal numbers takes long and finds nothing.
        if kept != claimed[key]:
            yield from source.differences(kept, claimed[key], f"{RUN}: $.metrics.{key}")
    yield from source.differences(expected, got, f"{RUN}: $")
    known = {*here.capsules}
    for capsule, document in zip(opened.capsules, there.capsules, strict=True):
        if document not in known:
            yield Disagreement("capsule", f"a capsule of run {here.run.run_id} on record", capsule.digest)
