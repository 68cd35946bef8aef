"""The only code that touches the parallel context and communication groups."""
