"""Every number by which the rules decide. Reasoned from how the allocator works, not measured on GPUs.

``RULES_VERSION`` goes into every diagnosis: a change of a number, of a rule or of the table needs a new one.
"""

from __future__ import annotations

RULES_VERSION = 7

MIB, GIB = 2**20, 2**30

# A pool that covers at least this share of the shortfall contributes.
CONTRIBUTES = 0.25
# A pool below this share of the device is no explanation: with 11 MiB missing on a full card every pool would be one.
MATERIAL = 0.05

# A CUDA context with its libraries takes 0.3-0.8 GiB; what lies above counts, unless the context was measured.
CONTEXT_BYTES = 800 * MIB
# Below this another process is a desktop, not a neighbour.
FOREIGN_LEAST_BYTES = 512 * MIB
# This process's memory outside torch is unusual above this, or where it grew by so much during the run.
OWN_OTHER_BYTES = 1536 * MIB
OWN_OTHER_GROWTH_BYTES = 256 * MIB

# A library's error is about memory where so little was free, or so much of the device in use.
CORROBORATING_FREE_BYTES = 64 * MIB
CORROBORATING_USE = 0.97

# A leak: so many points, this share of steps that do not shrink, the failure predicted within this share of its step.
LEAK_POINTS = 20
LEAK_RISING = 0.8
LEAK_STEP_TOLERANCE = 0.25
LEAK_STEP_LEAST = 5
# What a garbage collection gives back must stay below this share of the growth.
LEAK_COLLECTED = 0.1
# More points than this are thinned evenly before the slope is taken: its cost is their square.
SLOPE_POINTS = 200
FLAT_POINTS = 2
# From so many steps on a growth that explains all is named, though it is no leak before LEAK_POINTS.
GROWTH_POINTS = 5
# Batches are even where their sizes rose by no more than this share of their median, and grew above the other one.
EVEN = 0.1
GROWN = 0.5

# A model is too big by itself where it takes this share of what torch can have.
STATIC_SHARE = 0.8

# A batch is long where it reaches this quantile of those seen and this many times their median.
LONG_QUANTILE = 0.99
LONG_RATIO = 1.1
LONG_BATCHES = 5
# The memory between steps is flat within this share of its median.
FLAT = 0.02

# A growing evaluation, or training that grows between two optimizer steps: so many batches.
EVALUATION_BATCHES = 3

# Checkpointing has no effect where the peak stays this close to the one without it ...
CHECKPOINTING_SAVES = 0.05
# ... and its block is too large where what is recomputed at once takes this share of the device.
HUGE_BLOCK = 0.5
