"""The configuration of a Hugging Face training as plain values, and the way back to TrainingArguments.

Nothing here imports transformers: what is read are the fields of the objects that are handed in.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from watcherml.errors import InvalidValue

# Kept also where they are the default: the controls, and what a person looks for first.
_ALWAYS = {
    "per_device_train_batch_size", "per_gpu_train_batch_size", "gradient_accumulation_steps",
    "activation_checkpointing", "gradient_checkpointing", "bf16", "fp16", "use_cache", "max_steps", "num_train_epochs",
    "learning_rate", "optim", "seed",
}  # fmt: skip
# Where things go and how progress is shown: no part of what is trained, and other in each trial.
_NEVER = {
    "output_dir", "overwrite_output_dir", "logging_dir", "run_name", "report_to", "project", "disable_tqdm",
    "log_level", "log_level_replica", "log_on_each_node", "local_rank", "resume_from_checkpoint", "push_to_hub",
    "do_train", "do_eval", "do_predict", "ddp_timeout",
}  # fmt: skip
_NEVER_STARTS = ("hub_", "trackio_", "push_to_hub_")
# The second name is a deprecated spelling of the first where the arguments have both.
_SAME = (
    ("activation_checkpointing", "gradient_checkpointing"),
    ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"),
)  # fmt: skip


def configuration(args: Any, model: Any = None, train_batch_size: int | None = None) -> dict[str, Any]:
    """Return what TrainingArguments and the model say of a training, under the names of Transformers.

    Arguments that are not the default, and always the controls; where files go and how progress is shown is left out.
    Of the model: its name, ``attn_implementation``, ``dtype``, and ``use_cache`` where the arguments have none. A
    DeepSpeed file is read in. ``train_batch_size`` is what ``auto_find_batch_size`` has come to, for all devices.
    """
    found = _arguments(args)
    for name, old in _SAME:
        if name in found:
            found.pop(old, None)
    if train_batch_size and getattr(args, "auto_find_batch_size", False):
        found["per_device_train_batch_size"] = max(1, train_batch_size // max(1, getattr(args, "n_gpu", 1)))
    return {**_model(model), **found}


def training_arguments(config: Mapping[str, Any], max_steps: int | None = None, *, kind: Any = None) -> dict[str, Any]:
    """Return the keywords for TrainingArguments that a configuration holds, as a training function needs them.

    ``kind`` is the class of the arguments (default: ``transformers.TrainingArguments``). ``max_steps`` limits the
    optimizer steps: a smaller limit of the configuration stays, and one in epochs is replaced. Keys that are no field
    of the class are left out, and ``gradient_checkpointing`` is given under the name that this version of Transformers
    has for it. Raises ``InvalidValue`` for a limit that is no whole number above 0.
    """
    if max_steps is not None and (type(max_steps) is not int or max_steps < 1):
        raise InvalidValue("max_steps", expected="a whole number of at least 1, or None", got=repr(max_steps)[:80])
    if kind is None:
        from transformers import TrainingArguments

        kind = TrainingArguments
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    found = {key: value for key, value in config.items() if key in fields}
    for name, old in _SAME:
        if name in fields and old in found:
            found[name] = found.pop(old)  # the old name is the one that a plan changes where there are both
    if max_steps is not None:
        own = found.get("max_steps") or -1
        found["max_steps"] = min(max_steps, own) if own > 0 else max_steps
    return found


def _arguments(args: Any) -> dict[str, Any]:
    defaults = {field.name: field.default for field in dataclasses.fields(args)}
    found = {}
    for name, value in args.to_dict().items():
        if name in _NEVER or name.startswith(_NEVER_STARTS) or name.endswith("_token") or value is None:
            continue
        if name in _ALWAYS or not _is_default(value, defaults.get(name), getattr(args, name, None)):
            found[name] = value
    deepspeed = found.get("deepspeed")
    if isinstance(deepspeed, str):
        try:
            found["deepspeed"] = json.loads(Path(deepspeed).read_text("utf-8"))
        except (OSError, ValueError):
            pass  # its name is all that can be said
    return found


def _is_default(value: Any, default: Any, raw: Any) -> bool:
    if callable(getattr(raw, "to_dict", None)):
        try:
            return bool(value == type(raw)().to_dict())  # a section of settings, each at its default
        except Exception:  # noqa: BLE001 - a class that cannot be made without arguments
            return False
    default = getattr(default, "value", default)  # enumerations become words
    return bool(value == default) or (not value and (not default or default is dataclasses.MISSING))


def _model(model: Any) -> dict[str, Any]:
    if model is None:
        return {}
    config = getattr(model, "config", None)
    name = getattr(config, "_name_or_path", None) or getattr(config, "name_or_path", None)
    kind = getattr(config, "model_type", None) or type(model).__name__
    found: dict[str, Any] = {"model_name_or_path": name} if name else {"model": kind}
    attention = getattr(config, "_attn_implementation", None)
    if isinstance(attention, str):
        found["attn_implementation"] = attention
    cache = getattr(config, "use_cache", None)
    if isinstance(cache, bool):
        found["use_cache"] = cache
    dtype = getattr(model, "dtype", None)
    if dtype is not None:
        found["dtype"] = str(dtype).removeprefix("torch.")
    return found
