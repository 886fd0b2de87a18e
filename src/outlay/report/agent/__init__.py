"""Tables and figures of the agent side: retry curves, contamination, routing."""
