"""Which names hold memory: real tensors, arrays, modules, optimizers, containers, and values that are hostile."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from watcherml.forensics import release
from watcherml.forensics.holders import holders, holders_of


def named(found: tuple[Any, ...]) -> dict[str, int]:
    return {holder.name: holder.bytes for holder in found}


def test_holders_are_named_biggest_first_and_shared_bytes_count_once() -> None:
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    weights = 256 * 256 * 4 + 256 * 4
    space = {
        "model": model,
        "alias": model,
        "optimizer": optimizer,
        "view": model.weight[0],
        "history": [torch.zeros(1000), {"deep": (np.zeros(1000), 5)}],
        "trainer": SimpleNamespace(model=model, buffer=torch.zeros(10, dtype=torch.int8)),
        "step": 7,
        "text": "x" * 10**6,
    }
    found = holders(space, limit=10)
    assert named(found) == {
        "optimizer": 2 * weights + 2 * 4,
        "model, alias": 2 * weights,
        "history": 4_000 + 8_000,
        "trainer": 10,
    }
    assert [holder.bytes for holder in found] == sorted((holder.bytes for holder in found), reverse=True)
    assert named(holders(space, limit=1)) == {"optimizer": 2 * weights + 8}
    assert holders(space, limit=0) == ()
    assert {holder.what for holder in found} >= {"Linear with 4 tensors or arrays"}


def test_a_view_counts_with_all_of_its_storage() -> None:
    assert named(holders({"view": torch.zeros(1000)[:1]})) == {"view": 4_000}
    assert named(holders({"view": np.zeros(1000)[:1]})) == {"view": 8_000}
    assert named(holders({"a": np.zeros(1000, dtype="int8"), "b": torch.zeros(0)})) == {"a": 1_000}
    tensor = torch.zeros(1000)
    assert named(holders({"array": tensor.numpy(), "tensor": tensor})) == {"array": 4_000}


def test_what_a_holder_is_stands_in_words() -> None:
    loss = (torch.ones(3, requires_grad=True) * 2).sum()
    found = holders({"loss": loss, "a": np.zeros((2, 3)), "l": [torch.zeros(2)]})
    assert {holder.name: holder.what for holder in found} == {
        "loss": "float32 tensor () on cpu, with its autograd graph",
        "a": "float64 array (2, 3)",
        "l": "list with 1 tensor or array",
    }


def test_caches_of_the_shell_come_after_the_users_names() -> None:
    value = torch.zeros(1000)
    out = {3: value, 4: torch.zeros(500)}
    found = named(holders({"_": value, "_3": value, "Out": out, "_oh": out, "x": value, "In": ["x"]}))
    assert found == {"x, Out[3], _, _3": 4_000, "Out[4]": 2_000}


def test_what_holds_no_memory_of_its_own_is_skipped(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "file", dtype="int8", mode="w+", shape=(1000,))
    space = {
        "module": torch,
        "type": torch.nn.Linear,
        "function": np.zeros,
        "none": None,
        5: torch.zeros(3),
        "meta": torch.zeros(1000, device="meta"),
        "mapped": mapped,
        "sparse": torch.eye(100).to_sparse(),
        "error": RuntimeError(),
        "empty": [],
    }
    assert holders(space) == ()  # type: ignore[arg-type]
    del mapped


class Proxy:
    """Answers every question about itself with an error."""

    __slots__ = ()

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("no")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("no")


def test_hostile_values_and_endless_containers_do_no_harm() -> None:
    endless: list[Any] = [torch.zeros(10)]
    endless.append(endless)
    wide = [0] * 10**6
    deep: list[Any] = [torch.zeros(10)]
    for _ in range(5_000):
        deep = [deep]
    found = named(holders({"proxy": Proxy(), "endless": endless, "deep": deep, "wide": wide, "\ud800": torch.zeros(1)}))
    assert found["endless"] == 40 and "deep" not in found
    shared = [[0] * 1_000] * 100  # each list is looked at once, so that the allowance lasts for the next name
    assert named(holders({"shared": shared, "late": torch.zeros(10)})) == {"late": 40}


def test_holders_keep_nothing_alive() -> None:
    value = torch.zeros(10)
    ref = weakref.ref(value)
    holders({"value": value})
    holders_of({"value": value})
    del value
    assert ref() is None


def test_the_holders_function_is_part_of_this_module() -> None:
    assert release.holders is holders


# -- held without a name of its own ------------------------------------------------------------------------------------


def produce() -> Any:
    buffer = np.zeros(1000)
    yield 1
    del buffer


async def wait(future: Any) -> None:
    buffer = np.zeros(1000)
    await future
    del buffer


class Never:
    def __await__(self) -> Any:
        yield 1


class Owner:
    def __init__(self) -> None:
        self.buffer = np.zeros(1000)

    def method(self) -> None: ...


def capturing() -> Any:
    buffer = np.zeros(1000)
    return lambda: buffer


def kept_exception() -> BaseException:
    def fail() -> None:
        buffer = np.zeros(1000)
        raise ValueError(str(len(buffer)))

    try:
        fail()
    except ValueError as error:
        return error
    raise AssertionError


def failed_future() -> Any:
    from concurrent.futures import Future

    future: Any = Future()
    future.set_exception(kept_exception())
    return future


def test_what_code_at_rest_holds_is_found_and_stays_releasable() -> None:
    import functools

    def default(value: Any) -> Any:
        return value

    default.__defaults__ = (np.zeros(1000),)
    generator, coroutine = produce(), wait(Never())
    next(generator)
    coroutine.send(None)
    space = {
        "generator": generator,
        "coroutine": coroutine,
        "closure": capturing(),
        "default": default,
        "partial": functools.partial(len, np.zeros(1000)),
        "method": Owner().method,
        "error": kept_exception(),
        "future": failed_future(),
    }
    assert named(holders(space, 20)) == dict.fromkeys(space, 8_000)
    coroutine.close()
    generator.close()
    assert "generator" not in named(holders(space, 20))


def test_looking_into_a_generator_keeps_nothing_of_it() -> None:
    refs: list[weakref.ref[Owner]] = []

    def watched() -> Any:
        owner = Owner()
        refs.append(weakref.ref(owner))
        yield 1

    generator = watched()
    next(generator)
    assert named(holders({"generator": generator})) == {"generator": 8_000}
    del generator
    assert refs[0]() is None


def test_large_buffers_and_data_frames_count_and_small_texts_do_not() -> None:
    import array

    import pandas as pd

    frame = pd.DataFrame(np.zeros((100, 10)))
    space = {
        "frame": frame,
        "column": frame[3],
        "raw": bytearray(2**20),
        "data": array.array("b", bytes(2**20)),
        "small": b"x" * 1_000,
        "text": "x" * 10**7,
    }
    found = named(holders(space, 20))
    assert found["frame"] == 8_000 and set(found) == {"frame", "raw", "data"}
    assert all(2**20 <= found[name] < 1.1 * 2**20 for name in ("raw", "data"))


def test_a_name_for_the_namespace_itself_takes_nothing_from_the_others() -> None:
    space: dict[str, Any] = {}
    space.update(everything=space, array=np.zeros(1000))
    assert named(holders(space)) == {"array": 8_000}


def test_one_large_structure_leaves_the_other_names_their_turn() -> None:
    many = [[index] for index in range(10**5)]
    assert named(holders({"many": many, "more": list(many), "late": np.zeros(1000)})) == {"late": 8_000}
