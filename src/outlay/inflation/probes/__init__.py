"""Measurements of a query before it is answered; one module per choice. `next(trace, tier)` is None when done."""
