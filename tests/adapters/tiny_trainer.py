"""A training function around the Hugging Face Trainer: a GPT-2 that is built, never downloaded, on made-up text."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from watcherml.adapters.transformers import WatcherCallback, returned_metrics, training_arguments

TOKENS, LENGTH = 64, 32
CONFIG = {
    "layers": 2, "per_device_train_batch_size": 32, "gradient_accumulation_steps": 1, "gradient_checkpointing": False,
    "max_steps": 6, "seed": 7, "learning_rate": 1e-3,
}  # fmt: skip
# What the trainer keeps quiet about and does not write, and where it trains.
QUIET = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True, "logging_steps": 2}


class Text(Dataset):
    """Rows of tokens that follow one another, so that there is something to learn."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        row = (torch.arange(LENGTH) + index) % TOKENS
        return {"input_ids": row, "labels": row}


def build(config):
    """Return a model of the configuration's depth with equal weights every time."""
    torch.manual_seed(config.get("seed", 0))
    shape = GPT2Config(
        n_layer=config.get("layers", 2), n_embd=32, n_head=2, vocab_size=TOKENS, n_positions=LENGTH,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(shape)


def make_trainer(config, folder, max_steps=None, callbacks=(), **changes):
    """Return a Trainer for a configuration, with the arguments that its keys name."""
    arguments = {**QUIET, **training_arguments(config, max_steps), **changes}
    return Trainer(
        model=build(config), args=TrainingArguments(str(folder), **arguments), train_dataset=Text(256),
        eval_dataset=Text(16), callbacks=list(callbacks),
    )  # fmt: skip


def train(config, max_steps=None):
    """Train as a recovery's trials do."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(config, folder, max_steps, [WatcherCallback()])  # in a trial: of the trial's run
        trainer.train()
        trainer.evaluate()
        return returned_metrics(trainer)
