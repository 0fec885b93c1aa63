#include "memory/allocation/allocator_settings.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/env.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <limits>
#include <unordered_map>

#include "allocator/allocator.h"
#include "compat/caching_allocators.h"
#include "core/status.h"

namespace py = pybind11;

namespace openreg {

namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::CachingAllocator::ConfigTokenizer;

constexpr size_t kMostRegisterThreads = 128;
constexpr size_t kMebibyte = size_t{1} << 20;

// CUDA's own settings. The reserved segment is the only setting for pinned memory that has an
// effect here. The settings for locks have none: there is no driver to register memory with, or to
// wait for.
struct OwnSettings {
  double memory_fraction = 1;
  bool throws_on_oom = false;
  bool release_lock = false;
  bool reuse_in_capture = false;
  bool host_register = false;
  bool free_catch_all = false;
  bool is_cache_off = false; // set by a function or a separate variable
  size_t register_threads = 1;
  size_t reserved_segment_bytes = 0;
};
OwnSettings own;

void set_register_threads(const ConfigTokenizer &tokens, size_t i) {
  const auto count = tokens.toSizeT(i);
  TORCH_CHECK_VALUE(c10::llvm::isPowerOf2_64(count),
                    "Number of register threads has to be power of 2, got ", count);
  TORCH_CHECK_VALUE(count <= kMostRegisterThreads,
                    "Number of register threads should be less than or equal to ",
                    kMostRegisterThreads, ", got ", count);
  own.register_threads = count;
}

void set_reserved_segment(const ConfigTokenizer &tokens, size_t i) {
  const auto megabytes = tokens.toSizeT(i);
  TORCH_CHECK_VALUE(megabytes > 0, "Pinned reserve segment size has to be greater than 0");
  constexpr auto most = std::numeric_limits<size_t>::max() / kMebibyte;
  own.reserved_segment_bytes = std::min(megabytes, most) * kMebibyte;
}

void set_memory_fraction(const ConfigTokenizer &tokens, size_t i) {
  const auto fraction = tokens.toDouble(i);
  TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1,
                    "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
  own.memory_fraction = fraction;
}

void require_native_backend(const ConfigTokenizer &tokens, size_t i) {
  const auto &name = tokens[i];
  TORCH_CHECK_VALUE(name == "native" || name == "cudaMallocAsync",
                    "Unknown allocator backend, options are native and cudaMallocAsync");
  TORCH_CHECK_VALUE(name == "native", "openreg does not implement the allocator backend "
                                      "cudaMallocAsync: remove it, or set backend:native");
}

using Setter = std::function<void(const ConfigTokenizer &, size_t)>;

Setter to(bool OwnSettings::*field) {
  return [field](const ConfigTokenizer &tokens, size_t i) { own.*field = tokens.toBool(i); };
}

// One setter for each key. It gets the position of the value.
const std::unordered_map<std::string, Setter> &setters() {
  static const auto *const all = new std::unordered_map<std::string, Setter>{
      {"backend", require_native_backend},
      {"release_lock_on_cudamalloc", to(&OwnSettings::release_lock)},
      {"release_lock_on_hipmalloc", to(&OwnSettings::release_lock)},
      {"pinned_use_cuda_host_register", to(&OwnSettings::host_register)},
      {"pinned_use_hip_host_register", to(&OwnSettings::host_register)},
      {"pinned_free_catch_all", to(&OwnSettings::free_catch_all)},
      {"pinned_num_register_threads", set_register_threads},
      {"pinned_reserve_segment_size_mb", set_reserved_segment},
      {"graph_capture_record_stream_reuse", to(&OwnSettings::reuse_in_capture)},
      {"per_process_memory_fraction", set_memory_fraction},
      {"throw_on_cudamalloc_oom", to(&OwnSettings::throws_on_oom)},
  };
  return *all;
}

std::unordered_set<std::string> own_keys() {
  std::unordered_set<std::string> keys;
  for (const auto &[key, setter] : setters()) {
    keys.insert(key);
  }
  return keys;
}

void apply_pinned_settings() {
  const auto thresholds = pinned_thresholds();
  openreg_pinned_settings settings = {};
  settings.max_round_bytes = thresholds.max_round_bytes;
  settings.max_cached_bytes = thresholds.max_cached_bytes;
  settings.reserved_segment_bytes = own.reserved_segment_bytes;
  settings.counts_whole_blocks = kPinnedCountsWholeBlocks;
  check(openreg_pinned_set_settings(&settings));
}

void apply_settings() {
  apply_pinned_settings();
  openreg_memory_settings settings = {};
  settings.max_split_bytes = AcceleratorAllocatorConfig::max_split_size();
  settings.max_non_split_rounding_bytes = AcceleratorAllocatorConfig::max_non_split_rounding_size();
  settings.large_segment_bytes = AcceleratorAllocatorConfig::large_segment_size();
  const auto &divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  std::copy_n(divisions.begin(), std::min<size_t>(divisions.size(), OPENREG_ROUNDUP_INTERVALS),
              settings.roundup_power2_divisions);
  settings.garbage_collection_threshold =
      AcceleratorAllocatorConfig::garbage_collection_threshold();
  settings.memory_fraction = own.memory_fraction;
  settings.expandable_segments = AcceleratorAllocatorConfig::use_expandable_segments();
  settings.throws_on_oom = own.throws_on_oom;
  settings.is_cache_off = own.is_cache_off;
  check(openreg_memory_set_settings(&settings));
}

// Parses CUDA's own settings in a string that PyTorch has already parsed.
void parse_own(const std::string &text) {
  const ConfigTokenizer tokens(text);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto setter = setters().find(tokens[i]);
    if (setter == setters().end()) {
      i = tokens.skipKey(i);
    } else {
      tokens.checkToken(++i, ":");
      setter->second(tokens, ++i);
    }
    if (i + 1 < tokens.size()) {
      tokens.checkToken(++i, ",");
    }
  }
  apply_settings();
}

