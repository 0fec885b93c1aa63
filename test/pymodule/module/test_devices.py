"""Devices: their number, the current one, their properties, and errors for missing devices."""

import threading

import pytest
import torch
from modes import openreg_only

from device import DEVICE, module


def test_there_are_two_devices_unless_configured():
    assert module.device_count() == 2


def test_devices_are_available():
    assert module.is_available() is True


def test_init_initializes():
    module.init()
    assert module.is_initialized() is True


def test_initialization_state_follows_the_first_use(python):
    python(
        """
        import torch
        from device import DEVICE, module
        assert not module.is_initialized() and not module._initialized
        module.device_count(), module.is_available(), torch.manual_seed(0)
        assert not module.is_initialized()
        torch.empty(1, device=DEVICE)
        assert module.is_initialized() and module._initialized
        """
    )


def test_choosing_a_device_is_a_first_use(python):
    python(
        """
        import torch
        from device import module
        module.set_device(-1)
        assert not module.is_initialized()
        module.set_device(0)
        assert module.is_initialized()
        """
    )


def test_device_without_index_is_the_current_one():
    assert torch.ones(1, device=DEVICE).device == torch.device(DEVICE, 0)
    module.set_device(1)
    assert torch.ones(1, device=DEVICE).device == torch.device(DEVICE, 1)


@pytest.mark.parametrize("device", [1, f"{DEVICE}:1", torch.device(f"{DEVICE}:1")])
def test_set_device_takes_every_spelling(device):
    module.set_device(device)
    assert module.current_device() == 1


def test_set_device_ignores_a_negative_index():
    module.set_device(1)
    module.set_device(-1)
    assert module.current_device() == 1


@pytest.mark.parametrize("index", [2, 64, 127, 128, 256])
def test_set_device_refuses_an_index_out_of_range(index):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        module.set_device(index)
    assert module.current_device() == 0


def test_set_device_refuses_another_type():
    with pytest.raises(ValueError, match=f"Expected a {DEVICE} device, but got: cpu"):
        module.set_device("cpu")


def test_set_device_refuses_a_device_without_index():
    with pytest.raises(ValueError, match=f"with a specified index or an integer, but got:{DEVICE}"):
        module.set_device(DEVICE)


def test_set_device_refuses_invalid_devices():
    with pytest.raises(ValueError, match="with a specified index or an integer, but got:1.5"):
        module.set_device(1.5)


def test_tensor_on_a_device_out_of_range_is_refused():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device=f"{DEVICE}:2")


def test_device_context_restores_the_device():
    with module.device(1):
        assert module.current_device() == 1
        with module.device(f"{DEVICE}:0"):
            assert module.current_device() == 0
        assert module.current_device() == 1
    assert module.current_device() == 0


def test_device_context_restores_the_device_after_an_exception():
    with pytest.raises(KeyError), module.device(1):
        raise KeyError
    assert module.current_device() == 0


@pytest.mark.parametrize("device", [None, -1])
def test_device_context_may_change_nothing(device):
    module.set_device(1)
    with module.device(device):
        assert module.current_device() == 1
    assert module.current_device() == 1


def test_device_context_refuses_an_index_out_of_range():
    with pytest.raises(RuntimeError, match="invalid device ordinal"), module.device(2):
        pass


def test_torch_device_is_a_context_for_factories():
    with torch.device(f"{DEVICE}:1"):
        assert torch.zeros(3).device == torch.device(f"{DEVICE}:1")


def test_device_of_follows_a_tensor():
    with module.device_of(torch.empty(1, device=f"{DEVICE}:1")):
        assert module.current_device() == 1
    assert module.current_device() == 0


def test_device_of_follows_a_storage():
    with module.device_of(torch.empty(1, device=f"{DEVICE}:1").untyped_storage()):
        assert module.current_device() == 1


def test_device_of_ignores_a_host_tensor():
    module.set_device(1)
    with module.device_of(torch.empty(1)):
        assert module.current_device() == 1


def test_exchange_device_returns_the_previous_one():
    assert module._exchange_device(1) == 0
    assert module._exchange_device(-1) == -1
    assert module._maybe_exchange_device(0) == 1
    assert module.current_device() == 0


def test_current_device_belongs_to_the_thread():
    module.set_device(1)
    seen = []

    def look():
        seen.append(module.current_device())
        module.set_device(0)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [0]
    assert module.current_device() == 1


def test_threads_use_devices_side_by_side():
    barrier = threading.Barrier(4)
    results = {}

    def work(number):
        module.set_device(number % 2)
        barrier.wait()
        total = torch.zeros(8, 8, device=DEVICE)
        for step in range(100):
            total += torch.full((8, 8), float(number * step), device=DEVICE)
            assert total.device.index == number % 2
        results[number] = total.cpu()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        torch.testing.assert_close(results[number], torch.full((8, 8), number * 4950.0))


