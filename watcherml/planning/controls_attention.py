"""Reading and writing the name of an attention kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watcherml.planning.controls_reading import Flag, like

# Switches of one kernel. Off reads as eager: whatever else the library takes then, it is not this kernel.
FLAG_KEYS = ("flash_attention", "use_flash_attention", "use_flash_attention_2", "use_flash_attn", "flash_attn")
_FLASH = "flash_attention_2"

_NAMES = ("eager", "sdpa", _FLASH, "flash_attention_3", "flex_attention", "xformers")
_PLAIN = {name: name for name in _NAMES}
_TRANSFORMERS = {name: name for name in _NAMES if name != "xformers"}
_FACTORY = {"eager": "disabled", "sdpa": "sdpa", _FLASH: "fa2", "flash_attention_3": "fa3"}
_FOUNDRY = {"eager": "torch", _FLASH: "flash"}
_TORCH = {"eager": "math", _FLASH: "flash_attention"}
_OTHER_WORDS = {"flash_attn": _FLASH, "flash_attn_2": _FLASH, "flash_attn_3": "flash_attention_3",
                "flex": "flex_attention", "sdp": "sdpa"}  # fmt: skip
# The dialect of a word is the first that has it, so that the words they share are read as the plain ones.
_DIALECTS = (_PLAIN, _FACTORY, _FOUNDRY, _TORCH)
_TRANSFORMERS_KEYS = ("attn_implementation", "_attn_implementation")
_FACTORY_KEY = "flash_attn"


@dataclass(frozen=True)
class Backend:
    """The attention kernel: eager, sdpa, flash_attention_2, flash_attention_3, flex_attention or xformers."""

    wanted: str = 'one of "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "xformers"'

    def leaves(self, key: str) -> tuple[str, ...]:
        """No key of a section stands for a kernel."""
        return ()

    def read(self, key: str, raw: Any) -> str | None:
        """Return the kernel."""
        if isinstance(raw, str):
            text = raw.strip().lower().replace("-", "_")
            for dialect in _DIALECTS:
                for name, word in dialect.items():
                    if word == text:
                        return name
            if text in _OTHER_WORDS:
                return _OTHER_WORDS[text]
        flag = Flag().read(key, raw) if key in FLAG_KEYS else None
        return None if flag is None else _FLASH if flag else "eager"

    def write(self, key: str, raw: Any, value: Any) -> Any | None:
        """Return the kernel in the dialect of the present one; a switch can only say its own kernel or eager."""
        if not isinstance(value, str):
            return None
        text = raw.strip().lower().replace("-", "_") if isinstance(raw, str) else ""
        if key in FLAG_KEYS and Flag().read(key, raw) is not None and text != "disabled":
            return Flag().write(key, raw, value == _FLASH) if value in (_FLASH, "eager") else None
        if not isinstance(raw, str):
            return None
        word = _dialect(key, text).get(value)
        if word is None:
            return None
        return like(raw, word.replace("_", "-") if "-" in raw else word)


def _dialect(key: str, text: str) -> dict[str, str]:
    if key == _FACTORY_KEY:
        return _FACTORY
    found = next((dialect for dialect in _DIALECTS if text in dialect.values()), _PLAIN)
    return _TRANSFORMERS if found is _PLAIN and key in _TRANSFORMERS_KEYS else found
