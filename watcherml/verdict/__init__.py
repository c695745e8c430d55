"""Judging trials: pure functions of sealed values. Nothing here reads a file, a clock or a process."""
