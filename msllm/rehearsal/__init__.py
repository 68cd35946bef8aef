"""Training steps compiled for simulated Ascend ranks, and their graphs run on CPU processes."""
