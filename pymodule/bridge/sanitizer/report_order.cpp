#include "sanitizer/report_order.h"

#include <vector>

#include "core/device_type.h"
#include "sanitizer/bad_indices.h"
#include "sanitizer/blocks.h"
#include "sanitizer/captures.h"
#include "sanitizer/host_memory.h"
#include "sanitizer/launches.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/red_zones.h"

namespace openreg {

ToldOrder::ToldOrder(openreg_sanitizer *layer) : layer_(layer) {
  check(openreg_sanitizer_actor_create(layer_, OPENREG_SANITIZER_HOST, -1, kHostTag, nullptr,
                                       &host_));
}

uint64_t ToldOrder::tag_of(Queue queue) {
  return (static_cast<uint64_t>(queue.device) + 1) << 32 | static_cast<uint32_t>(queue.stream);
}

Queue ToldOrder::queue_of_tag(uint64_t tag) {
  return tag <= kHostTag ? Queue{-1, -1}
                         : Queue{static_cast<c10::DeviceIndex>((tag >> 32) - 1),
                                 static_cast<int>(static_cast<uint32_t>(tag))};
}

openreg_sanitizer_actor *ToldOrder::actor_of(Queue queue) {
  const std::lock_guard lock(mutex_);
  auto &actor = actors_[tag_of(queue)];
  if (actor == nullptr) {
    check(openreg_sanitizer_actor_create(layer_, OPENREG_SANITIZER_STREAM, queue.device,
                                         tag_of(queue), host_, &actor));
  }
  return actor;
}

openreg_sanitizer_token *ToldOrder::token_of(const openreg_event *event) {
  const std::lock_guard lock(mutex_);
  auto &token = tokens_[event];
  if (token == nullptr) {
    check(openreg_sanitizer_token_create(layer_, reinterpret_cast<uint64_t>(event), &token));
  }
  return token;
}

void ToldOrder::order(Queue first, Queue second) {
  if (!Unwatched::any()) {
    openreg_sanitizer_order(layer_, actor_of(first), actor_of(second));
  }
}

void ToldOrder::record(const openreg_event *event, Queue queue) {
  if (!Unwatched::any()) {
    check(openreg_sanitizer_record(layer_, token_of(event), actor_of(queue), host_, place_here()));
  }
}

void ToldOrder::wait(Queue queue, const openreg_event *event) {
  if (!Unwatched::any()) {
    openreg_sanitizer_wait(layer_, actor_of(queue), token_of(event), host_, place_here());
  }
}

void ToldOrder::forget(const openreg_event *event) noexcept {
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
  openreg_sanitizer_token_release(layer_, token);
}

void ToldOrder::synchronize(const openreg_event *event) {
  if (!Unwatched::any()) {
    openreg_sanitizer_wait(layer_, host_, token_of(event), nullptr, place_here());
    open_what_is_done(*this);
  }
}

void ToldOrder::synchronize(Queue queue) {
  if (Unwatched::any() || wait_in_launch()) {
    return;
  }
  openreg_sanitizer_order(layer_, actor_of(queue), host_);
  open_what_is_done(*this);
}

void ToldOrder::synchronize(c10::DeviceIndex device) {
  if (!Unwatched::any()) {
    openreg_sanitizer_synchronize(layer_, device, host_);
    open_what_is_done(*this);
  }
}

void ToldOrder::launch(Queue queue, const Work &work) {
  if (!Unwatched::any()) {
    tell_work(*this, queue, work);
  }
}

std::unique_ptr<Watcher::Queued> ToldOrder::queue(Queue queue, const c10::OperatorHandle &op,
                                                  c10::ArrayRef<c10::IValue> arguments) {
  return Unwatched::any() || !takes_indices(op.schema().name())
             ? nullptr
             : watch_indices(*this, queue, place_of_launch(), op, arguments);
}

std::unique_ptr<Watcher::Captured> ToldOrder::begin_capture(uint64_t capture) {
  return note_capture(capture);
}

void ToldOrder::resize(Queue queue, const void *from, const void *to, size_t kept, size_t bytes) {
  if (!Unwatched::any()) {
    tell_resize(*this, queue, reinterpret_cast<uint64_t>(from), reinterpret_cast<uint64_t>(to),
                kept, bytes);
  }
}

void ToldOrder::fill(at::TensorList tensors) {
  for (const auto &tensor : tensors) {
    if (tensor.device().type() == kDeviceType && tensor.has_storage()) {
      const auto &storage = tensor.storage();
      openreg_sanitizer_initialise(layer_, reinterpret_cast<uint64_t>(storage.data()),
                                   storage.nbytes());
    }
  }
}

void ToldOrder::allocated(const openreg_block &block) {
  note_allocation(block);
}

void ToldOrder::begin_free() {
  note_free();
}

void ToldOrder::record_use(const void *address, Queue queue) {
  const std::lock_guard lock(mutex_);
  uses_.emplace(reinterpret_cast<uint64_t>(address), queue);
}

void ToldOrder::pinned(const void *address, size_t bytes) {
  note_pinned(*this, address, bytes);
}

void ToldOrder::unpin(const void *address) {
  forget_pinned(*this, address);
}

void ToldOrder::open_host(const void *address, size_t bytes, bool writes) {
  open_for_device(address, bytes, writes);
}

void ToldOrder::close_host(const void *address, size_t bytes, bool writes) {
  close_for_device(address, bytes, writes);
}

bool ToldOrder::write_to_host(void *to, const void *from, size_t bytes) {
  return write_to_closed(to, from, bytes);
}

void ToldOrder::end_uses(uint64_t address, Queue owner) {
  std::vector<Queue> users;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = uses_.equal_range(address);
    for (auto use = first; use != last; ++use) {
      users.push_back(use->second);
    }
    uses_.erase(first, last);
  }
  for (const auto user : users) {
    openreg_sanitizer_order(layer_, actor_of(user), actor_of(owner));
  }
}

} // namespace openreg
