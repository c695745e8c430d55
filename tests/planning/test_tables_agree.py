"""A control stands in several tables of several layers: none of them may know one control less than the others."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from watcherml.forensics.causes.effects import EFFECTS
from watcherml.forensics.causes.table import ROWS
from watcherml.planning import plan, rules
from watcherml.planning.capability import BY_NAME, CONTROLS
from watcherml.report.glossary import GLOSSARY
from watcherml.trials.knobs import _READ

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = {13: "Thirteen", 14: "Fourteen", 15: "Fifteen", 16: "Sixteen"}
# Nothing in a trial's process shows the first; the second is read back from the allocator itself.
READ_ELSEWHERE = {"parameter_offload", "allocator_configuration"}


def test_every_module_of_rules_is_asked_when_a_plan_is_made():
    modules = [importlib.import_module(f"{rules.__name__}.{one.name}") for one in pkgutil.iter_modules(rules.__path__)]
    assert {one.drafts for one in modules if hasattr(one, "drafts")} == set(plan._RULES)


# The causes that no change of the configuration touches, whatever the change is.
@pytest.mark.parametrize("cause", ["C0", "C2", "C4", "C24", "C25"])
def test_a_cause_outside_the_configuration_rules_every_control_out(cause):
    assert set(EFFECTS[cause].rules_out) == set(BY_NAME)


def test_the_glossary_knows_every_control_and_a_trial_reads_each_back_or_has_a_reason():
    assert set(GLOSSARY["capability"]) == set(BY_NAME)
    assert set(_READ) == set(BY_NAME) - READ_ELSEWHERE


def test_readme_has_every_control_with_its_authority():
    section = (ROOT / "README.md").read_text("utf-8").split("### What may be changed")[1].split("\n### ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    found = {name: authority for names, authority in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(found) == set(BY_NAME) and section.lstrip().startswith(f"{NUMBERS[len(CONTROLS)]} controls")
    for control in CONTROLS:
        words = found[control.name]
        assert ("automatic" in words) == (control.authority == "automatic"), control.name
        assert ("high risk" in words) == (control.risk == "high"), control.name
        assert ("changes what is computed" in words) == control.semantic, control.name


def test_the_changelog_counts_what_there_is():
    news = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"names {len(ROWS)} causes" in news and f"{NUMBERS[len(CONTROLS)]} controls" in news
