"""What AllPairs can be asked for, by name: apart from what the names mean, so that help needs no NumPy."""

WEIGHTINGS = ("paper", "min", "harmonic")
"""The weights ω of a unit and pair."""
RELEVANCE = {
    "constant": "a value for every pair of positions",
    "mlp": "a network of the context",
    "squares": "a sigmoid layer of the context and its squares",
    "free": "a value for every query, context and pair of positions",
}
"""The relevance models, in words; `AllPairs.alternatives` makes them."""
