"""The learners and their losses by name, in a module that imports nothing, so that a help page can list them."""

LEARNERS = {"linear": ".json", "svm": ".json", "lightgbm": ".txt", "xgboost": ".json"}
"""The learners, and how the names of their files end."""
LOSSES = {
    "linear": ("softmax", "poisson"),
    "svm": ("hinge",),
    "lightgbm": ("pairwise", "lambda", "softmax", "poisson"),
    "xgboost": ("pairwise", "lambda", "softmax", "poisson"),
}
"""What each learner can minimise, its default first."""
