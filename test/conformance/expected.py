"""The subjects that need not match the CPU, by name and with the reason.

``rules`` lessen what a comparison asks of an operator. ``EXPECTED`` lists the differences that
cannot be otherwise: such a case is counted as expected, not as failed, and an entry whose
difference no longer shows up is reported as stale, which is a failure too.
"""

import fnmatch
import re
from dataclasses import dataclass

from .comparison import Rules
from .inputs import DEVICE

# No device writes the memory of these results.
_UNINITIALISED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
)

_BY_DEVICE_TYPE = "PyTorch picks another algorithm for a tensor that is not on the CPU: "

_KERNELS = "CUDA's choice among the kernels of attention"

_CLOSE = {
    "linalg.lstsq": "LAPACK's gelsy adds up in an order that depends on where its memory lies; "
    "the CPU itself does not repeat the last bits",
    "nn.functional.linear_cross_entropy": _BY_DEVICE_TYPE + "chunks and the dtype of sums",
    "nn.LinearCrossEntropyLoss": _BY_DEVICE_TYPE + "chunks and the dtype of sums",
    "nn.RNN": _BY_DEVICE_TYPE + "the input's products are taken for all steps at once",
    "nn.GRU": _BY_DEVICE_TYPE + "a fused cell",
    "nn.GRUCell": _BY_DEVICE_TYPE + "a fused cell",
    "nn.LSTM": _BY_DEVICE_TYPE + "a fused cell",
    "nn.LSTMCell": _BY_DEVICE_TYPE + "a fused cell",
    "nn.functional.scaled_dot_product_attention": _BY_DEVICE_TYPE + _KERNELS,
    "nn.MultiheadAttention": _BY_DEVICE_TYPE + _KERNELS,
    "nn.Transformer": _BY_DEVICE_TYPE + _KERNELS,
    "nn.TransformerDecoderLayer": _BY_DEVICE_TYPE + _KERNELS,
    "nn.TransformerEncoder": _BY_DEVICE_TYPE + _KERNELS,
    "nn.TransformerEncoderLayer": _BY_DEVICE_TYPE + _KERNELS,
    "nn.functional.multi_head_attention_forward": _BY_DEVICE_TYPE + _KERNELS,
    "nn.functional.rms_norm": _BY_DEVICE_TYPE + "one kernel, which rounds once",
    "nn.RMSNorm": _BY_DEVICE_TYPE + "one kernel, which rounds once",
}
if DEVICE.type == "cuda":
    _CLOSE |= dict.fromkeys(
        ("linalg.cond", "linalg.svd", "linalg.svdvals", "svd"),
        "products of gradients read cuSOLVER's layout, in another order than LAPACK's",
    )

# Arguments that are CPU tensors on CUDA too. They are not moved.
HOST_ARGUMENTS = frozenset({"tensor_split"})


def rules(operator):
    """Return the rules for an operator, by its name in the database without the variant."""
    values = "equal"
    if operator in _UNINITIALISED:
        values = "any"
    elif operator in _CLOSE:
        values = "close"
    return Rules(values)


@dataclass(frozen=True)
class Expected:
    """A difference that is impossible to avoid, or that CUDA has as well.

    ``subject`` and ``check`` are patterns as in a shell; ``difference`` is searched for in the
    words for the case and for the difference. ``dtypes`` narrows it further.
    """

    subject: str
    check: str
    difference: str
    reason: str
    dtypes: tuple[str, ...] = ()

    def covers(self, task):
        """Return whether an entry applies to a task or to a row."""
        return (
            fnmatch.fnmatchcase(task.check, self.check)
            and fnmatch.fnmatchcase(task.subject, self.subject)
            and (not self.dtypes or task.dtype in self.dtypes)
        )

    def matches(self, task, label, difference):
        said = f"{label}: {difference}"
        return self.covers(task) and re.search(self.difference, said) is not None


_WIDE_STATISTICS = (
    "statistics are float32, as CUDA's, and results are rounded once; the CPU rounds them, too "
    "(operators/test_half_norms.py compares with float32)"
)

