"""Which key is the micro-batch, and which the whole batch of an update. Rows as in configs_hf."""

DEEPSPEED = {
    "train_batch_size": 32, "gradient_accumulation_steps": 4, "gradient_clipping": 1.0,
    "optimizer": {"type": "Adam", "params": {"lr": 1.5e-4}},
}  # fmt: skip
NEMO = {
    "trainer": {"devices": 1, "precision": "bf16", "accumulate_grad_batches": 1},
    "model": {"micro_batch_size": 4, "global_batch_size": 8, "seq_length": 512},
}
OPENRLHF = {
    "train_batch_size": 128, "micro_train_batch_size": 4, "rollout_batch_size": 1024, "micro_rollout_batch_size": 16,
}  # fmt: skip
VERL_WHOLE = {
    "data": {"train_batch_size": 1024, "max_prompt_length": 512},
    "actor_rollout_ref": {
        "model": {"enable_gradient_checkpointing": False},
        "actor": {"ppo_mini_batch_size": 256, "ppo_micro_batch_size": None, "ppo_micro_batch_size_per_gpu": 8},
        "rollout": {"log_prob_micro_batch_size_per_gpu": 16, "dtype": "bfloat16"},
    },
}
ACCUMULATION = {"gradient_accumulation_steps": ("gradient_accumulation_steps", 4, 8)}
RULES = "sets the effective batch"
OTHER = "Only a section about another use"


def other_use(section, **more):
    """Only a section about something else holds an alias; the training's own key has an unknown name."""
    config = {"train": {"samples": 32}, section: {"batch_size": 64}, "gradient_accumulation_steps": 4, **more}
    return (f"only {section}", config, ACCUMULATION, {"micro_batch_size": OTHER})


