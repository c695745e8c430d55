"""A store with something of everything for the pages: campaigns, an import, cells, GPUs, hostile names."""

from __future__ import annotations

import math

import stored
from builders import FAILED_CONFIG, good_trials

import watcherml
from watcherml.api.archive import export_run, import_run
from watcherml.api.rename import rename
from watcherml.api.resolve import resolve
from watcherml.store.storage import Storage

SCRIPT = "<script>document.title='owned'</script>"
IMAGE = "<img src=x onerror=\"document.title='owned'\">"
LONG = "n" * 200
HUGE = f"{SCRIPT}{'x' * 10_000}"
PATCH = f"diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-lr = 1\n+lr = 2  # {SCRIPT}\n"
GIB = 2**30


def fail(storage, project, error, **config):
    """Record a run that fails, and return its id."""
    run = watcherml.Run(project, {"batch_size": 64, **config}, storage, quiet=True)
    try:
        with run:
            run.log_metric("loss", 2.0, step=1)
            raise error
    except type(error):
        pass
    return run.run_id


def rich_run(storage, project="char-gpt", points=400):
    """Record a run with curves, a NaN, cells, readings of two GPUs, an artifact, a commit with a patch; its id."""
    run = watcherml.Run(project, {"lr": 3e-4, "batch_size": 16, "model": {"name": "gpt", "layers": 6}}, storage,
                        quiet=True)  # fmt: skip
    with run:
        for step in range(points):
            run.log_metric("train_loss", 3 * math.exp(-step / 120) + 0.1 * math.sin(step), step=step)
            if step % 20 == 0:
                run.log_metric("val_loss", math.nan if step == 100 else 3.1 * math.exp(-step / 130), step=step)
            run.log_metric("lr", 3e-4 * (1 - step / points), step=step)
    digest = storage.evidence.put_blob(PATCH.encode(), "text/x-diff")
    git = {"status": "recorded", "commit": "4f2c9d1e" * 5, "branch": "main", "dirty": True, "patch": digest,
           "patch_is": "exact"}  # fmt: skip
    storage.runs.note(run.run_id, {"git": git})
    start = storage.get_run(run.run_id)["started_at"]
    with storage.database.writing() as connection:
        connection.executemany(
            "INSERT INTO gpu_samples VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (run.run_id, start + 2 * i, gpu, f"GPU-{gpu}", 60 + 30 * math.sin(i / 9 + gpu), (8 + i % 5) * GIB,
                 80 * GIB, (6 + i % 5) * GIB)
                for i in range(120) for gpu in (0, 1)
            ],
        )  # fmt: skip
        connection.executemany(
            "INSERT INTO samples (run_id, at, cpu_percent, tree_cpu_percent, rss_bytes, device_kind,"
            " device_allocated_bytes, device_reserved_bytes) VALUES (?, ?, ?, ?, ?, 'cuda', ?, ?)",
            [(run.run_id, start + 2 * i, 80 + i % 7, 180 + i % 11, 2 * GIB + i * 10**6, 5 * GIB + (i % 9) * 10**8,
              6 * GIB + (i % 9) * 10**8) for i in range(120)],
        )  # fmt: skip
    for seq in range(25):
        broke = seq == 24
        storage.evidence.add_cell({
            "session_id": f"session-{run.run_id}", "seq": seq, "run_id": run.run_id, "execution_count": seq + 1,
            "cell_id": f"cell-{seq}", "source": f"# cell {seq} {SCRIPT}\nfor step in range(10):\n    train(step)",
            "status": "error" if broke else "ok", "error_type": "ValueError" if broke else None,
            "error_message": SCRIPT if broke else None, "started_at": start + seq, "seconds": 0.5 + seq,
        })  # fmt: skip
    storage.runs.add_artifact(run.run_id, "checkpoints/final.pt", 123_456_789, "a" * 64, start + 9)
    return run.run_id


def full_store(folder, elsewhere):
    """Fill a store at ``folder`` with something of everything; returns it and ids by what they are."""
    storage, other = Storage(folder), Storage(elsewhere)
    chains = stored.campaigns(storage)
    ids = {
        "verified": chains[0].campaign_id,
        "failed": chains[4].plan.source.run_id,
        "recovered": chains[0].plan.source.run_id,
        "ended": chains[-2].campaign_id,
    }
    resolve(ids["failed"], reopen=True, storage=storage)  # another campaign of it was verified
    plan = stored.recorded_plan(other, {**FAILED_CONFIG, "seed": 7})
    chain = stored.record(other, "campaign-elsewhere", plan, stored.rename(good_trials(plan), "campaign-elsewhere"))
    archive = elsewhere.parent / "elsewhere.zip"
    export_run(plan.source.run_id, archive, storage=other)
    ids["imported"] = import_run(archive, storage=storage).run_id
    ids["imported_campaign"] = chain.campaign_id
    ids["rich"] = rich_run(storage)
    ids["shape"] = fail(
        storage, "vision", RuntimeError("mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)")
    )
    ids["nan"] = fail(storage, "vision", FloatingPointError("loss is nan"), lr=10.0)
    resolve(ids["nan"], by="Ann", note="Halved the learning rate and clipped the gradients at 1.0.", storage=storage)
    ids["hostile"] = fail(storage, SCRIPT, RuntimeError(f"{SCRIPT} {IMAGE}"), **{IMAGE: SCRIPT})
    with watcherml.Run(LONG, {"name": HUGE}, storage, quiet=True) as run:
        run.log_metric(IMAGE, 1.0, step=0)
        run.log_metric(f"m{LONG}", 1.0, step=0)
    ids["long"] = run.run_id
    rename(ids["long"], LONG, storage=storage)
    rename(ids["hostile"], f"{SCRIPT}{IMAGE}", storage=storage)
    rename(ids["rich"], "baseline, cosine schedule", storage=storage)
    with storage.database.writing() as connection:  # what no surface lets in, and a store from elsewhere may hold
        connection.execute("UPDATE runs SET title = ?, project = ? WHERE run_id = ?", (HUGE, HUGE, ids["shape"]))
    return storage, ids
