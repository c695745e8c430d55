"""The configurations whose peaks a plan would like to know, before the plan is made. Pure."""

from __future__ import annotations

from typing import Any

from watcherml.contract.contract import RecoveryContract
from watcherml.planning.equivalence import divisors, sizes_below
from watcherml.planning.plan import considered, not_permitted
from watcherml.planning.rules.draft import Draft
from watcherml.planning.rules.micro_batch import NAME as MICRO_BATCH
from watcherml.planning.spelling import value_of
from watcherml.protocol.plan import Skipped, Source
from watcherml.protocol.proposal import Capability, apply_changes
from watcherml.sealed.floats import restore_floats

Ladder = dict[int, dict[str, Any]]


class Candidates:
    """What may be proposed for a failed run, as configurations."""

    def __init__(
        self,
        contract: RecoveryContract,
        source: Source,
        capabilities: tuple[Capability, ...],
        skipped: tuple[Skipped, ...],
        include_approval_required: bool,
    ) -> None:
        self._source = source
        self._contract, self._found = contract, (capabilities, skipped)
        self._with_approval = include_approval_required
        batch = next((one for one in capabilities if one.name == MICRO_BATCH), None)
        self.size = 1 if batch is None else int(value_of(batch))
        # Nothing keeps the effective batch, so that it need not be divided exactly.
        self.any_size = all(one.name != "gradient_accumulation_steps" for one in capabilities)

    @property
    def unchanged(self) -> dict[str, Any]:
        """The configuration that failed, its floats as they were recorded."""
        return self._config(())

    def configs(self, micro_batches: tuple[int, ...]) -> list[dict[str, Any]]:
        """Return the configuration of each candidate, in the order of the plan."""
        return [self._config(one.changes) for one in self._drafts(micro_batches)]

    def ladders(self) -> list[Ladder]:
        """Return the ladders of micro-batches: of each set of other changes the configuration of every size.

        Sizes are exact divisors, or many more where any size will do. The plain ladder comes first. One with another
        change ends with the micro-batch as it is.
        """
        found: dict[tuple[str, ...], Ladder] = {}
        for draft in self._drafts(sizes_below(self.size) if self.any_size else divisors(self.size)):
            rest = tuple(one.words for one in draft.changes if one.capability not in _OF_A_RUNG)
            micro = self._micro(draft)
            found.setdefault(rest, {})[micro] = self._config(draft.changes)
        return [found[rest] for rest in sorted(found, key=len) if len(found[rest]) > 1]

    def _drafts(self, micro_batches: tuple[int, ...]) -> list[Draft]:
        drafts, _ = considered(self._contract, self._source, *self._found, micro_batches)
        permitted = [one for one in drafts if not not_permitted(one, self._contract, self._with_approval)]
        return [one for one in permitted if not one.environment]  # the allocator's settings change no tensor

    def _micro(self, draft: Draft) -> int:
        changed = [one for one in draft.changes if one.capability == MICRO_BATCH]
        return int(changed[0].wanted) if changed else self.size

    def _config(self, changes: Any) -> dict[str, Any]:
        made: dict[str, Any] = restore_floats(apply_changes(self._source.config, changes), self._source.float_paths)
        return made


_OF_A_RUNG = (MICRO_BATCH, "gradient_accumulation_steps")
