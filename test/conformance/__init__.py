"""Compare devices with the CPU, over PyTorch's own databases of operators, modules and optimizers.

``torch.testing._internal`` describes every operator, module and optimizer of PyTorch with sample
inputs and expected errors. This package runs each description twice, once on the CPU and once on a
device, and compares all that can be seen: shapes, dtypes, strides, devices, values to the last bit,
gradients, aliases, what was written to and what was raised.

``python -m conformance`` from the folder above; ``--help`` tells the rest.
"""
