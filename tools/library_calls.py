"""Calls that NVIDIA's libraries compute on a GPU, in several sizes: record_cuda_operators.py."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

F = nn.functional
Call = Callable[[], Any]


def calls_without_gradients() -> Iterator[Callable[[], Any]]:
    """Yield calls of linear algebra, Fourier transforms and sparse matrices."""
    for n in (8, 31, 32, 33, 64, 100, 256, 512, 1000, 1024, 2048):
        for batch in ((), (2,), (16,)):
            if n > 512 and batch:
                continue
            x = torch.rand(*batch, n, n, device="cuda")
            symmetric = x @ x.mT + n * torch.eye(n, device="cuda")
            for call in (
                torch.linalg.qr,
                torch.linalg.svd,
                torch.linalg.svdvals,
                torch.linalg.inv,
                torch.linalg.lu_factor,
                torch.linalg.det,
                torch.linalg.pinv,
                torch.linalg.matrix_rank,
                torch.linalg.eigvals,
            ):
                yield lambda call=call, x=x: call(x)
            yield lambda x=x: torch.linalg.solve(x, x)
            yield lambda x=x: torch.linalg.lstsq(x, x)
            for call in (torch.linalg.eigh, torch.linalg.cholesky):
                yield lambda call=call, x=symmetric: call(x)
    for sizes in (
        *((64,), (1000,), (1024,), (4096,), (65536,), (1 << 20,), (1 << 22,), (65537,), (131071,)),
        *((16, 1024), (64, 400), (256, 512), (8, 65536), (3, 100003)),
    ):
        for dtype in (torch.float32, torch.float16, torch.float64):
            if dtype is torch.float16 and any(n & (n - 1) for n in sizes):
                continue
            x = torch.rand(sizes, device="cuda").to(dtype)
            for call in (torch.fft.fft, torch.fft.rfft, torch.fft.ifft):
                yield lambda call=call, x=x: call(x)
            if dtype is not torch.float16:
                yield lambda x=x: torch.fft.irfft(torch.fft.rfft(x))
    for sizes in ((64, 64), (256, 256), (1024, 1024), (500, 300), (8, 3, 224, 224), (32, 32, 32)):
        x = torch.rand(sizes, device="cuda")
        for call in (torch.fft.fft2, torch.fft.rfft2, torch.fft.fftn, torch.fft.rfftn):
            yield lambda call=call, x=x: call(x)
        yield lambda x=x: torch.fft.irfftn(torch.fft.rfftn(x))
    wave = torch.rand(4, 16000, device="cuda")
    window = torch.ones(400, device="cuda")
    yield lambda: torch.stft(wave, 400, 160, window=window, return_complex=True)
    for n, density in ((64, 0.1), (1000, 0.01), (4096, 0.001)):
        dense = (torch.rand(n, n, device="cuda") < density).float()
        for sparse in (dense.to_sparse(), dense.to_sparse_csr()):
            for width in (1, 16, 256):
                y = torch.rand(n, width, device="cuda")
                yield lambda sparse=sparse, y=y: sparse @ y
            yield lambda sparse=sparse: torch.sparse.mm(sparse, sparse)
        yield lambda dense=dense: dense.to_sparse()
        yield lambda dense=dense: dense.to_sparse().coalesce().to_dense()


def calls_of_cudnn() -> Iterator[Call]:
    """Yield steps of layers that cuDNN computes, with their gradients."""
    yield from steps_of_attention()
    yield from steps_of_recurrent_layers()
    yield from steps_of_convolutions()
    yield from other_steps()


def made(*sizes: int, dtype: torch.dtype = torch.float32, gradient: bool = True) -> Tensor:
    x = torch.rand(sizes, device="cuda").to(dtype)
    return x.requires_grad_(gradient)


def differentiated(result: Tensor) -> None:
    if result.requires_grad:
        result.backward(torch.ones_like(result))


def steps_of_attention() -> Iterator[Call]:
    def step(q: Tensor, k: Tensor, v: Tensor, is_cudnn: bool, **options: Any) -> None:
        backend = nn.attention.SDPBackend.CUDNN_ATTENTION
        if is_cudnn:
            with nn.attention.sdpa_kernel(backend):
                differentiated(F.scaled_dot_product_attention(q, k, v, **options))
        else:
            differentiated(F.scaled_dot_product_attention(q, k, v, **options))

    for dtype, width, gradient, is_cudnn in itertools.product(
        (torch.float16, torch.bfloat16), (32, 64, 80, 128, 256), (True, False), (False, True)
    ):
        for batch, heads, kv_heads, queries, keys in (
            (2, 8, 8, 128, 128),
            (4, 12, 12, 512, 512),
            (1, 32, 8, 777, 777),
            (2, 16, 4, 2048, 2048),
            (8, 8, 8, 1, 1024),
            (2, 4, 4, 100, 333),
        ):
            options: dict[str, Any] = {"enable_gqa": True} if kv_heads != heads else {}
            q = made(batch, queries, heads, width, dtype=dtype, gradient=gradient).transpose(1, 2)
            k, v = (
                made(batch, keys, kv_heads, width, dtype=dtype, gradient=gradient).transpose(1, 2)
                for _ in range(2)
            )
            yield lambda a=(q, k, v, is_cudnn), o=options: step(*a, **o)
            dense = [each.contiguous() for each in (q, k, v)]
            yield lambda a=(*dense, is_cudnn), o=options: step(*a, **o)
            yield lambda a=(*dense, is_cudnn), o=options: step(*a, dropout_p=0.1, **o)
            if queries == keys:
                yield lambda a=(*dense, is_cudnn), o=options: step(*a, is_causal=True, **o)
            mask = torch.zeros(queries, keys, dtype=dtype, device="cuda")
            yield lambda a=(*dense, is_cudnn), o=options | {"attn_mask": mask}: step(*a, **o)


def steps_of_recurrent_layers() -> Iterator[Call]:
    def step(layer: nn.RNNBase, x: Any) -> None:
        result = layer(x)[0]
        differentiated(result if isinstance(result, Tensor) else result.data)

    kinds = (nn.LSTM, nn.GRU, nn.RNN)
    sizes = ((8, 8), (80, 512), (256, 256), (512, 1024), (33, 65))
    shapes = ((1, 1), (20, 16), (200, 16), (50, 64), (7, 3))
    forms: tuple[dict[str, Any], ...] = (
        {},
        {"num_layers": 2},
        {"num_layers": 3, "dropout": 0.5},
        {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    )
    for kind, (width, hidden), (length, batch), form, dtype, trains in itertools.product(
        kinds, sizes, shapes, forms, (torch.float32, torch.float16), (True, False)
    ):
        layer = kind(width, hidden, device="cuda", dtype=dtype, **form).train(trains)
        layer.requires_grad_(trains)
        lead = (batch, length) if form.get("batch_first") else (length, batch)
        x = made(*lead, width, dtype=dtype, gradient=trains)
        yield lambda layer=layer, x=x: step(layer, x)
    layer = nn.LSTM(64, 128, proj_size=32, device="cuda")
    yield lambda layer=layer: step(layer, made(20, 16, 64))
    lengths = torch.tensor([20, 17, 9, 1])
    for kind in kinds:
        layer = kind(64, 128, device="cuda")
        packed = nn.utils.rnn.pack_padded_sequence(made(20, 4, 64), lengths)
        yield lambda layer=layer, packed=packed: step(layer, packed)


def steps_of_convolutions() -> Iterator[Call]:
    def step(call: Any, *tensors: Tensor, **options: Any) -> None:
        differentiated(call(*tensors, **options))

    # Batch, channels of input and output, size, size of the kernel, stride, groups.
    flat = (
        (1, 1, 1, 28, 3, 1, 1),
        (64, 1, 32, 28, 3, 1, 1),
        (64, 32, 64, 26, 3, 1, 1),
        (32, 3, 64, 224, 7, 2, 1),
        (32, 64, 64, 56, 1, 1, 1),
        (32, 64, 64, 56, 3, 1, 1),
        (32, 256, 128, 56, 1, 1, 1),
        (32, 128, 128, 56, 3, 2, 1),
        (32, 512, 512, 7, 3, 1, 1),
        (8, 256, 256, 14, 3, 1, 32),
        (16, 96, 96, 56, 7, 1, 96),
        (16, 3, 768, 224, 16, 16, 1),
        (4, 128, 3, 256, 3, 1, 1),
        (2, 320, 320, 64, 3, 1, 1),
        (1, 512, 512, 128, 3, 1, 1),
        (16, 6, 16, 14, 5, 1, 1),
        (7, 5, 9, 33, 4, 3, 1),
    )
    for dtype, is_last, (batch, inputs, outputs, side, kernel, stride, groups) in itertools.product(
        (torch.float32, torch.float16, torch.bfloat16), (False, True), flat
    ):
        x = made(batch, inputs, side, side, dtype=dtype)
        weight = made(outputs, inputs // groups, kernel, kernel, dtype=dtype)
        if is_last:
            x, weight = (
                each.detach().to(memory_format=torch.channels_last).requires_grad_()
                for each in (x, weight)
            )
        bias = made(outputs, dtype=dtype)
        options = {"stride": stride, "padding": kernel // 2, "groups": groups}
        yield lambda a=(F.conv2d, x, weight, bias), o=options: step(*a, **o)
        if groups == 1:
            back = made(inputs, outputs, kernel, kernel, dtype=dtype)
            yield lambda a=(F.conv_transpose2d, x, back), o=options: step(*a, **o)
            dilated = options | {"dilation": 2, "padding": kernel - 1}
            yield lambda a=(F.conv2d, x, weight), o=dilated: step(*a, **o)
    for dtype in (torch.float32, torch.float16):
        for batch, inputs, outputs, length, kernel, stride in (
            *((4, 80, 512, 3000, 3, 1), (4, 512, 512, 3000, 3, 2), (8, 1, 512, 16000, 10, 5)),
            *((8, 512, 512, 3199, 3, 2), (16, 64, 64, 100, 5, 1), (2, 4, 4, 9, 3, 1)),
        ):
            x, weight = made(batch, inputs, length, dtype=dtype), made(outputs, inputs, kernel)
            weight = weight.detach().to(dtype).requires_grad_()
            options = {"stride": stride, "padding": 1}
            yield lambda a=(F.conv1d, x, weight), o=options: step(*a, **o)
        for batch, inputs, outputs, side, kernel in (
            *((2, 1, 16, 64, 3), (2, 16, 32, 32, 3), (1, 32, 64, 48, 3), (2, 3, 8, 10, 2)),
        ):
            x = made(batch, inputs, side, side, side, dtype=dtype)
            weight = made(outputs, inputs, kernel, kernel, kernel, dtype=dtype)
            back = made(inputs, outputs, kernel, kernel, kernel, dtype=dtype)
            yield lambda a=(F.conv3d, x, weight): step(*a, padding=1)
            yield lambda a=(F.conv_transpose3d, x, back): step(*a, stride=2)


def other_steps() -> Iterator[Call]:
    for dtype in (torch.float32, torch.float16):
        for sizes in ((2, 8, 4, 4), (64, 64, 56, 56), (8, 256, 7, 7), (16, 32, 8, 8, 8), (64, 100)):
            x = made(*sizes, dtype=dtype)
            kind = {2: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(sizes)]
            layer = kind(sizes[1], device="cuda")
            yield lambda layer=layer, x=x: differentiated(layer(x))
            last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(sizes))
            if last is not None:
                other = x.detach().to(memory_format=last).requires_grad_()
                yield lambda layer=layer, x=other: differentiated(layer(x))
    for length, batch, classes, count in ((50, 4, 20, 10), (200, 16, 40, 30)):
        scores = made(length, batch, classes).detach().log_softmax(-1).requires_grad_()
        labels = torch.ones(batch * count, dtype=torch.int32)
        lengths = torch.full((batch,), length, dtype=torch.int32)
        counts = torch.full((batch,), count, dtype=torch.int32)
        yield lambda a=(scores, labels, lengths, counts): differentiated(F.ctc_loss(*a))
    image, grid = made(4, 3, 64, 64), made(4, 32, 32, 2)
    yield lambda: differentiated(F.grid_sample(image, grid, align_corners=True))
    yield lambda: differentiated(F.affine_grid(made(4, 2, 3), [4, 3, 32, 32], align_corners=True))
