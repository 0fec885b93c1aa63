"""Two hundred common operators return the same results on a device as on the CPU."""

import pytest
import samples
import torch
import torch.nn.functional as F

from device import DEVICE

POINTWISE = {
    "abs": lambda s: s.x.abs(),
    "acos": lambda s: s.p.acos(),
    "add": lambda s: s.x + s.y,
    "add_alpha": lambda s: torch.add(s.x, s.y, alpha=3),
    "add_broadcast": lambda s: s.x + s.row + s.column,
    "add_scalar": lambda s: s.x + 2.5,
    "add_promoted": lambda s: s.i + s.x,
    "addcdiv": lambda s: torch.addcdiv(s.x, s.y, s.p, value=0.5),
    "addcmul": lambda s: torch.addcmul(s.x, s.y, s.z, value=-2),
    "angle": lambda s: s.c.angle(),
    "asinh": lambda s: s.x.asinh(),
    "atan2": lambda s: torch.atan2(s.x, s.y),
    "bitwise_and": lambda s: s.i & s.j,
    "bitwise_not": lambda s: ~s.i,
    "bitwise_shift": lambda s: s.j << 2 >> 1,
    "bitwise_xor": lambda s: s.i ^ s.j,
    "ceil": lambda s: s.x.ceil(),
    "clamp": lambda s: s.x.clamp(-0.5, 0.7),
    "clamp_tensor": lambda s: s.x.clamp(min=s.row),
    "conj": lambda s: s.c.conj() * 2,
    "copysign": lambda s: torch.copysign(s.x, s.y),
    "cos": lambda s: s.x.cos(),
    "digamma": lambda s: s.p.digamma(),
    "div": lambda s: s.x / s.p,
    "div_floor": lambda s: torch.div(s.x, s.p, rounding_mode="floor"),
    "div_integers": lambda s: s.i / s.j,
    "div_trunc": lambda s: torch.div(s.i, s.j, rounding_mode="trunc"),
    "eq": lambda s: s.i == s.j,
    "erf": lambda s: s.x.erf(),
    "erfinv": lambda s: s.p.erfinv(),
    "exp": lambda s: s.x.exp(),
    "expm1": lambda s: s.x.expm1(),
    "floor_divide": lambda s: s.i // s.j,
    "fmod": lambda s: torch.fmod(s.x, s.p),
    "frac": lambda s: s.x.frac(),
    "ge": lambda s: s.x >= s.y,
    "heaviside": lambda s: torch.heaviside(s.x, s.y),
    "hypot": lambda s: torch.hypot(s.x, s.y),
    "isclose": lambda s: torch.isclose(s.x, s.x + 1e-9),
    "isfinite": lambda s: (s.x / (s.x > 0)).isfinite(),
    "isnan": lambda s: (s.x - s.x / 0).isnan(),
    "lerp": lambda s: torch.lerp(s.x, s.y, 0.3),
    "lgamma": lambda s: s.p.lgamma(),
    "log": lambda s: s.p.log(),
    "log1p": lambda s: s.p.log1p(),
    "logaddexp": lambda s: torch.logaddexp(s.x, s.y),
    "logical_and": lambda s: s.b & (s.x > 0),
    "logical_not": lambda s: s.i.logical_not(),
    "logit": lambda s: s.p.logit(),
    "maximum": lambda s: torch.maximum(s.x, s.y),
    "mul": lambda s: s.x * s.y,
    "mul_complex": lambda s: s.c * s.x,
    "nan_to_num": lambda s: (s.x / 0).nan_to_num(1.0, 2.0, 3.0),
    "neg": lambda s: -s.x,
    "nextafter": lambda s: torch.nextafter(s.x, s.y),
    "polar": lambda s: torch.polar(s.p, s.x),
    "pow": lambda s: s.p**s.x,
    "pow_integers": lambda s: s.i**3,
    "real_imag": lambda s: s.c.real + s.c.imag,
    "reciprocal": lambda s: s.p.reciprocal(),
    "remainder": lambda s: s.i % s.j,
    "round": lambda s: s.x.round(decimals=1),
    "rsqrt": lambda s: s.p.rsqrt(),
    "rsub": lambda s: 1 - s.x,
    "sigmoid": lambda s: s.x.sigmoid(),
    "sign": lambda s: s.i.sign(),
    "sinc": lambda s: s.x.sinc(),
    "sqrt": lambda s: s.p.sqrt(),
    "sub": lambda s: s.x - s.y,
    "tanh": lambda s: s.x.tanh(),
    "to_bfloat16": lambda s: s.x.bfloat16(),
    "trunc": lambda s: s.x.trunc(),
    "where": lambda s: torch.where(s.b, s.x, s.y),
    "where_scalar": lambda s: torch.where(s.b, s.x, 0.0),
    "xlogy": lambda s: torch.xlogy(s.x, s.p),
}

