"""What torch's CUDA allocator, the driver and NVML say of one device after a failure. All sizes are bytes.

Keys and meanings are those of torch's ``memory_stats`` and ``_snapshot`` (facts/torch.md, 4 and 6). The readings are
late: the failed step's frames are still held, but temporaries of the failing call may be gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from watcherml.recorder import framework
from watcherml.recorder.nvml import Nvml

# A snapshot lists every block. Beyond this many it takes longer than a person should wait for a capsule.
MOST_BLOCKS = 50_000
TOP_FRAMES = 20
_SMALL_SEGMENT_BYTES = 2 * 2**20  # the segment of requests up to 1 MiB, which live in a pool of their own
_STATS = {
    "allocated_bytes.all.current": "allocated_bytes",
    "reserved_bytes.all.current": "reserved_bytes",
    "active_bytes.all.current": "active_bytes",
    "inactive_split_bytes.all.current": "inactive_split_bytes",
    "allocated_bytes.all.peak": "peak_allocated_bytes",
    "num_alloc_retries": "allocation_retries",
    "num_ooms": "out_of_memory_count",
}


def read(index: int, requested: int | None) -> dict[str, Any]:
    """Return the allocator's figures of a CUDA device; empty without a CUDA context. What fails is left out."""
    cuda = framework.cuda_in_use()
    if cuda is None:
        return {}
    stats: Mapping[str, Any] = _or_none(cuda.memory_stats, index) or {}
    found: dict[str, Any] = {"gpu_index": index}
    found.update({name: int(stats[key]) for key, name in _STATS.items() if key in stats})
    found["backend"] = _or_none(cuda.get_allocator_backend)
    late = _or_none(cuda.mem_get_info, index)  # there is a context already, so that this creates none
    if late is not None:
        found["free_bytes_late"], found["total_bytes"] = int(late[0]), int(late[1])
    fraction = _or_none(getattr(cuda, "get_per_process_memory_fraction", None), index)
    if isinstance(fraction, float) and 0 < fraction < 1:
        found["fraction"] = fraction
        if "total_bytes" in found:
            found["allowed_bytes"] = int(fraction * found["total_bytes"])
    if found["backend"] in (None, "native"):
        found["snapshot"] = _snapshot(cuda, index, stats, requested)
    return found


def nvml_split(index: int, reserved: int | None) -> dict[str, Any]:
    """Return what NVML says of a device: used, this process' and other processes' bytes; or why it does not.

    ``foreign_bytes`` and ``own_other_bytes`` are missing where the driver does not tell which process is ours.
    """
    nvml = Nvml()
    try:
        row = next((one for one in nvml.readings() if one["gpu_index"] == index), None)
        if row is None:
            return {"status": "unavailable", "reason": nvml.reason or "NVML does not show this device."}
        found = {"status": "available", **{key: row[key] for key in ("used_bytes", "total_bytes", "own_bytes")}}
        if row["own_bytes"] is None or row["used_bytes"] is None:
            found["reason"] = "Which of its processes is this one is not known (another PID namespace, or no rights)."
            return found
        found["foreign_bytes"] = max(0, row["used_bytes"] - row["own_bytes"])
        if reserved is not None:
            found["own_other_bytes"] = max(0, row["own_bytes"] - reserved)
        return found
    finally:
        nvml.close()


def _snapshot(cuda: Any, index: int, stats: Mapping[str, Any], requested: int | None) -> dict[str, Any]:
    blocks = int(stats.get("allocation.all.current", 0)) + int(stats.get("inactive_split.all.current", 0))
    if blocks > MOST_BLOCKS:
        return {"status": "skipped", "reason": f"{blocks} blocks are more than {MOST_BLOCKS}."}
    try:
        whole = cuda.memory._snapshot()
    except Exception as error:  # noqa: BLE001 - a private name, which some builds lack
        return {"status": "unavailable", "reason": f"{type(error).__name__}: {error}"[:300]}
    segments = [one for one in whole.get("segments", ()) if one.get("device", index) == index]
    traces = whole.get("device_traces") or []
    history = _history(traces[index] if index < len(traces) else ())
    stream = history.pop("stream", None)
    found = {"status": "available", **summary(segments, requested, stream)}
    settings = whole.get("allocator_settings") or {}
    if "expandable_segments" in settings:
        found["expandable_segments"] = bool(settings["expandable_segments"])
    found.update(history)
    return found


def summary(segments: Iterable[Mapping[str, Any]], requested: int | None, stream: int | None = None) -> dict[str, Any]:
    """Return the snapshot's segments in a few figures, and the frames that hold most live bytes, if they are known.

    ``largest_inactive_bytes`` is the largest cached block of the default pools that lies in the size class of a
    request and in the pool of its ``stream``. Where that is not known and several pools are there, it is the largest
    of all, or missing if that would have held the request: another pool's block is of no use to it.
    """
    private = idle = largest = count = 0
    by_frame: Counter[str] = Counter()
    pools: set[Any] = set()
    small = requested is not None and requested <= _SMALL_SEGMENT_BYTES
    for segment in segments:
        count += 1
        of_request = stream is None or segment.get("stream", stream) == stream
        pool = tuple(segment.get("segment_pool_id", (0, 0)))
        in_private = pool != (0, 0)
        if of_request:
            pools.add((pool, segment.get("stream")))
        private += int(segment.get("total_size", 0)) if in_private else 0
        for block in segment.get("blocks", ()):
            size = int(block.get("size", 0))
            if block.get("state") != "inactive":
                by_frame[_frame(block)] += size
            elif in_private:
                idle += size
            elif of_request and (segment.get("segment_type") == "small") == small:
                largest = max(largest, size)
    by_frame.pop("", None)
    found: dict[str, Any] = {
        "segments": count,
        "private_pool_bytes": private,
        "private_pool_idle_bytes": idle,
    }
    if len(pools) < 2 or requested is None or largest < requested:
        found["largest_inactive_bytes"] = largest
    if by_frame:
        found["live_by_frame"] = [{"frame": name, "bytes": size} for name, size in by_frame.most_common(TOP_FRAMES)]
    return found


def _frame(block: Mapping[str, Any]) -> str:
    """Return the innermost frame of the user's own code that allocated a block, as ``file:line function``."""
    frames = block.get("frames") or ()
    own = [one for one in frames if "site-packages" not in str(one.get("filename", "")) and one.get("line")]
    for one in own or list(frames)[:1]:
        name = str(one.get("filename", "")).replace("\\", "/").rpartition("/")[2]
        return f"{name}:{one.get('line')} {one.get('name')}"[:300]
    return ""


def _history(entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the recorded history adds: how long it is, and the block that was asked for at the last failure."""
    kept = list(entries)
    if not kept:
        return {}
    found: dict[str, Any] = {"history_entries": len(kept)}
    last = next((one for one in reversed(kept) if one.get("action") == "oom"), None)
    if last is not None:
        found["requested_block_bytes"] = int(last.get("size", 0))
        if "stream" in last:
            found["stream"] = last["stream"]
        if "device_free" in last:
            found["free_bytes_at_failure"] = int(last["device_free"])
    return found


def _or_none(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001 - what a build does not have is a missing figure
        return None
