"""Unitizers: one module per way of cutting a document into selectable units."""
