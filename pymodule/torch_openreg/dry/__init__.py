"""Dry runs, which find out whether a job fits: all memory is allocated, but no large kernel runs.

`start` starts a dry run when PyTorch has been imported. `reads` records what the host reads of
values that were not computed, `host_memory` does so for methods of tensors. `checks` decides what
checks of such values say. `meta_functions` has those that PyTorch lacks. `objects` keeps Python
objects true that ranks exchange. `checkpoint` is a program that stands in for a checkpoint.
`report` works for any run.
"""
