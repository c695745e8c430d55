"""How suspicious a change is: one ordered table, by what kind of failure it stands beside.

The points say where to look first. They are judgement, not measurement: no number here comes from counted failures,
and nothing is decided by them. The first row whose area and words fit a change gives its points.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

RULES_VERSION = 1

Kind = Literal["memory", "nan", "shape", "file", "worker", "device", "build", "other"]
Effect = Literal["", "grows", "saves", "precision"]

_KINDS: dict[str, Kind] = {
    "cuda_out_of_memory": "memory",
    "simulated_out_of_memory": "memory",
    "nan_or_exploding_loss": "nan",
    "tensor_shape_mismatch": "shape",
    "missing_file_or_dataset_path": "file",
    "dataloader_worker_failure": "worker",
    "device_mismatch": "device",
    "dependency_or_cuda_compatibility": "build",
}
# Widths in bytes of the precisions that configurations name.
_WIDTHS = (
    ("int4 nf4 fp4", 0.5), ("int8 fp8 8bit", 1), ("bf16 fp16 float16 bfloat16 half 16", 2),
    ("tf32 fp32 float32 float full no 32", 4), ("fp64 float64 double 64", 8),
)  # fmt: skip
_SMALL_RISE = 1.05
# Keys that speak of evaluation matter less where the failure is known to be elsewhere.
_EVALUATION = re.compile(r"(^|[._])(eval|val|valid|validation|test|predict|inference)([._]|$)")


@dataclass(frozen=True)
class Row:
    """One row: the areas and words it reads, its points by kind of failure, and why.

    ``effect`` says which direction matters when memory ran out: a value that ``grows`` the need, a switch that
    ``saves`` it, a ``precision`` whose width counts. ``elsewhere`` are the points for kinds that are not named.
    """

    id: str
    areas: str
    words: re.Pattern[str]
    points: dict[str, int]
    why: str
    effect: Effect = ""
    elsewhere: int = 20


def _row(row_id: str, areas: str, words: str, why: str, effect: Effect = "", elsewhere: int = 20, **points: int) -> Row:
    return Row(row_id, areas, re.compile(words), points, why, effect, elsewhere)


ROWS: tuple[Row, ...] = (
    _row("accumulation", "config", r"accum", "same samples an update, other micro-batch", memory=25, nan=35),
    _row("batch", "config", r"batch(?!_?norm)|^bs$|samples_per", "activations and shapes follow the batch", "grows",
         memory=90, shape=55, nan=40, worker=45),
    _row("length", "config",
         r"seq_?len|sequence|max_len|max_length|block_size|context|resolution|(image|img|input|crop|"
         r"patch|frame|chunk|window)_?(size|len|s$)|n_?positions|max_(new_)?tokens",
         "activations grow with length, attention with its square", "grows", memory=88, shape=80, worker=35),
    _row("recompute", "config",
         r"checkpointing|recompute|offload|zero|fsdp|flash|sdpa|attn|paged|8bit|4bit|lora|freeze",
         "each keeps memory down while it is on", "saves", memory=80, nan=30, device=45, build=45),
    _row("precision", "config", r"precision|dtype|(^|_)(fp|bf|float|int)\d+$|amp|autocast|half|quant",
         "bytes an element; range and rounding", "precision", memory=75, nan=88, device=35, build=30, shape=10),
    _row("learning-rate", "config",
         r"(^|_|\.)lr($|_)|learning_rate|warmup|sched|momentum|beta|(^|_)eps|decay|clip|grad_norm"
         r"|loss_scale|gamma|temperature", "step size decides whether a loss stays finite", memory=2, nan=92, shape=2,
         file=2, worker=2, device=2, build=2, elsewhere=10),
    _row("workers", "config", r"worker|prefetch|pin_memory|persistent|shm|multiprocess|timeout",
         "worker processes and their shared memory", worker=92, memory=20, shape=3, nan=3),
    _row("optimizer", "config", r"optim", "state of one to three values a parameter", memory=60, nan=60, build=30),
    _row("loss", "config", r"loss|dropout|norm|init|seed|augment|label_smooth|shuffle|mixup", "changes the numbers",
         nan=50, memory=6, shape=30),
    _row("model", "config",
         r"model|hidden|d_model|d_ff|n_?(layer|head|embd)|layers|depth|width|heads|embed|channel|dim|"
         r"vocab|class|backbone|arch|encoder|decoder|kernel|stride|features|units|rank$",
         "parameters, activations and every shape", "grows", memory=78, shape=92, nan=35, device=35, build=40, file=25),
    _row("place", "config", r"path|dir$|folder|root|file|url|uri|dataset|(^|_)data($|_)|split|corpus|cache",
         "where files are looked for, and what is in them", file=92, worker=55, shape=50, nan=50, memory=25),
    _row("device", "config", r"device|cuda|gpu|world_size|(^|_)rank|strategy|accelerator|backend|compile",
         "where tensors are made, and by what", device=92, memory=45, build=65, shape=8, nan=15),
    _row("label", "config", r"^(run_?name|exp(eriment)?(_?name)?|tags?|notes?|comment|description|version)$|wandb|log|"
         r"project|save|output|report|print|verbose", "names and logs what happens", file=30, elsewhere=3),
    _row("steps", "config", r"step|epoch|iter|eval|every|interval|patience", "how long and how often",
         memory=10, nan=15, shape=5, worker=10),
    _row("config-other", "config", "", "any other setting"),
    _row("torch", "packages", r"^(torch(vision|audio|data)?|triton|nvidia-.*|jax|jaxlib|tensorflow|cupy.*|onnx.*)$",
         "the allocator, the kernels and the driver they need", memory=45, build=92, device=55, nan=45, shape=35,
         worker=40),
    _row("training-library", "packages",
         r"^(transformers|accelerate|deepspeed|peft|trl|bitsandbytes|flash-attn|xformers|"
         r"(pytorch-)?lightning|datasets|timm|diffusers|numpy|tokenizers|einops|torchmetrics|pillow|opencv.*)$",
         "calls the training makes every step", memory=40, build=75, nan=40, shape=45, worker=40, device=35, file=20),
    _row("python", "packages", r"^(python|implementation|system|machine)$", "everything runs on it", build=80,
         worker=35),
    _row("package-other", "packages", "", "one of many that nothing may use", build=30, elsewhere=4),
    _row("cell", "cells", "", "the code that ran differs", memory=60, nan=70, shape=75, file=65, worker=60, device=75,
         build=50, elsewhere=65),
    _row("commit", "code", r"^commit$", "the code that ran differs", elsewhere=58),
    _row("uncommitted-python", "code", r"\.(py|ipynb|yaml|yml|toml|json|cfg)$", "the code that ran differs",
         elsewhere=56),
    _row("command", "code", r"^argv", "what was asked for on the command line", elsewhere=45),
    _row("code-other", "code", "", "beside the code", elsewhere=5),
    _row("data-content", "data", r"fingerprint", "other data: lengths, labels, damaged samples", memory=35, nan=72,
         shape=74, file=72, worker=66, elsewhere=40),
    _row("data-place", "data", r"path", "the same files elsewhere, or other files", file=85, worker=30, elsewhere=8),
    _row("data-size", "data", "", "goes with the content", file=30, elsewhere=8),
    _row("capacity", "hardware", r"^device\.|^gpu .*(name|total_bytes)$", "how much fits, and what is computed",
         memory=86, device=70, build=60, nan=35, shape=3, file=3),
    _row("driver", "hardware", r"driver|cuda", "what the build needs", build=90, memory=25, device=40, nan=20,
         elsewhere=5),
    _row("host-memory", "hardware", r"memory|cpu", "workers and pinned buffers live there", worker=55, memory=10,
         elsewhere=5),
    _row("hardware-other", "hardware", "", "the machine", build=20, elsewhere=5),
    _row("not-finite", "metrics", r"values not finite$", "an effect, but it dates the trouble", nan=60, elsewhere=25),
    _row("at-step", "metrics", r" at step ", "an effect: here the runs had parted already", nan=40, elsewhere=10),
    _row("metric-other", "metrics", "", "an effect, not a cause", elsewhere=2),
)  # fmt: skip


def kind_of(failure_class: str, subkind: str = "") -> Kind:
    """Return the kind of failure that the table's points are for; host memory counts as memory."""
    if failure_class == "unclassified" and ("oom" in subkind or "memory" in subkind):
        return "memory"
    return _KINDS.get(failure_class, "other")


