"""Small real training runs that the tests of the simulated device share."""

from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from watcherml.cli import demo_char_gpt as char_gpt

KIB = 2**10
MIB = 2**20


def train_mlp(batch: int = 64, steps: int = 3, width: int = 256) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64))
    return _train(model, lambda: torch.randn(batch, 64), steps)


def train_encoder(batch: int = 8, steps: int = 2) -> list[float]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to("cpu")
    return _train(model, lambda: torch.randn(batch, 32, 64), steps, clip=1.0)


def train_bf16(batch: int = 64, steps: int = 2) -> list[float]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return train_mlp(batch, steps)


def train_gpt(batch: int = 16, accumulation: int = 1, checkpointing: bool = False, steps: int = 2) -> list[float]:
    config = {
        "batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_checkpointing": checkpointing,
        "n_layer": 3,
        "n_embd": 64,
        "context": 32,
    }
    reached = char_gpt.train(config, max_steps=steps)
    return [reached["train_loss"], reached["val_loss"]]


def native_peak_bytes(work: Callable[[], object]) -> int:
    """The allocator's own account, from the profiler's memory events: knows nothing of the device."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    running = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        running += event.nbytes()
        peak = max(peak, running)
    return peak


def _train(model: nn.Module, make: Callable[[], torch.Tensor], steps: int, clip: float | None = None) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(steps):
        loss = model(make()).square().mean()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
