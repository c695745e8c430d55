"""Running one trial: a fresh process under a guard. A trial does not know why it runs."""
