// c10/cuda/CUDAAllocatorConfig.h: the settings of PYTORCH_CUDA_ALLOC_CONF that only CUDA has, for
// programs that ask for them. The values are those of the environment. The extension module parses
// and applies the same settings, and later changes of them reach it alone.

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/util/llvmMathExtras.h>
#include <torch/version.h>

namespace c10::cuda::CUDACachingAllocator {

using c10::CachingAllocator::ConfigTokenizer;

namespace {

// Each function below gets the index of its key and returns the index of the value.
size_t value_index(const ConfigTokenizer &tokens, size_t key) {
  tokens.checkToken(key + 1, ":");
  return key + 2;
}

} // namespace

size_t CUDAAllocatorConfig::parseAllocatorConfig(const ConfigTokenizer &tokenizer, size_t i,
                                                 bool &used_cudaMallocAsync) {
  i = value_index(tokenizer, i);
  used_cudaMallocAsync = tokenizer[i] == "cudaMallocAsync";
  TORCH_CHECK_VALUE(used_cudaMallocAsync || tokenizer[i] == "native",
                    "Unknown allocator backend, options are native and cudaMallocAsync");
  TORCH_CHECK_VALUE(!used_cudaMallocAsync, "openreg does not implement the allocator backend "
                                           "cudaMallocAsync: remove it, or set backend:native");
  return i;
}

size_t CUDAAllocatorConfig::parsePinnedUseCudaHostRegister(const ConfigTokenizer &tokenizer,
                                                           size_t i) {
  i = value_index(tokenizer, i);
  m_pinned_use_cuda_host_register = tokenizer.toBool(i);
  return i;
}

size_t CUDAAllocatorConfig::parsePinnedNumRegisterThreads(const ConfigTokenizer &tokenizer,
                                                          size_t i) {
  i = value_index(tokenizer, i);
  const auto count = tokenizer.toSizeT(i);
  TORCH_CHECK_VALUE(c10::llvm::isPowerOf2_64(count),
                    "Number of register threads has to be power of 2, got ", count);
  TORCH_CHECK_VALUE(count <= pinned_max_register_threads(),
                    "Number of register threads should be less than or equal to ",
                    pinned_max_register_threads(), ", got ", count);
  m_pinned_num_register_threads = count;
  return i;
}

size_t CUDAAllocatorConfig::parsePinnedReserveSegmentSize(const ConfigTokenizer &tokenizer,
                                                          size_t i) {
  i = value_index(tokenizer, i);
  const auto megabytes = tokenizer.toSizeT(i);
  TORCH_CHECK_VALUE(megabytes > 0, "Pinned reserve segment size has to be greater than 0");
  m_pinned_reserve_segment_size_mb = megabytes;
  return i;
}

size_t CUDAAllocatorConfig::parseGraphCaptureRecordStreamReuse(const ConfigTokenizer &tokenizer,
                                                               size_t i) {
  i = value_index(tokenizer, i);
  m_graph_capture_record_stream_reuse = tokenizer.toBool(i);
  return i;
}

#if TORCH_VERSION_MINOR >= 13
size_t
#else
double
#endif
CUDAAllocatorConfig::parsePerProcessMemoryFraction(const ConfigTokenizer &tokenizer, size_t i) {
  i = value_index(tokenizer, i);
  const auto fraction = tokenizer.toDouble(i);
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1,
                    "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
  m_per_process_memory_fraction = fraction;
  return i;
}

size_t CUDAAllocatorConfig::parsePinnedFreeCatchAll(const ConfigTokenizer &tokenizer, size_t i) {
  i = value_index(tokenizer, i);
  m_pinned_free_catch_all = tokenizer.toBool(i);
  return i;
}

size_t CUDAAllocatorConfig::parseThrowOnCudaMallocOom(const ConfigTokenizer &tokenizer, size_t i) {
  i = value_index(tokenizer, i);
  m_throw_on_cudamalloc_oom = tokenizer.toBool(i);
  return i;
}

// Skips settings that all accelerators have: AcceleratorAllocatorConfig parses them.
void CUDAAllocatorConfig::parseArgs(const std::string &env) {
  const ConfigTokenizer tokens(env);
  bool used_async = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto &key = tokens[i];
    if (key == "backend") {
      i = parseAllocatorConfig(tokens, i, used_async);
    } else if (key == "release_lock_on_cudamalloc" || key == "release_lock_on_hipmalloc") {
      i = value_index(tokens, i);
      m_release_lock_on_cudamalloc = tokens.toBool(i);
    } else if (key == "pinned_use_cuda_host_register" || key == "pinned_use_hip_host_register") {
      i = parsePinnedUseCudaHostRegister(tokens, i);
    } else if (key == "pinned_num_register_threads") {
      i = parsePinnedNumRegisterThreads(tokens, i);
    } else if (key == "pinned_reserve_segment_size_mb") {
      i = parsePinnedReserveSegmentSize(tokens, i);
    } else if (key == "graph_capture_record_stream_reuse") {
      i = parseGraphCaptureRecordStreamReuse(tokens, i);
    } else if (key == "per_process_memory_fraction") {
      i = static_cast<size_t>(parsePerProcessMemoryFraction(tokens, i));
    } else if (key == "pinned_free_catch_all") {
      i = parsePinnedFreeCatchAll(tokens, i);
    } else if (key == "throw_on_cudamalloc_oom") {
      i = parseThrowOnCudaMallocOom(tokens, i);
    } else {
      i = tokens.skipKey(i);
    }
    if (i + 1 < tokens.size()) {
      tokens.checkToken(++i, ",");
    }
  }
}

} // namespace c10::cuda::CUDACachingAllocator
