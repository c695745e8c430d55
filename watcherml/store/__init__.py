"""The SQLite store: kinds of rows, not their meanings. Clock and liveness come in as arguments."""
