"""How fast devices talk to each other: what is measured, on which backend, and what the figures say."""
