"""Training functions of every kind that a dry run meets; ``config["kind"]`` chooses. Copied into a project folder."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn

import watcherml

KEPT = []  # what a careless module keeps from one training to the next


def train(config, max_steps=None):
    return globals()[config["kind"]](config, max_steps)


def steps(config, max_steps, each=lambda model, out: None, batch=None, last=lambda model: None):
    torch.manual_seed(0)
    size = config.get("batch_size", 64)
    model = nn.Sequential(nn.Linear(32, config.get("width", 128)), nn.ReLU(), nn.Linear(config.get("width", 128), 8))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(config.get("steps", 5) if max_steps is None else max_steps):
        data = torch.randn(size, 32) if batch is None else batch()
        out = model(data)
        loss = nn.functional.cross_entropy(out, torch.zeros(len(out), dtype=torch.long))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        each(model, out)
    last(model)
    return {"loss": float(loss.detach())}


def plain(config, max_steps):
    return steps(config, max_steps)


def endless(config, max_steps):
    return steps(config, 10**9)


def swallows(config, max_steps):
    for _ in range(10**9):
        try:
            steps(config, 10**9)
        except Exception:
            continue


def accuracy(config, max_steps):
    seen = []
    return steps(config, max_steps, each=lambda _, out: seen.append((out.argmax(1) == 0).sum().item()))


def sized_by_data(config, max_steps):
    return steps(config, max_steps, each=lambda _, out: torch.zeros(1_000 * int(out.argmax(1).sum()) + 500_000))


def picks_by_mask(config, max_steps):
    return steps(config, max_steps, each=lambda _, out: out[out > 0].sum())


def array(config, max_steps):
    return steps(config, max_steps, each=lambda _, out: out.detach().numpy())


def keeps(config, max_steps):
    KEPT.append(torch.randn(8))
    return steps(config, max_steps, each=lambda _, out: out.sum(0) + sum(KEPT))


def aborts(config, max_steps):
    os.abort()


def leaves(config, max_steps):
    sys.exit(3)


def raises(config, max_steps):
    raise ValueError("sk-" + "a1B2c3D4" * 6 + " is no place for data")


def needs_cuda(config, max_steps):
    return steps(config, max_steps, batch=lambda: torch.randn(8, 32, device="cuda"))


def one_step(config, max_steps):
    return steps(config, 1)


def asks(config, max_steps):
    input("continue? ")


def floods(config, max_steps):
    for _ in range(2_000):
        print("x" * 1_000)
        print("y" * 1_000, file=sys.stderr)
    return steps(config, max_steps)


def keeps_a_log(config, max_steps):
    folder = Path(config["folder"]) / "logs" / "first"
    os.makedirs(folder, exist_ok=True)
    with open(folder / "train.csv", "w") as log:
        found = steps(config, max_steps, each=lambda _, out: log.write("step\n"))
    assert (folder / "train.csv").read_text() == "step\n" * 2
    torch.save({"a": torch.zeros(4)}, folder / "checkpoint.pt")
    return found


def writes_low(config, max_steps):
    os.close(os.open(Path(config["folder"]) / "low", os.O_CREAT | os.O_WRONLY))


def removes(config, max_steps):
    os.remove(Path(config["folder"]) / "precious")


def writes_below_python(config, max_steps):
    libc = ctypes.CDLL(None)
    path = str(Path(config["folder"]) / "below").encode()
    libc.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    libc.system(b"touch " + path)
    return steps(config, max_steps)


def starts_a_program(config, max_steps):
    subprocess.run(["touch", str(Path(config["folder"]) / "program")])


def records(config, max_steps):
    with watcherml.init("inner", {"a": 1}) as run:
        found = steps(config, max_steps)
        run.log({"loss": 1.0})
    return found


def saves_on_the_way_out(config, max_steps):
    try:
        return steps(config, 10**9)
    finally:
        os.remove(Path(config["folder"]) / "precious")


def loads_by_workers(config, max_steps):
    data = torch.utils.data.TensorDataset(torch.arange(32 * 600, dtype=torch.float).reshape(600, 32))
    loader = torch.utils.data.DataLoader(
        data, batch_size=config.get("batch_size", 64), shuffle=True, num_workers=config.get("workers", 0)
    )
    batches = iter(loader)
    return steps(config, max_steps, batch=lambda: next(batches)[0])


def slices_at_random(config, max_steps):
    text = torch.randint(0, 50, (10_000,))

    def batch():
        places = torch.randint(len(text) - 32, (config.get("batch_size", 64),))
        return torch.stack([text[place : place + 32] for place in places]).float()

    return steps(config, max_steps, batch=batch)


def meets_the_worst(config, max_steps):
    batches = [*watcherml.worst_batch(lambda: torch.randn(512, 32))]
    rest = iter(batches)
    return steps(config, max_steps, batch=lambda: next(rest, torch.randn(8, 32)))


def evaluates(config, max_steps):
    return steps(config, max_steps, last=lambda model: model(torch.randn(4_096, 32)))


def marks(config, max_steps):
    weights = torch.zeros(1_000, requires_grad=True)
    for _ in range(10**9):
        (weights * 2).sum().backward()
        weights.grad = None
        watcherml.step()


def secret(config, max_steps):
    assert config["token"] == "the-value"
    return steps(config, max_steps)


def forks(config, max_steps):
    if os.fork() == 0:
        time.sleep(600)


def hangs(config, max_steps):
    time.sleep(600)


def forks_below_python_and_hangs(config, max_steps):
    if ctypes.CDLL(None).fork() == 0:
        os.setsid()
    time.sleep(600)
