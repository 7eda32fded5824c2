"""Families of runs: each measures one kind of log, for several experiments."""
