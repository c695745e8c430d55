"""The values that pass between planning, trials, verdict and campaign. No effects."""
