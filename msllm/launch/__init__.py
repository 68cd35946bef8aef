"""Starts the ranks of a job on one server or many, watches them, and ends them together. Imports no MindSpore."""
