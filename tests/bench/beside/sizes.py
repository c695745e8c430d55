"""The batch of each failed run; apart from the workloads, because these need torch."""

FAILING = {"first": 48, "late": 24, "evaluation": 12, "leak": 8}
