// The number of threads of PyTorch's BLAS library. MKL keeps it per thread, apart from OpenMP's.
// at::set_num_threads sets both, but also the count for threads that start later.
#pragma once

// MKL's function, exported by libtorch_cpu; absent in a PyTorch without MKL.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace openreg {

// Sets the count for the calling thread and returns the count before. 0: the process's default.
inline int set_blas_threads(int threads) {
  return MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(threads) : 0;
}

} // namespace openreg
