"""Exceptions that are really raised: by torch, NumPy, workers, process pools and our own device."""

from __future__ import annotations

import pickle
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing
from failure_texts import BUILD, CUDA, DEVICE, FILE, NAN, NONE, OOM, SHAPE, SIM, WORKER, chain
from torch import nn

from watcherml.forensics.classify import Classification, classify_exception, classify_text
from watcherml.forensics.rules import RULES_VERSION


def test_the_attribute_alone_makes_it_simulated() -> None:
    error = torch.OutOfMemoryError(OOM)
    assert classify_exception(error).failure_class == CUDA
    error.simulated = True  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == SIM
    error.simulated = 1  # type: ignore[attr-defined]
    assert classify_exception(error).failure_class == CUDA


def test_the_real_simulated_device_is_never_called_cuda() -> None:
    from watcherml.simulated.device import simulated_device

    with pytest.raises(torch.OutOfMemoryError) as caught:
        with simulated_device(2**20):
            torch.zeros(2**20)
    found = classify_exception(caught.value)
    assert found.failure_class == SIM
    wrapped = chain((caught.value, "context"), (RuntimeError("x"), ""))
    assert classify_text("RuntimeError", "x", "".join(traceback.format_exception(wrapped))).failure_class == SIM


def _work(_: int) -> None:
    raise RuntimeError(OOM)


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.kind == "oom":
            raise torch.OutOfMemoryError(OOM)
        if self.kind == "file":
            Path("/no/such/picture").read_bytes()
        if self.kind == "key":
            return {}[OOM]  # type: ignore[return-value]
        if self.kind == "host":
            np.empty(2**45)
        if self.kind == "caused":
            try:
                {}["a"]
            except KeyError as error:
                raise FileNotFoundError("picture") from error
        return torch.zeros(2 + index)


@pytest.mark.parametrize(
    ("kind", "expected", "subkind"),
    [
        ("oom", CUDA, "torch_caching_allocator"),
        ("file", FILE, "errno2"),
        ("key", WORKER, "wrapped_dataset_error"),
        ("host", NONE, "host_oom"),
        ("caused", FILE, "project_message"),
        ("shape", SHAPE, "collate"),
    ],
)
def test_a_real_worker_passes_on_what_failed_in_it(kind: str, expected: str, subkind: str) -> None:
    loader = iter(torch.utils.data.DataLoader(Samples(kind), 2, num_workers=1, multiprocessing_context="fork"))
    with pytest.raises(Exception) as caught:
        next(loader)
    loader._shutdown_workers()  # left to the collector it takes seconds, in some other test
    found = classify_exception(caught.value)
    assert (found.failure_class, found.subkind) == (expected, subkind)
    kind_name = f"{type(caught.value).__module__}.{type(caught.value).__qualname__}".removeprefix("builtins.")
    printed = "".join(traceback.format_exception(caught.value))
    assert classify_text(kind_name, str(caught.value), printed) == found


def test_real_process_pools_carry_the_cause_as_text() -> None:
    with Pool(1) as pool, pytest.raises(RuntimeError) as caught:
        pool.map(_work, [1])
    assert classify_exception(caught.value).failure_class == CUDA
    with pytest.raises(torch.multiprocessing.ProcessRaisedException) as spawned:
        torch.multiprocessing.start_processes(_work, nprocs=1, start_method="fork")
    assert classify_exception(spawned.value).failure_class == CUDA
    with ThreadPoolExecutor(1) as threads, pytest.raises(RuntimeError) as threaded:
        threads.submit(_work, 1).result()
    assert classify_exception(threaded.value).failure_class == CUDA


def anomaly() -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        torch.sqrt(torch.tensor([-1.0], requires_grad=True)).sum().backward()


def scripted() -> None:
    torch.jit.trace(lambda x: x.view(2), torch.zeros(2))(torch.zeros(3))


