"""What simulators can be asked for, by name: apart from what the names mean, so that help needs no NumPy."""

CURVES = ("power", "fold", "bump", "plateau", "grid")
BROWSING_MODELS = ("cascade", "ubm", "dcm", "dbn")
"""The click models in which examination depends on the clicks above."""
USER_KINDS = ("pbm", "trust", *BROWSING_MODELS)
"""The click models; all but `pbm` violate what a curve of positions takes for granted."""
REPETITIONS = ("even", "zipf", "same")
DEPLOYMENTS = ("ab", "consecutive")
"""Whether rankers serve at the same time, or one after the other."""
