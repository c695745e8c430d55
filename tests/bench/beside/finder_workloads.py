"""Four small trainings that run out of memory, each in a way of its own, for whoever offers to find a batch that fits.

``first``: the batch is too large from the first step on. ``late``: one batch in the middle is four times as long as
the others. ``evaluation``: training fits, the evaluation afterwards keeps its graph. ``leak``: every step's gradients
are kept, so that no batch size helps in the end.
"""

import torch
from sizes import FAILING
from torch import nn

MIB = 2**20
WIDTH, CONTEXT, VOCABULARY, STEPS = 64, 32, 50, 36
LATE = 20
# name: budget in bytes, measured with each batch under a device without a limit.
BUDGETS = {"first": 14 * MIB, "late": 16 * MIB, "evaluation": 13 * MIB, "leak": 21 * MIB}
WORKLOADS = {name: (FAILING[name], budget) for name, budget in BUDGETS.items()}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.join = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.rest = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, context, _ = x.shape
        query, key, value = self.qkv(self.norm(x)).view(batch, context, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(found.transpose(1, 2).reshape(batch, context, WIDTH))
        return x + self.rest(x)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), Block(), Block(), Block(), nn.Linear(WIDTH, VOCABULARY))


def make_batch(name, step, size):
    """Return tokens of a micro-batch that belongs to a step."""
    length = 4 * CONTEXT if name == "late" and step == LATE else CONTEXT
    return torch.randint(0, VOCABULARY, (size, length + 1))


class Batches(torch.utils.data.Dataset):
    """Whole micro-batches, so many to a step."""

    def __init__(self, name, size, steps, accumulation=1):
        self.name, self.size, self.steps, self.accumulation = name, size, steps, accumulation

    def __len__(self):
        return self.steps * self.accumulation

    def __getitem__(self, index):
        return make_batch(self.name, index // self.accumulation, self.size)


def loss_of(model, tokens):
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def evaluate(model, name, size):
    """Return the mean loss of eight batches; without ``no_grad`` in the workload that is about that."""
    model.eval()
    with torch.set_grad_enabled(name == "evaluation"):
        losses = [loss_of(model, make_batch(name, 0, size)) for _ in range(8)]
    return sum(float(one.detach()) for one in losses) / len(losses)


def train(config, max_steps=None, on_step=lambda: None):
    name, size = config["workload"], config["batch_size"]
    accumulation = config.get("gradient_accumulation_steps", 1)
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])
    model, kept = make_model(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = iter(torch.utils.data.DataLoader(Batches(name, size, steps, accumulation), batch_size=None))
    for _ in range(steps):
        for _ in range(accumulation):
            (loss_of(model, next(batches)) / accumulation).backward()
        if name == "leak":
            kept.append([one.grad.clone() for one in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
        on_step()
    return {"steps_completed": steps, "val_loss": evaluate(model, name, size)}
