#include "sanitizer/descriptions.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/hash.h>

#include <array>
#include <mutex>
#include <unordered_map>

#include "sanitizer/tables.h"

namespace openreg {

namespace {

using Descriptions = std::unordered_map<uint64_t, Description>;

Descriptions &descriptions() {
  static auto &all = *new Descriptions(); // never destroyed: threads may outlive static objects
  return all;
}

// A cache of the numbers that this thread has already added, by their low bits.
constexpr size_t kRecent = 1024;
constinit thread_local std::array<uint64_t, kRecent> *recent = nullptr;

std::string name_of_argument(const char *name, const char *overload, int argument) {
  if (argument < 0) {
    return "";
  }
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  const auto position = static_cast<size_t>(argument);
  return op.has_value() && position < op->schema().arguments().size()
             ? op->schema().arguments()[position].name()
             : "";
}

} // namespace

uint64_t describe(const char *name, const char *overload, int argument, const at::Tensor &tensor) {
  uint64_t number = c10::get_hash(name, overload, argument, static_cast<int>(tensor.scalar_type()),
                                  tensor.device().index());
  for (const auto size : tensor.sizes()) {
    number = c10::hash_combine(number, static_cast<size_t>(size));
  }
  number |= 1; // 0 means none
  if (recent == nullptr) {
    recent = new std::array<uint64_t, kRecent>(); // never freed
    recent->fill(0);
  }
  auto &slot = (*recent)[(number >> 1) % kRecent];
  if (slot == number) {
    return number;
  }
  slot = number;
  const std::lock_guard lock(tables_mutex());
  const auto [entry, is_new] = descriptions().try_emplace(number);
  if (is_new) {
    entry->second = {name, name_of_argument(name, overload, argument), tensor.scalar_type(),
                     tensor.sizes().vec(), tensor.device().index()};
  }
  return number;
}

uint64_t describe(const char *name, const char *argument, int device) {
  const uint64_t number = c10::get_hash(name, argument, device) | 1;
  const std::lock_guard lock(tables_mutex());
  const auto [entry, is_new] = descriptions().try_emplace(number);
  if (is_new) {
    entry->second.name = name;
    entry->second.argument = argument;
    entry->second.device = static_cast<c10::DeviceIndex>(device);
  }
  return number;
}

Description description_of(uint64_t number) {
  const std::lock_guard lock(tables_mutex());
  const auto found = descriptions().find(number);
  return found == descriptions().end() ? Description() : found->second;
}

} // namespace openreg
