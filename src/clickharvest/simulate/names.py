"""What simulators can be asked for, by name: apart from what the names mean, so that help needs no NumPy."""

CURVES = ("power", "fold", "bump", "plateau", "grid")
CLICK_MODELS = ("pbm", "trust", "cascade")
"""The click models; all but `pbm` violate what estimators take for granted."""
REPETITIONS = ("even", "zipf", "same")
DEPLOYMENTS = ("ab", "consecutive")
"""Whether rankers serve at the same time, or one after the other."""
