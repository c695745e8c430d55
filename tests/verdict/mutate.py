"""Small edits of a sealed document, each with the digests left, renewed outside, or renewed everywhere."""

from __future__ import annotations

import copy
import json

from watcherml.protocol.authorization import Authorization
from watcherml.protocol.plan import RecoveryPlan
from watcherml.protocol.proposal import Change, apply_changes, config_digest
from watcherml.protocol.request import TrialRequest
from watcherml.protocol.result import Trial, TrialResult
from watcherml.protocol.verdict import Ending, RecoveryChain
from watcherml.sealed.canonical import canonical_bytes, digest
from watcherml.verdict.rank import rank
from watcherml.verdict.verify import verify

_MARK = "@@respelled@@"


def mutate(document, rng):
    """Return (what was done, the edited document as parsed JSON, the number's other spelling or None).

    One field is changed, removed or added, one list element duplicated, dropped, moved or repeated.
    """
    edited = copy.deepcopy(document)
    nodes = list(_nodes(edited["value"], ("value",)))
    while True:
        parent, key, path = rng.choice(nodes)
        done = _edit(parent, key, rng, document)
        if done is not None:
            words, spelling = done
            return f"{'.'.join(map(str, path))}: {words}", edited, spelling


def _nodes(value, path):
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in children:
        yield value, key, (*path, key)
        if isinstance(item, (dict, list)):
            yield from _nodes(item, (*path, key))


def _edit(parent, key, rng, document):
    value = parent[key]
    general = [_remove, _nothing]
    if isinstance(parent, dict):
        general.append(_add)
    if isinstance(parent, list):
        general += [_duplicate, _repeat, _move]
    kinds = {bool: [_flip, _as_number], int: [_count, _respell, _as_text], float: [_count, _respell, _as_text],
             str: [_other_text, _longer, _empty], list: [_clear], dict: [_extra]}  # fmt: skip
    edit = rng.choice(general + 3 * kinds.get(type(value), [_something]))
    return edit(parent, key, rng, document)


def _remove(parent, key, rng, document):
    del parent[key]
    return "removed", None


def _nothing(parent, key, rng, document):
    parent[key] = None
    return "null", None


def _something(parent, key, rng, document):
    parent[key] = rng.choice([0, 1, "", "x", False, {}, []])
    return "something", None


def _add(parent, key, rng, document):
    parent[rng.choice(["extra", f"{key}_", f"{key}2", ""])] = parent[key]
    return "one more key", None


def _duplicate(parent, key, rng, document):
    parent.insert(key, copy.deepcopy(parent[key]))
    return "duplicated", None


def _repeat(parent, key, rng, document):
    parent.append(copy.deepcopy(parent[0]))
    return "first repeated at the end", None


def _move(parent, key, rng, document):
    parent.append(parent.pop(key))
    return "moved to the end", None


def _flip(parent, key, rng, document):
    parent[key] = not parent[key]
    return "flipped", None


def _as_number(parent, key, rng, document):
    parent[key] = int(parent[key])
    return "a number", None


def _count(parent, key, rng, document):
    value = parent[key]
    parent[key] = rng.choice([value + 1, value - 1, value * 2, -value - 1, 0, value + 0.5, 2**53 - 1])
    return f"{value} -> {parent[key]}", None


def _respell(parent, key, rng, document):
    value = parent[key]
    whole = float(value).is_integer() and abs(value) < 10**15
    forms = [f"{value!r}e0", f"{float(value)!r}0", f"+{value!r}", f" {value!r}"]
    forms += [f"{int(value)}.0", f"{int(value)}.", f"0{int(value)}", "-0"] if whole else []
    parent[key] = _MARK
    return "spelled differently", rng.choice(forms)


def _as_text(parent, key, rng, document):
    parent[key] = str(parent[key])
    return "as text", None


def _other_text(parent, key, rng, document):
    texts = sorted({item[key_] for item, key_, _ in _nodes(document["value"], ()) if isinstance(item[key_], str)})
    parent[key] = rng.choice(texts)
    return f"other text {parent[key][:40]}", None


def _longer(parent, key, rng, document):
    parent[key] += rng.choice([" ", "x", "\u0000", "\u202e"])
    return "longer", None


def _empty(parent, key, rng, document):
    parent[key] = ""
    return "empty", None


def _clear(parent, key, rng, document):
    parent[key] = []
    return "emptied", None


def _extra(parent, key, rng, document):
    parent[key]["extra"] = 1
    return "one more key inside", None


# -- writing it down again


def as_it_is(edited, spelling):
    """Spell the edited document with the digest it had."""
    return _spelled(edited, spelling)


def sealed_outside(edited, spelling):
    """Renew the document's own digest over the edited value."""
    edited["digest"] = digest(edited["kind"], edited["version"], edited["value"])
    return _spelled(edited, spelling)


def sealed_everywhere(edited, spelling):
    """Renew every digest from the inside out, and judge again: the best that a forger can do.

    Raises what decoding raises where the edit leaves no valid value.
    """
    value = edited["value"]
    plan = _plan(value["plan"])
    approvals = tuple(_approval(plan, one) for one in value["authorizations"])
    trials = tuple(_trial(plan, one) for one in value["trials"])
    ending, campaign_id = Ending.from_data(value["ending"]), value["campaign_id"]
    verdict = verify(campaign_id, plan, approvals, trials, ending)
    ranking = rank(plan, approvals, trials)
    return RecoveryChain(campaign_id, plan, approvals, trials, ending, ranking, verdict).to_json()


def sealed_plan(edited, spelling):
    """Renew every digest of a plan's document."""
    return _plan(edited["value"]).to_json()


def _plan(data):
    config = data["source"]["config"]
    data["contract"]["source_config_digest"] = config_digest(config)
    for proposal in data["proposals"]:
        changes = tuple(Change.from_data(one) for one in proposal["changes"])
        proposal["config_digest"] = config_digest(apply_changes(config, changes))
    return RecoveryPlan.from_data(data)


def _approval(plan, data):
    data["plan_digest"] = plan.digest
    data["proposal_digest"] = plan.proposal(data["proposal_id"]).digest
    return Authorization.from_data(data)


def _trial(plan, data):
    request = data["request"]
    known = {one.proposal_id: one for one in plan.proposals}
    proposal = known.get(request["proposal_id"])
    request["plan_digest"], request["contract_digest"] = plan.digest, plan.contract.digest
    request["config_digest"] = config_digest(request["config"])
    if proposal is not None and proposal.config_digest != request["config_digest"]:
        request["config"] = plan.candidate_config(proposal.proposal_id)
        request["config_digest"] = proposal.config_digest
    made = TrialRequest.from_data(request)
    data["result"]["request_digest"] = made.digest
    return Trial(made, TrialResult.from_data(data["result"]))


def _spelled(edited, spelling):
    if spelling is None:
        return canonical_bytes(edited).decode()
    return canonical_bytes(edited).decode().replace(json.dumps(_MARK), spelling, 1)
