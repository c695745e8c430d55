"""A plan that found no micro-batch says so and how to declare one, instead of that nothing could help."""

from dataclasses import replace

import pytest
from builders import planned, source

from watcherml.verdict.sentences import nothing_proposed

HELPLESS = "No supported change of this configuration could help"


# The configuration, and what the sentence has to hold.
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"samples": 60}, '{"micro_batch_size": {"path": ["KEY"]}}'),
        ({"batch": 60}, 'declare {"micro_batch_size": {"path": ["batch"]}}'),
        ({"max_tokens": 60, "block_size": 7}, 'declare {"micro_batch_size": {"path": ["max_tokens"]}}'),
        ({"actor": {"batch_size": 8}, "critic": {"batch_size": 8}}, "2 keys could be meant"),
    ],
)
def test_what_may_be_declared_is_said(config, words):
    plan = planned(source(config), include_approval_required=False)
    assert not plan.proposals
    found = nothing_proposed(plan)
    assert words in found and found.startswith("Nothing was tried") and HELPLESS not in found


def test_permissions_that_lack_do_not_hide_that_no_batch_was_found():
    found = nothing_proposed(planned(source({"max_tokens": 64, "block_size": 64}), include_approval_required=False))
    assert "need what this plan was not given" in found and '"path": ["max_tokens"]' in found


@pytest.mark.parametrize(
    "made",
    [
        planned(source({"batch_size": 1})),
        planned(source({"samples": 60}, phase="load")),
        replace(planned(source({"samples": 60})), planner_version=4),
    ],
    ids=["a batch of one", "no batch yet when it failed", "planned before this was said"],
)
def test_where_a_declaration_would_not_help_the_sentence_stays(made):
    assert nothing_proposed(made) == f"{HELPLESS}; see what was considered and why not."
