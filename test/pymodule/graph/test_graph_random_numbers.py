"""Random numbers of graphs: each replay draws what the same eager launches would."""

import pytest
import torch
import torch.utils.checkpoint

from device import DEVICE, module


def draws():
    x = torch.ones(1000, device=DEVICE)
    return (
        torch.rand(1000, device=DEVICE),
        torch.randn(7, 5, device=DEVICE),
        torch.nn.functional.dropout(x, 0.3),
        torch.randint(0, 100, (50,), device=DEVICE),
        torch.bernoulli(x * 0.5),
        torch.randperm(20, device=DEVICE),
        x.clone().exponential_(),
        torch.poisson(x),
        torch.nn.functional.rrelu(-x, training=True),
    )


def captured(function):
    graph = module.CUDAGraph()
    with module.graph(graph):
        results = function()
    return graph, results


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_replays_draw_the_numbers_of_eager_launches():
    graph, results = captured(draws)
    torch.manual_seed(7)
    expected = [tuple(each.clone() for each in draws()) for _ in range(3)]
    torch.manual_seed(7)
    for each in expected:
        graph.replay()
        assert_equal(results, each)


def test_a_capture_draws_nothing():
    torch.manual_seed(3)
    before = module.get_rng_state()
    captured(draws)
    assert torch.equal(module.get_rng_state(), before)


def test_a_checkpoint_in_a_capture_draws_the_same_numbers_again():
    def step():
        x = torch.ones(100, device=DEVICE, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(
            lambda x: x * torch.rand(100, device=DEVICE), x, use_reentrant=False
        )
        after = torch.rand(3, device=DEVICE)
        return y, *torch.autograd.grad(y.sum(), x), after

    graph, results = captured(step)
    torch.manual_seed(4)
    expected = [tuple(each.clone() for each in step()) for _ in range(2)]
    torch.manual_seed(4)
    for each in expected:
        graph.replay()
        assert_equal(results, each)
        assert torch.equal(results[0], results[1])


def test_a_state_of_a_capture_is_a_position_in_its_graph():
    def step():
        state = module.get_rng_state()
        first = torch.rand(10, device=DEVICE)
        module.set_rng_state(state)
        return first, torch.rand(10, device=DEVICE), torch.rand(10, device=DEVICE)

    torch.manual_seed(9)
    before = module.get_rng_state()
    graph, (first, again, other) = captured(step)
    assert torch.equal(module.get_rng_state(), before)
    graph.replay()
    assert torch.equal(first, again) and not torch.equal(again, other)


def test_a_capture_refuses_the_state_of_another_seed():
    torch.manual_seed(1)
    state = module.get_rng_state()
    torch.manual_seed(2)
    graph = module.CUDAGraph()
    with module.graph(graph):
        numbers = torch.rand(10, device=DEVICE)
        with pytest.raises(RuntimeError, match="only if new seed is the same"):
            module.set_rng_state(state)
    graph.replay()
    torch.manual_seed(2)
    assert torch.equal(torch.rand(10, device=DEVICE), numbers)


def test_eager_launches_continue_after_a_replay():
    graph, _ = captured(draws)
    torch.manual_seed(1)
    draws()
    expected = torch.rand(10, device=DEVICE)
    torch.manual_seed(1)
    graph.replay()
    assert torch.equal(torch.rand(10, device=DEVICE), expected)


def test_queued_replays_draw_their_own_numbers():
    graph, (numbers,) = captured(lambda: (torch.rand(100, device=DEVICE),))
    found = []
    torch.manual_seed(5)
    for _ in range(20):
        graph.replay()
        found.append(numbers.clone())
    torch.manual_seed(5)
    assert_equal(found, [torch.rand(100, device=DEVICE) for _ in range(20)])


def test_attention_with_dropout_is_the_same_both_ways():
    query = torch.randn(2, 2, 8, 4, device=DEVICE).requires_grad_()

    def attend():
        result = torch.nn.functional.scaled_dot_product_attention(
            query, query, query, dropout_p=0.4
        )
        (gradient,) = torch.autograd.grad(result.sum(), query)
        return result.detach(), gradient

    graph, results = captured(attend)
    torch.manual_seed(9)
    graph.replay()
    graph.replay()
    torch.manual_seed(9)
    attend()
    assert_equal(results, attend())


def test_a_capture_refuses_another_seed():
    torch.manual_seed(3)
    with pytest.raises(RuntimeError, match="only if new seed is the same as the original seed"):
        captured(lambda: (module.manual_seed(4), torch.rand(2, device=DEVICE)))
    graph, (_, numbers) = captured(lambda: (module.manual_seed(3), torch.rand(2, device=DEVICE)))
    graph.replay()
    torch.manual_seed(3)
    assert torch.equal(numbers, torch.rand(2, device=DEVICE))


def test_another_generator_must_be_registered():
    generator = torch.Generator(DEVICE)

    def draw():
        return torch.rand(10, device=DEVICE, generator=generator)

    with (
        pytest.raises(RuntimeError, match="outside graph capture"),
        module.graph(module.CUDAGraph()),
    ):
        torch.ones(1, device=DEVICE)
        draw()
    graph = module.CUDAGraph()
    graph.register_generator_state(generator)
    with module.graph(graph):
        numbers = draw()
    generator.manual_seed(4)
    graph.replay()
    first = numbers.clone()
    generator.manual_seed(4)
    assert torch.equal(draw(), first)


def test_first_numbers_of_a_program_are_captured(python):
    code = """
        import torch
        from device import DEVICE, module
        x = torch.zeros(8, device=DEVICE)
        graph = module.CUDAGraph()
        with module.graph(graph):
            x.copy_(torch.rand(8, device=DEVICE))
        seen = set()
        for _ in range(3):
            graph.replay()
            seen.add(tuple(x.tolist()))
        assert len(seen) == 3
    """
    python(code)
