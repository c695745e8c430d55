"""Reading and writing number types: plain names, torch, Lightning, Accelerate, Composer, flags named after a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from watcherml.planning.controls_reading import SWITCHES, Flag, like

Half = Literal["bf16", "fp16"]

# Flags that are on for their own type and off for fp32. Two that share a prefix are one control.
FLAG_KEYS: dict[str, Half] = {"bf16": "bf16", "fp16": "fp16", "use_bf16": "bf16", "use_fp16": "fp16"}
# These name the type in which weights are kept, which need not be the one in which training computes.
STORAGE_KEYS = ("torch_dtype", "dtype", "model_dtype")
HALVES = ("bf16", "fp16", "fp8")

_SHORT = {"fp64": "fp64", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
_LONG = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_TORCH = {name: f"torch.{word}" for name, word in _LONG.items()}
_COMPOSER = {"fp32": "fp32", "fp16": "amp_fp16", "bf16": "amp_bf16", "fp8": "amp_fp8"}
_ACCELERATE = {"fp32": "no", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
# Lightning: "-true" changes the type of the weights, so that a step down is always the mixed form.
_MIXED = {"fp64": "64-true", "fp32": "32-true", "fp16": "16-mixed", "bf16": "bf16-mixed"}
_TRUE = {"fp64": "64-true", "fp32": "32-true", "fp16": "16-true", "bf16": "bf16-true"}
_BITS = {"fp64": "64", "fp32": "32", "fp16": "16"}
_LIGHTNING_BITS = {**_MIXED, "fp64": "64", "fp32": "32"}
_NICKNAMES = {"half": "fp16", "float": "fp32", "double": "fp64"}
_OFF = ("no", "none", "off")


def _words() -> dict[str, str]:
    known: dict[str, str] = {}
    for dialect in (_SHORT, _LONG, _TORCH, _COMPOSER, _MIXED, _TRUE, _BITS):
        known.update({word: name for name, word in dialect.items()})
    known.update(_NICKNAMES)
    known.update({f"torch.{word}": name for word, name in _NICKNAMES.items()})
    return known


_KNOWN = _words()


@dataclass(frozen=True)
class Precision:
    """The type in which training computes, one of fp64, fp32, fp16, bf16, fp8."""

    wanted: str = 'a type such as "fp32", "bf16", "float16", "16-mixed", or true or false for a flag named after one'

    def leaves(self, key: str) -> tuple[str, ...]:
        """``bf16`` and ``fp16`` as sections stand for their switch."""
        return SWITCHES if key in FLAG_KEYS else ()

    def read(self, key: str, raw: Any) -> str | None:
        """Return the type."""
        if key in FLAG_KEYS:
            flag = Flag().read(key, raw)
            return None if flag is None else FLAG_KEYS[key] if flag else "fp32"
        if type(raw) is int:
            return _KNOWN.get(str(raw)) if raw in (16, 32, 64) else None
        if not isinstance(raw, str):
            return None
        text = raw.strip().lower()
        return "fp32" if key == "mixed_precision" and text in _OFF else _KNOWN.get(text)

    def write(self, key: str, raw: Any, value: Any) -> Any | None:
        """Return the type in the dialect of the present value; a flag can only say its own type or fp32."""
        if not isinstance(value, str):
            return None
        if key in FLAG_KEYS:
            own = FLAG_KEYS[key]
            return Flag().write(key, raw, value == own) if value in (own, "fp32") else None
        if type(raw) is int:
            word = _numbers(key).get(value)
            return int(word) if word is not None and word.isdigit() else word
        if not isinstance(raw, str):
            return None
        word = _dialect(key, raw.strip().lower()).get(value)
        return None if word is None else like(raw, word)


def _numbers(key: str) -> dict[str, str]:
    # Only Lightning counts bits under this name, and it takes its own words beside them.
    return _LIGHTNING_BITS if key == "precision" else _BITS


def _dialect(key: str, text: str) -> dict[str, str]:
    if text.isdigit():
        return _numbers(key)
    if text.endswith("-true"):
        return _TRUE if text in ("16-true", "bf16-true") else _MIXED
    if text.endswith("-mixed"):
        return _MIXED
    if text.startswith("torch."):
        return _TORCH
    if text.startswith("amp_"):
        return _COMPOSER
    if key == "mixed_precision" and text in (*_OFF, *HALVES):
        return _ACCELERATE
    return _SHORT if text in _SHORT else _LONG
