"""Small trainings in which a smaller step is not the answer: what is kept or still to come fills the device."""

import copy
import functools

import torch
from planted import batches, network, step
from torch import nn

WIDE = {"hidden": 512, "depth": 3}  # 3.5 MiB of weights
FEW = 4  # rows: next to no activations


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.01, **options)


def averaged_copy_first_backward(device):
    """The weights and their copy leave no room for the first gradients."""
    model = network(**WIDE)
    shadow = copy.deepcopy(model)
    optimizer = sgd(model)
    for x, y in device.batches(batches(device, 2, rows=FEW)):
        step(model, optimizer, x, y)
    return shadow


def models_in_a_list(device):
    """Two models and their optimizers, none of which has a name of its own."""
    members = [network(**WIDE) for _ in range(2)]
    optimizers = [sgd(one) for one in members]
    for x, y in device.batches(batches(device, 2, rows=FEW)):
        sum(nn.functional.cross_entropy(one(x), y) for one in members).backward()
        for one in optimizers:
            one.step()


def quasi_newton(device):
    """L-BFGS keeps its history in lists."""
    model = network(hidden=256, depth=2)
    optimizer = torch.optim.LBFGS(model.parameters(), history_size=50, max_iter=4)
    for x, y in device.batches(batches(device, 20, rows=16)):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def early_leak(device):
    """What is kept fills the device within a few steps."""
    model, kept = network(), []
    optimizer = sgd(model)
    for x, y in device.batches(batches(device, 30, rows=1024)):
        features = model[:-1](x)
        nn.functional.cross_entropy(model[-1](features), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(features.detach())


def cached_models(device):
    """Each one fits; a cache keeps those that were used before."""
    get = functools.lru_cache(None)(lambda number: network(**WIDE))
    with torch.no_grad():
        for number in range(20):
            for x, _ in device.batches(batches(device, 1, rows=FEW)):
                get(number)(x)


def sweep(device):
    """One run tries several models and keeps each with its result."""
    results = []
    for _ in range(6):
        model = network(**WIDE)
        optimizer = torch.optim.Adam(model.parameters())
        for x, y in device.batches(batches(device, 2, rows=FEW)):
            step(model, optimizer, x, y)
        results.append({"model": model, "loss": 0.0})


def shadow_list(device):
    """A copy of the weights as plain tensors in a list."""
    model = network(**WIDE)
    shadow = [one.detach().clone() for one in model.parameters()]
    optimizer = sgd(model)
    for x, y in device.batches(batches(device, 2, rows=FEW)):
        step(model, optimizer, x, y)
    return shadow


def data_on_the_device(device):
    """The whole data set lies on the device from the start."""
    model = network()
    data = [(torch.randn(64, 256), torch.randint(0, 10, (64,))) for _ in range(160)]
    optimizer = sgd(model)
    for x, y in data:
        step(model, optimizer, x, y)


def inference_with_gradients(device):
    """Nobody trains, and every layer's output is kept for a backward that never comes."""
    model = network(depth=4).eval()
    for x, _ in device.batches(batches(device, 2, rows=2048)):
        model(x)


def generation(device):
    """Tokens one by one without gradients; what was computed for each is kept."""
    model, past = network().eval(), []
    with torch.no_grad():
        for _ in range(200):
            past.append(model[:-1](torch.randn(64, 256)))


def host_data(device):
    """The data is in host memory, which is no part of the simulated device; only the batch is too large."""
    model = network(depth=4)
    with device.host():
        data = [(torch.randn(4096, 256), torch.randint(0, 10, (4096,))) for _ in range(6)]
    optimizer = sgd(model)
    for x, y in device.batches(data):
        step(model, optimizer, x, y)


def kept_exception(device):
    """An attempt that failed is still held by its exception, while the next one trains beside it."""

    def attempt():
        model = network(**WIDE)
        raise ValueError(len(list(model.parameters())))

    try:
        attempt()
    except ValueError as error:
        held = error
    optimizer = sgd(model := network())
    for x, y in device.batches([*batches(device, 3, rows=16), *batches(device, 1, rows=1400)]):
        step(model, optimizer, x, y)
    return held


def model_in_a_closure(device):
    """An earlier model is held by the function that scored with it."""
    earlier = network(**WIDE)

    def score(x):
        return earlier(x)

    model = network()
    optimizer = sgd(model)
    for x, y in device.batches([*batches(device, 3, rows=16), *batches(device, 1, rows=1400)]):
        step(model, optimizer, x, y)
    return score
