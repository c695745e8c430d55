"""The command line: ``main`` finds the command, a module in ``commands`` does it, ``console`` talks."""
