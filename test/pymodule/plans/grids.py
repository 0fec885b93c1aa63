"""Calls around the thresholds of the built-in plans' formulas: for each family, operators and
arguments as ``openreg plans show`` takes them."""

import itertools
from collections.abc import Iterator

Calls = Iterator[tuple[str, str]]

FLOATS = ("float32", "bfloat16", "float64")
NUMBERS = (*FLOATS, "int64", "bool")
# Rows: small, around the size from which the reduction is split, large, and beyond 2 GiB.
ROWS = ("0", "1", "1000", "131071", "131072", "131073", "4000000", "700000001", "2000,4000;1,2000")
TABLES = (
    *("2048,768", "4096,4096", "512,8192", "100,7,333", "8,128,5000", "2048,769", "4096,1"),
    *("65536,131;131,1", "3000,2000;1,3000", "60000,40000", "2,0,3"),
)


def _rank(sizes: str) -> int:
    return len([each for each in sizes.partition(";")[0].split(",") if each])


def reductions() -> Calls:
    for dtype in NUMBERS:
        is_float = dtype in FLOATS
        for sizes in ROWS:
            for name in ("sum", "prod", "max", "argmax", "any", "aminmax", "amax", "count_nonzero"):
                yield f"aten::{name}", f"{dtype}[{sizes}]"
            if is_float:
                for name in ("mean", "var.correction", "std_mean.correction", "norm.Scalar"):
                    yield f"aten::{name}", f"{dtype}[{sizes}]"
                yield "aten::dist", f"{dtype}[{sizes}] {dtype}[{sizes}]"
            yield "aten::isin.Tensor_Tensor", f"{dtype}[{sizes}] {dtype}[5]"
        for sizes in TABLES:
            for dim in range(_rank(sizes)):
                for name in ("max.dim", "argmin", "all.dim", "prod.dim_int"):
                    yield f"aten::{name}", f"{dtype}[{sizes}] {dim} {dim % 2 == 0}"
            for count in range(1, _rank(sizes) + 1):
                for dims in itertools.combinations(range(_rank(sizes)), count):
                    chosen = f"[{','.join(map(str, dims))}]"
                    for name in ("sum.dim_IntList", "amax", "any.dims"):
                        yield f"aten::{name}", f"{dtype}[{sizes}] {chosen}"
                    if is_float:
                        yield "aten::var.correction", f"{dtype}[{sizes}] {chosen}"
                        yield "aten::linalg_vector_norm", f"{dtype}[{sizes}] 2 {chosen}"
                        yield "aten::logsumexp", f"{dtype}[{sizes}] {chosen} {count == 1}"


def _heads(dtype: str, batch: int, heads: int, length: int, size: int, is_swapped: bool) -> str:
    sizes = f"{batch},{heads},{length},{size}"
    strides = f";{length * heads * size},{size},{heads * size},1" if is_swapped else ""
    return f"{dtype}[{sizes}{strides}]"


def distances() -> Calls:
    shapes = (("", 1000, 500, 64), ("3,", 100, 50, 64), ("", 2, 200000, 8))
    for batch, rows, others, width in shapes:
        x, y = f"float32[{batch}{rows},{width}]", f"float32[{batch}{others},{width}]"
        pairs = f"float32[{batch}{rows},{others}]"
        for p in (1.0, 2.0):
            yield "aten::_cdist_backward", f"{pairs} {x} {y} {p} {pairs}"