REAL = [
    (lambda: torch.zeros(2, 3) @ torch.zeros(4, 5), SHAPE, "matmul"),
    (lambda: torch.zeros(2, 3) + torch.zeros(4), SHAPE, "broadcast"),
    (lambda: torch.zeros(2, 3).view(5), SHAPE, "view_reshape"),
    (lambda: torch.cat([torch.zeros(2, 3), torch.zeros(2, 4)]), SHAPE, "concat"),
    (lambda: nn.Conv2d(3, 4, 3)(torch.zeros(2, 5, 8, 8)), SHAPE, "conv_channels"),
    (lambda: nn.BatchNorm2d(3)(torch.zeros(2, 5)), SHAPE, "rank"),
    (lambda: nn.CrossEntropyLoss()(torch.zeros(2, 5), torch.zeros(3).long()), SHAPE, "loss_target"),
    (lambda: nn.BCEWithLogitsLoss()(torch.zeros(2, 5), torch.zeros(3)), SHAPE, "loss_target"),
    (lambda: nn.Linear(3, 4).load_state_dict(nn.Linear(3, 5).state_dict()), SHAPE, "state_dict"),
    (lambda: nn.Linear(3, 4).load_state_dict({}), NONE, ""),
    (lambda: nn.LSTM(3, 4)(torch.zeros(2, 2, 5)), SHAPE, "layer_input"),
    (lambda: np.zeros((2, 3)) @ np.zeros((4, 5)), SHAPE, "matmul"),
    (lambda: np.zeros((2, 3)) + np.zeros(4), SHAPE, "broadcast"),
    (lambda: np.zeros((2, 3)).reshape(5), SHAPE, "view_reshape"),
    (scripted, SHAPE, "view_reshape"),
    (lambda: torch.zeros(2) + torch.zeros(2, device="meta"), DEVICE, "same_device_arg"),
    (lambda: torch.load("/no/such/file"), FILE, "errno2"),
    (lambda: torch.save({}, "/no/such/folder/x"), FILE, "torch_save_parent"),
    (lambda: torch.jit.load("/no/such/file"), FILE, "native_open"),
    (lambda: torch.empty(2**45), NONE, "host_oom"),
    (lambda: np.empty(2**45), NONE, "host_oom"),
    (lambda: torch.multinomial(torch.tensor([float("nan"), 1.0]), 1), NAN, "probabilities"),
    (lambda: torch.distributions.Normal(torch.tensor(float("nan")), 1.0), NAN, "nan_parameters"),
    (lambda: torch.distributions.Normal(0.0, torch.tensor(float("nan"))), NAN, "nan_parameters"),
    (lambda: torch.distributions.Normal(0.0, torch.tensor(-1.0)), NONE, ""),
    (lambda: __import__("no_such_package"), BUILD, "module_not_found"),
    (lambda: torch.ops.load_library("/no/such.so"), BUILD, "missing_lib_ctypes"),
    (lambda: torch.ops.torchvision.nms(1), BUILD, "torchvision_ops"),
    (lambda: {}[OOM], NONE, ""),
    (lambda: Path(f"/{OOM}").read_text(), FILE, "errno2"),
    (lambda: int(OOM), NONE, ""),
    (lambda: pickle.loads(b""), NONE, "checkpoint_read"),
    (lambda: pickle.dumps(lambda: 0), NONE, ""),
    (lambda: no_such_name, NONE, "name_error"),  # type: ignore[name-defined]  # noqa: F821
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("fail", "expected", "subkind"), [*REAL, (anomaly, NAN, "autograd_anomaly")])
def test_real_exceptions(fail: object, expected: str, subkind: str) -> None:
    with pytest.raises(Exception) as caught:
        fail()  # type: ignore[operator]
    found = classify_exception(caught.value)
    assert (found.failure_class, found.subkind) == (expected, subkind), str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this build reaches a GPU")
def test_a_cpu_build_asked_for_cuda_is_a_build_problem() -> None:
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        torch.zeros(1).cuda()
    assert classify_exception(caught.value).failure_class == BUILD


def test_torchs_own_class_raised_by_hand_is_caught_under_both_names() -> None:
    for kind in (torch.OutOfMemoryError, torch.cuda.OutOfMemoryError):
        try:
            raise kind(OOM)
        except torch.OutOfMemoryError as error:
            found = classify_exception(error)
        assert found == Classification(
            CUDA,
            "torch_caching_allocator",
            "cuda-torch-caching-allocator",
            RULES_VERSION,
            "CUDA out of memory. Tried to allocate 2",
            "torch.OutOfMemoryError",
        )
