"""Every check of the verifier refuses something that nothing else would, and nothing forged gets through."""

import re

import pytest
from forged import FORGED, GOOD, PLAN, Campaign

import watcherml.verdict.verify as verify_module
from watcherml.verdict import check
from watcherml.verdict.verify import verify

ROWS = [(name, number) for name, rows in FORGED.items() for number in range(len(rows))]


def judge(campaign):
    return verify(campaign.campaign_id, campaign.plan, campaign.authorizations, campaign.trials, campaign.ending)


def family(name):
    """Return the check a name belongs to: without the trial it is about and without its parameter."""
    bare = name.rpartition(": ")[2] if name.startswith(("full", "confirmation", "probe ", "candidate")) else name
    fitting = [one for one in FORGED if bare == one or bare.startswith(f"{one}.")]
    return max(fitting, key=len, default=bare)


def documented():
    """Return the checks that the verifier's docstring lists, in its order."""
    return re.findall(r"``([a-z_.]+)``", verify_module.__doc__.split("Whether the change")[0].partition("1. ")[2])


def test_the_docstring_lists_exactly_the_checks_that_have_rows_here():
    assert sorted(documented()) == sorted(FORGED)


def test_every_check_of_a_verified_chain_is_documented_and_in_that_order():
    names = [family(one.name) for one in judge(Campaign(PLAN, GOOD)).checks]
    assert set(names) <= set(documented())
    first = list(dict.fromkeys(names))
    chain_wide = [name for name in first if documented().index(name) < documented().index("control.outcome")]
    assert chain_wide == sorted(chain_wide, key=documented().index)


@pytest.mark.parametrize(("name", "number"), ROWS)
def test_what_is_forged_is_never_verified(name, number):
    verdict = judge(FORGED[name][number])
    assert verdict.status != "verified"
    assert verdict.candidate_id is None and verdict.config is None and verdict.confirmation_run_ids == ()
    assert any(family(one.name) == name and one.outcome != "pass" for one in verdict.checks)


@pytest.mark.parametrize("name", FORGED)
def test_without_one_check_something_forged_gets_through(name, monkeypatch):
    """Without the check, at least one of its rows is verified: no other check would have refused that row."""
    everything = check.all_pass
    monkeypatch.setattr(check, "all_pass", lambda checks: bool(checks) and everything_but(name, checks, everything))
    assert any(judge(campaign).status == "verified" for campaign in FORGED[name])


def everything_but(name, checks, everything):
    kept = tuple(one for one in checks if family(one.name) != name)
    return not kept or everything(kept)


def test_without_any_check_disabled_the_good_chain_is_verified():
    assert judge(Campaign(PLAN, GOOD)).status == "verified"