def attention() -> Calls:
    shapes = (
        *((1, 8, 8, 1000, 1000), (4, 12, 3, 512, 500), (1, 1, 1, 4096, 4096), (1, 8, 2, 1, 4096)),
        *((16, 32, 8, 1, 4096), (16, 32, 4, 3, 777), (2, 4, 4, 0, 64), (2, 4, 4, 64, 0)),
        *((16, 32, 32, 1, 128), (300, 1, 1, 100, 128), (300, 1, 1, 100, 129)),
    )
    for dtype, (batch, heads, shared, length, keys), size, is_swapped in itertools.product(
        ("bfloat16", "float32"), shapes, (32, 64, 72, 128, 136, 200, 256), (False, True)
    ):
        query = _heads(dtype, batch, heads, length, size, is_swapped)
        key = _heads(dtype, batch, shared, keys, size, is_swapped)
        if dtype == "bfloat16":
            name = "aten::_scaled_dot_product_flash_attention"
            for more in ("0.0 False", "0.1 True"):
                yield name, f"{query} {key} {key} {more}"
            sums = f"float32[{batch},{heads},{length}]"
            yield (
                f"{name}_backward",
                f"{query} {query} {key} {key} {query} {sums} None None {length} {keys} 0.0 False "
                "uint64[2] uint64[]",
            )
        if heads == shared and length and keys:
            name = "aten::_scaled_dot_product_efficient_attention"
            for more in ("None False", "None True 0.1 True"):
                yield name, f"{query} {key} {key} {more}"
            sums = f"float32[{batch},{heads},{-(-length // 32) * 32}]"
            for dropout in (0.0, 0.1):
                yield (
                    f"{name}_backward",
                    f"{query} {query} {key} {key} None {query} {sums} host:int64[] host:int64[] "
                    f"{dropout} [True,True,True,False]",
                )


def embeddings() -> Calls:
    for dtype, index, count, words in itertools.product(
        ("float32", "bfloat16"),
        ("int64", "int32"),
        (1, 3072, 3073, 8192, 1_000_000),
        (1, 100, 159, 160, 272, 273, 527, 528, 50257),
    ):
        for scales in (False, True):
            yield (
                "aten::embedding_dense_backward",
                f"{dtype}[{count},64] {index}[{count}] {words} -1 {scales}",
            )
    yield "aten::embedding_dense_backward", "float32[200,8;1,200] int64[200;2] 100 -1 False"


def indexing() -> Calls:
    for rows, count in ((1000, 512), (50257, 2304), (50257, 2305), (1000, 65536), (100, 131072)):
        for index, values in (
            (f"[int64[{count}]]", f"float32[{count},64]"),
            (f"[int64[{count}]]", "float32[]"),
            (f"[int64[{count}]]", "host:float32[]"),
            (f"[None,int64[{count}]]", f"float32[{rows},{count}]"),
            (f"[int64[{count}],int64[{count}]]", f"float32[{count}]"),
            (f"[int64[2,{count}]]", f"float32[2,{count},64]"),
        ):
            for name in ("index_put_", "index_put"):
                for accumulates in (True, False):
                    yield f"aten::{name}", f"float32[{rows},64] {index} {values} {accumulates}"
            yield "aten::_index_put_impl_", f"float32[{rows},64] {index} {values} True True"
        index = f"0 int64[{rows},10] float32[{rows},10]"
        for name in ("scatter_reduce.two", "index_reduce"):
            numbers = index if name.startswith("scatter") else "0 int64[7] float32[7,10]"
            yield f"aten::{name}", f"float32[{rows},10] {numbers} 'mean'"


def sorts() -> Calls:
    for dtype in ("float32", "int64", "float64", "int32", "bfloat16", "bool"):
        for sizes in (
            *("4096", "4097", "65536", "1000000", "70000;2", "0", "1", "512,8192", "4096,4096"),
            *("3,5000", "127,5000", "128,5000", "2,1000000", "3,5000;1,3", "200,5000;1,200"),
            *("2,3,5000;5000,10000,1", "2,3,5000;15000,1,3", "3,5000;10000,2", "5000,1"),
        ):
            for dim in range(_rank(sizes)):
                yield "aten::sort", f"{dtype}[{sizes}] {dim} False"
                yield "aten::sort.stable", f"{dtype}[{sizes}] stable=True dim={dim}"
        for sizes in ("1000", "65536", "100,100;1,100"):
            yield "aten::median", f"{dtype}[{sizes}]"
    for dtype in ("float32", "bfloat16", "int64", "uint8"):
        for count, size in (
            *((1, 19999), (1, 20000), (20, 20000), (21, 20000), (21, 9999), (40, 10000)),
            *((41, 10000), (41, 8000), (80, 7999), (81, 5000), (199, 5000), (200, 5000)),
            *((200, 2999), (799, 3000), (800, 3000), (4000, 800), (4000, 799), (4001, 400)),
            *((4001, 399), (1, 4000000), (512, 8192), (100000, 1000)),
        ):
            yield "aten::topk", f"{dtype}[{count},{size}] 10"
            yield "aten::topk", f"{dtype}[{size},{count}] 10 0 True False"
        yield "aten::kthvalue", f"{dtype}[100,1000;1,100] 5 0"
        yield "aten::median.dim", f"{dtype}[100,1000] 1 True"
    for sizes in ("65536", "100,5000", "65536;2"):
        yield "aten::topk", f"float32[{sizes}] 4999"


