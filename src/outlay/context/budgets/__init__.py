"""How many tokens of a document may be sent; one module per choice. `limit(document_tokens) -> tokens`."""
