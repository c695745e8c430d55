"""Trials that an earlier version of the verifier judged, as the present one reads them.

Until version 2 a request did not name the candidate's changes, and a worker read back the allocator's setting alone.
Nothing is taken off such a trial: what it could not say is filled in, and every other check holds.
"""

from __future__ import annotations

from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.result import KnobReading, Trial
from watcherml.verdict.bindings import proposal_of

# From this version on requests name the changes, and what they do is read back.
READS_BACK = 3
_NOT_LOOKED = "its trial was made before controls were read back"


def as_read_now(plan: RecoveryPlan, trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
    """Return the trials with the changes of their candidates, each of which could not be observed.

    A trial that names changes was made later and stays as it is.
    """
    return tuple(_filled_in(plan, one) for one in trials)


def _filled_in(plan: RecoveryPlan, trial: Trial) -> Trial:
    request, result, proposal = trial.request, trial.result, proposal_of(plan, trial)
    if proposal is None or not proposal.changes or request.changes is not None:
        return trial
    named = request.replace(changes=proposal.changes)
    bound = named.digest if result.request_digest == request.digest else result.request_digest
    told = {one.capability for one in result.knobs}
    silent = dict.fromkeys(one.capability for one in proposal.changes if one.capability not in told)
    more = tuple(KnobReading(name, "not_observable", _NOT_LOOKED) for name in silent)
    return Trial(named, result.replace(request_digest=bound, knobs=(*result.knobs, *more)[:32]))