def scans() -> Calls:
    for dtype in (*NUMBERS, "int32"):
        for sizes in ("1000", "65536", "4000000", "100000;2", "100,1000", "100,1000;1,100", "1,9"):
            for dim in range(_rank(sizes)):
                for name in ("cumsum", "cumprod", "cummax"):
                    yield f"aten::{name}", f"{dtype}[{sizes}] {dim}"
                if dtype in FLOATS:
                    yield "aten::_logcumsumexp", f"{dtype}[{sizes}] {dim}"
    for mask, strides in itertools.product(("100,10", "10", "100,1"), ("", ";0", ";2")):
        yield "aten::masked_scatter", f"float32[100,10] bool[{mask}] float32[1000{strides}]"
    yield "aten::masked_scatter_", "float32[5000000] bool[5000000] float32[5000000]"


def softmaxes() -> Calls:
    for dtype in FLOATS:
        for sizes in ("512,1000", "512,1000;1,512", "3,4,5;1,3,12", "2,0,3"):
            for name in ("_softmax", "_log_softmax"):
                yield f"aten::{name}", f"{dtype}[{sizes}] 1 False"
                yield "aten::_safe_softmax", f"{dtype}[{sizes}] 0"
                for other in {sizes, sizes.partition(";")[0]}:
                    for pair in (f"{dtype}[{sizes}] {dtype}[{other}]",):
                        yield f"aten::{name}_backward_data", f"{pair} 1 {dtype}"
    for more in ("0.1 True", "1.0 True", "0.1 False", "1.0 False"):
        yield "aten::native_dropout", f"float32[100] {more}"


def normalizations() -> Calls:
    masks = ("True,True,True", "True,False,False", "True,True,False")
    for dtype in FLOATS:
        statistic = "float32" if dtype == "bfloat16" else dtype
        for rows, columns in (
            *((64, 768), (65536, 768), (65537, 768), (70000, 640), (70000, 2112), (1000000, 32)),
        ):
            x, weight = f"{dtype}[{rows},{columns}]", f"{dtype}[{columns}]"
            strided = f"{dtype}[{rows},{columns};1,{rows}]"
            saved = f"{statistic}[{rows},1]"
            yield "aten::native_layer_norm", f"{x} [{columns}] {weight} {weight} 1e-5"
            yield "aten::native_layer_norm", f"{strided} [{columns}] None None 1e-5"
            yield "aten::_fused_rms_norm", f"{x} [{columns}] {weight} 1e-5"
            for mask in masks:
                yield (
                    "aten::native_layer_norm_backward",
                    f"{x} {x} [{columns}] {saved} {saved} {weight} {weight} [{mask}]",
                )
            yield (
                "aten::_fused_rms_norm_backward",
                f"{x} {x} [{columns}] {saved} {weight} [True,True]",
            )
        for samples, channels, size, groups in ((2, 32, 256, 8), (4, 320, 4096, 32), (2, 32, 1, 8)):
            x, weight = f"{dtype}[{samples},{channels},{size}]", f"{dtype}[{channels}]"
            numbers = f"{samples} {channels} {size} {groups}"
            for pair in (f"{weight} {weight}", f"None {weight}", "None None"):
                yield "aten::native_group_norm", f"{x} {pair} {numbers} 1e-5"
            saved = f"{dtype}[{samples},{groups}]"
            for mask in (*masks, "False,True,True"):
                yield (
                    "aten::native_group_norm_backward",
                    f"{x} {x} {saved} {saved} {weight} {numbers} [{mask}]",
                )