# Patterns of names; others of these operators show no difference in the database's samples.
_IN_FLOAT32 = (
    "*grid_sample*",
    "_foreach_mm",
    "addbmm",
    "addm[mv]",
    "erf",
    "logit",
    "nn.functional.adaptive_avg_pool3d",
    "nn.Conv*",
    "nn.functional.avg_pool*",
    "nn.functional.binary_cross_entropy",
    "nn.functional.conv*",
    "nn.functional.interpolate.*",
    "prod",
    "special.entr",
    "special.i0e",
)

# Which of several equal elements is chosen.
_OF_EQUALS = ("argsort", "kthvalue", "mode", "msort", "sort", "topk")

_WIDER = r"values differ|on the CPU, torch\.float32 on the device|'bytes of memory'"

EXPECTED = (
    *(
        Expected(
            subject,
            "*",
            "values differ",
            "of equal elements CUDA chooses others than the CPU "
            "(operators/test_recorded_results.py compares with a GPU)",
        )
        for subject in _OF_EQUALS
    ),
    Expected(
        "median",
        "*gradients",
        r"0\.0 on the CPU, -0\.0 on the device",
        _BY_DEVICE_TYPE + "a mask is multiplied by the gradient",
    ),
    *(
        Expected(
            subject,
            "*",
            r"strides .* on the CPU",
            "the result is contiguous, as CUDA's; the CPU's has the layout of the argument",
        )
        for subject in ("nn.functional.channel_shuffle", "nn.functional.pixel_*shuffle")
    ),
    *(
        Expected(
            subject,
            "*",
            "values differ",
            "half precision is computed in float32 and rounded once, as on CUDA; the CPU rounds in "
            "between (operators/test_half_precision.py compares with float64)",
            dtypes=("bfloat16", "float16", "complex32"),
        )
        for subject in _IN_FLOAT32
    ),
    Expected(
        "*layer_norm",
        "*",
        _WIDER,
        _WIDE_STATISTICS,
        dtypes=("bfloat16", "float16"),
    ),
    Expected(
        "*batch_norm*",
        "*",
        _WIDER,
        _WIDE_STATISTICS,
        dtypes=("bfloat16", "float16"),
    ),
    Expected(
        "*native_batch_norm*",
        "*",
        r"shape \((\d+, )?0,?\) on the CPU|'bytes of memory'\]: 0 on the CPU",
        "in evaluation CUDA returns the statistics that it used, and the CPU returns none",
    ),
    Expected(
        "*instance_norm",
        "*",
        _WIDER,
        _WIDE_STATISTICS,
        dtypes=("bfloat16", "float16"),
    ),
    Expected(
        "*",
        "*",
        r"the CPU raises NotImplementedError: .\w+. not implemented for .*the device no error",
        "CUDA has dtypes that the CPU has not, and so have the devices: operators/"
        "test_dtypes_of_cuda.py says which",
    ),
    Expected(
        "_foreach_mm",
        "*",
        "the device NotImplementedError: .addmm_",
        "CUDA has no products of matrices of integers, and refuses them in these words",
        dtypes=("int16", "int32", "int64", "int8", "uint8"),
    ),
    Expected(
        "nn.functional.embedding*",
        "*gradients",
        "values differ",
        "the gradients of a row are added up in float32 and rounded once, as CUDA's; the CPU "
        "rounds after each addition (operators/test_embedding_gradients.py has the comparison)",
        dtypes=("bfloat16", "float16"),
    ),
    Expected(
        "masked.mean",
        "*",
        "the device NotImplementedError: .*scatter_gather_base_kernel_func",
        "means of sparse tensors are scatter_reduce, which CUDA refuses for complex numbers",
        dtypes=("complex64", "complex128"),
    ),
    Expected(
        "nn.functional.max_unpool2d*",
        "*",
        r"strides .* on the CPU",
        "the result is contiguous, as CUDA's; the CPU's has the layout of the argument",
    ),
    Expected(
        "nn.functional.logsigmoid",
        "layouts",
        r"strides .* on the CPU",
        "the result has the layout of the argument, as CUDA's; the CPU's is contiguous",
    ),
    Expected(
        "nn.functional.rms_norm",
        "*",
        r"strides \(1, 0\) on the CPU, \(1, 1\) on the device",
        "an empty result has CUDA's strides",
    ),
    Expected(
        "nn.functional.scaled_dot_product_attention",
        "*",
        r"strides \(.*\) on the CPU, \(.*\) on the device",
        "results have CUDA's layouts (plans/test_attention_plans.py asks CUDA's build)",
    ),
    Expected(
        "nn.functional.scaled_dot_product_attention",
        "*_gradients",
        "_flash_attention_for_cpu_backward is not implemented; the device no error",
        "CUDA computes float64 by math, which has second derivatives",
        dtypes=("float64",),
    ),
    Expected(
        "nn.Transformer*",
        "module_gradients",
        r"Greatest absolute difference: [\d.]+e-05",
        "heads of this size are computed by math, as on CUDA, and by the flash kernel on the CPU; "
        "norms of four numbers magnify the difference",
        dtypes=("float32",),
    ),
    Expected(
        "linalg.lstsq*",
        "out",
        "of a wider dtype.* not close",
        "the numbers have the precision of the narrower dtype, and its last bits are not repeated",
    ),
    Expected(
        "lu",
        "out",
        "expected a RuntimeError, found no error",
        "torch.lu is a function in Python that resizes and copies into out=, wherever it lies; it "
        "accepts a CPU tensor for a CUDA input as well",
    ),
    Expected(
        "nn.functional.dropout",
        "forward_gradients",
        "requires_grad True on the CPU, False on the device",
        "PyTorch's dropout is a product on the CPU and one operator on a device, whose tangent has "
        "no history",
    ),
    Expected(
        "nn.functional.*dropout*",
        "forward_gradients",
        r"p=1\.0.* -0\.0 on the CPU, 0\.0 on the device",
        "as above: a product with zero keeps a sign, which zeros do not have",
    ),
    Expected(
        "nn.functional.linear_cross_entropy*",
        "*",
        "not close",
        "16 bits are added up in 32 on the CPU and some GPUs, and in 16 elsewhere: a list by name "
        "in PyTorch",
        dtypes=("bfloat16", "float16"),
    ),
    Expected(
        "nn.LinearCrossEntropyLoss",
        "module_*",
        "not close",
        "as nn.functional.linear_cross_entropy",
        dtypes=("bfloat16", "float16"),
    ),
    Expected(
        "multinomial",
        "out",
        "overlapping itself.*the device RuntimeError: unsupported operation",
        "the CPU's kernel does not look, and leaves what it wrote last; refused here, as operators "
        "refuse that look",
    ),
    Expected(
        "nn.functional.max_pool1d",
        "layouts",
        "lazily negated.* values differ",
        "the CPU is wrong: its kernel, which is for the CPU alone, reads a lazily negated tensor "
        "as if it were not",
    ),
    Expected(
        "nn.functional.max_pool1d",
        "views",
        r"'is a view'\]: False on the CPU, True on the device",
        "PyTorch's max_pool1d has a kernel for the CPU alone; elsewhere it is a view of "
        "max_pool2d's result",
    ),
)

