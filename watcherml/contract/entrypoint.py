"""``TrainingEntrypoint``: an importable training function, as a value.

Nothing is imported here. Whether the function exists and has the right parameters is looked at in a child
process (``watcherml.trials.check_entrypoint``), so that a notebook kernel never runs the module's code.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from watcherml.errors import InvalidEntrypoint
from watcherml.sealed.fields import Line, Name
from watcherml.sealed.record import Record

_SHAPE = "module.path:function_name"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingEntrypoint(Record):
    """A reference ``module.path:function``, imported with ``working_directory`` as current folder.

    ``working_directory`` is relative to the project root. Raises ``InvalidEntrypoint`` with the corrected
    spelling where one can be guessed (``train.py:train`` -> ``train:train``).
    """

    target: Name
    working_directory: Line = "."

    def check(self) -> None:
        """The target is two dotted names joined by one colon."""
        module, colon, function = self.target.partition(":")
        names = [*module.split("."), function]
        if colon and all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
            if module.endswith(".py"):
                self._refuse(f"Write {module[:-3]}:{function}: a module, not a file.")
            return
        self._refuse(_correction(self.target))

    def _refuse(self, remedy: str) -> None:
        raise InvalidEntrypoint("entrypoint", expected=_SHAPE, got=repr(self.target), remedy=remedy)

    @property
    def module(self) -> str:
        """The module part."""
        return self.target.partition(":")[0]

    @property
    def function(self) -> str:
        """The function part."""
        return self.target.partition(":")[2]


def _correction(target: str) -> str:
    module, colon, function = target.partition(":")
    path = re.sub(r"\.py$", "", module.strip().removeprefix("./")).strip("/").replace("/", ".").replace("\\", ".")
    function = function.strip().removesuffix("()")
    parts = path.split(".")
    if all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        if not colon and len(parts) > 1 and not module.endswith(".py"):
            return f"Write {'.'.join(parts[:-1])}:{parts[-1]}."
        if colon and function.isidentifier():
            return f"Write {path}:{function}."
        if not function:
            return f"Name the function too, for example {path}:train."
    return "Name an importable module and a top-level function in it, for example train_entrypoint:train."