def recurrent_cells() -> Calls:
    for dtype, batch, hidden in itertools.product(("float32", "float16"), (1, 7, 64), (5, 256)):
        state = f"{dtype}[{batch},{hidden}]"
        for cell, gates, states in (("lstm", 4, 4), ("gru", 3, 5)):
            inputs = " ".join([f"{dtype}[{batch},{gates * hidden}]"] * 2)
            biases = " ".join([f"{dtype}[{gates * hidden}]"] * 2)
            yield f"aten::_thnn_fused_{cell}_cell", f"{inputs} {state} {biases}"
            yield f"aten::_thnn_fused_{cell}_cell", f"{inputs} {state}"
            workspace = f"{dtype}[{batch},{states * hidden}]"
            arguments = f"{state} {state} {state} {state}" if cell == "lstm" else state
            name = f"_thnn_fused_{cell}_cell_backward" + ("_impl" if cell == "lstm" else "")
            for has_bias in (True, False):
                yield f"aten::{name}", f"{arguments} {workspace} {has_bias}"


def batch_norms() -> Calls:
    for dtype, (samples, channels, size) in itertools.product(
        ("float32", "bfloat16"),
        (
            *((4, 320, 64), (32, 16, 64), (2, 3, 5), (64, 2048, 7), (8, 1, 100), (4, 320, 0)),
            *((127, 64, 0), (4096, 320, 0), (100000, 10, 0)),
        ),
    ):
        sizes = f"{samples},{channels},{size},{size}" if size else f"{samples},{channels}"
        inner = f";{channels * size * size},1,{size * channels},{channels}" if size else ""
        x, weight = f"{dtype}[{sizes}{inner}]", f"float32[{channels}]"
        yield "aten::native_batch_norm", f"{dtype}[{sizes}] {' '.join([weight] * 4)} True 0.1 1e-5"
        yield "aten::native_batch_norm", f"{x} {' '.join([weight] * 4)} True 0.1 1e-5"
        more = "True 1e-5 [True,True,True]"
        yield "aten::native_batch_norm_backward", f"{x} {x} {' '.join([weight] * 5)} {more}"
        planes = f"{dtype}[{sizes}]"
        masks = ("[True,True,True]", "[False,True,True]", "[True,False,False]")
        for mask in masks if size and channels > 1 else ():
            yield (
                "aten::native_batch_norm_backward",
                f"{planes} {planes} {' '.join([weight] * 5)} True 1e-5 {mask}",
            )


def products() -> Calls:
    lefts = ("64,32", "64,32;1,64", "64,32;100,1", "64,32;0,1", "64,32;64,2", "64,32;1,0")
    rights = ("32,16", "32,16;1,32", "32,16;0,0", "32,16;100,2")
    for left, right in itertools.product(lefts, rights):
        yield "aten::mm", f"float32[{left}] float32[{right}]"
        yield "aten::addmm", f"float32[16] float32[{left}] float32[{right}]"
    lefts = ("4,64,32", "4,64,32;0,32,1", "4,64,32;2048,1,64", "4,64,32;32,128,1", "4,64,32;0,0,0")
    rights = ("4,32,16", "4,32,16;512,1,32", "4,32,16;0,0,0", "4,32,16;2,128,8")
    for left, right in itertools.product(lefts, rights):
        yield "aten::bmm", f"float32[{left}] float32[{right}]"
        yield "aten::baddbmm", f"float32[4,64,16] float32[{left}] float32[{right}]"
    for vector in ("32", "32;0", "32;2"):
        yield "aten::mv", f"float32[64,32;64,2] float32[{vector}]"


def copies() -> Calls:
    for gradient in ("2,3,16,16", "2,3,16,16;768,1,48,3", "2,3,16,16;0,0,0,0"):
        yield "aten::_adaptive_avg_pool2d_backward", f"float32[{gradient}] float32[2,3,32,32]"
    for gradient in ("2,3,16", "2,3,16;0,0,0", "2,3,16;48,1,3"):
        yield "aten::upsample_linear1d_backward", f"float32[{gradient}] [16] [2,3,8] False"
    for more in ("[1] [1]", "[1,2] [0,1]"):
        yield "aten::roll", f"float32[10,100] {more}"
        yield "aten::roll", f"float32[10,100;1,10] {more}"


