"""Random numbers: the seeds and states of the devices' default generators.

Seeding does not initialize the devices, because a generator is only a few numbers. So a seed need
not be stored until initialization, and a forked process may seed. As in ``torch.cuda``, functions
that read a generator initialize the devices.
"""

from collections.abc import Iterable, Sequence
from typing import overload

import torch
from torch import Tensor

from torch_openreg import _C

from .devices import _lazy_init, device_count


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generators of all devices, created on first use."""

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...

    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        count = device_count()
        if isinstance(index, slice):
            return tuple(_C.default_generator(i) for i in range(count)[index])
        if not -count <= index < count:
            raise IndexError(f"no default generator for device {index}: there are {count} devices")
        return _C.default_generator(index % count)

    def __len__(self) -> int:
        return device_count()

    def __repr__(self) -> str:
        return repr(tuple(self))


default_generators = _DefaultGenerators()


def _generator_of(device: int | str | torch.device) -> torch.Generator:
    if isinstance(device, int):
        return default_generators[device]
    index = torch.device(device).index
    return default_generators[_C.current_device() if index is None else index]


def _get_generator(device: torch.device) -> torch.Generator:
    return _generator_of(device)


def get_rng_state(device: int | str | torch.device = "openreg") -> Tensor:
    """Return the state of the default generator of a device: a ByteTensor of seed and offset.

    Parameters
    ----------
    device : torch.device, str or int
        The device; without an index, the current one.
    """
    _lazy_init()
    return _generator_of(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """Return the states of the default generators of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device: int | str | torch.device = "openreg") -> None:
    """Set the state of the default generator of a device.

    Parameters
    ----------
    new_state : torch.Tensor
        A state from `get_rng_state`.
    device : torch.device, str or int
        The device; without an index, the current one.
    """
    _generator_of(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of the default generators of all devices.

    Parameters
    ----------
    new_states : iterable of torch.Tensor
        One state per device, in the order of the devices.
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device.

    Parameters
    ----------
    seed : int
        The seed. To seed all devices, use `manual_seed_all`.
    """
    _generator_of("openreg").manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices.

    Parameters
    ----------
    seed : int
        The seed, the same for every device.
    """
    seed = int(seed)
    for generator in default_generators:
        generator.manual_seed(seed)


def seed() -> None:
    """Seed the generator of the current device with a random number."""
    _generator_of("openreg").seed()


def seed_all() -> None:
    """Seed the generators of all devices with the same random number."""
    manual_seed_all(default_generators[0].seed())


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    _lazy_init()
    return _generator_of("openreg").initial_seed()


def _get_rng_state_offset(device: int | str | torch.device = "openreg") -> int:
    _lazy_init()
    return _generator_of(device).get_offset()


def _set_rng_state_offset(offset: int, device: int | str | torch.device = "openreg") -> None:
    _generator_of(device).set_offset(offset)
