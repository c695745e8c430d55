"""What a configuration gives away of a training whose samples see each other: one leaf and the keys above it.

Names are compared in small letters with ``_`` for ``-``. Of the keys above a leaf the nearest one that speaks of a
model or of data decides what a name such as ``resnet50`` is: a network, or where features come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from watcherml.protocol.proposal import UpdateTrait

_MAX_DEPTH = 16
_OFF = ("", "false", "none", "null", "no", "off", "n", "f", "0", "disabled")
_ON = ("true", "yes", "on", "y", "t", "1", "enabled")
_SWITCHES = ("enabled", "enable", "use", "active")

_BATCH_NORM_KEY = re.compile(r"(^|_)(batch_?norm(1d|2d|3d)?|bn|sync_?bn|sync_?batch_?norm)($|_)")
_BATCH_NORM_VALUE = re.compile(r"^(mm|naive)?_?(sync_?)?(batch_?norm(alization)?|bn)(1d|2d|3d)?$|^inplace_?abn$")
# Where a key says that it is about normalisation, a part of the value is enough, and so is "batch" alone.
_NORM_KEY = re.compile(r"(^|_)(norm|normali[sz]ation|norm(alization)?_layer|normalizer)($|_)")
_NO_LAYER = re.compile(r"(^|_)(grad|gradient|clip|max|weight|vector)($|_)")
_BATCH_NORM_PART = re.compile(r"(?<!frozen)(?<!frozen_)batch_?norm|(^|_)(sync_?)?bn(1d|2d|3d)?($|_)|^(sync_?)?batch$")
# Families of torchvision and timm that are built with BatchNorm unless somebody replaces it.
_BATCH_NORM_MODEL = re.compile(
    r"res_?ne[sx]?t|densenet|mobilenet|efficientnet|inception(?!ai)|googlenet|shufflenet|mnasnet|regnet|vgg\d+_bn"
    r"|darknet|(^|[/_.])yolo(?!s)|hrnet|xception|ghostnet|deeplab|pspnet|(^|[/_.])wrn_?\d"
)
_NEGATIVES = re.compile(
    r"info_?nce|nt_?xent|simclr|clip_?loss|^clip$|siglip|multiple_?negatives|in_?batch|contrastive|supcon"
)
# The same where no key says that it is about a loss: names that mean nothing else.
_NEGATIVES_ALONE = re.compile(r"info_?nce|nt_?xent|simclr|siglip_?loss|multiple_?negatives|contrastive_?loss|supcon")
_NEGATIVES_KEY = re.compile(
    r"(^|_)(info_?nce|nt_?xent|simclr|supcon|multiple_?negatives|contrastive(_loss|_learning|_weight)?)$|in_?batch_neg"
)
_LOSS_KEY = re.compile(r"loss|criteri(on|a)|objective")
_METHOD_KEYS = ("method", "algorithm", "algo", "pretext", "task")

_MODEL_WORDS = {
    "model", "models", "arch", "archs", "architecture", "architectures", "backbone", "backbones", "encoder", "net",
    "nets", "network", "networks", "trunk", "cnn", "generator", "discriminator", "teacher", "student", "extractor",
    "stem", "classifier", "detector", "segmentor", "visual", "vision", "neck", "body",
}  # fmt: skip
_DATA_WORDS = {
    "data", "dataset", "datasets", "dataloader", "datamodule", "loader", "features", "feature", "embeddings",
    "optimizer", "scheduler", "tokenizer", "logger", "logging", "wandb", "mlflow", "tracking", "tags", "experiment",
    "run", "project", "path", "dir", "file", "ckpt", "checkpoint", "pretrained", "weights",
}  # fmt: skip
# Keys that name what their section is; alone they say nothing of what that is.
_NAME_KEYS = ("name", "type", "_type_", "_target_", "target", "class", "class_path", "class_name", "cls", "_component_",
              "_name", "kind", "variant", "id", "builder", "fn", "func")  # fmt: skip
_CLASS_KEYS = ("type", "_type_", "_target_", "target", "class", "class_path", "class_name", "cls", "_component_")
_UNEVEN_KEYS = {
    "ignore_index": (int,),
    "label_pad_token_id": (int,),
    "mask_prompt": (bool,),
    "completion_only_loss": (bool,),
    "assistant_only_loss": (bool,),
}


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return the values of a thawed configuration with the keys above them; a list's are those of the list.

    The section of a BatchNorm whose switch is off is passed over.
    """
    if len(path) > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        if not (path and _BATCH_NORM_KEY.search(_normal(path[-1])) and _switched_off(value)):
            for key in sorted(value, key=str):
                yield from leaves(value[key], (*path, str(key)))
    elif isinstance(value, list):
        for one in _flat(value):
            yield from leaves(one, path)
    elif path:
        yield path, value


