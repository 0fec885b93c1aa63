"""Generators: seeding, states, independence, and which operators draw from them."""

import struct
import warnings

import pytest
import torch

from device import DEVICE, module


def draw(device=DEVICE, **kwargs):
    return torch.rand(4, device=device, **kwargs).tolist()


def test_same_seed_gives_the_same_numbers():
    torch.manual_seed(5)
    first = draw()
    assert draw() != first
    torch.manual_seed(5)
    assert draw() == first


def test_manual_seed_of_torch_seeds_every_device():
    torch.manual_seed(5)
    assert draw(f"{DEVICE}:0") == draw(f"{DEVICE}:1")


def test_manual_seed_seeds_the_current_device_only():
    module.manual_seed_all(1)
    module.set_device(1)
    module.manual_seed(2)
    assert module.initial_seed() == 2
    assert module.default_generators[0].initial_seed() == 1


def test_seed_before_first_use_is_kept(python):
    code = f"import torch; torch.manual_seed(7); print(torch.rand(4, device='{DEVICE}').tolist())"
    output = python(code).stdout
    torch.manual_seed(7)
    assert output == f"{draw()}\n"


def test_unseeded_processes_draw_different_numbers(python):
    code = f"import torch; print(torch.rand(4, device='{DEVICE}').tolist())"
    assert python(code).stdout != python(code).stdout


def test_seed_chooses_a_new_seed_for_the_current_device():
    module.manual_seed_all(1)
    module.seed()
    assert module.initial_seed() != 1
    assert module.default_generators[1].initial_seed() == 1


def test_seed_all_chooses_one_seed_for_all_devices():
    module.manual_seed_all(1)
    module.seed_all()
    seeds = {generator.initial_seed() for generator in module.default_generators}
    assert len(seeds) == 1 and seeds != {1}


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
def test_large_seeds_are_kept(seed):
    module.manual_seed(seed)
    assert module.initial_seed() == seed


def test_negative_seed_wraps_around():
    module.manual_seed(-1)
    assert module.initial_seed() == 2**64 - 1


def test_devices_draw_independently():
    torch.manual_seed(5)
    first, second = draw(f"{DEVICE}:0"), draw(f"{DEVICE}:0")
    torch.manual_seed(5)
    assert draw(f"{DEVICE}:0") == first
    assert draw(f"{DEVICE}:1") == first
    assert draw(f"{DEVICE}:0") == second


def test_drawing_on_the_host_does_not_affect_devices():
    torch.manual_seed(5)
    state = module.get_rng_state()
    torch.rand(10)
    assert torch.equal(module.get_rng_state(), state)


def test_state_is_seed_and_offset_in_16_bytes():
    module.manual_seed(123456789)
    draw()
    state = module.get_rng_state()
    assert state.is_cpu and state.dtype == torch.uint8
    assert struct.unpack("<QQ", bytes(state.tolist())) == (123456789, 4)


def test_state_can_be_set_again():
    state = module.get_rng_state()
    first = draw()
    module.set_rng_state(state)
    assert draw() == first


@pytest.mark.parametrize("device", [1, f"{DEVICE}:1", torch.device(f"{DEVICE}:1")])
def test_state_of_every_spelling_of_a_device(device):
    module.manual_seed_all(3)
    state = module.get_rng_state(device)
    module.set_rng_state(torch.zeros(16, dtype=torch.uint8), device)
    assert module.default_generators[1].initial_seed() == 0
    assert module.default_generators[0].initial_seed() == 3
    module.set_rng_state(state, device)
    assert module.default_generators[1].initial_seed() == 3


def test_states_of_all_devices_can_be_set_again():
    states = module.get_rng_state_all()
    assert len(states) == 2
    first = [draw(f"{DEVICE}:0"), draw(f"{DEVICE}:1")]
    module.set_rng_state_all(states)
    assert [draw(f"{DEVICE}:0"), draw(f"{DEVICE}:1")] == first


def test_state_without_offset_starts_at_the_beginning():
    module.manual_seed(9)
    first = draw()
    module.set_rng_state(torch.tensor([9] + [0] * 7, dtype=torch.uint8))
    assert draw() == first


def test_state_of_the_wrong_size_is_refused():
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        module.set_rng_state(torch.zeros(15, dtype=torch.uint8))


