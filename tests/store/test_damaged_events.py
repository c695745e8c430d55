"""An event of the audit trail that is no JSON object is named, with its campaign; nothing is guessed in its place."""

import pytest
import stored
from builders import FAILED_CONFIG, good_trials

from watcherml.errors import DamagedRow

BODIES = ("no json", b"\xff\x00", "null", "[]", "3", '{"a":', "")


def test_a_damaged_event_is_named_with_its_campaign(storage):
    plan = stored.recorded_plan(storage, FAILED_CONFIG)
    stored.record(storage, "campaign-1", plan, good_trials(plan))
    for body in BODIES:
        with storage.database.writing() as connection:
            connection.execute("DROP TRIGGER IF EXISTS events_never_change")  # damage asks no trigger
            connection.execute("UPDATE events SET body = ? WHERE seq = 2", (body,))
        with pytest.raises(DamagedRow) as caught:
            storage.audit.events("campaign-1")
        assert "table events, row campaign-1, 2: body" in caught.value.message
        assert storage.audit.events("campaign-1", after=2)[0]["seq"] == 3