def trait_of_leaf(path: tuple[str, ...], value: Any) -> UpdateTrait | None:
    """Return what one value gives away."""
    keys = tuple(_normal(key) for key in path)
    text = _normal(value) if isinstance(value, str) else ""
    if _batch_norm(keys, value, text):
        return "batch_norm"
    if _negatives(keys, value, text):
        return "in_batch_negatives"
    key = keys[-1]
    kinds = _UNEVEN_KEYS.get(key)
    if kinds is not None and type(value) in kinds and value is not False:
        return "mean_of_means"
    return "mean_of_means" if key == "train_on_inputs" and value is False else None


def _batch_norm(keys: tuple[str, ...], value: Any, text: str) -> bool:
    on = not _is_off(value)
    if on and any(_BATCH_NORM_KEY.search(key) for key in keys):
        return True
    if text and _BATCH_NORM_VALUE.search(_last(text)):
        return True
    about = _about_model(keys)
    layer = [key for key in keys[-2:] if _NORM_KEY.search(key) and not _NO_LAYER.search(key)]
    named = len(layer) > 0 and (layer[-1] == keys[-1] or keys[-1] in _NAME_KEYS)
    if text and named and about is not False and _BATCH_NORM_PART.search(_last(text)):
        return True
    return _batch_norm_model(keys, text, on, about)


def _batch_norm_model(keys: tuple[str, ...], text: str, on: bool, about: bool | None) -> bool:
    if about is False:
        return False
    key = keys[-1]
    naming = key in _NAME_KEYS or bool(set(key.split("_")) & _MODEL_WORDS)
    if text and naming and _BATCH_NORM_MODEL.search(text):
        return True
    return bool(about) and on and any(_BATCH_NORM_MODEL.search(one) for one in keys)


def _negatives(keys: tuple[str, ...], value: Any, text: str) -> bool:
    if _is_off(value):
        return False
    last = _last(text)
    losses = [index for index, key in enumerate(keys) if _LOSS_KEY.search(key)]
    if losses or keys[-1] in _METHOD_KEYS:
        inside = keys[losses[0] :] if losses else ()
        return bool(text and _NEGATIVES.search(last)) or any(_NEGATIVES_KEY.search(key) for key in inside)
    if _NEGATIVES_KEY.search(keys[-1]) and (not text or text in _ON):
        return True
    return keys[-1] in _CLASS_KEYS and _about_model(keys) is not False and bool(_NEGATIVES_ALONE.search(last))


def _about_model(keys: tuple[str, ...]) -> bool | None:
    """Return whether the nearest key that says something speaks of a model (True) or of data (False)."""
    for key in reversed(keys):
        words = set(key.split("_"))
        model, other = bool(words & _MODEL_WORDS), bool(words & _DATA_WORDS)
        if key in ("model_name_or_path", "pretrained_model_name_or_path"):
            return True
        if other:
            return False
        if model:
            return True
    return None


def _switched_off(section: Mapping[Any, Any]) -> bool:
    return any(_normal(str(key)) in _SWITCHES and _is_off(value) for key, value in section.items())


def _is_off(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _OFF
    return value is None or value is False or (isinstance(value, (int, float)) and value == 0)


def _normal(text: str) -> str:
    return text.strip().lower().replace("-", "_")


def _last(text: str) -> str:
    """Return the last part of a dotted name, also out of ``<class 'a.b.C'>``, ``a/b`` or ``a:b``."""
    return re.split(r"[./:\s]", text.strip("<>'\"() "))[-1].strip("'\"() ")


def _flat(items: list[Any]) -> Iterator[Any]:
    """Return what lies in a list and in the lists in it."""
    stack = [items]
    while stack:
        for one in stack.pop():
            if isinstance(one, list):
                stack.append(one)
            else:
                yield one
