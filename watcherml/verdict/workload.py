"""Did every trial of a campaign run one workload, and is it the one that the contract seals?"""

from __future__ import annotations

from watcherml.contract.identity import MADE, MODULE
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import Trial
from watcherml.protocol.verdict import Check
from watcherml.verdict import check
from watcherml.verdict.bindings import identity_checks

# What is compared, with the words for what changed.
_COMPARED = {
    "dataset_fingerprint": "the data",
    "environment_fingerprint": "the installed packages",
    "model_identifier": "the model",
}

_OTHER = {
    "identity.dataset_fingerprint": "the data",
    "identity.environment_fingerprint": "the installed packages",
    "identity.model_identifier": "the model",
    "identity.git_commit": "the commit",
    "code": "the code",
}


def same_workload(trials: tuple[Trial, ...]) -> tuple[Check, ...]:
    """Check that no file of the project had two contents, late imports included, and nothing else two identities.

    Every trial counts that measured itself, the control and the probes too: what was edited after the control would
    get the credit for the change. The commit is not compared; it moves without the workload. Nor is any file that no
    trial imported: a notebook that saves itself, or a new checkpoint, is no edit of the code.
    """
    differing, several = _differing(trials)
    identity = "one identity of data, packages and model"
    return (
        check.holds("same_code", "one content of each file", differing[0] if differing else "one", not differing),
        check.holds("same_workload", identity, several[0] if several else "one", not several),
    )


def workload_changed(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> str:
    """Return what was changed while the campaign ran or since it was prepared, as a sentence; empty if nothing was.

    Between trials anything that two of them measured differently counts; against the plan only what a trial that ended
    well measured, because one that failed may not have come so far.
    """
    differing, several = _differing(trials)
    names = [*differing[:3], *([f"{len(differing) - 3} more files"] if len(differing) > 3 else [])]
    words = [*names, *(_COMPARED[name] for name in several)]
    if words:
        where = _between(trials)
        return f"The workload changed while the campaign ran: {', '.join(words)} {_is(words)} not the same in {where}."
    for one in trials:
        if one.result.outcome == "completed":
            found = identity_checks(plan, one.result)
            if not check.all_pass(found):
                return f"A trial did not run the workload of the contract: {other_words(found)}."
    return ""


def other_words(checks: tuple[Check, ...]) -> str:
    """Return what is not as the contract says: in a person's words, then each broken check."""
    broken = [one for one in checks if one.outcome != "pass"]
    names = dict.fromkeys(_OTHER.get(one.name, one.name.partition(".")[0]) for one in broken)
    return f"{', '.join(names)} ({'; '.join(check.broken(checks))})"


def _differing(trials: tuple[Trial, ...]) -> tuple[list[str], list[str]]:
    """Return the files with two contents, and the identities with two values."""
    measured = [one.result.identity for one in _by_start(trials) if one.result.identity is not None]
    contents: dict[str, set[str]] = {}
    written: dict[str, set[str]] = {}
    made: dict[str, bool] = {}
    for one in measured:
        for name, content in (one.code.files if one.code else {}).items():
            path = name.removeprefix(MADE)
            # What the first trial that loaded a file had made itself is no code of the project, however often it is
            # made; of what lay there before, whatever is written over it later is an edit.
            by_trial = made.setdefault(path, name != path) and name != path
            (written if by_trial else contents).setdefault(path, set()).add(content)
    by_trials = set().union(*written.values())

    def edited(path: str, found: set[str]) -> bool:
        if path.startswith(MODULE):  # its files are judged by themselves: this is about which of them it led to
            return len(found) > 1 and not found <= by_trials
        # What a trial found there, and no trial had made, came from somebody else.
        return not found <= written[path] if made[path] else len(found) > 1

    changed = [path for path, found in contents.items() if edited(path, found)]
    files = [path for path in changed if not path.startswith(MODULE)]
    differing = sorted(files or changed)
    return differing, [name for name in _COMPARED if len({getattr(one, name) for one in measured}) > 1]


def _by_start(trials: tuple[Trial, ...]) -> list[Trial]:
    return sorted(trials, key=lambda each: (each.result.started_at, each.request.trial_id))


def _between(trials: tuple[Trial, ...]) -> str:
    """Return which two trials, in the order of their start, first differ."""
    before: Trial | None = None
    for one in _by_start(trials):
        if one.result.identity is None:
            continue
        if before is not None and _differing((before, one)) != ([], []):
            return " and ".join(f"{each.request.trial_id} ({each.request.role})" for each in (before, one))
        before = one
    return "all trials"


def _is(words: list[str]) -> str:
    return "is" if len(words) == 1 and not words[0].endswith("packages") else "are"
