"""The learners by name, in a module that imports nothing, so that a help page can list them."""

LEARNERS = {"svm": ".json", "lightgbm": ".txt", "xgboost": ".json"}
"""The learners, and how the names of their files end."""
