"""What the words of a key or of a section's name say: training or another use, a whole batch or a part of one."""

from __future__ import annotations

import re
from typing import Any

# Decided by the words of a section's name; a name with words of both kinds says nothing.
_TRAINING = {
    "train", "training", "trainer", "fit", "pretrain", "pretraining", "finetune", "finetuning", "actor",
}  # fmt: skip
_OTHER_USE = {
    "val", "dev", "test", "tests", "testing", "testset", "devset", "holdout", "heldout", "benchmark", "fid", "metrics",
    "infer", "inference", "predict", "prediction", "generate", "generation", "decoding", "sampling", "sample",
    "sampler", "rollout", "rollouts", "serve", "serving", "deploy", "deployment", "export", "exporter", "onnx",
    "calibration", "preprocess", "preprocessing", "preprocessor", "precompute", "cache", "caching", "logging",
    "logger", "loggers", "callbacks", "visualization", "demo",
}  # fmt: skip
_OTHER_USE_STARTS = ("eval", "valid")
# A tokenizer's batches and types are not the training's, but its length is.
_TOKENIZING = {"tokenize", "tokenization", "tokenizer", "tokenizers"}
_ITS_OWN_LENGTH = "sequence_length"
# A cache there is one of samples.
_DATA = {"data", "dataset", "datasets", "dataloader", "dataloaders", "datamodule", "loader", "loaders"}
_MODEL_CACHE = "model_cache"

_BATCH = re.compile(r"batch_?size|(^|_)(micro|mini|global|total)?_?(batch|bsz?)($|_)")
_WHOLE = re.compile(r"global|total|effective|(^|_)(logical|overall|desired|target)($|_)")
_PART = re.compile(r"(^|_)(micro|mini)(_|batch|bsz?($|_))")
# With one of these it is a count, a setting of a layer, or something measured.
_NO_SIZE = {"norm", "std", "count", "num", "n", "idx", "index", "id", "time", "loss", "batches", "seconds"}

# Batches that are counted in tokens.
_IN_TOKENS = {"max_tokens", "batch_tokens", "tokens_per_batch", "max_batch_tokens"}

_UNSET_WORDS = ("", "none", "null", "auto")


def words_of(name: str) -> frozenset[str]:
    """Return the words of a normalised name."""
    return frozenset(name.split("_"))


def is_training(words: frozenset[str]) -> bool:
    """Tell whether a section of that name is about training."""
    return bool(words & _TRAINING)


def is_other_use(words: frozenset[str]) -> bool:
    """Tell whether a section of that name is about another use than training."""
    if "batch" in words and "sampler" in words:
        return False  # it puts the batches of training together
    return bool(words & _OTHER_USE) or any(word.startswith(_OTHER_USE_STARTS) for word in words)


def foreign_to(words: frozenset[str]) -> frozenset[str]:
    """Return what a section of that name speaks against: ``*`` and a minus stand for every control but one."""
    against = set()
    if words & _TOKENIZING:
        against.add(f"*-{_ITS_OWN_LENGTH}")
    if words & _DATA:
        against.add(_MODEL_CACHE)
    return frozenset(against)


def is_foreign(control: str, against: frozenset[str]) -> bool:
    """Tell whether what the sections above say speaks against a control."""
    return control in against or (f"*-{_ITS_OWN_LENGTH}" in against and control != _ITS_OWN_LENGTH)


def is_whole_batch(key: str) -> bool:
    """Tell whether a normalised key names the samples behind one update: ``global_batch_size``."""
    return _is_size(key) and _WHOLE.search(key) is not None and _PART.search(key) is None


def is_part_of_batch(key: str) -> bool:
    """Tell whether a normalised key could name a micro-batch although it is no alias: ``mini_batch_size``."""
    return _is_size(key) and _PART.search(key) is not None


def is_like_batch(key: str) -> bool:
    """Tell whether a normalised key may be a training's batch in a unit or under a name that nobody knows for sure."""
    return _is_size(key) or key in _IN_TOKENS


def is_like_accumulation(key: str) -> bool:
    """Tell whether a normalised key speaks of accumulation."""
    return any(word.startswith("accum") for word in words_of(key)) and not words_of(key) & _NO_SIZE


def is_set(raw: Any) -> bool:
    """Tell whether a batch size says something: not empty, "auto", false, or a number below 1."""
    if isinstance(raw, str):
        return raw.strip().lower() not in _UNSET_WORDS
    if raw is None or isinstance(raw, bool):
        return False
    return raw >= 1 if isinstance(raw, (int, float)) else bool(raw)


def _is_size(key: str) -> bool:
    words = words_of(key)
    other = is_other_use(words) and not is_training(words)
    return _BATCH.search(key) is not None and not words & _NO_SIZE and not other
