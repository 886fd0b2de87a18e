"""How many tokens of a document may be sent; one module per choice.

`steps(document_tokens)` gives the budgets that a query may be answered with, smallest first; most choices have one.
"""