std::exception_ptr &settings_error() {
  static auto *const kept = new std::exception_ptr();
  return *kept;
}

} // namespace

bool allocator_settings_are_invalid = false;

void raise_invalid_allocator_settings() {
  std::rethrow_exception(settings_error());
}

void install_allocator_settings() {
  // A PyTorch that was built with CUDA has registered CUDA's keys already, and refuses a second
  // registration.
  auto missing = own_keys();
  for (const auto &key : AcceleratorAllocatorConfig::getKeys()) {
    missing.erase(key);
  }
  AcceleratorAllocatorConfig::registerDeviceConfigParserHook(parse_own, missing);
  try {
    AcceleratorAllocatorConfig::instance(); // parses the environment
    auto text = c10::utils::get_env("PYTORCH_CUDA_ALLOC_CONF");
    if (!text) {
      text = c10::utils::get_env("PYTORCH_ALLOC_CONF");
    }
    own.is_cache_off = c10::utils::check_env("PYTORCH_NO_CUDA_MEMORY_CACHING") == true;
    parse_own(text.value_or(""));
  } catch (...) {
    settings_error() = std::current_exception();
    allocator_settings_are_invalid = true;
  }
}

void set_allocator_settings(const std::string &settings) {
  try {
    c10::CachingAllocator::setAllocatorSettings(settings);
  } catch (...) {
    apply_settings();
    throw;
  }
}

void enable_cache(bool enabled) {
  own.is_cache_off = !enabled;
  apply_settings();
}

bool cache_is_enabled() {
  return !own.is_cache_off;
}

py::dict allocator_settings() {
  openreg_memory_settings settings;
  openreg_memory_get_settings(&settings);
  openreg_pinned_settings pinned;
  openreg_pinned_get_settings(&pinned);
  py::dict divisions;
  for (int i = 0; i < OPENREG_ROUNDUP_INTERVALS; ++i) {
    divisions[py::str(std::to_string(1 << i))] = settings.roundup_power2_divisions[i];
  }
  py::dict dict;
  dict["PYTORCH_CUDA_ALLOC_CONF"] = c10::CachingAllocator::getAllocatorSettings();
  dict["max_split_size"] = static_cast<int64_t>(settings.max_split_bytes);
  dict["garbage_collection_threshold"] = settings.garbage_collection_threshold;
  dict["expandable_segments"] = settings.expandable_segments;
  dict["pinned_num_register_threads"] = own.register_threads;
  dict["release_lock_on_cudamalloc"] = own.release_lock;
  dict["pinned_use_cuda_host_register"] = own.host_register;
  dict["graph_capture_record_stream_reuse"] = own.reuse_in_capture;
  if (pinned_thresholds().can_be_set) {
    dict["max_round_threshold"] = static_cast<int64_t>(pinned.max_round_bytes);
    dict["max_cached_size"] = static_cast<int64_t>(pinned.max_cached_bytes);
  }
  dict["roundup_power2_divisions"] = divisions;
  return dict;
}

} // namespace openreg
