"""Compares the gradient scaler's two operators with a simple reference, on random cases with
infinities in any position, and tests their errors.
"""

import math
import random

import pytest
import torch

from device import DEVICE, NAME

UNSCALE = torch._amp_foreach_non_finite_check_and_unscale_
UPDATE = torch._amp_update_scale_
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CASES = 10_000
BAD = [math.inf, -math.inf, math.nan]


def plain_unscale(gradients, inverse_scale):
    """Return the unscaled gradients, and whether one was not finite."""
    found = any(not math.isfinite(value) for g in gradients for value in g.double().tolist())
    compute = [g.double() if g.dtype == torch.float64 else g.float() for g in gradients]
    return [(c * inverse_scale).to(g.dtype) for c, g in zip(compute, gradients, strict=True)], found


def float32(value):
    return torch.tensor(value, dtype=torch.float32).item()


def plain_update(scale, tracker, found, growth, backoff, interval):
    """Return scale and tracker after a step, computed as the definition prescribes."""
    if found:
        return float32(scale * backoff), 0
    if tracker + 1 == interval:
        grown = float32(scale * growth)
        return (grown if math.isfinite(grown) else scale), 0
    return scale, tracker + 1


def random_gradients(draw):
    """Draw up to 4 gradients of up to 40 elements: values of all magnitudes, some not finite."""
    dtype = draw.choice(DTYPES)
    gradients = []
    for _ in range(draw.randrange(1, 5)):
        values = [
            draw.gauss(0, 1) * 2.0 ** draw.randrange(-30, 15) for _ in range(draw.randrange(41))
        ]
        gradients.append(torch.tensor(values, dtype=torch.float64).to(dtype))
    return gradients


def spoil(draw, gradients):
    """Make one or several elements infinite or NaN."""
    places = [(g, index) for g in gradients for index in range(len(g))]
    for gradient, index in draw.sample(places, min(len(places), draw.choice([0, 0, 1, 1, 3]))):
        gradient[index] = draw.choice(BAD)


