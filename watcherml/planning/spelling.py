"""Canonical values of capabilities, and the way a configuration would write another one."""

from __future__ import annotations

from typing import Any

from watcherml.errors import InvalidValue
from watcherml.planning.capability import BY_NAME, Control, naming_key
from watcherml.protocol.proposal import Capability
from watcherml.sealed.record import thaw


def value_of(capability: Capability) -> Any:
    """Return the canonical value of a capability.

    An int for counts (samples, steps, tokens) and optimizer bits; a bool for switches, offloads and the model's
    cache; fp64, fp32, fp16, bf16 or fp8 for the precision; eager, sdpa, flash_attention_2, flash_attention_3,
    flex_attention or xformers for the attention; the stripped text for the allocator. Raises ``InvalidValue`` for a
    capability that ``discover`` would not have made.
    """
    control = _control(capability)
    value = control.reading.read(naming_key(capability.path), thaw(capability.value))
    if value is None:
        raise InvalidValue(f"capability {capability.name}"[:200], expected=control.reading.wanted,
                           got=repr(capability.value)[:80])  # fmt: skip
    return value


def spelled(capability: Capability, value: Any) -> Any | None:
    """Return a canonical value as the configuration would write it where this capability stands.

    Type, words and capitals of the present value are kept: ``"False"`` gives ``"True"``, ``32.0`` gives ``16.0``,
    ``"torch.float32"`` gives ``"torch.bfloat16"``. The one exception is Lightning's ``precision: 32``, which gives
    ``"bf16-mixed"``. None where this key cannot express the value: ``fp16: false`` cannot say bf16. The result reads
    as ``value`` again, and the present value gives itself. Raises ``InvalidValue`` for an unknown capability.
    """
    reading = _control(capability).reading
    key, raw = naming_key(capability.path), thaw(capability.value)
    if _same(reading.read(key, raw), value):
        return raw
    written = reading.write(key, raw, value)
    # What would be read as something else is not an expression of it.
    return written if _same(reading.read(key, written), value) else None


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)  # True is no 1


def _control(capability: Capability) -> Control:
    if capability.name not in BY_NAME:
        raise InvalidValue("capability name", expected="one of " + ", ".join(BY_NAME), got=repr(capability.name)[:80])
    return BY_NAME[capability.name]
