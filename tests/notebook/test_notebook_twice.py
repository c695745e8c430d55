"""What happens where a cell is run again while its campaign goes on."""

import pytest
from notebook_shell import CONFIG, OOM, SHORT, TRAIN

from watcherml.api import data
from watcherml.errors import CampaignError

SLOW = dict(CONFIG, seconds=60)
RECOVER = f"%%watcher recover {SHORT}\n{TRAIN}"


@pytest.fixture
def running(notebook):
    """A notebook with a campaign whose trials take longer than any test; it is stopped in the end."""
    notebook.run(f"import watcherml\nrun = watcherml.init('demo', {SLOW!r})")
    notebook.run(f"raise RuntimeError({OOM!r})")
    first = notebook.run(RECOVER).value
    first.start()
    yield notebook, first
    first.stop()
    first.wait(60)


def test_a_recovery_cell_run_again_names_the_campaign_that_goes_on_and_starts_no_second_one(running):
    notebook, first = running
    wanted = first.campaign.campaign_id
    again = notebook.run(RECOVER)
    assert again.error is None
    second = notebook["recovery"]
    for face in (" ".join(second.text().split()), second.html()):
        assert f"Campaign {wanted} of this run goes on already" in face
    for call in (second.start, second.wait):
        with pytest.raises(CampaignError, match=f"%watcher recovery {wanted}"):
            call()
    assert [row["campaign_id"] for row in data.campaigns(first.campaign.storage)] == [wanted]
    first.stop()
    first.wait(60)
    assert wanted not in second.text()
    second.start()
    second.stop()
    assert second.wait(60).campaign_id != wanted
