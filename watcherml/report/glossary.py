"""What every word on a report means, in one sentence each: for titles, for the guide, for a screen reader.

``GLOSSARY`` is grouped by topic; a word may stand under two topics with two meanings (``interrupted``).
"""

from __future__ import annotations

from collections.abc import Mapping

_TERMS = {
    "source run": "The recorded run that failed; its configuration is what a recovery starts from.",
    "capsule": "The sealed evidence of one failure: what was asked for, what was there, and where it happened.",
    "evidence": "One of eleven pieces of what was known at the failure; a missing piece is listed with its reason.",
    "diagnosis": "Which causes would explain the failure, tested by asking whether it would have fit without each.",
    "shortfall": "How many bytes were missing for the request that failed.",
    "capability": "A setting in the configuration that this tool knows how to change.",
    "intervention": "One bounded change of a capability.",
    "proposal": "A suggested change that has not run yet.",
    "authorization": "One person's approval of exactly one proposal, with a reason.",
    "contract": "What counts as success and what may be spent, sealed before any trial runs.",
    "campaign": "All trials run under one contract, and the verdict they lead to.",
    "trial": "One run of the training function in a fresh process with one configuration.",
    "ranking": "The order in which candidates are confirmed; it claims nothing.",
    "verdict": "The outcome of a campaign; nothing else in a report can say verified.",
    "predicted peak": "Estimated peak memory before any trial; it orders candidates and is never evidence.",
    "effective batch": "How many samples stand behind one optimizer step.",
    "budget": "The memory that may be used: a device's total, or the declared limit of a simulated device.",
    "digest": "A SHA-256 over the exact content; two records with the same digest are the same record.",
}

_FAILURE_CLASSES = {
    "cuda_out_of_memory": "The GPU could not give the memory that was asked for.",
    "simulated_out_of_memory": "The simulated device's declared budget was exceeded; no GPU was involved.",
    "nan_or_exploding_loss": "The loss became NaN or grew without bound.",
    "tensor_shape_mismatch": "Two tensors did not have the shapes that an operation needs.",
    "missing_file_or_dataset_path": "A file or folder that was needed is not there.",
    "dataloader_worker_failure": "A data loading worker process failed.",
    "device_mismatch": "Tensors of one operation were on different devices.",
    "dependency_or_cuda_compatibility": "An installed package, driver or CUDA version does not fit the others.",
    "unclassified": "No rule matched; the evidence is kept.",
}

_EVIDENCE = {
    "EV-1": "The configuration the failed run was given.",
    "EV-2": "The last step, batch and progress that were seen.",
    "EV-3": "The process at the time of the failure: command, memory, limits.",
    "EV-4": "Processor, memory and GPU readings taken while the run was going.",
    "EV-5": "The GPU, its driver and its memory.",
    "EV-6": "PyTorch, CUDA and the memory allocator's own counters.",
    "EV-7": "The commit, the branch and what was changed since.",
    "EV-8": "Python and the installed packages.",
    "EV-9": "What the data set was, by its content.",
    "EV-10": "The last metric values and their steps.",
    "EV-11": "The notebook cells that ran, in order.",
}

_DIAGNOSIS = {
    "diagnosed": "Exactly one cause is large enough to explain the failure alone.",
    "ambiguous": "Several causes are each large enough; the evidence does not decide between them.",
    "capacity_bound": "No waste was found: the workload itself needs more than the device has.",
    "insufficient_evidence": "Too little was measured to name a cause.",
    "sufficient": "Without this the request would have fit.",
    "contributing": "This takes a good part of what was missing, but not all of it.",
    "excluded": "This was measured and is too small to explain the failure.",
    "unknown": "This was not measured, so it is neither named nor ruled out.",
}

_RUN_STATUSES = {
    "running": "The process was alive when the store was last read.",
    "success": "The run ended by itself without an error.",
    "failed": "The run ended with an error.",
    "interrupted": "A person stopped the run, or its process or the next run came before finish().",
    "killed": "The process vanished without saying why.",
}

_LIFECYCLE = {
    "prepared": "The plan is sealed; nothing has run yet.",
    "running": "Trials are going on.",
    "interrupted": "The supervising process is gone; the campaign can be resumed.",
    "ended": "The campaign is over and has a verdict.",
}

_VERDICTS = {
    "verified": "Every confirmation run passed every check of the contract.",
    "not_recovered": "The campaign ran within its limits and nothing passed the contract.",
    "stopped": "A limit, a person or a safety rule ended the campaign before it was settled.",
    "integration_error": "The tool itself failed; nothing is claimed.",
}

_REASONS = {
    "verified_recovery": "All confirmations passed all checks.",
    "source_failure_not_reproduced": "The unchanged configuration did not fail again: nothing can count as a repair.",
    "control_inconclusive": "The control trial was cut short before it could fail or pass.",
    "no_supported_intervention": "No control was found that could help, or none can against the diagnosed cause.",
    "supervisor_lost": "The supervising process is gone; the campaign can be resumed.",
    "stopped_by_user": "A person stopped the campaign.",
    "campaign_timeout": "The campaign's time was used up.",
    "gpu_seconds_exhausted": "The campaign's GPU time was used up.",
    "integration_error": "The tool itself failed; nothing is claimed.",
    "control_missing": "The contract asks for a control trial, and none was run.",
    "workload_changed": "Code, data or packages changed while the campaign ran, so its trials cannot be compared.",
    "workload_differs": "A trial ran other code, data, packages or model, or elsewhere: restore them or prepare anew.",
    "control_failed_differently": "The unchanged configuration failed, but not the way the source run did.",
    "broken_chain": "The parts on record do not belong together, so nothing is claimed.",
    "confirmation_failed": "A candidate passed its full trial, and a confirmation of it did not.",
    "confirmations_incomplete": "A candidate passed its full trial, and was not confirmed often enough.",
    "no_eligible_candidate": "No full trial kept the contract.",
    "no_full_trial": "A candidate passed its probe, and no full trial of it came to its end.",
    "no_candidate_passed_probe": "Every probe failed.",
    "horizon_not_reached": "The run was too short to show memory that piles up over the steps, so it is void.",
    "no_candidate_tried": "No candidate was run, or none to its end.",
    "needs_approval": "Every change that was found needs a permission or a person's approval, and none was given.",
}

