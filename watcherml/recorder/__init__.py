"""Recording a run: config, metrics, code, environment, resources. Never harms training."""