def test_random_gradients_are_unscaled_by_definition():
    draw = random.Random(0)
    found_inf = torch.zeros((), device=DEVICE)
    bad_cases = 0
    for case in range(CASES):
        gradients = random_gradients(draw)
        spoil(draw, gradients)
        inverse_scale = draw.choice([1.0, 0.5, 2.0**-16, 1 / 3, 3.0, 2.0**20])
        inverse_scale = torch.tensor(inverse_scale, dtype=torch.float32)
        expected, found = plain_unscale(gradients, inverse_scale)

        on_device = [gradient.to(DEVICE) for gradient in gradients]
        found_inf.zero_()
        UNSCALE(on_device, found_inf, inverse_scale.to(DEVICE))
        assert found_inf.item() == found, case
        bad_cases += found
        for actual, wanted in zip(on_device, expected, strict=True):
            torch.testing.assert_close(actual.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
    assert CASES / 4 < bad_cases < CASES * 3 / 4


def test_random_scale_updates_follow_the_definition():
    draw = random.Random(0)
    scale, tracker = 2.0**16, 0
    on_device = torch.tensor(scale, device=DEVICE)
    tracker_on_device = torch.tensor(tracker, dtype=torch.int32, device=DEVICE)
    for case in range(CASES):
        found = draw.random() < 0.3
        factors = draw.choice([(2.0, 0.5), (1.5, 0.75), (2.0**40, 0.1), (1.001, 2.0**-20)])
        interval = draw.randrange(1, 6)
        found_inf = torch.tensor(float(found), device=DEVICE)
        UPDATE(on_device, tracker_on_device, found_inf, *factors, interval)
        scale, tracker = plain_update(scale, tracker, found, *factors, interval)
        assert (on_device.item(), tracker_on_device.item()) == (scale, tracker), case
        if scale < 2.0**-100:
            scale = on_device.fill_(2.0**16).item()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_part_of_a_large_gradient_is_unscaled(dtype):
    # Large enough for several threads. Each takes a part.
    gradient = torch.ones(200_003, dtype=dtype, device=DEVICE)
    found_inf = torch.zeros((), device=DEVICE)
    half = torch.tensor(0.5, device=DEVICE)
    UNSCALE([gradient], found_inf, half)
    assert found_inf.item() == 0
    assert torch.equal(gradient, torch.full_like(gradient, 0.5))
    for place in (0, 100_000, 200_002):
        gradient[place] = math.inf
        found_inf.zero_()
        UNSCALE([gradient], found_inf, half)
        assert found_inf.item() == 1
        gradient[place] = 0.5


def test_gradients_of_several_dtypes_go_in_one_launch():
    gradients = [torch.full((3,), 8.0, dtype=dtype, device=DEVICE) for dtype in DTYPES]
    found_inf = torch.zeros((), device=DEVICE)
    UNSCALE(gradients, found_inf, torch.tensor(0.25, device=DEVICE))
    assert [gradient.tolist() for gradient in gradients] == [[2.0] * 3] * len(DTYPES)


def layouts(base):
    return {
        "transposed": base.t(),
        "with gaps": base[:, ::2],
        "at an odd start": base.flatten()[1:],
        "empty": base[:0],
        "of no dimensions": base[0, 0],
    }


@pytest.mark.parametrize("layout", layouts(torch.empty(2, 2)))
@pytest.mark.parametrize("dtype", DTYPES)
def test_only_the_gradient_is_unscaled_in_any_layout(layout, dtype):
    host = torch.arange(1, 36, dtype=dtype).view(5, 7)
    device = host.to(DEVICE)
    layouts(host)[layout].mul_(0.5)
    found_inf = torch.zeros((), device=DEVICE)
    UNSCALE([layouts(device)[layout]], found_inf, torch.tensor(0.5, device=DEVICE))
    assert torch.equal(device.cpu(), host)
    assert found_inf.item() == 0


def test_found_inf_stays_set():
    found_inf = torch.ones((), device=DEVICE)
    UNSCALE([torch.ones(3, device=DEVICE)], found_inf, torch.tensor(0.5, device=DEVICE))
    assert found_inf.item() == 1


def test_scaler_runs_after_earlier_work_of_its_stream():
    # Large products. From the second on the worker computes them. The first and the last
    # overflow.
    host = torch.rand(700, 700, generator=torch.Generator().manual_seed(0))
    device = host.to(DEVICE)
    half = torch.tensor(0.5, device=DEVICE)
    scale = torch.tensor(1024.0, device=DEVICE)
    tracker = torch.zeros((), dtype=torch.int32, device=DEVICE)
    factors = [math.inf, 1.0, 2.0, math.inf]
    gradients, found = [], []
    for factor in factors:
        gradients.append(torch.tanh(device @ device) * factor)
        found.append(torch.zeros((), device=DEVICE))
        with_gaps = gradients[-1][:, ::2]
        UNSCALE([with_gaps], found[-1], half)
        UPDATE(scale, tracker, found[-1], 2.0, 0.25, 1)
    assert [each.item() for each in found] == [1.0, 0.0, 0.0, 1.0]
    assert scale.item() == 1024.0 / 4 * 2 * 2 / 4
    for gradient, factor in zip(gradients, factors, strict=True):
        expected = torch.tanh(host @ host) * factor
        expected[:, ::2] *= 0.5
        torch.testing.assert_close(gradient.cpu(), expected)


def complaint(function, arguments):
    """Return the type and message of the error, without the device's name."""
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        function(*arguments)
    return type(raised.value), str(raised.value).split("\n")[0].replace("cpu", DEVICE)


def bad_gradients(device):
    good, one = torch.ones(2, device=device), torch.ones(1, device=device)
    return [
        ([good], torch.zeros(2, device=device), one),
        ([good], one, torch.ones(2, device=device)),
        ([good], one.double(), one),
        ([good.int()], one, one),
        ([good.to(torch.complex64)], one, one),
        ([torch.ones(1, device=device).expand(3)], one, one),
    ]


def bad_scales(device):
    one, count = torch.ones(1, device=device), torch.ones(1, dtype=torch.int32, device=device)
    return [
        (torch.ones(2, device=device), count, one, 2.0, 0.5, 3),
        (one, one, one, 2.0, 0.5, 3),
        (one, count, torch.ones(3, device=device), 2.0, 0.5, 3),
        (one.double(), count, one, 2.0, 0.5, 3),
    ]


@pytest.mark.parametrize("case", range(len(bad_gradients("cpu"))))
def test_errors_for_gradients_are_those_of_the_cpu(case):
    on_cpu, on_device = bad_gradients("cpu")[case], bad_gradients(DEVICE)[case]
    assert complaint(UNSCALE, on_device) == complaint(UNSCALE, on_cpu)


@pytest.mark.parametrize("case", range(len(bad_scales("cpu"))))
def test_errors_for_scales_are_those_of_the_cpu(case):
    assert complaint(UPDATE, bad_scales(DEVICE)[case]) == complaint(UPDATE, bad_scales("cpu")[case])


def test_scale_and_found_inf_must_be_on_the_device():
    gradient, one = torch.ones(2, device=DEVICE), torch.ones(1, device=DEVICE)
    with pytest.raises(RuntimeError, match=f"inv_scale must be an? {NAME} tensor"):
        UNSCALE([gradient], one, torch.ones(1))
    with pytest.raises(RuntimeError, match=f"found_inf must be an? {NAME} tensor"):
        UPDATE(one, one.int(), torch.ones(1), 2.0, 0.5, 3)


def test_gradient_on_another_device_is_refused():
    one = torch.ones(1, device=f"{DEVICE}:0")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        UNSCALE([one, torch.ones(2, device=f"{DEVICE}:1")], one, one)


def test_an_empty_list_of_gradients_is_accepted():
    found_inf = torch.zeros(1, device=DEVICE)
    UNSCALE([], found_inf, torch.ones(1, device=DEVICE))
    assert found_inf.item() == 0
