"""NVIDIA GPUs as the driver's own library sees them, through nvidia-ml-py (``import pynvml``) where it is installed.

Names are those of the NVML API documentation. Which GPUs are this process' own: those of torch's UUIDs where CUDA is in
use, else what CUDA_VISIBLE_DEVICES selects, read as the CUDA programming guide describes it. Every failure is a missing
reading: NVML fails on lost GPUs, MIG slices and missing rights, and none of that is an error of the training.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watcherml.recorder import framework
from watcherml.store.gate import inside

# NVML_VALUE_NOT_AVAILABLE as an unsigned number of 64 bits.
_NOT_AVAILABLE = 2**64 - 1
# The inode of the first PID namespace (PROC_PID_INIT_INO of Linux): only there are our PIDs those that NVML reports.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)")


@dataclass(frozen=True)
class Gpu:
    """One GPU or MIG slice of this process; ``index`` counts as CUDA does here (``cuda:0`` is 0)."""

    index: int
    uuid: str
    handle: Any


class Nvml:
    """The library, loaded at the first reading. Use it from one thread; ``close`` lets it go."""

    def __init__(self) -> None:
        self._library: Any = None
        self._reason = ""
        self._asked = False
        self._gpus: list[Gpu] = []
        self._chosen_by: object = None

    @property
    def reason(self) -> str:
        """Why there are no readings; empty where there are."""
        return self._reason

    def readings(self) -> list[dict[str, Any]]:
        """Return one row for each GPU of this process; empty where there is none or NVML is not there.

        ``used_bytes`` and ``total_bytes`` are of the whole device (or slice), without what the driver reserves where
        it tells them apart; ``own_bytes`` is what this process holds, None where its PID is not among those reported.
        """
        return [self._reading(gpu) for gpu in self._visible()]

    def facts(self) -> dict[str, Any]:
        """Return driver version and the GPUs of this process, or the reason why they are unknown."""
        gpus = self._visible()
        if self._reason:
            return {"status": "unavailable", "reason": self._reason}
        return {
            "status": "available",
            "driver": _text(self._ask("nvmlSystemGetDriverVersion")),
            "gpus": [
                {
                    "index": gpu.index,
                    "uuid": gpu.uuid,
                    "name": _text(self._ask("nvmlDeviceGetName", gpu.handle)),
                    "total_bytes": self._memory(gpu.handle)[1],
                }
                for gpu in gpus
            ],
        }

    def processes(self, index: int) -> dict[int, int | None] | None:
        """Return the bytes of each process on a GPU of ours by process id, as the driver counts ids; None if unknown.

        A size is None where the driver keeps it to itself.
        """
        gpu = next((one for one in self._visible() if one.index == index), None)
        running = None if gpu is None else self._ask("nvmlDeviceGetComputeRunningProcesses", gpu.handle)
        if running is None:
            return None
        return {int(one.pid): _count(one.usedGpuMemory) for one in running}

    def close(self) -> None:
        """Give NVML back; a later reading loads it again."""
        if self._library is not None:
            self._ask("nvmlShutdown")
        self._library, self._asked, self._gpus, self._chosen_by = None, False, [], None

    # -- inside -----------------------------------------------------------------------------------------------

    def _load(self) -> Any:
        if not self._asked:
            self._asked, self._reason = True, ""
            try:
                with inside():  # a child that is forked meanwhile could never import it
                    library = importlib.import_module("pynvml")
                library.nvmlInit()
                self._library = library
            except ImportError:
                self._reason = 'nvidia-ml-py is not installed (from the clone: pip install ".[nvidia]")'
            except Exception as error:  # noqa: BLE001 - no driver, no rights, or another package of that name
                self._reason = f"NVML does not start: {error}"[:300]
        return self._library

    def _ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Return what an NVML function returns; None if it is not there or fails."""
        try:
            return getattr(self._library, name)(*arguments, **options)
        except Exception:  # noqa: BLE001 - NVMLError of any kind, or an older binding without the function
            return None

    def _visible(self) -> list[Gpu]:
        if self._load() is None:
            return []
        used = tuple(framework.cuda_uuids())
        wanted = (used, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
        if wanted != self._chosen_by:
            found = [self._as_cuda_sees_it(handle) for handle in self._choose(*wanted)]
            slices = [index for index, (_, is_slice) in enumerate(found) if is_slice]
            # A process sees one MIG slice and nothing else.
            found = [found[slices[0]]] if slices else found
            self._gpus = [
                Gpu(index, uuid, handle)
                for index, (handle, _) in enumerate(found)
                if handle is not None and (uuid := _text(self._ask("nvmlDeviceGetUUID", handle)))
            ]
            self._chosen_by = wanted
        return self._gpus

    def _choose(self, used: tuple[str, ...], selected: str | None, order: str | None) -> list[Any]:
        if used and "MIG-" not in (selected or ""):
            return [self._by_uuid(uuid) for uuid in used]
        return self._all() if selected is None else self._selected(selected, order == "PCI_BUS_ID")

    def _as_cuda_sees_it(self, handle: Any) -> tuple[Any, bool]:
        """Return the handle, or the first slice of a GPU that is cut into MIG slices; and whether it is a slice."""
        if handle is None:
            return None, False
        if _text(self._ask("nvmlDeviceGetUUID", handle)).startswith("MIG-"):
            return handle, True
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        if not mode or mode[0] != 1:  # NVML_DEVICE_MIG_ENABLE
            return handle, False
        return next(iter(self._slices(handle)), None), True

    def _slices(self, parent: Any) -> Iterator[Any]:
        for index in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", parent) or 0):
            handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", parent, index)
            if handle is not None:
                yield handle

    def _all(self) -> list[Any]:
        """Return the handles of all GPUs in the order of their PCI bus ids."""
        handles = []
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                # NVML promises no order; CUDA's PCI_BUS_ID order is this one.
                place = _text(getattr(self._ask("nvmlDeviceGetPciInfo", handle), "busId", b""))
                handles.append((place, index, handle))
        return [handle for _, _, handle in sorted(handles, key=lambda one: one[:2])]

    def _selected(self, text: str, by_place: bool) -> list[Any]:
        """Return the handles that a value of CUDA_VISIBLE_DEVICES selects, in its order.

        An entry that names nothing hides itself and all that follow ("NoDevFiles", -1); one that is named twice
        hides them all.
        """
        everything = self._all()
        found: list[Any] = []
        for entry in (part.strip() for part in text.split(",")):
            handle = None
            if entry.isascii() and entry.isdigit():
                # FASTEST_FIRST among different models is known to CUDA only; a wrong GPU would be worse than none.
                if (by_place or self._alike(everything)) and int(entry) < len(everything):
                    handle = everything[int(entry)]
            elif entry.startswith("MIG-"):
                handle = self._slice(entry)
            elif entry.startswith("GPU-"):
                handle = self._by_prefix(entry, everything)
            if handle is None:
                break
            found.append(handle)
        uuids = [self._ask("nvmlDeviceGetUUID", handle) for handle in found]
        return [] if len(set(uuids)) < len(uuids) else found

    def _alike(self, handles: list[Any]) -> bool:
        return len({self._ask("nvmlDeviceGetName", handle) for handle in handles}) <= 1

    def _by_uuid(self, uuid: str) -> Any:
        # The binding wants text in some versions and bytes in others.
        return self._ask("nvmlDeviceGetHandleByUUID", uuid) or self._ask("nvmlDeviceGetHandleByUUID", uuid.encode())

    def _by_prefix(self, entry: str, handles: list[Any]) -> Any:
        """Return the only GPU whose UUID begins so; CUDA accepts unambiguous beginnings."""
        found = [one for one in handles if _text(self._ask("nvmlDeviceGetUUID", one)).startswith(entry)]
        return found[0] if len(found) == 1 else None

    def _slice(self, entry: str) -> Any:
        """Return a MIG slice by its UUID, or by GPU and instance ids as drivers before R470 named it."""
        old = _OLD_MIG.fullmatch(entry)
        if old is None:
            return self._by_uuid(entry)
        parent = self._by_uuid(old.group(1))
        for handle in self._slices(parent) if parent is not None else ():
            ids = [self._ask(f"nvmlDeviceGet{kind}InstanceId", handle) for kind in ("Gpu", "Compute")]
            if ids == [int(old.group(2)), int(old.group(3))]:
                return handle
        return None

    def _reading(self, gpu: Gpu) -> dict[str, Any]:
        used, total = self._memory(gpu.handle)
        busy = self._ask("nvmlDeviceGetUtilizationRates", gpu.handle)
        return {
            "gpu_index": gpu.index,
            "uuid": gpu.uuid,
            "utilization_percent": None if busy is None else float(busy.gpu),
            "used_bytes": used,
            "total_bytes": total,
            "own_bytes": self._own(gpu),
        }

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Return used and total bytes; the second version of the call leaves the driver's reservation out of used."""
        version = getattr(self._library, "nvmlMemory_v2", None)
        info = None if version is None else self._ask("nvmlDeviceGetMemoryInfo", handle, version=version)
        info = info if info is not None else self._ask("nvmlDeviceGetMemoryInfo", handle)
        return _count(getattr(info, "used", None)), _count(getattr(info, "total", None))

    def _own(self, gpu: Gpu) -> int | None:
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", gpu.handle)
        mine = [_count(one.usedGpuMemory) for one in running or () if one.pid == os.getpid()]
        known = [one for one in mine if one is not None]
        if not known or len(known) < len(mine):
            return None
        held = sum(known)
        # NVML's PIDs are the host's. In a container ours may be that of a stranger, who holds less than we do.
        reserved = framework.reserved_bytes(gpu.index)
        ours = held >= reserved if reserved else _in_first_namespace()
        return held if ours else None


def _in_first_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE
    except OSError:
        return os.name == "nt"


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and 0 <= value < _NOT_AVAILABLE else None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
