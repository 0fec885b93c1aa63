#include "sanitizer/session.h"

#include <atomic>
#include <vector>

#include "core/device_type.h"
#include "core/status.h"

namespace openreg {

namespace {

std::atomic<SanitizerSession *> active_session{nullptr};

} // namespace

SanitizerSession::SanitizerSession(openreg_sanitizer *sanitizer) : sanitizer_(sanitizer) {
  check(openreg_sanitizer_thread_create(sanitizer_, OPENREG_SANITIZER_HOST, -1, kHostTag, nullptr,
                                        &host_));
}

SanitizerSession *SanitizerSession::active() {
  return active_session.load(std::memory_order_acquire);
}

void SanitizerSession::activate(SanitizerSession *session) {
  active_session.store(session, std::memory_order_release);
}

uint64_t SanitizerSession::tag_of(StreamKey stream) {
  return (static_cast<uint64_t>(stream.device) + 1) << 32 | static_cast<uint32_t>(stream.stream);
}

StreamKey SanitizerSession::stream_of_tag(uint64_t tag) {
  return tag <= kHostTag ? StreamKey{-1, -1}
                         : StreamKey{static_cast<c10::DeviceIndex>((tag >> 32) - 1),
                                     static_cast<int>(static_cast<uint32_t>(tag))};
}

openreg_sanitizer_thread *SanitizerSession::thread_of(StreamKey stream) {
  const std::lock_guard lock(mutex_);
  auto &thread = threads_[tag_of(stream)];
  if (thread == nullptr) {
    check(openreg_sanitizer_thread_create(sanitizer_, OPENREG_SANITIZER_STREAM, stream.device,
                                          tag_of(stream), host_, &thread));
  }
  return thread;
}

openreg_sanitizer_token *SanitizerSession::token_of(const openreg_event *event) {
  const std::lock_guard lock(mutex_);
  auto &token = tokens_[event];
  if (token == nullptr) {
    check(openreg_sanitizer_token_create(sanitizer_, reinterpret_cast<uint64_t>(event), &token));
  }
  return token;
}

void SanitizerSession::release_token(const openreg_event *event) noexcept {
  openreg_sanitizer_token *token = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = tokens_.find(event);
    if (found == tokens_.end()) {
      return;
    }
    token = found->second;
    tokens_.erase(found);
  }
  openreg_sanitizer_token_release(sanitizer_, token);
}

void SanitizerSession::order(StreamKey first, StreamKey second) {
  openreg_sanitizer_order(sanitizer_, thread_of(first), thread_of(second));
}

void SanitizerSession::initialize(at::TensorList tensors) {
  for (const auto &tensor : tensors) {
    if (tensor.device().type() == kDeviceType && tensor.has_storage()) {
      const auto &storage = tensor.storage();
      openreg_sanitizer_initialise(sanitizer_, reinterpret_cast<uint64_t>(storage.data()),
                                   storage.nbytes());
    }
  }
}

void SanitizerSession::add_use(const void *address, StreamKey stream) {
  const std::lock_guard lock(mutex_);
  uses_.emplace(reinterpret_cast<uint64_t>(address), stream);
}

void SanitizerSession::end_uses(uint64_t address, StreamKey owner) {
  std::vector<StreamKey> users;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = uses_.equal_range(address);
    for (auto use = first; use != last; ++use) {
      users.push_back(use->second);
    }
    uses_.erase(first, last);
  }
  for (const auto user : users) {
    order(user, owner);
  }
}

} // namespace openreg
