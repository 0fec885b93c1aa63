"""What cuSOLVER decides in linear algebra: the routines that `driver` names, and layouts."""

import pytest
import torch

from device import DEVICE


def matrices(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64, device=DEVICE)


of_cuda = pytest.mark.skipif(DEVICE != "cuda", reason="openreg mode has the CPU's drivers")


@of_cuda
@pytest.mark.parametrize("driver", [None, "gels", "GELS"])
def test_least_squares_have_the_results_of_gels(driver):
    a, b = matrices(4, 5, 3), matrices(4, 5, 2)
    solved = torch.linalg.lstsq(a, b, driver=driver)
    expected = torch.linalg.lstsq(a.cpu(), b.cpu(), driver="gels")
    torch.testing.assert_close(solved.solution.cpu(), expected.solution)
    torch.testing.assert_close(solved.residuals.cpu(), expected.residuals)
    assert solved.residuals.shape == (4, 2)
    assert solved.rank.numel() == 0 and solved.singular_values.numel() == 0


@of_cuda
@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss", "qr"])
def test_least_squares_refuse_other_drivers(driver):
    with pytest.raises(RuntimeError, match="`driver` other than `gels` is not supported on CUDA"):
        torch.linalg.lstsq(matrices(5, 3), matrices(5, 2), driver=driver)


@pytest.mark.parametrize("driver", [None, "gesvd", "gesvdj", "gesvda"])
def test_singular_values_can_be_computed_by_any_driver_of_a_gpu(driver):
    a = matrices(4, 5, 3)
    u, s, vh = torch.linalg.svd(a, full_matrices=False, driver=driver)
    torch.testing.assert_close(u @ s.diag_embed() @ vh, a)
    torch.testing.assert_close(torch.linalg.svdvals(a, driver=driver), s)
    result = torch.linalg.svdvals(a, driver=driver, out=torch.empty_like(s))
    torch.testing.assert_close(result, s)


def test_an_unknown_driver_is_refused():
    with pytest.raises(RuntimeError, match="unknown svd driver gesdd in svd_cusolver computation"):
        torch.linalg.svd(matrices(3, 3), driver="gesdd")
    assert torch.linalg.svdvals(matrices(0, 3), driver="gesdd").numel() == 0


@of_cuda
def test_the_second_matrix_of_a_decomposition_is_stored_by_rows():
    u, _, vh = torch.linalg.svd(matrices(4, 5, 3), full_matrices=False)
    assert u.stride() == (15, 1, 5)
    assert vh.stride() == (9, 3, 1)
