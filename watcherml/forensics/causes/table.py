"""The table of causes, in the order in which they are named: ids, names and what would help, in plain words.

``held`` finishes a sentence that says what took the memory; ``{size}`` is the bytes. ``remedy`` says what to do.
What a cause means for the controls of a configuration stands in ``effects``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One cause: its name, the evidence its rule reads, and its words."""

    name: str
    evidence_ids: tuple[str, ...]
    held: str
    remedy: str

    @property
    def action(self) -> str:
        """The remedy with what to do before what cannot help."""
        first, _, rest = self.remedy.partition("; ")
        return f"{rest}; {first}" if rest and first.startswith(_NO_CHANGE) else self.remedy


_NO_CHANGE = "no change of this configuration can help"
_STEP = "make the step smaller"

ROWS: dict[str, Row] = {
    "C25": Row("driver oversubscription", ("EV-5", "EV-6"), "torch holds {size}, more than the device has",
               "switch off, in the driver's settings, that it lends system memory"),
    "C26": Row("anomaly", ("EV-5", "EV-6"), "size does not explain the failure",
               "run the control trial before changing anything"),
    "C0": Row("host memory, not the device's", ("EV-3", "EV-4"), "host memory ran out",
              f"{_NO_CHANGE} on the device; use fewer data workers, or no pinned memory"),
    "C1": Row("a library's error that is out of memory", ("EV-5", "EV-6"), "the device was full when a library failed",
              "run the control trial, then make the step smaller"),
    "C2": Row("request larger than the device", ("EV-6",), "one request alone asks for {size}",
              "look at the shapes in that line"),
    "C3": Row("a cap, not the card", ("EV-5", "EV-6"), "a cap on this process withholds {size} that the card has free",
              f"raise the cap, or {_STEP}"),
    "C4": Row("another process holds the memory", ("EV-5",), "another process held {size}",
              f"{_NO_CHANGE}; free it and run the control trial"),
    "C5": Row("left over in this process", ("EV-2", "EV-6"), "{size} were there before this run built anything",
              "let go of what earlier cells hold, then run the control trial"),
    "C6": Row("this process's memory outside torch", ("EV-5", "EV-6"), "this process held {size} outside torch",
              "limit the other library that holds it, then run the control trial"),
    "C7": Row("private pools", ("EV-6",), "{size} lie in private pools (CUDA graphs)",
              "switch graphs off, or feed fewer different shapes"),
    "C8": Row("fragmentation", ("EV-6",), "{size} are reserved in pieces that are too small",
              "let the allocator use expandable segments"),
    "C9": Row("memory that waits for another stream", ("EV-6",), "{size} are freed but wait for another stream",
              "prefetch less, or wait for the stream; a smaller batch alone does not help"),
    "C10": Row("leak across steps", ("EV-2", "EV-6"), "{size} piled up over the steps",
               "find what is kept (detach, .item(), hooks); a smaller batch delays the failure, it does not cure it"),
    "C10b": Row("kept from batch to batch", ("EV-2", "EV-6"), "{size} piled up over batches without an optimizer step",
                "call backward() on each batch's loss, or, where this is an evaluation, run it under torch.no_grad(); a"
                " smaller micro-batch with more accumulation keeps as much"),
    "C11": Row("reference cycles", ("EV-2", "EV-6"), "{size} were held by reference cycles that nobody uses",
               "break the cycles, or call gc.collect() between steps"),
    "C12": Row("the model alone fills the device", ("EV-6",), "the model itself takes {size}",
               "load the model in a smaller type or keep part of it elsewhere; a smaller batch cannot help"),
    "C12b": Row("a second copy while loading", ("EV-6",), "{size} of a second copy were there while loading",
                "load the checkpoint to the CPU first, or with mmap and assign"),
    "C13": Row("attention scores", ("EV-1", "EV-6"), "the attention scores of one layer take {size}",
               "use an attention that does not store them, or a smaller micro-batch"),
    "C14": Row("logits", ("EV-1", "EV-6"), "the logits, one number for every token and word, take {size}",
               "use a smaller micro-batch, or compute the loss in chunks"),
    "C15": Row("optimizer state, first step", ("EV-2", "EV-6"), "the optimizer makes {size} of state in its first step",
               "use an optimizer with smaller state"),
    "C15b": Row("optimizer state beside activations", ("EV-2", "EV-6"),
                "the optimizer's state of {size}, made by the first step, now lies beside the activations",
                f"{_STEP}, or use an optimizer with smaller state"),
    "C16a": Row("evaluation with gradients", ("EV-2", "EV-6"), "evaluation with gradients on keeps {size}",
                f"{_NO_CHANGE}; evaluate under torch.no_grad()"),
    "C16b": Row("evaluation keeps its outputs", ("EV-2", "EV-6"), "evaluation kept {size} over its batches",
                f"{_NO_CHANGE}; move each batch's outputs to the CPU"),
    "C16c": Row("the evaluation batch", ("EV-2", "EV-6"), "one batch of evaluation takes {size}",
                "use a smaller evaluation batch; the training batch does not matter"),
    "C17": Row("the longest batch", ("EV-2", "EV-6"), "this batch takes {size} more than the typical one",
               "use a smaller micro-batch, cap the length, and try the longest batch first"),
    "C18": Row("autotuning", ("EV-6",), "trying out kernels asked for {size}",
               "switch autotuning off, or give it a smaller workspace"),
    "C19": Row("key-value cache in training", ("EV-1", "EV-6"),
               "a key-value cache, useless in training, grew by {size}",
               "switch the cache off"),
    "C20": Row("checkpointing without effect", ("EV-1", "EV-6"), "checkpointing recomputes {size} at once",
               "checkpoint smaller blocks"),
    "C21": Row("the step itself", ("EV-6",), "the tensors of this step take {size}",
               f"{_STEP}: a smaller micro-batch with accumulation, or checkpointing"),
    "C22": Row("the step itself, at micro-batch 1", ("EV-1", "EV-6"),
               "the tensors of this step take {size} at micro-batch 1 with checkpointing on",
               "shorten the sequence, or use a smaller type or offloading"),
    "C24": Row("other ranks on this device", ("EV-5",), "other ranks held {size} on this rank's device",
               "give each rank its device, and load with map_location"),
}  # fmt: skip

ORDER = tuple(ROWS)
# Nothing that a trial may change touches these: no trial is spent on them.
REFUSES = ("C25", "C0", "C2", "C9", "C10", "C12b", "C16a", "C16b", "C24")
# Memory that NVML measured in other hands: the unchanged configuration is tried, and nothing else. What a fresh process
# may cure (C5, C26, C1) is not among them: the control is the first trial of every campaign and ends it where it
# passes, and where it fails as before that was not the cause.
CONTROL_ONLY = ("C4", "C6")
# What is left when nothing else explains the failure.
REST = ("C21", "C22")
