"""A stand-in for nvidia-ml-py with the documented names, copied to ``pynvml.py`` by the tests of the sampler.

``GPUS`` is a list of dicts in NVML's order; ``FAILS`` names functions that raise; ``CALLS`` counts calls.
"""

import ctypes
from collections import Counter
from types import SimpleNamespace

nvmlMemory_v2 = 0x2000028
GPUS: list = []
FAILS: set = set()
CALLS: Counter = Counter()
OLD_BINDING = False  # without the second version of the memory call
state = SimpleNamespace(open=0)


class NVMLError(Exception):
    def __init__(self, value=999):
        self.value = value


class c_nvmlUtilization_t(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def _called(name):
    CALLS[name] += 1
    if name in FAILS or "*" in FAILS:
        raise NVMLError()


def nvmlInit():
    _called("nvmlInit")
    state.open += 1


def nvmlShutdown():
    _called("nvmlShutdown")
    state.open -= 1


def nvmlSystemGetDriverVersion():
    _called("nvmlSystemGetDriverVersion")
    return b"550.54.15"


def nvmlDeviceGetCount():
    _called("nvmlDeviceGetCount")
    return len(GPUS)


def nvmlDeviceGetHandleByIndex(index):
    _called("nvmlDeviceGetHandleByIndex")
    return GPUS[index]


def nvmlDeviceGetHandleByUUID(uuid):
    _called("nvmlDeviceGetHandleByUUID")
    for gpu in GPUS:
        for one in (gpu, *gpu.get("slices", [])):
            if one["uuid"] == uuid:
                return one
    raise NVMLError(6)


def nvmlDeviceGetPciInfo(handle):
    _called("nvmlDeviceGetPciInfo")
    return SimpleNamespace(busId=handle["bus"].encode())


def nvmlDeviceGetUUID(handle):
    _called("nvmlDeviceGetUUID")
    return handle["uuid"]


def nvmlDeviceGetName(handle):
    _called("nvmlDeviceGetName")
    return handle.get("name", "NVIDIA A100")


def nvmlDeviceGetMigMode(handle):
    _called("nvmlDeviceGetMigMode")
    if "slices" not in handle:
        raise NVMLError(3)  # not supported
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(handle):
    _called("nvmlDeviceGetMaxMigDeviceCount")
    return 7 if "slices" in handle else 0


def nvmlDeviceGetMigDeviceHandleByIndex(handle, index):
    _called("nvmlDeviceGetMigDeviceHandleByIndex")
    # A place may be empty: instances come and go.
    if index % 2 or index // 2 >= len(handle["slices"]):
        raise NVMLError(6)
    return handle["slices"][index // 2]


def nvmlDeviceGetGpuInstanceId(handle):
    _called("nvmlDeviceGetGpuInstanceId")
    return handle["gi"]


def nvmlDeviceGetComputeInstanceId(handle):
    _called("nvmlDeviceGetComputeInstanceId")
    return handle["ci"]


def nvmlDeviceGetUtilizationRates(handle):
    _called("nvmlDeviceGetUtilizationRates")
    if handle["uuid"].startswith("MIG-"):
        raise NVMLError(3)
    return c_nvmlUtilization_t(handle.get("busy", 0), 0)


def nvmlDeviceGetMemoryInfo(handle, version=None):
    if version is None:
        _called("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=handle["total"], used=handle["used"] + handle.get("driver", 0), free=0)
    _called("nvmlDeviceGetMemoryInfo_v2")
    if OLD_BINDING:
        raise TypeError("unexpected keyword argument 'version'")
    return SimpleNamespace(total=handle["total"], used=handle["used"], reserved=handle.get("driver", 0), free=0)


def nvmlDeviceGetComputeRunningProcesses(handle):
    _called("nvmlDeviceGetComputeRunningProcesses")
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.get("processes", [])]
