"""Watching a training for the effect of its controls, from inside the trial's process.

Nothing here imports torch: it waits for the entrypoint to do so. What is hooked are torch's own global hooks, the
function ``torch.autograd.backward``, and the inner function of non-reentrant checkpointing. Once ``torch.compile`` is
called the hooks that it would trace are taken out. Looking ends after the first steps, and what breaks here is noted.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from collections.abc import Callable
from typing import Any

from watcherml.recorder.late import when_imported
from watcherml.trials.seen import MOST_CALLS, MOST_CYCLES, MOST_KINDS, Seen, keep

# Calls are looked at for so many steps at least, and never more than so many of them.
_LEAST_STEPS = 2
_MOST_CALLS_EVER = 65_536
_MOST_NODES = 20_000
# Graphs that are walked: of the training's own backward passes, and of those inside them (reentrant checkpointing).
_GRAPHS, _INNER_GRAPHS = 2, 32
_MOST_OPTIMIZERS, _LOOKS, _MOST_PARAMETERS = 16, 2, 64


class Watching:
    """Fills ``seen`` from ``start`` on."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self._undo: list[Callable[[], None]] = []  # what a compiler would trace
        self._undo_rest: list[Callable[[], None]] = []
        self._torch: Any = None
        self._deafen: Callable[[], None] = lambda: None
        self._fresh = True  # the next call of a module begins a forward pass
        self._backwards = 0
        self._graphs = self._inner_graphs = 0
        self._optimizers: dict[int, tuple[weakref.ref[Any], int, int]] = {}  # backward passes so far, looks taken
        self._classes: set[str] = set()  # of modules whose configuration was looked at

    def start(self) -> None:
        """Watch from now on, also where torch is imported later."""
        self._undo_rest.append(when_imported("torch", self._attach))
        self._undo_rest.append(when_imported("transformers.cache_utils", self._attach_caches))

    def stop(self) -> None:
        """Watch no longer, and leave torch as it was."""
        self._withdraw()
        while self._undo_rest:
            self._undo_rest.pop()()

    def _attach(self, torch: Any) -> None:
        self._torch = torch
        for attach in (
            self._attach_modules, self._attach_backward, self._attach_optimizers, self._attach_checkpoint,
            self._attach_saving, self._attach_compile,
        ):  # fmt: skip
            try:
                attach(torch)
            except Exception as problem:  # noqa: BLE001 - another torch: what it lacks cannot be seen
                self.seen.fails(attach.__name__.removeprefix("_attach_"), problem)

    def _withdraw(self) -> None:
        while self._undo:
            self._undo.pop()()

    # -- modules --------------------------------------------------------------------------------------------------

    def _attach_modules(self, torch: Any) -> None:
        module = importlib.import_module("torch.nn.modules.module")
        self._deafen = module.register_module_forward_pre_hook(self._called).remove
        self._undo.append(self._deafen)

    def _called(self, module: Any, args: tuple[Any, ...]) -> None:
        try:
            torch = self._torch
            if not torch.is_grad_enabled():
                return
            if torch._C._current_graph_task_id() != -1:
                self.seen.recomputed += 1
                return
            self.seen.calls += 1
            enough = MOST_CALLS if self.seen.steps >= _LEAST_STEPS else _MOST_CALLS_EVER
            if self.seen.calls >= enough:
                self._deafen()  # torch goes through a copy of its hooks
                return
            self._look_at_call(module, args)
        except Exception as problem:  # noqa: BLE001 - training goes on
            self.seen.fails("modules", problem)

    def _look_at_call(self, module: Any, args: tuple[Any, ...]) -> None:
        torch, seen = self._torch, self.seen
        for kind in ("cuda", "cpu"):
            if torch.is_autocast_enabled(kind):
                keep(seen.autocast, [_short(torch.get_autocast_dtype(kind))])
        name = type(module).__qualname__
        if name not in self._classes and len(self._classes) < MOST_KINDS:
            self._classes.add(name)
            self._look_at_config(module)
        tensor = next((one for one in args if isinstance(one, torch.Tensor)), None)
        if tensor is None:
            return
        shape = tuple(tensor.shape)
        if self._fresh and shape:
            self._fresh = False
            if len(seen.first_rows) < MOST_KINDS or shape[0] in seen.first_rows:
                seen.first_rows[shape[0]] += 1
        if tensor.is_floating_point():
            keep(seen.types, [_short(tensor.dtype)])
        elif len(shape) == 2 and isinstance(module, torch.nn.Embedding) and len(seen.token_shapes) < MOST_KINDS:
            seen.token_shapes.add(shape)

    def _look_at_config(self, module: Any) -> None:
        """Read what a model's configuration object holds, without running code of it."""
        values = getattr(module.__dict__.get("config"), "__dict__", {})
        for name in ("_attn_implementation_internal", "_attn_implementation"):
            if isinstance(values.get(name), str):
                keep(self.seen.implementations, [values[name]])
        if isinstance(values.get("use_cache"), bool):
            self.seen.cache_flags.add(values["use_cache"])

    # -- backward -------------------------------------------------------------------------------------------------

    def _attach_backward(self, torch: Any) -> None:
        own = torch.autograd.backward

        @functools.wraps(own)
        def backward(*args: Any, **named: Any) -> Any:
            self._before_backward(args[0] if args else named.get("tensors"))
            return own(*args, **named)

        torch.autograd.backward = backward

        def undo() -> None:
            if torch.autograd.backward is backward:
                torch.autograd.backward = own

        self._undo.append(undo)

    def _before_backward(self, tensors: Any) -> None:
        try:
            inner = self._torch._C._current_graph_task_id() != -1
            if inner:
                self._inner_graphs += 1
            else:
                self._backwards += 1
                self._fresh = True
                self._graphs += 1
            if self._inner_graphs <= _INNER_GRAPHS if inner else self._graphs <= _GRAPHS:
                roots = [tensors] if isinstance(tensors, self._torch.Tensor) else list(tensors)
                self._walk([one.grad_fn for one in roots])
        except Exception as problem:  # noqa: BLE001 - training goes on
            self.seen.fails("backward", problem)

    def _walk(self, waiting: list[Any]) -> None:
        met: set[Any] = set()
        while waiting and len(met) < _MOST_NODES:
            node = waiting.pop()
            if node is not None and node not in met:
                met.add(node)
                keep(self.seen.nodes, [node.name()])
                waiting.extend(following for following, _ in node.next_functions)
        whole = not any(node is not None and node not in met for node in waiting)
        whole = whole and len(self.seen.nodes) < MOST_KINDS
        self.seen.nodes_whole = whole and self.seen.nodes_whole is not False

    # -- optimizers -----------------------------------------------------------------------------------------------

    def _attach_optimizers(self, torch: Any) -> None:
        # By its name: torch.optim takes its submodule out of its own namespace.
        module = importlib.import_module("torch.optim.optimizer")
        self._undo_rest.append(module.register_optimizer_step_post_hook(self._stepped).remove)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        try:
            self.seen.steps += 1
            self._fresh = True
            key = id(optimizer)
            known = self._optimizers.get(key)
            if known is None or known[0]() is not optimizer:
                if len(self._optimizers) >= _MOST_OPTIMIZERS:
                    return
                known = weakref.ref(optimizer), 0, 0
            passes = self._backwards - known[1]
            if sum(self.seen.backwards.values()) < MOST_CYCLES:
                self.seen.backwards[passes] += 1
            self._optimizers[key] = known[0], self._backwards, known[2] + 1
            if known[2] < _LOOKS:
                self._look_at_optimizer(optimizer)
        except Exception as problem:  # noqa: BLE001 - training goes on
            self.seen.fails("optimizers", problem)

    def _look_at_optimizer(self, optimizer: Any) -> None:
        seen, kind = self.seen, type(optimizer)
        keep(seen.optimizers, [f"{kind.__module__}.{kind.__qualname__}"])
        parameters = [one for group in optimizer.param_groups for one in group["params"]][:_MOST_PARAMETERS]
        keep(seen.parameters, [_short(one.dtype) for one in parameters if one.is_floating_point()])
        for parameter in parameters:
            state = optimizer.state.get(parameter) or {}
            for value in list(state.values())[:8]:
                if isinstance(value, self._torch.Tensor) and value.numel() > 1:
                    plain = type(value) in (self._torch.Tensor, self._torch.nn.Parameter)
                    keep(seen.states, [_short(value.dtype) if plain else type(value).__name__])
                    if value.device.type == "cpu" and parameter.device.type != "cpu":
                        seen.state_on_host = True

    # -- single functions -----------------------------------------------------------------------------------------

    def _attach_checkpoint(self, torch: Any) -> None:
        module: Any = importlib.import_module("torch.utils.checkpoint")
        # Not ``checkpoint`` itself, which is bound by name in other modules; this one is looked up at every call.
        own = module._checkpoint_without_reentrant_generator

        @functools.wraps(own)
        def counted(*args: Any, **named: Any) -> Any:
            self.seen.checkpoints += int(torch.is_grad_enabled())
            return own(*args, **named)

        module._checkpoint_without_reentrant_generator = counted
        self._undo.append(lambda: setattr(module, "_checkpoint_without_reentrant_generator", own))

    def _attach_saving(self, torch: Any) -> None:
        def made() -> None:
            self.seen.saved_to_host = True

        self._tell_made(importlib.import_module("torch.autograd.graph").save_on_cpu, made)

    def _attach_compile(self, torch: Any) -> None:
        own = torch.compile

        @functools.wraps(own)
        def compile(*args: Any, **named: Any) -> Any:
            self.seen.compiled = True
            self._withdraw()  # or they would be traced into the model
            return own(*args, **named)

        torch.compile = compile
        self._undo_rest.append(lambda: setattr(torch, "compile", own))

    def _attach_caches(self, module: Any) -> None:
        self.seen.caches = 0

        def made() -> None:
            if self._torch is not None and self._torch.is_grad_enabled():
                self.seen.caches = (self.seen.caches or 0) + 1

        for name in ("Cache", "DynamicCache"):
            kind = getattr(module, name, None)
            if isinstance(kind, type) and "__init__" in vars(kind):
                self._tell_made(kind, made)

    def _tell_made(self, kind: Any, made: Callable[[], None]) -> None:
        """Have a function called for each object of a class that is made."""
        own = kind.__init__

        @functools.wraps(own)
        def __init__(this: Any, *args: Any, **named: Any) -> None:
            made()
            own(this, *args, **named)

        kind.__init__ = __init__
        self._undo_rest.append(lambda: setattr(kind, "__init__", own))


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
