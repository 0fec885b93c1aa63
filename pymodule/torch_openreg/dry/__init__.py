"""Dry runs: what a program would do with a GPU's memory."""
