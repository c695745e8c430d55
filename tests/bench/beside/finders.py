"""One way to get past an out of memory, on one workload of ``finder_workloads``; prints what it found as JSON.

    python finders.py accelerate|lightning|watcherml WORKLOAD FOLDER
    python finders.py check WORKLOAD CONFIG_JSON

All run on the simulated device with the workload's budget. The other tools look for the words of CUDA's message, so
their out of memory is raised again with these words. ``check`` trains once more, whole, in this fresh process.
"""

import gc
import json
import shutil
import sys
import time
from pathlib import Path

import torch
from finder_workloads import STEPS, WORKLOADS, evaluate, loss_of, make_batch, make_model, train

from watcherml.simulated.device import simulated_device


def config_of(name):
    return {"workload": name, "batch_size": WORKLOADS[name][0], "gradient_accumulation_steps": 1,
            "training_steps": STEPS}  # fmt: skip


def as_cuda(call, *arguments, **options):
    """Call, and raise an out of memory of the simulated device in the words that other tools look for."""
    try:
        return call(*arguments, **options)
    except torch.OutOfMemoryError as error:
        words = f"CUDA out of memory. (Raised again from the simulated device: {error})"
    raise RuntimeError(words)


def accelerate(name, folder):
    from accelerate.utils import find_executable_batch_size

    steps, sizes = [], []

    @find_executable_batch_size(starting_batch_size=WORKLOADS[name][0])
    def attempt(batch_size):
        sizes.append(batch_size)
        steps.append(0)

        def count():
            steps[-1] += 1

        as_cuda(train, config_of(name) | {"batch_size": batch_size}, on_step=count)

    with simulated_device(WORKLOADS[name][1]) as device:
        before = device.current_bytes
        try:
            attempt()
            answer, spent = {"batch_size": sizes[-1]}, sum(steps[:-1])  # the last attempt is the training itself
        except RuntimeError:
            answer, spent = None, sum(steps)
        gc.collect()
        left = device.current_bytes - before
    return {"answer": answer, "attempts": len(sizes), "steps": spent, "left_bytes": left}


def lightning(name, folder):
    import logging

    import lightning as L
    from lightning.pytorch.callbacks import BatchSizeFinder

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    steps, sizes = [0], []

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            # The search tries the loader that is there first, so that a batch which fails would end it at 1.
            self.batch_size, self.inner, self.kept = 2, make_model(), []

        def training_step(self, batch, index):
            steps[0] += 1
            return as_cuda(loss_of, self.inner, make_batch(name, index, len(batch[0])))

        def on_before_optimizer_step(self, optimizer):
            if name == "leak":
                self.kept.append([one.grad.clone() for one in self.inner.parameters()])

        def on_fit_end(self):
            as_cuda(evaluate, self.inner, name, self.batch_size)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

        def train_dataloader(self):
            sizes.append(self.batch_size)
            numbers = torch.utils.data.TensorDataset(torch.arange(STEPS * self.batch_size))
            return torch.utils.data.DataLoader(numbers, batch_size=self.batch_size)

    class Finder(BatchSizeFinder):
        def on_fit_start(self, *arguments):
            super().on_fit_start(*arguments)
            steps.insert(0, 0)  # what follows is the training itself

    with simulated_device(WORKLOADS[name][1]) as device:
        before = device.current_bytes
        module = Module()
        finder = Finder(mode="binsearch", init_val=2, max_val=WORKLOADS[name][0])
        trainer = L.Trainer(
            max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=[finder], default_root_dir=folder,
        )  # fmt: skip
        try:
            as_cuda(trainer.fit, module)
        except RuntimeError as error:
            print(f"the training after the search: {str(error)[:160]}", file=sys.stderr)
        found = getattr(finder, "optimal_batch_size", None)
        del trainer, module, finder
        gc.collect()
        left = device.current_bytes - before
    answer = {"batch_size": found} if found else None
    return {"answer": answer, "attempts": len(set(sizes)), "steps": sum(steps[1:]), "left_bytes": left}


def watcherml(name, folder):
    import watcherml as w

    folder = Path(folder)
    for name_of_file in ("finder_workloads.py", "sizes.py"):
        shutil.copy(Path(__file__).with_name(name_of_file), folder)
    store, config = folder / "store", config_of(name)
    begin = time.perf_counter()
    with simulated_device(WORKLOADS[name][1]) as device:
        before = device.current_bytes
        run = w.init("bench", config, store)
        try:
            train(config, on_step=w.step)
            raise AssertionError("the workload did not run out of memory")
        except torch.OutOfMemoryError as error:
            run.fail(error)
        gc.collect()
        left = device.current_bytes - before
    failed = time.perf_counter() - begin
    result = w.recover_from_oom(
        failed_run_id=run.run_id, entrypoint="finder_workloads:train", storage=store, project_root=folder,
        verification=w.VerificationRequirements(minimum_progress_steps=STEPS),
    )  # fmt: skip
    answer = result.verified_config and {
        key: result.verified_config[key] for key in ("batch_size", "gradient_accumulation_steps")
    }
    steps = sum(one.result.progress.steps for one in result.trials)
    return {"answer": answer, "attempts": len(result.trials), "steps": steps, "left_bytes": left,
            "sentence": result.sentence, "reason": result.reason_code, "failed_s": failed}  # fmt: skip


def check(name, answer):
    """Return whether the whole training passes with this answer, alone in this process."""
    try:
        with simulated_device(WORKLOADS[name][1]):
            train(config_of(name) | json.loads(answer))
    except torch.OutOfMemoryError as error:
        return {"passes": False, "error": str(error)[:200]}
    return {"passes": True}


def main():
    tool, name, last = sys.argv[1:]
    begin = time.perf_counter()
    found = {"accelerate": accelerate, "lightning": lightning, "watcherml": watcherml, "check": check}[tool](name, last)
    print(json.dumps({"seconds": time.perf_counter() - begin, **found}))


if __name__ == "__main__":
    main()
