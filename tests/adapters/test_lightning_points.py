"""Which points a Lightning fit leaves: each value that was logged once, at the step at which it came to be."""

import weakref

import pytest

import watcherml

pytest.importorskip("torch")
pytest.importorskip("lightning")

from tiny_lightning import ADVICE, QUIET, Tiny, loader, pl

from watcherml.adapters.lightning import WatcherCallback

pytestmark = [*ADVICE, pytest.mark.filterwarnings("ignore:You called `self.log:UserWarning")]
ROWS, BATCH = 256, 32  # eight batches an epoch


class Logging(Tiny):
    """Logs in every hook in which Lightning lets it; the values of an epoch name the epoch."""

    broken_end = -1

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("step_no", float(self.global_step))
        self.log("both", loss, on_step=True, on_epoch=True)
        self.log("graph", loss, enable_graph=True)
        return loss

    def on_train_epoch_end(self):
        self.log("epoch_no", float(self.current_epoch))
        if self.current_epoch == self.broken_end:
            raise OSError("no space left for the checkpoint")

    def on_validation_epoch_end(self):
        self.log("validated_at", float(self.global_step))

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.loss(batch))


def trainer_with(callback, **changes):
    return pl.Trainer(callbacks=[callback], **{**QUIET, "max_epochs": 2, **changes})


def points(storage, run_id, name):
    return [(one["step"], one["value"]) for one in storage.get_metrics(run_id, [name])]


@pytest.mark.parametrize("batches_a_step", [1, 4])
def test_each_value_is_there_once_at_its_own_step(storage, batches_a_step):
    callback = WatcherCallback("tiny", storage=storage)
    trainer = trainer_with(callback, accumulate_grad_batches=batches_a_step)
    trainer.fit(Logging({}), loader(BATCH, ROWS), loader(64, 128))
    an_epoch = 8 // batches_a_step
    found = {name: points(storage, callback.run.run_id, name) for name in
             ("step_no", "epoch_no", "validated_at", "both_epoch", "both_step", "both", "val_loss")}  # fmt: skip
    assert found["step_no"] == [(step, float(step - 1)) for step in range(2, 2 * an_epoch + 1, 2)]
    assert [step for step, _ in found["both_step"]] == [step for step, _ in found["step_no"]]
    assert found["epoch_no"] == [(an_epoch, 0.0), (2 * an_epoch, 1.0)]
    assert found["validated_at"] == [(an_epoch, float(an_epoch)), (2 * an_epoch, 2.0 * an_epoch)]
    assert found["both"] == found["both_epoch"] and len(found["both"]) == len(found["val_loss"]) == 2


def test_what_an_epoch_came_to_is_kept_where_its_end_fails(storage):
    callback, module = WatcherCallback("tiny", storage=storage), Logging({})
    module.broken_end = 1
    with pytest.raises(OSError, match="no space left"):
        trainer_with(callback).fit(module, loader(BATCH, ROWS))
    assert points(storage, callback.run.run_id, "epoch_no") == [(8, 0.0), (16, 1.0)]


def test_a_test_is_logged_into_the_run_of_a_person(storage):
    with watcherml.init("mine", {"batch_size": BATCH}, storage) as run:
        trainer = trainer_with(WatcherCallback(storage=storage), max_epochs=1)
        trainer.fit(Logging({}), loader(BATCH, ROWS))
        trainer.test(trainer.lightning_module, loader(64, 128), verbose=False)
    assert [step for step, _ in points(storage, run.run_id, "test_loss")] == [8]


def test_a_metric_that_was_told_keeps_no_graph():
    import torch

    from watcherml.adapters.lightning_news import News

    kept = torch.ones(4, requires_grad=True) * 2
    alive, news = weakref.ref(kept), News()
    assert list(news.of({"loss": (kept * kept).sum(), "plain": 1.0})) == ["loss", "plain"]
    del kept
    assert alive() is None


def test_two_optimizers_of_one_batch_are_told_at_the_interval(storage):
    import torch

    class Two(Logging):
        def __init__(self):
            super().__init__({})
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.loss(batch))
                optimizer.step()
            self.log("step_no", float(self.global_step))

        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), lr=1e-3) for _ in range(2)]

    callback = WatcherCallback("tiny", storage=storage)
    trainer_with(callback, max_epochs=1, log_every_n_steps=5).fit(Two(), loader(BATCH, ROWS))
    assert [step for step, _ in points(storage, callback.run.run_id, "step_no")] == [6, 10, 16]
