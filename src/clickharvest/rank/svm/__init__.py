"""Propensity SVM-Rank: the hinge loss over pairs, its Newton solver, and the choice of C and clip."""