REDUCTIONS = {
    "all": lambda s: s.b.all(),
    "amax": lambda s: s.x.amax(0),
    "aminmax": lambda s: torch.aminmax(s.x),
    "any": lambda s: s.b.any(1),
    "argmax": lambda s: s.x.argmax(1),
    "argsort": lambda s: s.x.argsort(dim=0, descending=True),
    "bincount": lambda s: torch.bincount(s.labels, minlength=7),
    "count_nonzero": lambda s: s.i.count_nonzero(),
    "cummax": lambda s: s.x.cummax(1),
    "cumprod": lambda s: s.x.cumprod(0),
    "cumsum": lambda s: s.i.cumsum(1),
    "diff": lambda s: s.x.diff(),
    "dist": lambda s: torch.dist(s.x, s.y),
    "equal": lambda s: torch.equal(s.x, s.x.clone()),
    "histc": lambda s: torch.histc(s.x, 5, -2, 2),
    "kthvalue": lambda s: s.x.kthvalue(2),
    "logcumsumexp": lambda s: s.x.logcumsumexp(1),
    "logsumexp": lambda s: s.x.logsumexp(0),
    "max": lambda s: s.x.max(),
    "max_dim": lambda s: s.x.max(1),
    "mean": lambda s: s.x.mean(0, keepdim=True),
    "median": lambda s: s.x.median(1),
    "min": lambda s: s.i.min(0),
    "mode": lambda s: s.j.mode(1).values,
    "nanmean": lambda s: torch.where(s.b, s.x, float("nan")).nanmean(),
    "norm": lambda s: s.x.norm(),
    "norm_dim": lambda s: torch.linalg.vector_norm(s.x, 3, 1),
    "prod": lambda s: s.x.prod(1),
    "quantile": lambda s: torch.quantile(s.x, 0.3, dim=1),
    "searchsorted": lambda s: torch.searchsorted(s.row.sort().values, s.x),
    "sort": lambda s: s.x.sort(0),
    "sort_stable": lambda s: s.j.sort(dim=1, stable=True),
    "std": lambda s: s.x.std(1),
    "sum": lambda s: s.x.sum(),
    "sum_dims": lambda s: s.image.sum((0, 2, 3)),
    "sum_dtype": lambda s: s.i.sum(0, dtype=torch.float64),
    "topk": lambda s: s.x.topk(2),
    "unique": lambda s: torch.unique(s.j, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda s: torch.unique_consecutive(s.j.flatten().sort().values),
    "var_mean": lambda s: torch.var_mean(s.x, 0),
}

LINEAR_ALGEBRA = {
    "addbmm": lambda s: torch.addbmm(s.x[:, :2], s.batch, s.batch2),
    "addmm": lambda s: torch.addmm(s.bias, s.x, s.w, beta=0.5, alpha=2),
    "addmv": lambda s: torch.addmv(s.column[:, 0], s.x, s.row),
    "addr": lambda s: torch.addr(s.x, s.column[:, 0], s.row),
    "baddbmm": lambda s: torch.baddbmm(s.batch[:, :, :2], s.batch, s.batch2),
    "bmm": lambda s: torch.bmm(s.batch, s.batch2),
    "cdist": lambda s: torch.cdist(s.x, s.y),
    "cholesky": lambda s: torch.linalg.cholesky(s.square @ s.square.T),
    "cross": lambda s: torch.linalg.cross(s.x[:, :3], s.y[:, :3]),
    "det": lambda s: torch.linalg.det(s.square),
    "diag_embed": lambda s: s.x.diag_embed(),
    "dot": lambda s: torch.dot(s.row, s.x[0]),
    "eigvalsh": lambda s: torch.linalg.eigvalsh(s.square + s.square.T),
    "einsum": lambda s: torch.einsum("bij,bjk->ik", s.batch, s.batch2),
    "inv": lambda s: torch.linalg.inv(s.square),
    "kron": lambda s: torch.kron(s.x, s.w),
    "lstsq": lambda s: torch.linalg.lstsq(s.square, s.w).solution,
    "matmul": lambda s: s.batch @ s.w,
    "matrix_exp": lambda s: torch.linalg.matrix_exp(s.square / 10),
    "matrix_power": lambda s: torch.linalg.matrix_power(s.square, 3),
    "mm": lambda s: s.x @ s.w,
    "mv": lambda s: s.x @ s.row,
    "outer": lambda s: torch.outer(s.row, s.bias),
    "pinv": lambda s: torch.linalg.pinv(s.x),
    "qr": lambda s: (lambda q, r: q @ r)(*torch.linalg.qr(s.x)),
    "slogdet": lambda s: torch.linalg.slogdet(s.square),
    "solve": lambda s: torch.linalg.solve(s.square, s.w),
    "svdvals": lambda s: torch.linalg.svdvals(s.x),
    "tensordot": lambda s: torch.tensordot(s.batch, s.batch2, dims=([2], [1])),
    "trace": lambda s: s.square.trace(),
    "triangular_solve": lambda s: torch.linalg.solve_triangular(s.square, s.w, upper=True),
    "tril": lambda s: s.x.tril(-1),
}

INDEXING = {
    "arange": lambda s: torch.arange(1, 10, 2, device=s.device),
    "bucketize": lambda s: torch.bucketize(s.x, s.row.sort().values),
    "cat": lambda s: torch.cat([s.x, s.y], 1),
    "chunk": lambda s: s.x.chunk(2),
    "combinations": lambda s: torch.combinations(s.row),
    "constant_pad": lambda s: F.pad(s.x, (1, 2), value=3),
    "diagonal": lambda s: s.x.diagonal(1) + 0,
    "expand": lambda s: s.column.expand(4, 3) + 0,
    "eye": lambda s: torch.eye(3, 4, device=s.device),
    "fill_diagonal": lambda s: s.square.clone().fill_diagonal_(9),
    "flip": lambda s: s.x.flip(0, 1),
    "full_like": lambda s: torch.full_like(s.x, 7),
    "gather": lambda s: s.x.gather(0, s.places),
    "index": lambda s: s.x[s.index],
    "index_add": lambda s: s.x.index_add(0, s.index, s.y[:3]),
    "index_mask": lambda s: s.x[s.b],
    "index_pair": lambda s: s.x[s.index, s.labels[:3]],
    "index_put": lambda s: s.x.index_put((s.index,), s.y[:3], accumulate=True),
    "index_select": lambda s: s.x.index_select(0, s.index),
    "linspace": lambda s: torch.linspace(0, 1, 7, device=s.device),
    "masked_fill": lambda s: s.x.masked_fill(s.b, -1),
    "masked_scatter": lambda s: s.x.masked_scatter(s.b, s.y),
    "masked_select": lambda s: s.x.masked_select(s.b),
    "meshgrid": lambda s: torch.meshgrid(s.row, s.bias, indexing="ij"),
    "nonzero": lambda s: s.b.nonzero(),
    "ones_like": lambda s: torch.ones_like(s.i),
    "one_hot": lambda s: F.one_hot(s.labels, 6),
    "repeat": lambda s: s.x.repeat(2, 3),
    "repeat_interleave": lambda s: s.x.repeat_interleave(s.labels, 0),
    "roll": lambda s: s.x.roll((1, 2), (0, 1)),
    "scatter": lambda s: s.x.scatter(0, s.places, s.y),
    "scatter_add": lambda s: s.x.scatter_add(0, s.places, s.y),
    "scatter_reduce": lambda s: s.x.scatter_reduce(0, s.places, s.y, "amax"),
    "slice": lambda s: s.x[1:, ::2] + 0,
    "split": lambda s: s.x.split([1, 4], 1),
    "stack": lambda s: torch.stack([s.x, s.y]),
    "take": lambda s: s.x.take(s.places),
    "take_along_dim": lambda s: torch.take_along_dim(s.x, s.places, 0),
    "tril_indices": lambda s: torch.tril_indices(3, 3, device=s.device),
    "unfold": lambda s: s.signal.unfold(2, 4, 3) + 0,
    "view_as_real": lambda s: torch.view_as_real(s.c) + 0,
    "zeros": lambda s: torch.zeros(2, 3, dtype=torch.int8, device=s.device),
}

NEURAL_NETWORKS = {
    "adaptive_avg_pool2d": lambda s: F.adaptive_avg_pool2d(s.image, 3),
    "avg_pool2d": lambda s: F.avg_pool2d(s.image, 2),
    "batch_norm": lambda s: F.batch_norm(s.image, None, None, training=True),
    "bce": lambda s: F.binary_cross_entropy(s.p, s.b.float()),
    "bce_logits": lambda s: F.binary_cross_entropy_with_logits(s.x, s.p),
    "bilinear": lambda s: F.bilinear(s.x, s.y, s.square[:2, :, None].expand(2, 5, 5)),
    "conv1d": lambda s: F.conv1d(s.signal, s.kernel1, padding=1),
    "conv2d": lambda s: F.conv2d(s.image, s.kernel2, stride=2),
    "conv2d_dilated": lambda s: F.conv2d(s.image, s.kernel2, dilation=2),
    "conv2d_grouped": lambda s: F.conv2d(s.image, s.kernel2[:, :2], groups=2),
    "conv3d": lambda s: F.conv3d(s.volume, s.kernel3),
    "conv_transpose2d": lambda s: F.conv_transpose2d(s.image, s.kernel2[:4], stride=2),
    "cosine_similarity": lambda s: F.cosine_similarity(s.x, s.y),
    "cross_entropy": lambda s: F.cross_entropy(s.x, s.labels, label_smoothing=0.1),
    "ctc_loss": lambda s: F.ctc_loss(
        s.batch.log_softmax(2), s.tokens[:, :1].repeat(2, 1) + 1, (3,) * 4, (1,) * 4
    ),
    "elu": lambda s: F.elu(s.x),
    "embedding": lambda s: F.embedding(s.tokens, s.table),
    "embedding_bag": lambda s: F.embedding_bag(s.tokens, s.table, mode="mean"),
    "fft": lambda s: torch.fft.fft(s.signal),
    "gelu": lambda s: F.gelu(s.x),
    "gelu_tanh": lambda s: F.gelu(s.x, approximate="tanh"),
    "glu": lambda s: F.glu(s.image, 1),
    "grid_sample": lambda s: F.grid_sample(s.image, s.grid, align_corners=False),
    "group_norm": lambda s: F.group_norm(s.image, 2),
    "hardswish": lambda s: F.hardswish(s.x),
    "huber_loss": lambda s: F.huber_loss(s.x, s.y),
    "interpolate_bilinear": lambda s: F.interpolate(s.image, scale_factor=2, mode="bilinear"),
    "interpolate_nearest": lambda s: F.interpolate(s.image, size=(5, 11)),
    "kl_div": lambda s: F.kl_div(s.x.log_softmax(1), s.p, reduction="batchmean"),
    "layer_norm": lambda s: F.layer_norm(s.x, (5,), s.row),
    "leaky_relu": lambda s: F.leaky_relu(s.x, 0.1),
    "linear": lambda s: F.linear(s.x, s.w.T, s.bias),
    "log_softmax": lambda s: s.x.log_softmax(0),
    "lstm": lambda s: recurrent(torch.nn.LSTM, s),
    "gru": lambda s: recurrent(torch.nn.GRU, s),
    "max_pool2d": lambda s: F.max_pool2d(s.image, 2, return_indices=True),
    "max_unpool2d": lambda s: F.max_unpool2d(*F.max_pool2d(s.image, 2, return_indices=True), 2),
    "mse_loss": lambda s: F.mse_loss(s.x, s.y),
    "nll_loss": lambda s: F.nll_loss(s.x.log_softmax(1), s.labels, ignore_index=4),
    "normalize": lambda s: F.normalize(s.x),
    "pixel_shuffle": lambda s: F.pixel_shuffle(s.image, 2),
    "prelu": lambda s: F.prelu(s.image, s.p[0, :4]),
    "reflection_pad": lambda s: F.pad(s.image, (1, 2, 3, 0), mode="reflect"),
    "relu": lambda s: F.relu(s.x),
    "replication_pad": lambda s: F.pad(s.image, (1, 2, 3, 0), mode="replicate"),
    "rfft": lambda s: torch.fft.irfft(torch.fft.rfft(s.signal)),
    "rms_norm": lambda s: F.rms_norm(s.x, (5,)),
    "attention": lambda s: F.scaled_dot_product_attention(s.heads, s.heads, s.heads),
    "attention_causal": lambda s: F.scaled_dot_product_attention(*[s.heads] * 3, is_causal=True),
    "selu": lambda s: F.selu(s.x),
    "silu": lambda s: F.silu(s.x),
    "smooth_l1_loss": lambda s: F.smooth_l1_loss(s.x, s.y, beta=0.5),
    "softmax": lambda s: s.x.softmax(1),
    "softplus": lambda s: F.softplus(s.x),
    "stft": lambda s: torch.stft(s.signal[0], 8, 4, window=s.p.flatten()[:8], return_complex=True),
    "triplet_margin_loss": lambda s: F.triplet_margin_loss(s.x, s.y, s.z),
    "unfold_image": lambda s: F.unfold(s.image, 3),
}

CASES = POINTWISE | REDUCTIONS | LINEAR_ALGEBRA | INDEXING | NEURAL_NETWORKS


def recurrent(kind, s):
    torch.manual_seed(0)
    return kind(12, 6, num_layers=2, bidirectional=True).to(s.device)(s.signal)


def test_the_list_has_two_hundred_operators():
    assert len(CASES) >= 200


@pytest.mark.parametrize("name", CASES)
def test_operator_agrees_with_the_cpu(name):
    expected = CASES[name](samples.make())
    actual = CASES[name](samples.make(f"{DEVICE}:1"))
    assert all(t.device == torch.device(f"{DEVICE}:1") for t in samples.tensors(actual))
    torch.testing.assert_close(samples.to_cpu(actual), expected, equal_nan=True)


@pytest.mark.parametrize("name", ["add", "mm", "sum", "cat", "conv2d", "softmax", "index", "where"])
def test_operator_runs_on_inputs_of_many_layouts(name):
    def transposed(s):
        for key, value in vars(s).items():
            if isinstance(value, torch.Tensor) and value.dim() > 1:
                setattr(s, key, value.mT.contiguous().mT)
        return s

    expected = CASES[name](transposed(samples.make()))
    actual = CASES[name](transposed(samples.make(DEVICE)))
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual.cpu(), expected)


def test_inputs_are_left_alone():
    before, after = samples.make(), samples.make(DEVICE)
    for case in CASES.values():
        case(after)
    for name, value in vars(before).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(after, name).cpu(), value), name
