"""A Lightning module for the tests, of whichever of the two packages the program has imported."""

import importlib
import os
import sys

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

NAME = os.environ.get("TINY_LIGHTNING", "lightning.pytorch")
pl = importlib.import_module(NAME)
WIDTH = 512
QUIET = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    "accelerator": "cpu", "devices": 1, "num_sanity_val_steps": 0, "log_every_n_steps": 2,
}  # fmt: skip


# Lightning's own advice about what a test leaves out, and calls that a newer torch has deprecated.
ADVICE = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.* is deprecated:FutureWarning"),
]


class Tiny(pl.LightningModule):
    """A wide net: its activations grow with the batch. ``greedy`` names the hook in which it takes 64 MiB at once."""

    def __init__(self, hparams, greedy=""):
        super().__init__()
        self.save_hyperparameters(hparams)
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
            torch.nn.Linear(WIDTH, 1),
        )  # fmt: skip
        self.greedy = greedy

    def take(self, where):
        if self.greedy == where:
            torch.zeros(16 * 2**20)

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.net(batch[0]).squeeze(1), batch[1])

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.take("validation_step")
        self.log("val_loss", self.loss(batch))

    def on_save_checkpoint(self, checkpoint):
        self.take("on_save_checkpoint")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.get("lr", 1e-3))


def loader(size, rows=4096):
    x = torch.linspace(-1, 1, rows * 8).reshape(rows, 8)
    return DataLoader(TensorDataset(x, x.sum(1)), batch_size=size)


def train(config, max_steps=None):
    """Train as a recovery's trials do."""
    from watcherml.adapters.lightning import returned_metrics, trainer_options

    trainer = pl.Trainer(**{**QUIET, **trainer_options(config, max_steps)})
    module = Tiny(config)
    trainer.fit(module, loader(config["batch_size"]))
    metrics = returned_metrics(trainer)
    # A fit that its steps end within an epoch has not validated.
    return {**metrics, **trainer.validate(module, loader(64, 128), verbose=False)[0]}


if __name__ == "__main__":  # a script of a person's that dies
    import watcherml
    from watcherml.adapters.lightning import WatcherCallback

    with watcherml.simulated_device("6 MiB"):
        trainer = pl.Trainer(callbacks=[WatcherCallback(sys.argv[1])], max_steps=4, **QUIET)
        trainer.fit(Tiny({"batch_size": 2048}), loader(2048))
