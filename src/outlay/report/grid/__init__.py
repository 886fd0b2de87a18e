"""Figures and tables of a grid over unitizer, selector and budget: what each of the three buys.

Every figure is drawn from rows that are written beside it as CSV. An interval resamples whole documents, since several
questions on one document stand or fall together.
"""
