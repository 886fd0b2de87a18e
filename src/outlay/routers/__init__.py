"""Policies over tiers, one module each. A router is given the retry and the probe and becomes the run's policy."""
