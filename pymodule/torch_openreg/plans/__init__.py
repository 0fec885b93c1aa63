"""Memory plans: what an operator allocates on CUDA.

A plan says for one signature which tensors CUDA returns, and which blocks of device memory the
call takes and frees, in order. Plans have two sources: the planner, which is a process in which
PyTorch's CUDA build runs without a GPU, and built-in plans.

- ``ask.py``: `plan` and `report`, for this process.
- ``launches.py``: gives the launches of this process their plans.
- ``signature.py``: describes a call.
- ``client.py``: asks the planner.
- ``sharing.py``: starts the planner, or connects to the one of the device group.
- ``planner.py``: the planner's program. ``server.py`` is its connections to several processes.
- ``builtin/``: the built-in plans.
- ``builds.py``: finds or installs the CUDA build.
- ``dtypes.py``: bytes of an element.
- ``text.py``: signatures and plans as text.

Only ``ask.py``, ``launches.py`` and ``signature.py`` import PyTorch.
"""
