"""Blocked operators and unsupported dtypes, and what `operators()` reports."""

import json

import pytest
import torch
from torch_openreg import _C

from device import DEVICE, module


def outcomes(python, statements, **environment):
    """Run each statement in its own process; return the type and message of its error."""
    code = f"""
        import json, torch
        from device import DEVICE
        said = {{}}
        for statement in {statements!r}:
            x = torch.ones(2, 2, device=DEVICE)
            try:
                exec(statement)
            except Exception as error:
                said[statement] = f"{{type(error).__name__}}: {{error}}"
            else:
                said[statement] = "nothing"
        print(json.dumps(said))
        """
    return json.loads(python(code, **environment).stdout)


BLOCKED = "aten::svd,aten::add.Tensor,aten::linear,aten::sort"


def test_a_blocked_operator_is_not_implemented(python):
    statements = {
        "x + x": "aten::add.Tensor",
        "x.requires_grad_() + 1": "aten::add.Tensor",
        "torch.vmap(torch.add)(x, x)": "aten::add.Tensor",
        "x.to_sparse() + x.to_sparse()": "aten::add.Tensor",
        "torch.svd(x)": "aten::svd",  # composite on every other device
        "torch.svd(x.requires_grad_())": "aten::svd",
        "torch.nn.functional.linear(x, x)": "aten::linear",
        "x.sort()": "aten::sort",
        "torch.sort(x, stable=True)": "aten::sort.stable",  # every overload
    }
    assert outcomes(python, list(statements), OPENREG_BLOCK_OPERATORS=BLOCKED) == {
        statement: f"NotImplementedError: openreg: '{operator}' is not implemented on this device: "
        "OPENREG_BLOCK_OPERATORS lists it"
        for statement, operator in statements.items()
    }


def test_other_operators_and_other_devices_still_work(python):
    statements = [
        "x.add_(x)",  # another operator
        "torch.add(x, x, out=x)",
        "torch.linalg.svd(x)",
        "x * x",
        "torch.ones(2) + torch.ones(2)",  # not on the device
        "torch.ones(2).sort()",
    ]
    assert outcomes(python, statements, OPENREG_BLOCK_OPERATORS=BLOCKED) == dict.fromkeys(
        statements, "nothing"
    )


def test_blocking_is_silent_at_import_and_warns_of_unknown_operators(python):
    assert python("import torch", OPENREG_BLOCK_OPERATORS=BLOCKED).stderr == ""
    warned = python("import torch", OPENREG_BLOCK_OPERATORS="aten::sdv,mine::later").stderr
    assert "OPENREG_BLOCK_OPERATORS: PyTorch has no operator 'aten::sdv'" in warned
    assert "mine::later" not in warned


def test_an_operator_that_is_registered_later_can_be_blocked(python):
    said = python(
        """
        import torch
        from device import DEVICE
        @torch.library.custom_op("mine::later", mutates_args=())
        def later(x: torch.Tensor) -> torch.Tensor:
            return x.clone()
        x = torch.ones(2, device=DEVICE)
        try:
            later(x)
        except NotImplementedError as error:
            print(error)
        print(later(x.cpu()).sum().item())
        """,
        OPENREG_BLOCK_OPERATORS="mine::later",
    ).stdout
    assert said.splitlines() == [
        "openreg: 'mine::later' is not implemented on this device: "
        "OPENREG_BLOCK_OPERATORS lists it",
        "2.0",
    ]


def test_an_unsupported_dtype_is_a_type_error(python):
    statements = {
        "torch.zeros(2, dtype=torch.float64, device=DEVICE)": ("aten::empty", "float64"),
        "x.double()": ("aten::empty_strided", "float64"),
        "torch.ones(2, dtype=torch.float64).to(DEVICE)": ("aten::empty_strided", "float64"),
        "torch.nn.Linear(2, 2).double().to(DEVICE)": ("aten::empty_strided", "float64"),
        "x.sum(dtype=torch.float64)": ("aten::sum", "float64"),
        "torch.fft.fft(x)": ("aten::_fft_r2c", "complex64"),
        "str(x)": ("aten::empty_strided", "float64"),  # PyTorch formats in float64
        "x.view(torch.float64)": ("aten::view", "float64"),
        "torch.view_as_complex(x)": ("aten::view", "complex64"),
        "torch.bucketize(x, x[0])": ("aten::bucketize", "int64"),
    }
    unsupported = "float64,complex64,int64"
    assert outcomes(python, list(statements), OPENREG_UNSUPPORTED_DTYPES=unsupported) == {
        statement: f"TypeError: openreg: '{who}' needs a tensor of dtype {dtype}, which this "
        "device does not support: OPENREG_UNSUPPORTED_DTYPES lists it"
        for statement, (who, dtype) in statements.items()
    }


def test_other_dtypes_and_other_devices_still_work(python):
    statements = [
        "x.sum() * 2.5",
        "torch.ones(2, dtype=torch.float64).sum()",
        "x.half() + x.bfloat16()",
        "torch.nn.Linear(2, 2).to(DEVICE)(x).sum().backward()",
        "x.sum().item()",
        "str(x.cpu())",
    ]
    assert outcomes(python, statements, OPENREG_UNSUPPORTED_DTYPES="float64,complex64") == (
        dict.fromkeys(statements, "nothing")
    )


def operators():
    """Call `torch.openreg.operators`. torch.cuda has no such function."""
    return _C.operators() if DEVICE == "cuda" else module.operators()


def test_operators_reports_how_each_is_implemented():
    served = operators()
    expected = {
        "aten::empty.memory_format": "native",
        "aten::uniform_": "native",
        "aten::add.Tensor": "typed",
        "aten::relu": "typed",
        "aten::svd": "composite",
        "aten::matmul": "composite",
        "aten::_linalg_eigh": "boxed",
        "aten::cudnn_convolution": "refused",
    }
    assert {name: served.get(name) for name in expected} == expected
    assert set(served.values()) == {"native", "typed", "boxed", "composite", "refused"}


def test_operators_reports_blocked_operators(python):
    said = python(
        """
        from torch_openreg import _C
        served = _C.operators()
        print(served["aten::svd"], served["aten::add.Tensor"], served["aten::add.out"])
        """,
        OPENREG_BLOCK_OPERATORS=BLOCKED,
    ).stdout
    assert said == "refused refused typed\n"


def test_operators_reported_as_refused_raise():
    """Call each refused operator that takes only plain tensors with a device tensor."""
    x = torch.ones(2, device=DEVICE)
    refused = [name for name, how in operators().items() if how == "refused"]
    called = 0
    for name in refused:
        library, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        function = getattr(getattr(torch.ops, library), operator)
        function = getattr(function, overload or "default")
        arguments = function._schema.arguments
        if len(arguments) >= 1 and all(
            str(each.type) == "Tensor" or each.has_default_value() for each in arguments
        ):
            with pytest.raises(NotImplementedError):
                function(
                    *[
                        x
                        for each in arguments
                        if not each.kwarg_only and str(each.type) == "Tensor"
                    ],
                    **{
                        each.name: x
                        for each in arguments
                        if each.kwarg_only and not each.has_default_value()
                    },
                )
            called += 1
    assert called > 10