def test_synchronize_takes_every_spelling():
    for device in (None, 0, DEVICE, f"{DEVICE}:1", torch.device(f"{DEVICE}:1")):
        module.synchronize(device)


def test_synchronize_refuses_a_device_out_of_range():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        module.synchronize(2)


def test_default_profile_is_an_h100():
    properties = module.get_device_properties(0)
    assert (properties.major, properties.minor) == (9, 0)
    assert properties.multi_processor_count == 132
    assert properties.max_threads_per_multi_processor == 2048
    assert properties.warp_size == 32
    assert properties.profile == "h100"
    assert "H100" in properties.name


def test_properties_tell_memory_and_placement():
    properties = module.get_device_properties(f"{DEVICE}:1")
    assert properties.total_memory == module.mem_get_info(1)[1]
    assert isinstance(properties.cpuset, str)
    assert properties.numa_node >= -1


def test_properties_of_one_device_are_equal_however_it_is_named():
    properties = module.get_device_properties(0)
    assert properties == module.get_device_properties(f"{DEVICE}:0")
    assert properties == module.get_device_properties()
    assert properties != module.get_device_properties(1)


def test_properties_are_read_only():
    with pytest.raises(AttributeError):
        module.get_device_properties(0).name = "other"


def test_name_and_capability_come_from_the_properties():
    assert module.get_device_name(1) == module.get_device_properties(1).name
    assert module.get_device_capability(DEVICE) == (9, 0)


@pytest.mark.parametrize("index", [-1, 2])
def test_properties_of_a_device_that_does_not_exist_are_refused(index):
    more = "" if DEVICE == "cuda" else f": {index}, expected 0 to 1"
    with pytest.raises(AssertionError, match=f"^Invalid device id{more}$"):
        module.get_device_properties(index)


def allocate_on(index):
    module.caching_allocator_alloc(512, index, 0)


@pytest.mark.parametrize("index", [2, 256, 2**20])
@pytest.mark.parametrize("function", [module.synchronize, allocate_on])
def test_no_index_that_does_not_exist_becomes_the_current_device(function, index):
    with pytest.raises(torch.AcceleratorError, match=f"invalid device ordinal\n.* {index}: "):
        function(index)


@openreg_only("torch.cuda.device, in which these run, ignores negative numbers")
@pytest.mark.parametrize("function", [module.synchronize, allocate_on])
def test_no_negative_index_becomes_the_current_device(function):
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal\n.* -256: "):
        function(-256)


@pytest.mark.parametrize(
    "function",
    [
        module.memory_stats,
        module.mem_get_info,
        module.reset_peak_memory_stats,
        # torch.cuda ignores the index: the handle contains the device of the event.
        *(
            []
            if DEVICE == "cuda"
            else [lambda index: module.Event.from_ipc_handle(index, bytes(64))]
        ),
    ],
)
@pytest.mark.parametrize("index", [2, 256, -256, 2**20])
def test_no_index_that_does_not_exist_stands_for_one_that_does(function, index):
    with pytest.raises(torch.AcceleratorError, match=f"invalid device ordinal\n.* {index}: "):
        function(index)


def test_peers_can_reach_each_other():
    assert module.can_device_access_peer(0, 1) is True
    assert module.can_device_access_peer(1, 0) is True
    assert module.can_device_access_peer(0, 0) is False


def test_peer_access_of_devices_that_do_not_exist_is_refused():
    with pytest.raises(AssertionError, match="Invalid device id"):
        module.can_device_access_peer(2, 0)
    with pytest.raises(AssertionError, match="Invalid peer device id"):
        module.can_device_access_peer(0, 2)


def test_profile_of_each_device_can_be_chosen(python):
    result = python(
        """
        import torch
        from device import module
        for i in range(3):
            p = module.get_device_properties(i)
            print(p.multi_processor_count, p.max_threads_per_multi_processor, p.major, p.minor)
        """,
        OPENREG_DEVICE_COUNT="3",
        OPENREG_PROFILE="a100,t4,h100",
    )
    assert result.stdout == "108 2048 8 0\n40 1024 7 5\n132 2048 9 0\n"


def test_as_many_devices_as_configured(python):
    result = python(
        """
        import torch
        from device import DEVICE
        print([torch.ones(1, device=f"{DEVICE}:{i}").get_device() for i in (0, 31, 63)])
        """,
        OPENREG_DEVICE_COUNT="64",
        OPENREG_DEVICE_MEMORY="64M",
    )
    assert result.stdout == "[0, 31, 63]\n"