_ROLES = {
    "control": "The unchanged configuration in a fresh process; it has to fail the way the source run did.",
    "probe": "A short run that rejects candidates cheaply; passing it proves nothing yet.",
    "full": "A run of normal length; passing it makes a candidate, not a recovery.",
    "confirmation": "A fresh full run of the chosen candidate; only these can verify a recovery.",
}

_OUTCOMES = {
    "running": "The trial is going on.",
    "completed": "Training returned and its metrics are usable.",
    "oom": "Training ran out of memory.",
    "training_failed": "Training raised an error other than running out of memory.",
    "contract_error": "Training returned something other than the metrics that were agreed.",
    "timeout": "The trial's time was used up.",
    "killed": "The trial's process was ended by a signal.",
    "exited": "The trial's process left without a report.",
    "host_oom": "The machine, not the device, ran out of memory.",
    "lost": "The trial has no supervisor and no report any more.",
}

_WORDS = {
    "pass": "Observed as required.",
    "fail": "Observed, and not as required.",
    "missing": "Not observed, which never counts as passed.",
    "automatic": "May run inside the declared budget without asking.",
    "approval_required": "Runs only after a person approves exactly this proposal.",
    "low": "Little can go wrong beyond a failed trial.",
    "medium": "Results may shift; read the cautions.",
    "high": "Quality or speed may change much; read the cautions.",
    "preserved": "The same number of samples stands behind each optimizer step as before.",
    "changed": "The number of samples behind each optimizer step differs from the source run.",
    "untouched": "The change does not concern the batch.",
}

_DEVICES = {
    "cuda": "An NVIDIA GPU.",
    "simulated": "A CPU with a declared memory limit; nothing measured on it says anything about a GPU.",
    "none": "Only the text of the failure is known.",
}

_CAPABILITIES = {
    "micro_batch_size": "Samples in memory at once; fewer need less activation memory.",
    "gradient_accumulation_steps": "Small batches summed before one optimizer step; keeps the effective batch.",
    "gradient_checkpointing": "Recompute activations in the backward pass instead of keeping them.",
    "sequence_length": "Tokens in one sample; shorter needs less, and changes what is learned.",
    "precision": "Number format of the computation; 16 bits need less than 32.",
    "attention_backend": "The attention kernel; some never store the whole score matrix.",
    "memory_efficient_attention": "An attention kernel that keeps fewer intermediate values.",
    "activation_offload": "Keep activations in host memory; costs transfers.",
    "optimizer_state_offload": "Keep the optimizer's state in host memory; costs transfers.",
    "parameter_offload": "Keep parameters in host memory until they are needed; slow.",
    "optimizer_bits": "Bits for the optimizer's state; fewer may change the result.",
    "model_cache": "A cache meant for generation; training does not need it.",
    "allocator_configuration": "How PyTorch's allocator splits memory; helps only against fragmentation.",
}

_STEP_SOURCES = {
    "marks": "Counted by watcherml.step().",
    "optimizer": "Counted from the optimizer's own calls.",
    "claimed": "Only the training function's returned metric says so.",
    "none": "No step was seen.",
}

_STANDINGS = {
    "on_record": "This store made the trials and computed the verdict from them again.",
    "unrecorded": "The document agrees with itself, but this store never made it.",
    "imported": "Another store made this verdict; this one only keeps a copy.",
    "claimed_by_0.1": "Version 0.1 wrote this verdict; its trials cannot be checked again here.",
}

GLOSSARY: Mapping[str, Mapping[str, str]] = {
    "term": _TERMS,
    "failure_class": _FAILURE_CLASSES,
    "evidence": _EVIDENCE,
    "diagnosis": _DIAGNOSIS,
    "run_status": _RUN_STATUSES,
    "lifecycle": _LIFECYCLE,
    "verdict": _VERDICTS,
    "reason": _REASONS,
    "role": _ROLES,
    "outcome": _OUTCOMES,
    "word": _WORDS,
    "device": _DEVICES,
    "capability": _CAPABILITIES,
    "step_source": _STEP_SOURCES,
    "standing": _STANDINGS,
}

_LABELS = {
    "cuda_out_of_memory": "CUDA out of memory",
    "simulated_out_of_memory": "simulated out of memory",
    "nan_or_exploding_loss": "NaN or exploding loss",
    "dependency_or_cuda_compatibility": "dependency or CUDA compatibility",
    "oom": "out of memory",
    "host_oom": "host out of memory",
    "full": "full trial",
    "approval_required": "needs approval",
    "gpu_seconds_exhausted": "GPU seconds used up",
    "cuda": "CUDA",
    "simulated": "simulated device",
    "none": "no device",
}


def meaning(topic: str, word: str) -> str:
    """Return the one-sentence meaning of a word under a topic of ``GLOSSARY``, or an empty string."""
    return GLOSSARY.get(topic, {}).get(word, "")


def label(word: str) -> str:
    """Return a code as words: ``approval_required`` -> ``needs approval``. Unknown codes lose their underscores."""
    return _LABELS.get(word, word.replace("_", " "))