def test_state_with_an_impossible_offset_is_refused():
    state = torch.tensor(list(struct.pack("<QQ", 1, 6)), dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        module.set_rng_state(state)


def test_state_of_a_device_that_does_not_exist_is_refused():
    sentence = "no default generator for device 2: there are 2 devices|^tuple index out of range$"
    with pytest.raises(IndexError, match=sentence):
        module.get_rng_state(2)


def test_offset_can_be_read_and_set():
    module.manual_seed(1)
    first = draw()
    assert module._get_rng_state_offset() == 4
    module._set_rng_state_offset(0)
    assert draw() == first


def test_default_generators_is_a_sequence_with_one_per_device():
    generators = module.default_generators
    assert len(generators) == 2
    assert [g.device for g in generators] == [torch.device(DEVICE, i) for i in (0, 1)]
    assert generators[-1].device == generators[1].device == torch.device(f"{DEVICE}:1")
    assert [g.device.index for g in generators[:1]] == [0]
    with pytest.raises(IndexError):
        generators[2]


def test_default_generator_is_the_one_that_operators_use():
    module.default_generators[1].manual_seed(4)
    first = draw(f"{DEVICE}:1")
    module._get_generator(torch.device(f"{DEVICE}:1")).manual_seed(4)
    assert draw(f"{DEVICE}:1") == first


def test_own_generator_starts_with_the_documented_seed():
    generator = torch.Generator(device=f"{DEVICE}:1")
    assert generator.device == torch.device(f"{DEVICE}:1")
    assert generator.initial_seed() == 67280421310721


def test_own_generator_gives_the_numbers_of_its_seed():
    generator = torch.Generator(device=f"{DEVICE}:1").manual_seed(5)
    torch.manual_seed(5)
    state = module.get_rng_state(1)
    numbers = draw(f"{DEVICE}:1", generator=generator)
    assert torch.equal(module.get_rng_state(1), state)
    assert draw(f"{DEVICE}:1") == numbers


def test_own_generator_can_be_cloned_and_restored():
    generator = torch.Generator(device=DEVICE).manual_seed(5)
    clone = generator.clone_state()
    first = draw(generator=generator)
    assert draw(generator=clone) == first
    generator.set_state(torch.Generator(device=DEVICE).manual_seed(5).get_state())
    assert draw(generator=generator) == first


def test_generator_of_the_host_is_refused():
    with pytest.raises(RuntimeError, match="Expected a .*generator.* but found .*cpu"):
        draw(f"{DEVICE}:0", generator=torch.Generator(device="cpu"))


def test_generator_of_a_device_that_does_not_exist_is_refused():
    with pytest.raises(RuntimeError, match="device"):
        torch.Generator(device=f"{DEVICE}:2")


def test_fork_rng_restores_host_and_devices():
    torch.manual_seed(5)
    before = [torch.get_rng_state(), *module.get_rng_state_all()]
    with torch.random.fork_rng(devices=range(2)):
        torch.manual_seed(6)
        draw(), draw(f"{DEVICE}:1"), torch.rand(1)
    after = [torch.get_rng_state(), *module.get_rng_state_all()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_fork_rng_takes_all_devices_by_default():
    torch.manual_seed(5)
    before = module.get_rng_state(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.random.fork_rng(device_type=DEVICE):
            draw(f"{DEVICE}:1")
    assert torch.equal(module.get_rng_state(1), before)


def test_random_operator_without_a_kernel_refuses_by_name():
    state = module.get_rng_state()
    with torch.library._scoped_library("openreg_test", "FRAGMENT") as library:
        library.define("draw(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
        library.impl("draw", torch.rand_like, "CPU")  # must not use the host's generator
        with pytest.raises(NotImplementedError, match="openreg_test::draw"):
            torch.ops.openreg_test.draw(torch.ones(4, device=DEVICE))
    assert torch.equal(module.get_rng_state(), state)


def test_empty_tensors_draw_nothing():
    state = module.get_rng_state()
    torch.rand(0, device=DEVICE)
    torch.randn(0, 3, device=DEVICE)
    torch.nn.functional.dropout(torch.empty(0, device=DEVICE))
    assert torch.equal(module.get_rng_state(), state)


def test_dropout_in_evaluation_draws_nothing():
    state = module.get_rng_state()
    x = torch.ones(8, device=DEVICE)
    assert torch.equal(torch.nn.functional.dropout(x, 0.5, training=False), x)
    assert torch.equal(module.get_rng_state(), state)


def test_checkpointed_dropout_draws_the_same_mask_twice():
    torch.manual_seed(1)
    x = torch.ones(64, device=DEVICE, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(torch.nn.functional.dropout, x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: x.uniform_(2, 1), "from"),
        (lambda x: x.normal_(0, -1), "std"),
        (lambda x: x.exponential_(-1), "lambda"),
        (lambda x: x.bernoulli_(1.5), "p"),
        (lambda x: x.random_(3, 3), "from"),
        (lambda x: torch.randint(5, 5, (2,), device=x.device), "from"),
        (lambda x: torch.nn.functional.dropout(x, 1.5), "dropout probability"),
        (lambda x: torch.multinomial(-x, 1), "probability tensor contains"),
        (lambda x: torch.multinomial(x, 5), "replacement"),
        (lambda x: x.long().uniform_(), "not implemented for"),
    ],
)
def test_bad_arguments_are_refused_as_on_the_cpu(call, sentence):
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, ValueError), match=sentence):
            call(torch.ones(4, device=device))
