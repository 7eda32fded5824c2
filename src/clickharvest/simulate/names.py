"""What simulators can be asked for, by name. Listed apart from what the names mean, so that help needs no NumPy."""

EXAMINATION_NAMES = ("power", "fold", "bump", "plateau", "grid")
"""The true curves of `clickharvest.simulate.EXAMINATIONS`."""
CLICK_MODELS = ("pbm", "trust", "cascade")
REPETITIONS = ("even", "zipf")
DEPLOYMENTS = ("ab", "consecutive")
