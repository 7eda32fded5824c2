"""Charts and the report: what a model found, to look at and to pass on.

    propensities ──► plot_curves · plot_importance          Altair charts, for notebooks
    interventions ─► plot_overlap
    propensities + log ──► summarise_log ──► write_report   one HTML page that needs no network

The page leads with the budget of `clickharvest.checks`: how far off the curve can be. It draws its own charts and
computes curves for the contexts a reader chooses, by the formulas of `clickharvest.model.curves` written once more in
`assets/model.js`; the browser tests compare the two.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
