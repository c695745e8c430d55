"""Train a small GPT to write English one character at a time.

The text is the language reference that every Python carries (``pydoc_data.topics``), so nothing is
downloaded. The same configuration gives the same data order for every split of the effective batch
``batch_size * gradient_accumulation_steps``: 64 x 1, 32 x 2 and 16 x 4 make the same updates.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DEFAULTS: dict[str, Any] = {
    "batch_size": 64,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": False,
    "context": 64,
    "n_layer": 5,
    "n_head": 4,
    "n_embd": 128,
    "learning_rate": 3e-3,
    "training_steps": 40,
    "seed": 1337,
    "memory_cap_mib": None,
}
VALIDATION_WINDOWS = 64


class Block(nn.Module):
    """One transformer layer: causal self-attention, then a feed-forward network, each added to its input."""

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.norm_1 = nn.LayerNorm(n_embd)
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.join = nn.Linear(n_embd, n_embd)
        self.norm_2 = nn.LayerNorm(n_embd)
        self.feed_forward = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for ``x`` of shape (batch, context, n_embd), in the same shape."""
        batch, context, n_embd = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, context, 3, self.n_head, n_embd // self.n_head)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.join(attended.transpose(1, 2).reshape(batch, context, n_embd))
        output: Tensor = x + self.feed_forward(self.norm_2(x))
        return output


class CharGPT(nn.Module):
    """A decoder-only transformer over characters; about one million parameters with ``DEFAULTS``."""

    def __init__(self, vocabulary: int, config: dict[str, Any]) -> None:
        super().__init__()
        n_embd = config["n_embd"]
        self.checkpointing = config["gradient_checkpointing"]
        self.token = nn.Embedding(vocabulary, n_embd)
        self.position = nn.Embedding(config["context"], n_embd)
        self.blocks = nn.ModuleList(Block(n_embd, config["n_head"]) for _ in range(config["n_layer"]))
        self.norm = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocabulary)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross entropy (nats per character) of predicting ``targets`` from ``tokens``."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing and self.training else block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_text() -> tuple[bytes, bytes, int]:
    """Return training text, validation text (the last tenth) and vocabulary size; one byte per character."""
    text = "\n".join(topics[name] for name in sorted(topics))
    ids = {character: number for number, character in enumerate(sorted(set(text)))}
    tokens = bytes(ids[character] for character in text)
    split = len(tokens) * 9 // 10
    return tokens[:split], tokens[split:], len(ids)


def make_batch(text: bytes, starts: list[int], context: int, device: str) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, each (len(starts), context): the targets are one character ahead."""
    windows = torch.tensor([list(text[start : start + context + 1]) for start in starts], device=device)
    return windows[:, :-1], windows[:, 1:]


def validate(model: CharGPT, text: bytes, config: dict[str, Any], device: str) -> Tensor:
    """Return the mean loss over evenly spaced windows of the text, the same ones every time."""
    context, batch_size = config["context"], config["batch_size"]
    last = len(text) - context - 1
    starts = [last * number // (VALIDATION_WINDOWS - 1) for number in range(VALIDATION_WINDOWS)]
    total = torch.zeros((), device=device)
    model.eval()
    with torch.no_grad():
        for first in range(0, len(starts), batch_size):
            chunk = starts[first : first + batch_size]
            total += model(*make_batch(text, chunk, context, device)) * len(chunk)
    model.train()
    return total / len(starts)


def cap_memory(mib: float | None) -> None:
    """Let this process use at most ``mib`` MiB of the CUDA card, so that a large card acts like a small one."""
    if mib is not None and torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, mib * 2**20 / total), 0)


def train(
    config: dict[str, Any],
    max_steps: int | None = None,
    log: Callable[[str, float, int], object] | None = None,
) -> dict[str, float]:
    """Train for ``training_steps`` (at most ``max_steps``) and return what was reached.

    ``log(name, value, step)`` receives ``train_loss`` after every step. Losses are in nats per character.
    """
    config = {**DEFAULTS, **config}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cap_memory(config["memory_cap_mib"])
    torch.manual_seed(config["seed"])
    order = random.Random(config["seed"])
    batch_size, accumulation = config["batch_size"], config["gradient_accumulation_steps"]
    steps = config["training_steps"] if max_steps is None else min(max_steps, config["training_steps"])

    training_text, validation_text, vocabulary = load_text()
    model = CharGPT(vocabulary, config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["learning_rate"])
    train_loss = torch.tensor(float("nan"))
    for step in range(1, steps + 1):
        # The whole effective batch is drawn before it is split, so the split does not change the data.
        last = len(training_text) - config["context"] - 1
        starts = [order.randint(0, last) for _ in range(batch_size * accumulation)]
        train_loss = torch.zeros((), device=device)
        for first in range(0, len(starts), batch_size):
            batch = make_batch(training_text, starts[first : first + batch_size], config["context"], device)
            loss = model(*batch) / accumulation
            loss.backward()
            train_loss += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        if log is not None:
            log("train_loss", float(train_loss), step)

    val_loss = validate(model, validation_text, config, device)
    return {"steps_completed": float(steps), "train_loss": float(train_loss), "val_loss": float(val_loss)}
