"""The wiring behind every public name."""