ROWS = [
    ("deepspeed without a key of its own", DEEPSPEED, ACCUMULATION,
     {"micro_batch_size": 'train_batch_size stands beside gradient_accumulation_steps'}),
    ("deepspeed under its name", {"deepspeed": {"train_batch_size": 32}, "gradient_accumulation_steps": 4},
     ACCUMULATION, {"micro_batch_size": "DeepSpeed's effective batch"}),
    ("train_batch_size with accumulation elsewhere",
     {"data": {"train_batch_size": 8}, "trainer": {"accumulate_grad_batches": 4}},
     {"micro_batch_size": ("data/train_batch_size", 8, 4),
      "gradient_accumulation_steps": ("trainer/accumulate_grad_batches", 4, 8)}, {}),
    ("train_batch_size beside an accumulation that is empty", {"train_batch_size": 8, "accum_iter": None}, {},
     {"micro_batch_size": '{"micro_batch_size": {"path": ["train_batch_size"]}}',
      "gradient_accumulation_steps": "holds None"}),
    ("an unclear train_batch_size beside another candidate", {**DEEPSPEED, "train": {"batch_size": 8}}, ACCUMULATION,
     {"micro_batch_size": "2 keys could be meant: train.batch_size, train_batch_size"}),
    ("nemo", NEMO,
     {"micro_batch_size": ("model/micro_batch_size", 4, 2), "sequence_length": ("model/seq_length", 512, 256),
      "precision": ("trainer/precision", "bf16", "fp32")},
     {"gradient_accumulation_steps": f"model.global_batch_size {RULES}"}),
    *(
        (f"accumulation beside {key}", {"micro_batch_size": 4, "gradient_accumulation_steps": 8, "x": {key: value}},
         {"micro_batch_size": ("micro_batch_size", 4, 2)}, {"gradient_accumulation_steps": RULES})
        for key, value in (
            ("global_batch_size", 32), ("total_batch_size", "32"), ("effective_batch_size", 32.0),
            ("train_global_batch_size", 32), ("train_batch_size_total", 32), ("total-train-batch-size", 32),
            ("globalBatchSize", 32), ("effective_bs", 32), ("global_batch", 32), ("GLOBAL_BATCH_SIZE", "${data.b}"),
        )
    ),
    *(
        (f"accumulation beside {section}.{key}: {value}, which sets nothing",
         {"batch_size": 4, "gradient_accumulation_steps": 4, section: {key: value}},
         {"micro_batch_size": ("batch_size", 4, 2), **ACCUMULATION}, {})
        for section, key, value in (
            ("x", "global_batch_size", None), ("x", "global_batch_size", -1), ("x", "total_batch_size", "auto"),
            ("eval", "global_batch_size", 64), ("x", "global_eval_batch_size", 64), ("x", "total_batches", 100),
            ("model", "global_batch_norm", True), ("auto_scale_lr", "base_batch_size", 16), ("x", "mini_batch_size", 0),
            ("x", "num_mini_batches", 4), ("rollout", "micro_batch_size_per_gpu", 4), ("x", "minimum_batch_size", 4),
        )
    ),
    ("a list of stages that sets the effective batch",
     {"batch_size": 4, "accum_iter": 2, "stages": [{"global_batch_size": 8}]},
     {"micro_batch_size": ("batch_size", 4, 2)}, {"gradient_accumulation_steps": RULES}),
    ("trl ppo", {"batch_size": 128, "mini_batch_size": 16, "gradient_accumulation_steps": 4, "ppo_epochs": 4},
     ACCUMULATION, {"micro_batch_size": '2 keys could be meant: mini_batch_size, batch_size'}),
    ("guided diffusion", {"batch_size": 128, "microbatch": 4, "use_fp16": False},
     {"precision": ("use_fp16", "fp32", True)}, {"micro_batch_size": "2 keys could be meant: batch_size, microbatch"}),
    ("a microbatch alone", {"microbatch": 4}, {"micro_batch_size": ("microbatch", 4, 2)}, {}),
    ("openrlhf", OPENRLHF, {"micro_batch_size": ("micro_train_batch_size", 4, 2)}, {}),
    ("openrlhf without its micro-batch", {"train_batch_size": 128, "rollout_batch_size": 1024}, {},
     {"micro_batch_size": "train_batch_size stands beside rollout_batch_size"}),
    ("verl as it is", VERL_WHOLE,
     {"gradient_checkpointing": ("actor_rollout_ref/model/enable_gradient_checkpointing", False, True)},
     {"micro_batch_size": '["actor_rollout_ref", "actor", "ppo_micro_batch_size_per_gpu"]', "precision": OTHER}),
    ("verl's data alone", {"data": VERL_WHOLE["data"]}, {},
     {"micro_batch_size": "data.train_batch_size stands beside max_prompt_length"}),
    ("an unknown name of a micro-batch alone", {"mini_batch_size": 16}, {},
     {"micro_batch_size": 'could be it. If so, declare {"micro_batch_size": {"path": ["mini_batch_size"]}}'}),
    *(
        other_use(section)
        for section in (
            "dev", "sampling", "sample", "sampler", "tokenize", "tokenization", "tokenizer", "preprocess",
            "preprocessing", "data_preprocessing", "rollout", "rollouts", "generate", "evals", "eval_loop",
            "evaluators", "export", "logging", "build_cache", "precompute", "calibration", "decoding", "valid_loader",
            "testset", "fid",
        )
    ),
    ("the batch of a batch sampler trains", {"batch_sampler": {"batch_size": 32}},
     {"micro_batch_size": ("batch_sampler/batch_size", 32, 16)}, {}),
    ("the length of a tokenizer is the training's", {"tokenizer": {"max_seq_len": 512, "dtype": "float32"}},
     {"sequence_length": ("tokenizer/max_seq_len", 512, 256)}, {"precision": OTHER}),
    ("a cache of data", {"data": {"use_cache": True}, "train_dataset": {"use_cache": False}}, {},
     {"model_cache": OTHER}),
    ("a cache of the model in a section", {"model": {"kv_cache": {"enabled": True}}},
     {"model_cache": ("model/kv_cache/enabled", True, False)}, {}),
]  # fmt: skip
