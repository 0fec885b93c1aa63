// ATen/cuda/CUDAContextLight.h: the sizes of cuBLAS's workspaces. There is no cuBLAS. Its
// workspaces exist for the bytes that they take (docs/gpu-memory.md).

#include <ATen/cuda/CUDAContextLight.h>
#include <torch/version.h>

#include "stand_ins/torch_cuda/host_functions.h"

namespace at::cuda {

void clearCublasWorkspaces() {
  openreg::host_functions().clear_blas_workspaces();
}

size_t getChosenWorkspaceSize() {
  return openreg::host_functions().blas_workspace_bytes(/*is_lt=*/false);
}

size_t getCUDABlasLtWorkspaceSize() {
  return openreg::host_functions().blas_workspace_bytes(/*is_lt=*/true);
}

#if TORCH_VERSION_MINOR >= 13
void setChosenWorkspaceSize(size_t size) {
  openreg::host_functions().set_blas_workspace_bytes(/*is_lt=*/false, size);
}

void setCUDABlasLtWorkspaceSize(size_t size) {
  openreg::host_functions().set_blas_workspace_bytes(/*is_lt=*/true, size);
}

void resetChosenWorkspaceSize() {
  openreg::host_functions().reset_blas_workspace_bytes(/*is_lt=*/false);
}

void resetCUDABlasLtWorkspaceSize() {
  openreg::host_functions().reset_blas_workspace_bytes(/*is_lt=*/true);
}
#endif

} // namespace at::cuda
