"""``Device``: whose memory a number belongs to.

The kind is carried from the exception to the verdict, so that nothing measured on the simulated device
can ever count for CUDA, and the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watcherml.errors import InvalidValue
from watcherml.sealed.fields import ByteCount, Line
from watcherml.sealed.record import Record

DeviceKind = Literal["cuda", "simulated", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class Device(Record):
    """The device of a run or trial.

    ``kind`` is ``cuda``, ``simulated`` (the memory-budgeted CPU device) or ``none`` (only a text is known).
    ``budget_bytes`` is the declared limit of a simulated device, the total of a CUDA device, or None.
    """

    kind: DeviceKind
    name: Line = ""
    budget_bytes: ByteCount | None = None

    def check(self) -> None:
        """A simulated device has a budget."""
        if self.kind == "simulated" and self.budget_bytes is None:
            raise InvalidValue("Device.budget_bytes", expected="the declared budget in bytes", got="None")

    @property
    def words(self) -> str:
        """The device in words for a sentence, after 'on'."""
        return {
            "cuda": "CUDA",
            "simulated": "the simulated device",
            "none": "no device (only the error's text is known)",
        }[self.kind]
