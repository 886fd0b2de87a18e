"""Embedders: vectors of units and queries in one space; one module per choice."""