def losses() -> Calls:
    for dtype, sizes, reduction in itertools.product(
        FLOATS, ("64,10", "131072", "4000000", "", "8,3,64,64"), (0, 1, 2)
    ):
        pair = f"{dtype}[{sizes}] {dtype}[{sizes}]"
        for name in ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):
            yield f"aten::{name}", f"{pair} {reduction}"
        last = f"{dtype}[{sizes.rpartition(',')[2]}]"
        for weights in ("None None", f"{dtype}[{sizes}] None", f"None {last}"):
            yield "aten::binary_cross_entropy_with_logits", f"{pair} {weights} {reduction}"
    for reduction in (0, 1, 2):
        more = f"None {reduction} -100"
        yield "aten::nll_loss_forward", f"float32[512,1000] int64[512] {more}"
        yield "aten::nll_loss_forward", f"float32[512,1000;1,512] int64[512] {more}"
        yield "aten::nll_loss_forward", f"float32[1000] int64[] {more}"
        yield "aten::nll_loss2d_forward", f"float32[8,21,64,64] int64[8,64,64] {more}"


def _tensor(leading: tuple[int, ...], spatial: int, rank: int) -> str:
    return f"float32[{','.join(map(str, [*leading, *[spatial] * rank]))}]"


def _repeat(value: int, rank: int) -> str:
    return f"[{','.join([str(value)] * rank)}]"


def convolutions() -> Calls:
    kinds = (  # kernel, stride, padding, dilation, transposed, output padding
        *((3, 1, 1, 1, False, 0), (1, 1, 0, 1, False, 0), (1, 2, 0, 1, False, 0)),
        *((3, 2, 1, 2, False, 0), (3, 1, 1, 1, True, 0), (3, 2, 1, 1, True, 1)),
        *((1, 1, 0, 1, True, 0), (2, 2, 0, 1, True, 0)),
    )
    channels = ((32, 32, 1), (8, 16, 1), (32, 32, 2), (16, 16, 16), (8, 16, 8))
    for number, (samples, rank, (inputs, outputs, groups), kind) in enumerate(
        itertools.product((1, 2, 64), (1, 2, 3), channels, kinds)
    ):
        kernel, stride, padding, dilation, transposed, more = kind
        size = {1: 20, 2: 40 if samples == 64 else 13, 3: 7}[rank]
        reach = dilation * (kernel - 1) + 1
        if transposed:
            result = (size - 1) * stride - 2 * padding + reach + more
            first, second = inputs, outputs
        else:
            result = (size + 2 * padding - reach) // stride + 1
            first, second = outputs, inputs
        x = _tensor((samples, inputs), size, rank)
        weight = _tensor((first, second // groups), kernel, rank)
        lists = [_repeat(each, rank) for each in (stride, padding, dilation, more)]
        numbers = f"{' '.join(lists[:3])} {transposed} {lists[3]} {groups}"
        bias = f"float32[{outputs}]" if number % 2 else "None"
        yield "aten::convolution", f"{x} {weight} {bias} {numbers}"
        mask = ("True,True,True", "True,False,False", "False,True,True", "False,False,True")
        y = _tensor((samples, outputs), result, rank)
        yield (
            "aten::convolution_backward",
            f"{y} {x} {weight} [{outputs}] {numbers} [{mask[number % 4]}]",
        )


def lists() -> Calls:
    for dtype in FLOATS:
        for counts in ((1000, 2000), (65536, 65537, 5), (131072, 131073)):
            tensors = f"[{','.join(f'{dtype}[{count}]' for count in counts)}]"
            for more in ("1", "2", "2 dtype=float64"):
                yield "aten::_foreach_norm.Scalar", f"{tensors} {more}"
            yield "aten::_foreach_max", tensors


FAMILIES = {
    each.__name__: each
    for each in (
        *(reductions, distances, attention, embeddings, indexing, sorts, scans, softmaxes),
        *(
            normalizations,
            recurrent_cells,
            batch_norms,
            products,
            copies,
            losses,
            convolutions,
            lists,
        ),
    )
}
