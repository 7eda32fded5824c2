"""How much traffic a wanted precision takes, and which swaps would give it for the least harm.

    interventions ──► plan_from_log ──► Plan          Outline ──► plan_from_design ──► DesignPlan

- `plan_from_log`: from a harvest, how many times as much traffic until each position has the wanted width.
- `Outline`, `plan_from_design`: from rankings, traffic and swaps, the widths to expect before anything is run.
- `choose_swaps`: which pairs of ranks to swap, at which share, for the least loss in clicks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
