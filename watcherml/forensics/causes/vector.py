"""The evidence vector: plain numbers of one failure, None where nothing measured them; None is never zero.

Sizes are bytes. The letters in brackets are the symbols under which the rules' formulas name them.
"""

from __future__ import annotations

from dataclasses import dataclass

from watcherml.forensics.shortfall import Shortfall

AT_WORK = ("forward", "backward", "recompute")  # the phases in which activations live


@dataclass(frozen=True)
class Static:
    """Bytes that live as long as the model: summed over its tensors, exact, on the failing device.

    ``optimizer_expected`` is what the optimizer's state will take once it is made, where its class says so. ``to_come``
    is what gradients and state will take of the one optimizer that has not stepped and makes the most, ``returning``
    the gradients that each step makes again. Beside the total of what the frames name lie ``contained``, models and
    optimizers that only lists, dicts or objects in them hold, ``kept``, other tensors without a graph in containers of
    many, and ``working``, what the optimizer's own frames hold. ``models`` counts separate models.
    """

    parameters: int | None = None
    gradients: int | None = None
    optimizer: int | None = None
    buffers: int | None = None
    optimizer_expected: int | None = None
    to_come: int | None = None
    returning: int | None = None
    working: int | None = None
    contained: int | None = None
    kept: int | None = None
    models: int | None = None

    @property
    def total(self) -> int | None:
        """The sum of what was measured; None where the parameters were not, which make up the most of it."""
        if self.parameters is None:
            return None
        return self.parameters + sum(size or 0 for size in (self.gradients, self.optimizer, self.buffers))

    @property
    def all_models(self) -> int | None:
        """The total with the models that only containers hold; None where no model was found."""
        return (self.total or 0) + (self.contained or 0) if self.total is not None or self.contained else None

    @property
    def everything(self) -> int | None:
        """All that was found which no smaller step frees; None where no model was found."""
        models = self.all_models
        return None if models is None else models + (self.kept or 0) + (self.working or 0)


@dataclass(frozen=True)
class Sizes:
    """What the configuration and the batches say: elements, not bytes, but for ``element_bytes``."""

    micro_batch: int | None = None
    accumulation: int | None = None
    sequence_length: int | None = None
    vocabulary: int | None = None
    heads: int | None = None
    element_bytes: int | None = None
    checkpointing: bool | None = None
    model_cache: bool | None = None  # a key-value cache is kept between calls
    attention: str | None = None  # the kernel that is configured: "eager", "sdpa", "flash_attention_2"


@dataclass(frozen=True)
class History:
    """What was seen before the failure.

    ``allocated`` is the bytes after each completed optimizer step, oldest first, ``steps`` their numbers; where a long
    run was thinned the steps say so. ``in_step_peak`` is the most above that within one step. ``batch_elements`` are
    the elements of each batch in order, the failing one last. ``evaluation`` is the bytes after each batch without
    gradients of the failing evaluation, ``since_step`` that after each batch of training since the last optimizer step,
    and ``batch_numbers`` numbers either; empty where none was left out.
    """

    steps: tuple[int, ...] = ()
    allocated: tuple[int, ...] = ()
    in_step_peak: int | None = None
    batch_elements: tuple[int, ...] = ()
    evaluation: tuple[int, ...] = ()
    since_step: tuple[int, ...] = ()
    batch_numbers: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of the batch of each reading of ``evaluation`` or ``since_step``."""
        return self.batch_numbers or tuple(range(1, 1 + len(self.evaluation or self.since_step)))


@dataclass(frozen=True)
class Vector:
    """Bytes at the failure. ``capacity`` [C] is the device's total or budget, ``allowed`` [Y] a cap below it."""

    device_kind: str
    phase: str
    step: int | None  # [s] the last optimizer step that was completed; 0 before the first
    requested: int | None  # [Q] what was asked for
    capacity: int | None
    allowed: int | None
    free: int | None  # [F]
    allocated: int | None  # [A]
    reserved: int | None  # [R]
    missing: Shortfall | None  # [S]
    unallocated: int | None = None  # [Z] reserved and unallocated, as a message states it
    active: int | None = None  # [Act] allocated and what waits for other streams
    private_pools: int | None = None  # [PP] reserved in private pools
    private_idle: int | None = None  # [PPi] its idle part; what a message states
    largest_inactive: int | None = None  # [Lmax] largest cached block that the request could have used
    own_other: int | None = None  # [N] this process's bytes that are not torch's
    foreign: int | None = None  # [X] other processes' bytes
    # What a context alone takes here. Training processes cannot tell: by the time anything is read, libraries have come
    # to it, and a second process that only makes a context would take that much from a full device.
    context_base: int | None = None
    at_start: int | None = None  # [A0] allocated when the cell or run began
    earlier_out_of_memory: bool | None = None  # in this process, before this run
    retries: int | None = None  # [nr] allocator retries since the run began
    gc_freed: int | None = None  # what a garbage collection after the failure gave back
    grad_enabled: bool | None = None  # at the failure
    module_training: bool | None = None  # the `training` flag of the module in the failing frames
    expandable_segments: bool | None = None  # in effect
    allocator_backend: str | None = None  # "native" or "cudaMallocAsync"
    other_frameworks: tuple[str, ...] = ()  # loaded in this process
    host_signature: str = ""  # text that shows host memory, not the device's
    error_is_disguised: bool = False  # cuBLAS, cuDNN, NCCL or Triton text
    frames: tuple[tuple[str, str], ...] = ()  # (file, function), outermost first
    requested_block: int | None = None  # [Qb] the block itself, where ``requested`` is the segment for it
    request_is_absurd: bool = False  # a text that gives no number: "more than 1EB"
    request_scales: bool | None = None  # a tensor of the failing call has the micro-batch for its first dimension
    gradient_sizes: tuple[int, ...] = ()  # of the parameters here that want one
    optimizer_stepped: bool | None = None  # the optimizer of the failing frames had made a step before
    own_other_at_start: int | None = None  # [N] when the run began
    evaluation_batches: int | None = None  # completed batches of the failing evaluation; 0 in its first
    caught_ooms: int | None = None  # [no] out-of-memory events of this run that nobody saw: torch tried again
    exit_signal: str = ""  # of a dead child, as "SIGKILL"
    host_kills: int | None = None  # kills that the cgroup counted for want of host memory, during the run
    world_size: int | None = None  # ranks of the training
    ranks_failed: int | None = None
    sibling_bytes: int | None = None  # other ranks' bytes on this rank's device
    peak_without_checkpointing: int | None = None  # the same run's peak with checkpointing off
    static: Static = Static()
    sizes: Sizes = Sizes()
    history: History = History()

    @property
    def outside(self) -> int | None:
        """Bytes that are neither free nor torch's: other processes plus this one's context and libraries."""
        if self.device_kind == "simulated":
            return 0  # by construction: nothing else lives on that device
        if self.capacity is None or self.free is None or self.reserved is None:
            return None
        return self.capacity - self.free - self.reserved

    @property
    def limit(self) -> int | None:
        """The bytes that may be used at all: a cap where there is one, else the device's."""
        known = [size for size in (self.capacity, self.allowed) if size is not None]
        return min(known) if known else None

    @property
    def own_limit(self) -> int | None:
        """The bytes that torch could have had here: what others and the context hold is gone."""
        if self.capacity is None or self.outside is None:
            return self.allowed
        room = self.capacity - self.outside
        return room if self.allowed is None else min(room, self.allowed)

    @property
    def at_work(self) -> bool:
        """Whether the phase is one in which activations live."""
        return self.phase in AT_WORK