def judge(area: str, path: str, before: Any, after: Any, kind: Kind, phase: str = "") -> tuple[int, str]:
    """Return the points of a change and the id of the row that gave them; None is an absent value."""
    row = _find(area, path)
    points = row.points.get(kind, row.elsewhere)
    if kind == "memory":
        points = _directed(row, before, after, points)
    if area == "config" and phase != "evaluation" and _EVALUATION.search(path.lower()):
        points //= 2 if phase in ("", "unknown") else 3
    return points, row.id


def _find(area: str, path: str) -> Row:
    """Return the first row that knows the last key, else the first that knows any part of the path."""
    whole = path.lower().replace("-", "_") if area == "config" else path.lower()
    rows = [row for row in ROWS if row.areas == area]
    # ``optimizer.lr`` is a learning rate before it is something of the optimizer; a list's index says nothing.
    keys = [key for key in whole.split(".") if not key.isdigit()] if area == "config" else []
    for text in ([keys[-1]] if keys else []) + [whole]:
        for row in rows:
            if row.words.pattern and row.words.search(text):
                return row
    return rows[-1]


def _directed(row: Row, before: Any, after: Any, points: int) -> int:
    """Lower the points of a change that makes the need for memory smaller, and of one that hardly moves it."""
    if row.effect == "precision":
        old, new = _width(before), _width(after)
        return points // 4 if old is not None and new is not None and new <= old else points
    if row.effect == "saves" and isinstance(after, bool):
        return points // 4 if after else points
    if row.effect == "grows" and _is_number(before) and _is_number(after):
        if after <= before:
            return points // 4
        return points // 2 if before > 0 and after / before < _SMALL_RISE else points
    if row.id == "capacity" and _is_number(before) and _is_number(after) and after >= before:
        return points // 4
    return points


def _width(value: Any) -> float | None:
    if isinstance(value, bool):
        return 2 if value else 4  # fp16: true
    text = str(value).lower().rpartition(".")[2].removesuffix("-mixed").removesuffix("-true")
    return next((width for names, width in _WIDTHS if text in names.split()), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
