"""Small trainings whose failure is easily taken for another one: a second copy, training or optimizer."""

import copy
import io

import torch
from planted import batches, network, step, tokens
from torch import nn

WIDE = {"hidden": 768, "depth": 3}  # 7.6 MiB of weights
FEW = 4  # rows: next to no activations


def checkpoint_beside_the_model(device):
    """The weights of a checkpoint are read to the device, where the model is already."""
    with device.host():
        file = io.BytesIO()
        torch.save(network(**WIDE).state_dict(), file)
        file.seek(0)
    model = network(**WIDE)
    model.load_state_dict(torch.load(file))


def gradient_of_a_table(device):
    """The dense gradient of 20,000 x 64 numbers is as large as 4 x 16 tokens with a number for every word would be."""
    model = nn.Sequential(nn.EmbeddingBag(20_000, 64), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in device.batches(tokens(device, [16] * 2, FEW, 20_000)):
        step(model, optimizer, x, torch.zeros(FEW, dtype=torch.long))


def folds(device):
    """Each fold trains a model of its own, and all are kept."""
    done = []
    for _ in range(3):
        model = network(hidden=512, depth=2)
        optimizer = torch.optim.Adam(model.parameters())
        for x, y in device.batches(batches(device, 2, rows=FEW)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        done.append((model, optimizer))


def another_optimizer(device):
    """SGD keeps nothing; from the third step on it is Adam."""
    model = network(**WIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for at, (x, y) in enumerate(device.batches(batches(device, 4, rows=FEW))):
        if at == 2:
            optimizer = torch.optim.Adam(model.parameters())
        step(model, optimizer, x, y)


def resumed(device):
    """Adam comes with its state from a training of a model that lies in host memory and stays there."""
    with device.host():
        before = network(**WIDE)
        old = torch.optim.Adam(before.parameters())
        for _ in range(2):
            old.zero_grad()
            before(torch.ones(1, 256)).sum().backward()
            old.step()
        weights, state = copy.deepcopy((before.state_dict(), old.state_dict()))
    model = network(**WIDE)
    model.load_state_dict(weights)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(state)
    del weights, state
    for x, y in device.batches(batches(device, 2, rows=FEW)):
        step(model, optimizer, x, y)


class Bank(nn.Module):
    """Keeps a table that it normalizes while it is built."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", nn.functional.normalize(torch.ones(16_384, 128), dim=1))


def table_of_a_module(device):
    Bank()


def second_training(device):
    """The first of two trainings goes well; the second, no longer than it, keeps its activations."""
    kept = []
    for again in range(2):
        model = network(depth=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y in device.batches(batches(device, 50)):
            hidden = model[:-1](x)
            loss = nn.functional.cross_entropy(model[-1](hidden), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if again:
                kept.append(torch.cat([hidden.detach()] * 3))


class Scores(nn.Module):
    """Scores of every pair, written out; no name of these functions tells it."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.project, self.out = 4, nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.project(x).view(rows, length, 4, 8).transpose(1, 2)
        weights = torch.relu(parts @ parts.transpose(-1, -2))
        return self.out((weights @ parts).transpose(1, 2).reshape(rows, length, 32).mean(1))


def pairs_in_backward(device):
    """2 x 4 x 512 x 512 numbers are 8 MiB; their gradient is one more."""
    model = Scores()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with device.host():
        data = [(torch.randn(2, 512, 32), torch.zeros(2, dtype=torch.long))]
    for x, y in device.batches(data):
        step(model, optimizer, x, y)
