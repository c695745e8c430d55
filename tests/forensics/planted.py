"""Small trainings that run out of memory for one reason each, on the simulated device.

A program takes the device. Its budget stands in the test and leaves room for everything but the planted reason.
"""

import gc

import torch
from torch import nn

MIB = 2**20
WIDTH, CLASSES = 256, 10


def batches(device, count, rows=64, width=WIDTH):
    """Random batches, made in host memory."""
    torch.manual_seed(0)
    with device.host():
        return [(torch.randn(rows, width), torch.randint(0, CLASSES, (rows,))) for _ in range(count)]


def network(width=WIDTH, hidden=WIDTH, depth=2):
    torch.manual_seed(0)
    inner = [layer for _ in range(depth) for layer in (nn.Linear(hidden, hidden), nn.ReLU())]
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), *inner, nn.Linear(hidden, CLASSES))


def step(model, optimizer, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def leak(device):
    """Every loss is kept with what it was computed from."""
    model, kept = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in device.batches(batches(device, 200)):
        features = model[:-1](x)
        loss = nn.functional.cross_entropy(model[-1](features), y)
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        kept.append(loss)


class Knot:
    """Holds itself, and a tensor."""

    def __init__(self, held):
        self.held, self.itself = held, self


def cycles(device):
    """Every step leaves a cycle with its activations, and nobody collects it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gc.collect()
    gc.disable()  # the test enables it again
    for x, y in device.batches(batches(device, 200)):
        Knot(model[:-1](x).detach())
        step(model, optimizer, x, y)


def evaluate(model, loader, device):
    """No ``no_grad`` here: the graph of every batch lives as long as its output."""
    model.eval()
    outputs = []
    for x, _ in device.batches(loader):
        outputs.append(model(x))
    return torch.cat(outputs)


def evaluation_with_gradients(device):
    model = network(depth=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in device.batches(batches(device, 6)):
        step(model, optimizer, x, y)
    evaluate(model, batches(device, 60, rows=128), device)


def evaluation_outputs(device):
    """Gradients are off, but every batch's features stay on the device."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in device.batches(batches(device, 6)):
        step(model, optimizer, x, y)
    features = []
    model.eval()
    with torch.no_grad():
        for x, _ in device.batches(batches(device, 200, rows=128)):
            features.append(model[:-1](x))


def first_optimizer_step(device):
    """Adam's state is twice the parameters, and a batch of 2 rows needs next to nothing."""
    model = network(hidden=768, depth=4)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in device.batches(batches(device, 4, rows=2)):
        step(model, optimizer, x, y)


class Recurrent(nn.Module):
    """A token model whose memory follows the length of the batch."""

    def __init__(self, vocabulary, width=64, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden)) + hidden
        return self.head(hidden)


def language_step(model, optimizer, tokens):
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def tokens(device, lengths, rows, vocabulary):
    torch.manual_seed(0)
    with device.host():
        return [torch.randint(0, vocabulary, (rows, length)) for length in lengths]


def longest_batch(device):
    """Thirty batches of about 64 tokens a row, then one of 300."""
    model = Recurrent(vocabulary=100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    lengths = [60 + (7 * at) % 9 for at in range(30)] + [300, 60]
    for batch in device.batches(tokens(device, lengths, 16, 100)):
        language_step(model, optimizer, batch)


def logits(device):
    """20,000 words for 8 x 32 tokens are 20 MB, once and again in the loss."""
    model = Recurrent(vocabulary=20_000, width=16, depth=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in device.batches(tokens(device, [32] * 4, 8, 20_000)):
        language_step(model, optimizer, batch)


class Attention(nn.Module):
    """Attention that writes its scores out."""

    def __init__(self, width=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, CLASSES)

    def attention(self, x):
        rows, length, width = x.shape
        parts = self.project(x).view(rows, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = torch.softmax(query @ key.transpose(-1, -2), dim=-1)
        return (weights @ value).transpose(1, 2).reshape(rows, length, width)

    def forward(self, x):
        return self.out(self.attention(x).mean(1))


def attention_scores(device):
    """4 rows x 4 heads x 512 x 512 scores are 16 MiB."""
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(0)
    with device.host():
        data = [(torch.randn(4, 512, 32), torch.randint(0, CLASSES, (4,))) for _ in range(3)]
    for x, y in device.batches(data):
        step(model, optimizer, x, y)


def static_model(device):
    """The layers alone are more than the device."""
    network(hidden=1024, depth=8)


EARLIER = []


def earlier_cell(device):
    """A training that fits, and whose model and optimizer stay in a global."""
    model = network(hidden=512, depth=6)
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in device.batches(batches(device, 2)):
        step(model, optimizer, x, y)
    EARLIER.append((model, optimizer))


def activations(device):
    """A batch too large for the card, and nothing else wrong with it."""
    model = network(depth=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in device.batches(batches(device, 3, rows=4096)):
        step(model, optimizer, x, y)
