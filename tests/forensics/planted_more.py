"""More small trainings that run out of memory on the simulated device: what people plant without knowing it."""

import copy

import torch
from planted import Recurrent, batches, language_step, network, step, tokens


def hook_keeps_activations(device):
    """A forward hook stores what it sees."""
    model, seen = network(), []
    model[2].register_forward_hook(lambda module, given, out: seen.append(out))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for x, y in device.batches(batches(device, 200, rows=128)):
        step(model, optimizer, x, y)


def running_loss(device):
    """The loss is summed up as a tensor, with every step's graph behind it."""
    model, total = network(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for x, y in device.batches(batches(device, 200)):
        step(model, optimizer, x, y)
        total = total + torch.nn.functional.cross_entropy(model(x), y)


class Trainer:
    """Keeps every prediction of its validation on the device, without gradients."""

    def __init__(self, device):
        self.device, self.model, self.kept = device, network(), []
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    @torch.inference_mode()
    def validate(self):
        self.model.eval()
        for x, _ in self.device.batches(batches(self.device, 200, rows=256)):
            self.kept.append(torch.nn.functional.pad(self.model(x), (0, 246)))


def kept_predictions(device):
    trainer = Trainer(device)
    for x, y in device.batches(batches(device, 5)):
        step(trainer.model, trainer.optimizer, x, y)
    trainer.validate()


def large_evaluation_batch(device):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in device.batches(batches(device, 6)):
        step(model, optimizer, x, y)
    model.eval()
    with torch.no_grad():
        for x, _ in device.batches(batches(device, 2, rows=8192)):
            model(x)


def second_step(device):
    """Adam's state, made by the first step, lies beside the activations of the second."""
    model = network(hidden=512, depth=4)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in device.batches(batches(device, 6, rows=1024)):
        step(model, optimizer, x, y)


def unfrozen_late(device):
    """Only the head is trained at first; with the rest unfrozen Adam makes its state in step four."""
    model = network(hidden=512, depth=6)
    for one in model[:-1].parameters():
        one.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    for at, (x, y) in enumerate(device.batches(batches(device, 8, rows=2))):
        if at == 3:
            model.requires_grad_(True)
        step(model, optimizer, x, y)


def averaged_copy(device):
    """A copy of the weights for averaging is made after some steps; no step with it fits, however small."""
    model, average = network(hidden=512, depth=6), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for at, (x, y) in enumerate(device.batches(batches(device, 8, rows=8))):
        step(model, optimizer, x, y)
        if at == 3:
            average = copy.deepcopy(model)
    return average


def merged_last_batch(device):
    """The rest of the data was put into the last batch."""
    model = network(depth=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in device.batches(batches(device, 12, rows=256) + batches(device, 1, rows=1500)):
        step(model, optimizer, x, y)


def summed_losses(device):
    """One backward for many batches: the graph of each of them waits for it."""
    model, total = network(depth=4), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for at, (x, y) in enumerate(device.batches(batches(device, 40, rows=128))):
        total = total + torch.nn.functional.cross_entropy(model(x), y)
        if at % 32 == 31:
            total.backward()
            optimizer.step()
            optimizer.zero_grad()
            total = 0


def evaluation_that_nothing_names(device):
    """Validation in the open loop of a script: no function, no eval(), no no_grad()."""
    model, total = network(depth=4), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in device.batches(batches(device, 6)):
        step(model, optimizer, x, y)
    for x, y in device.batches(batches(device, 64)):
        total = total + torch.nn.functional.cross_entropy(model(x), y)


def growing_lengths(device):
    """A curriculum: every batch is longer than the one before, and nothing leaks."""
    model = Recurrent(vocabulary=100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in device.batches(tokens(device, [20 + 6 * at for at in range(60)], 16, 100)):
        language_step(model, optimizer, batch)


def leak_and_long_batch(device):
    """Two reasons: something stays of every step, and the last batch is long."""
    model, kept = Recurrent(vocabulary=100), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in device.batches(tokens(device, [64] * 40 + [400], 16, 100)):
        kept.append(torch.zeros(120_000))
        language_step(model, optimizer, batch)
