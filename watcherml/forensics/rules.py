"""The ordered table of classification rules and its version.

The first rule that matches decides, so the order is part of the rules. Their texts are those collected in
`tests/data/failures.jsonl` and those that torch 2.13 and NumPy 2 print. Any change of meaning raises
``RULES_VERSION``, which every classification carries.
"""

from __future__ import annotations

from watcherml.forensics.matching import Rule
from watcherml.forensics.rules_memory import MEMORY, SIMULATED
from watcherml.forensics.rules_surroundings import BUILDS, FILES, OTHERS
from watcherml.forensics.rules_training import DEVICES, LOADERS, NANS, SHAPES

RULES_VERSION = 4

RULES: tuple[Rule, ...] = (SIMULATED, *MEMORY, *LOADERS, *NANS, *DEVICES, *SHAPES, *FILES, *BUILDS, *OTHERS)

__all__ = ["RULES", "RULES_VERSION", "SIMULATED"]
