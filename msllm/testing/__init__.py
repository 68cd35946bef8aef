"""Library code for tests, ours and users': small datasets, functions and commands on several ranks."""
