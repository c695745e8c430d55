"""The vocabulary of controls: names, aliases, authority, risk, and how a value is read and written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from watcherml.planning import controls_attention, controls_precision
from watcherml.planning.controls_attention import Backend
from watcherml.planning.controls_precision import Precision
from watcherml.planning.controls_reading import DEVICE, SWITCHES, Bits, Count, Flag, Offload, Reading, Words
from watcherml.protocol.proposal import Authority, Risk


@dataclass(frozen=True)
class Control:
    """One canonical capability.

    ``aliases`` (the name itself is the first) are compared with ``normalised`` keys. ``reading`` says which values
    are usable, what they mean, and how another one is written.
    """

    name: str
    aliases: tuple[str, ...]
    authority: Authority
    risk: Risk
    semantic: bool
    reading: Reading


# Left out on purpose, because libraries disagree on what they mean: `batch`, `max_length`, `cpu_offload`, `amp`,
# `use_checkpoint`, `update_freq`.
CONTROLS: tuple[Control, ...] = (
    Control(
        "micro_batch_size",
        ("micro_batch_size", "batch_size", "per_device_train_batch_size", "per_gpu_train_batch_size",
         "train_batch_size", "train_micro_batch_size_per_gpu", "micro_train_batch_size", "micro_batch", "microbatch",
         "microbatch_size", "device_train_microbatch_size", "per_device_batch_size", "batch_size_per_device",
         "batch_size_per_gpu", "local_batch_size", "samples_per_gpu", "batchsize", "train_batchsize", "bs", "train_bs",
         "bsz", "train_bsz", "micro_bs", "micro_bsz", "micro_batchsize"),
        "automatic", "low", False, Count(1),
    ),
    Control(
        "gradient_accumulation_steps",
        ("gradient_accumulation_steps", "accumulate_grad_batches", "gradient_accumulation", "grad_accum_steps",
         "grad_accumulation_steps", "grad_accum", "accumulation_steps", "accum_iter", "accumulative_counts",
         "gradient_accumulation_iters", "gradient_accumulate_every", "grad_accum_every", "accumulate_steps",
         "accum_steps", "acc_steps", "grad_acc_steps", "accum_grad", "num_accumulation_steps", "accumulation", "accum",
         "iters_to_accumulate"),
        "automatic", "low", False, Count(1),
    ),
    Control(
        "gradient_checkpointing",
        ("gradient_checkpointing", "activation_checkpointing", "use_gradient_checkpointing",
         "enable_gradient_checkpointing", "use_activation_checkpointing", "enable_activation_checkpointing",
         "fsdp_activation_checkpointing", "grad_checkpointing", "use_grad_checkpointing", "checkpoint_activations",
         "with_cp"),
        "automatic", "low", False, Flag(),
    ),
    Control(
        "sequence_length",
        ("sequence_length", "max_seq_length", "max_sequence_length", "max_seq_len", "seq_length", "seq_len",
         "sequence_len", "block_size", "context_length", "model_max_length", "cutoff_len", "tokens_per_sample"),
        "approval_required", "medium", True, Count(2),
    ),
    Control(
        "precision",
        ("precision", "mixed_precision", *controls_precision.FLAG_KEYS, *controls_precision.STORAGE_KEYS),
        "approval_required", "medium", True, Precision(),
    ),
    Control(
        "attention_backend",
        ("attention_backend", "attn_implementation", "_attn_implementation", "attn_impl", "attn_backend",
         "attention_implementation", "attention_impl", *controls_attention.FLAG_KEYS),
        "approval_required", "medium", False, Backend(),
    ),
    Control(
        "memory_efficient_attention",
        ("memory_efficient_attention", "use_memory_efficient_attention", "enable_memory_efficient_attention",
         "enable_xformers_memory_efficient_attention", "enable_xformers", "use_xformers", "xformers_attention",
         "xformers"),
        "approval_required", "medium", False, Flag(),
    ),
    Control(
        "activation_offload",
        ("activation_offload", "offload_activations", "activation_offloading", "enable_activation_offloading",
         "activation_cpu_offload", "cpu_checkpointing"),
        "approval_required", "medium", False, Offload(),
    ),
    Control(
        "optimizer_state_offload",
        ("optimizer_state_offload", "offload_optimizer", "offload_optimizer_device", "offload_optimizer_states",
         "optimizer_offload", "optimizer_cpu_offload"),
        "approval_required", "medium", False, Offload(),
    ),
    Control(
        "parameter_offload",
        ("parameter_offload", "offload_parameters", "offload_params", "offload_param", "offload_param_device",
         "param_offload", "cpu_offload_params", "fsdp_offload_params", "fsdp_cpu_offload"),
        "approval_required", "high", False, Offload(),
    ),
    Control(
        "optimizer_bits",
        ("optimizer_bits", "optim_bits", "use_8bit_adam"),
        "approval_required", "high", True, Bits(flags=("use_8bit_adam",)),
    ),
    Control(
        "model_cache",
        ("model_cache", "use_cache", "kv_cache", "use_kv_cache"),
        "approval_required", "medium", False, Flag(),
    ),
    Control(
        "allocator_configuration",
        ("allocator_configuration", "pytorch_cuda_alloc_conf", "pytorch_alloc_conf"),
        "approval_required", "medium", False, Words(),
    ),
)  # fmt: skip

BY_NAME: dict[str, Control] = {control.name: control for control in CONTROLS}
BY_ALIAS: dict[str, Control] = {alias: control for control in CONTROLS for alias in control.aliases}


_HUMP = re.compile("(?<=[a-z])(?=[A-Z])")


def normalised(key: str) -> str:
    """Return a key as aliases are written: in lower case, with ``-`` and ``.`` as ``_``, ``batchSize`` in two words."""
    if key[:1].islower():
        key = _HUMP.sub("_", key)
    return key.lower().replace("-", "_").replace(".", "_")


def naming_key(path: Sequence[str]) -> str:
    """Return the normalised key that names a value: the last, or the one before an ``enabled`` or ``device``."""
    last = normalised(path[-1])
    return normalised(path[-2]) if len(path) > 1 and last in (*SWITCHES, DEVICE) else last
