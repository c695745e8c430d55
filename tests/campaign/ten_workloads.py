"""Ten small trainings, as a user's file would have them; ``config["workload"]`` chooses. Copied into a project folder.

Each draws its own batches, so that any micro-batch can be asked for, and says nothing of how much memory it takes.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WORKLOADS = {
    # name: (model, optimizer, checkpointing, evaluation batch as a share of the training batch)
    "gpt-adamw": ("gpt", "AdamW", False),
    "gpt-adamw-checkpointed": ("gpt", "AdamW", True),
    "gpt-sgd": ("gpt", "SGD", False),
    "conv-sgd": ("conv", "SGD", False),
    "conv-bn-adam": ("conv-bn", "Adam", False),
    "conv-bn-sgd-checkpointed": ("conv-bn", "SGD", True),
    "mlp-adam": ("mlp", "Adam", False),
    "mlp-sgd": ("mlp", "SGD", False),
    "encoder-dropout-adamw": ("encoder", "AdamW", False),
    "encoder-dropout-adam-checkpointed": ("encoder", "Adam", True),
}
OPTIMIZERS = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
}
WIDTH, CONTEXT, CLASSES = 64, 32, 50


class Blocks(nn.Module):
    """An input layer, blocks that may be checkpointed, and a head."""

    def __init__(self, first, blocks, head, checkpointing):
        super().__init__()
        self.first, self.blocks, self.head, self.checkpointing = first, nn.ModuleList(blocks), head, checkpointing

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            again = self.checkpointing and self.training
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return self.head(x)


class Attention(nn.Module):
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


def conv_block(norm):
    layers = [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16) if norm else nn.Identity(), nn.ReLU()]
    return nn.Sequential(*layers)


def model_of(kind, checkpointing):
    if kind == "gpt":
        return Blocks(
            nn.Embedding(CLASSES, WIDTH), [Attention() for _ in range(3)], nn.Linear(WIDTH, CLASSES), checkpointing
        )
    if kind == "encoder":
        layers = [nn.TransformerEncoderLayer(WIDTH, 4, 128, 0.1, batch_first=True) for _ in range(2)]
        return Blocks(nn.Embedding(CLASSES, WIDTH), layers, nn.Linear(WIDTH, CLASSES), checkpointing)
    if kind == "mlp":
        blocks = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(3)]
        return Blocks(nn.Linear(64, 256), blocks, nn.Linear(256, CLASSES), checkpointing)
    blocks = [conv_block(kind == "conv-bn") for _ in range(4)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))
    return Blocks(nn.Conv2d(3, 16, 3, padding=1), blocks, head, checkpointing)


def batch_of(kind, size):
    if kind in ("gpt", "encoder"):
        tokens = torch.randint(0, CLASSES, (size, CONTEXT + 1))
        return tokens[:, :-1], tokens[:, 1:].flatten()
    shape = (size, 64) if kind == "mlp" else (size, 3, 16, 16)
    return torch.randn(shape), torch.randint(0, CLASSES, (size,))


def train(config, max_steps=None):
    torch.manual_seed(config.get("seed", 0))
    kind, optimizer_name, checkpointing = WORKLOADS[config["workload"]]
    checkpointing = config.get("gradient_checkpointing", checkpointing)
    size, accumulation = config["batch_size"], config.get("gradient_accumulation_steps", 1)
    steps = config.get("training_steps", 4) if max_steps is None else max_steps
    model = model_of(kind, checkpointing)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    correct = 0
    for _ in range(steps):
        for _ in range(accumulation):
            inputs, targets = batch_of(kind, size)
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs.flatten(0, -2), targets)
            (loss / accumulation).backward()
            correct += (outputs.flatten(0, -2).argmax(-1) == targets).sum().item()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        inputs, targets = batch_of(kind, size)
        val_loss = nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets).item()
    return {"steps_completed": float(steps), "val_loss": val_loss, "correct": float(correct)}
