"""What a trial's process shows of training: the facts that ``knobs`` compares with the changes of a candidate.

Plain counters and sets, bounded. Only work with gradients counts: an evaluation may run by other rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

# Of each kind of fact so many are kept; of the calls of modules and backward passes so many are looked at.
MOST_KINDS = 64
MOST_CALLS = 4_096
MOST_CYCLES = 64


@dataclass
class Seen:
    """Filled by ``watching``. ``problem`` says why a part of it may be missing; then nothing is denied by it."""

    compiled: bool = False
    problem: str = ""
    calls: int = 0  # of modules, with gradients on
    first_rows: Counter[int] = field(default_factory=Counter)  # first dimension that a forward pass began with
    token_shapes: set[tuple[int, ...]] = field(default_factory=set)  # of whole numbers that embeddings got
    types: set[str] = field(default_factory=set)  # of floating tensors that modules got
    autocast: set[str] = field(default_factory=set)  # types that autocast was entered with, where it is on
    parameters: set[str] = field(default_factory=set)  # types of the parameters of optimizers that stepped
    recomputed: int = 0  # modules called while gradients were computed
    checkpoints: int = 0  # calls of torch.utils.checkpoint
    nodes: set[str] = field(default_factory=set)  # names in the graphs that gradients were computed from
    nodes_whole: bool | None = None  # whether every looked-at graph was walked to its end; None where none was
    backwards: Counter[int] = field(default_factory=Counter)  # backward passes for each step of an optimizer
    steps: int = 0  # of optimizers, those that accelerators skip included
    optimizers: set[str] = field(default_factory=set)  # full names of the classes that stepped
    states: set[str] = field(default_factory=set)  # types of the tensors of their state, counters left out
    state_on_host: bool = False  # of parameters that are on a device
    saved_to_host: bool = False
    implementations: set[str] = field(default_factory=set)  # of attention, as models' configurations name them
    caches: int | None = None  # key-value caches that were made; None where the library that makes them is not loaded
    cache_flags: set[bool] = field(default_factory=set)  # `use_cache` of models' configurations

    def fails(self, what: str, problem: Exception) -> None:
        """Note that a part of the watching broke."""
        self.problem = self.problem or f"{what}: {type(problem).__name__}: {problem}"[:200]


def keep(kinds: set[str], values: Iterable[str]) -> None:
    """Add values to a set that stays bounded."""
    for value in values:
        if len(kinds) < MOST_KINDS:
            kinds.add(value)
