"""How often to try on one tier, and when to stop; one module per choice.

A retry is asked by a router, with the tier that the router chose: `next(trace, tier) -> Action`.
"""
