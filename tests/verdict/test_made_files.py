"""Files that were written while a trial ran: the trial's own work changes nothing, an edit of what was there does."""

import pytest
from builders import CODE, good_trials, plan

from watcherml.contract.identity import CodeIdentity
from watcherml.verdict.workload import workload_changed

OLD, NEW, OTHER = (f"sha256:{letter * 64}" for letter in "abd")
MADE = "made: gen.py"


def changed(*files):
    """Return the sentence for a campaign whose trials loaded these files beside the sealed ones, in order of start."""
    made_plan = plan()
    trials = []
    for number, (one, found) in enumerate(zip(good_trials(made_plan), files, strict=True)):
        code = CodeIdentity({**CODE.files, **found})
        identity = one.result.identity.replace(code=code)
        trials.append(one.replace(result=one.result.replace(identity=identity, started_at=1000.0 + number)))
    return workload_changed(made_plan, tuple(reversed(trials)))


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([{MADE: OLD}, {MADE: NEW}, {MADE: NEW}, {MADE: NEW}, {MADE: OLD}], id="made by each trial"),
        pytest.param([{MADE: OLD}, {MADE: NEW}, {"gen.py": NEW}, {"gen.py": NEW}, {}], id="made if it differs"),
        pytest.param([{MADE: OLD}, {"gen.py": OLD}, {}, {"gen.py": OLD}, {}], id="made once and kept"),
        pytest.param([{"gen.py": OLD}, {MADE: OLD}, {"gen.py": OLD}, {}, {}], id="saved again as it was"),
    ],
)  # fmt: skip
def test_what_the_first_trial_made_itself_is_no_edit(files):
    assert changed(*files) == ""


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([{"gen.py": OLD}, {}, {"gen.py": OLD}, {"gen.py": OLD}, {MADE: NEW}], id="in the last trial"),
        pytest.param([{MADE: OLD}, {"gen.py": OLD}, {}, {"gen.py": NEW}, {}], id="between two trials"),
        pytest.param([{}, {}, {}, {MADE: OLD}, {"gen.py": NEW}], id="in one trial and again before the next"),
        pytest.param([{MADE: OLD}, {MADE: OTHER}, {}, {}, {"gen.py": NEW}], id="made by nobody"),
    ],
)  # fmt: skip
def test_what_lay_there_and_was_written_over_is_an_edit(files):
    assert "gen.py is not the same in" in changed(*files)


def test_a_module_that_came_from_another_folder_is_named_only_where_no_file_says_it():
    shadowed = [{"../b/gen.py": OLD, "module gen": OLD}] * 4 + [{"../a/gen.py": NEW, "module gen": NEW}]
    assert "module gen is not the same in" in changed(*shadowed)
    edited = [{"../b/gen.py": OLD, "module gen": OLD}] * 4 + [{"../b/gen.py": NEW, "module gen": NEW}]
    assert "while the campaign ran: ../b/gen.py is not" in changed(*edited)


def test_a_module_whose_every_content_was_made_by_trials_is_no_edit_and_one_that_lay_there_is():
    made = [{"made: ../gen.py": OLD}, {"../gen.py": OLD, "module gen": OLD}]
    again = [{"made: ../gen.py": NEW}, {"../gen.py": NEW, "module gen": NEW}]
    assert changed(*made, *again, {}) == ""
    shadowed = [{"gen.py": OLD, "module gen": OLD}] * 3 + [{"made: gen/__init__.py": NEW, "module gen": NEW}] * 2
    assert "module gen is not the same in" in changed(*shadowed)