if DEVICE.type == "cuda":
    EXPECTED += tuple(
        Expected(
            subject,
            "*gradients",
            r"0\.0 on the CPU, -0\.0 on the device",
            "PyTorch's derivative is a product for tensors on cuda alone, and a product with zero "
            "keeps a sign",
        )
        for subject in ("max.reduction_no_dim", "min.reduction_no_dim", "_foreach_max")
    )
    EXPECTED += tuple(
        Expected(
            subject,
            "*",
            r"strides \(.*\) on the CPU",
            "cuSOLVER stores the second matrix of a singular value decomposition by rows",
        )
        for subject in ("*svd", "*_lowrank")
    )
    EXPECTED += (
        Expected(
            "_foreach_mm",
            "*",
            "offset 0 on the CPU|structure|shares memory|'bytes of memory'|is a view",
            "PyTorch computes the products of a list at once on cuda, into parts of one tensor",
        ),
        Expected(
            "norm.nuc",
            "second_gradients",
            "values differ",
            "products of gradients read cuSOLVER's layout, in another order than LAPACK's",
        ),
        Expected(
            "linalg.lstsq*",
            "*",
            "`driver` other than `gels` is not supported on CUDA",
            "cuSOLVER has one driver",
        ),
        Expected(
            "renorm*",
            "*gradients",
            "values differ",
            "PyTorch's derivative adds up float32 in float64 for the CPU alone",
        ),
    )


def expectation(task, label, difference):
    """Return the entry that expects a difference, or None."""
    for entry in EXPECTED:
        if entry.matches(task, label, difference):
            return entry
    return None
