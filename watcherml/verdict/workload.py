"""Did every trial of a campaign run one workload?"""

from __future__ import annotations

from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Check
from watcherml.verdict import check

_COMPARED = ("dataset_fingerprint", "environment_fingerprint", "model_identifier")


def same_workload(trials: tuple[Trial, ...]) -> tuple[Check, ...]:
    """Check that no file of the project had two contents, late imports included, and nothing else two identities.

    Every trial counts that measured itself, the control and the probes too: what was edited after the control would
    get the credit for the change. The commit is not compared; it moves without the workload.
    """
    measured = [one.result.identity for one in trials if one.result.identity is not None]
    contents: dict[str, set[str]] = {}
    for one in measured:
        for path, content in (one.code.files if one.code else {}).items():
            contents.setdefault(path, set()).add(content)
    differing = sorted(path for path, found in contents.items() if len(found) > 1)
    several = [name for name in _COMPARED if len({getattr(one, name) for one in measured}) > 1]
    identity = "one identity of data, packages and model"
    return (
        check.holds("same_code", "one content of each file", differing[0] if differing else "one", not differing),
        check.holds("same_workload", identity, several[0] if several else "one", not several),
    )
