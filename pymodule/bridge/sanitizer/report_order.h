// What the layer sanitizer/ is told of a program's streams, events and waits.
//
// The host is one actor, for all of its threads: what one thread does is taken to be after all that
// others did before. Python's threads are so by the GIL, and PyTorch's own by their queues.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "sanitizer/sanitizer.h"
#include "streams/stream_observer.h"

namespace openreg {

class ToldOrder final : public Watcher {
public:
  // Of a layer that is there for good.
  explicit ToldOrder(openreg_sanitizer *layer);

  openreg_sanitizer *layer() const { return layer_; }
  openreg_sanitizer_actor *host() const { return host_; }
  openreg_sanitizer_actor *actor_of(Queue queue);

  static constexpr uint64_t kHostTag = 1;
  static uint64_t tag_of(Queue queue);
  // -1 for what is no stream.
  static Queue queue_of_tag(uint64_t tag);

  void order(Queue first, Queue second) override;
  void record(const openreg_event *event, Queue queue) override;
  void wait(Queue queue, const openreg_event *event) override;
  void forget(const openreg_event *event) noexcept override;
  void synchronize(const openreg_event *event) override;
  void synchronize(Queue queue) override;
  void synchronize(c10::DeviceIndex device) override;
  void launch(Queue queue, const Work &work) override;
  std::unique_ptr<Queued> queue(Queue queue, const c10::OperatorHandle &op,
                                c10::ArrayRef<c10::IValue> arguments) override;
  std::unique_ptr<Captured> begin_capture(uint64_t capture) override;
  void resize(Queue queue, const void *from, const void *to, size_t kept, size_t bytes) override;
  void fill(at::TensorList tensors) override;
  void allocated(const openreg_block &block) override;
  void begin_free() override;
  void record_use(const void *address, Queue queue) override;
  void pinned(const void *address, size_t bytes) override;
  void unpin(const void *address) override;
  void open_host(const void *address, size_t bytes, bool writes) override;
  void close_host(const void *address, size_t bytes, bool writes) override;
  bool write_to_host(void *to, const void *from, size_t bytes) override;

  // A block is freed: who gets its memory does so when the streams that are recorded to use it are
  // done, and so comes after what they did until now.
  void end_uses(uint64_t address, Queue owner);

private:
  openreg_sanitizer_token *token_of(const openreg_event *event);

  openreg_sanitizer *const layer_;
  openreg_sanitizer_actor *host_ = nullptr;
  std::mutex mutex_; // of what follows; the layer has a lock of its own
  std::unordered_map<uint64_t, openreg_sanitizer_actor *> actors_; // by tag
  std::unordered_map<const openreg_event *, openreg_sanitizer_token *> tokens_;
  std::unordered_multimap<uint64_t, Queue> uses_; // by where a block begins
};

} // namespace openreg
