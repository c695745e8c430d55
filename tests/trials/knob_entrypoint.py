"""Two trainings of one small language model: one does what its configuration says, the other never looks at it."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WORDS, WIDTH, HEADS = 50, 16, 2


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.fused, self.project, self.out = fused, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.project(x).view(rows, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
        return x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))


class Model(nn.Module):
    def __init__(self, fused, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.embed, self.block, self.head = nn.Embedding(WORDS, WIDTH), Block(fused), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        run = self.block
        hidden = checkpoint(run, hidden, use_reentrant=False) if self.checkpointed else run(hidden)
        return self.head(hidden)


def train(model, optimizer, rows, length, accumulate, half, steps):
    for _ in range(steps):
        for _ in range(accumulate):
            tokens = torch.randint(0, WORDS, (rows, length))
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                logits = model(tokens)
            nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(torch.randint(0, WORDS, (13, length)))  # an evaluation by rules of its own
    return {"steps_completed": steps}


def obeys(config, max_steps=None):
    import transformers.cache_utils  # noqa: F401
    from bitsandbytes.optim import AdamW8bit

    model = Model(config["attention"] == "sdpa", config["checkpointing"])
    optimizer = AdamW8bit(model.parameters()) if config["bits"] == 8 else torch.optim.AdamW(model.parameters())
    half = config["precision"] == "bf16-mixed"
    return train(model, optimizer, config["batch"], config["length"], config["accumulation"], half, max_steps)


def ignores(config, max_steps=None):
    from transformers.cache_utils import DynamicCache

    model = Model(fused=False, checkpointed=False)
    DynamicCache()
    return train(model, torch.optim.AdamW(model.parameters()), 8, 32, 1, False, max_steps)
