"""The settings of TunableOp, as named in ``torch._C``. They have no effect.

TunableOp measures several implementations of matrix products and chooses the fastest. openreg has
only one.
"""

import torch._C

__all__ = [
    "_cuda_record_untuned_enable",
    "_cuda_record_untuned_is_enabled",
    "_cuda_tunableop_enable",
    "_cuda_tunableop_get_filename",
    "_cuda_tunableop_get_max_tuning_duration",
    "_cuda_tunableop_get_max_tuning_iterations",
    "_cuda_tunableop_get_results",
    "_cuda_tunableop_get_rotating_buffer_size",
    "_cuda_tunableop_get_validators",
    "_cuda_tunableop_is_enabled",
    "_cuda_tunableop_read_file",
    "_cuda_tunableop_set_filename",
    "_cuda_tunableop_set_max_tuning_duration",
    "_cuda_tunableop_set_max_tuning_iterations",
    "_cuda_tunableop_set_numerical_check_tolerances",
    "_cuda_tunableop_set_rotating_buffer_size",
    "_cuda_tunableop_tuning_enable",
    "_cuda_tunableop_tuning_is_enabled",
]

# CUDA's defaults, from ATen/cuda/tunable/Tunable.h.
_enabled = {"tunable": False, "tuning": True, "recording": False}
_limits = {"milliseconds": 30, "iterations": 100, "buffer": 0}
_file = {"name": "tunableop_results0.csv"}


def _cuda_tunableop_enable(val: bool) -> None:
    _enabled["tunable"] = bool(val)


def _cuda_tunableop_is_enabled() -> bool:
    return _enabled["tunable"]


def _cuda_tunableop_tuning_enable(val: bool) -> None:
    _enabled["tuning"] = bool(val)


def _cuda_tunableop_tuning_is_enabled() -> bool:
    return _enabled["tuning"]


def _cuda_record_untuned_enable(val: bool) -> None:
    _enabled["recording"] = bool(val)


def _cuda_record_untuned_is_enabled() -> bool:
    return _enabled["recording"]


def _cuda_tunableop_set_max_tuning_duration(duration: int) -> None:
    _limits["milliseconds"] = max(duration, 0)


def _cuda_tunableop_get_max_tuning_duration() -> int:
    return _limits["milliseconds"]


def _cuda_tunableop_set_max_tuning_iterations(iterations: int) -> None:
    _limits["iterations"] = max(iterations, 0)


def _cuda_tunableop_get_max_tuning_iterations() -> int:
    return _limits["iterations"]


def _cuda_tunableop_set_rotating_buffer_size(buffer_size: int) -> None:
    _limits["buffer"] = max(buffer_size, 0)


def _cuda_tunableop_get_rotating_buffer_size() -> int:
    return _limits["buffer"]


def _cuda_tunableop_set_numerical_check_tolerances(
    enabled: bool, atol: float = 1e-5, rtol: float = 1e-5
) -> None:
    pass


def _cuda_tunableop_set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    if insert_device_ordinal:
        stem, dot, extension = filename.rpartition(".")
        device = torch._C._cuda_getDevice()
        filename = f"{stem}{device}{dot}{extension}" if dot else f"{filename}{device}"
    _file["name"] = filename


def _cuda_tunableop_get_filename() -> str:
    return _file["name"]


def _cuda_tunableop_read_file(filename: str | None) -> bool:
    return False


def _cuda_tunableop_get_results() -> tuple[()]:
    return ()


def _cuda_tunableop_get_validators() -> tuple[()]:
    return ()
