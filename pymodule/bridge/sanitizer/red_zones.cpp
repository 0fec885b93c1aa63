#include "sanitizer/red_zones.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "sanitizer/descriptions.h"
#include "sanitizer/tables.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

constexpr uint64_t kUnit = 512; // blocks are multiples of it
constexpr int kPattern = OPENREG_DEBUG_ZONE;

std::atomic<bool> are_zones_watched{false};
constinit thread_local RedZones *innermost = nullptr;

using Run = openreg_sanitizer_run;

unsigned char *memory_at(uint64_t address) {
  return static_cast<unsigned char *>(openreg_kernel_view(reinterpret_cast<void *>(address)));
}

void fill(const Run &run) {
  std::memset(memory_at(run.begin), kPattern, run.end - run.begin);
}

// The bytes from the first to the last that are not of the pattern.
Run damage_in(const Run &zone) {
  const auto *memory = memory_at(zone.begin);
  Run damage{zone.end, zone.end};
  for (uint64_t i = 0; i < zone.end - zone.begin; ++i) {
    if (memory[i] != kPattern) {
      damage = {std::min(damage.begin, zone.begin + i), zone.begin + i + 1};
    }
  }
  return damage;
}

// With OPENREG_DEBUG_MEMORY=1 each block has a zone, which the allocator fills and looks at, too.
bool is_debugged() {
  const openreg_config *config = nullptr;
  return openreg_config_get(&config) == OPENREG_OK && config->debug_memory;
}

uint64_t end_of_block(const openreg_sanitizer_block &block) {
  const auto requested = block.address + block.bytes + (is_debugged() ? kUnit : 0);
  return (requested + kUnit - 1) / kUnit * kUnit;
}

// Does it at once if the stream is idle, or this thread's, else behind what it has to do.
template <class Work> void in_order(Queue queue, Work work) {
  if (openreg_stream_try_begin_inline(queue.device, queue.stream) == OPENREG_OK) {
    work();
    openreg_stream_end_inline(queue.device, queue.stream);
    return;
  }
  const auto run = [](void *data) {
    const std::unique_ptr<Work> owner(static_cast<Work *>(data));
    (*owner)();
    return OPENREG_OK;
  };
  launch_on_stream(queue.device, queue.stream, run,
                   std::make_unique<Work>(std::move(work)).release());
}

// ---- who uses a zone ----------------------------------------------------------------------------

struct Users {
  uint64_t queue; // of one of them, as a tag
  int count;
  bool are_of_several; // queues, since there were any
};

// By the block in front of it, until the work of its users is done. With the lock of tables.
std::unordered_map<uint64_t, Users> &users() {
  static auto &all = *new std::unordered_map<uint64_t, Users>();
  return all;
}

void enter(uint64_t block, uint64_t queue) {
  const std::lock_guard lock(tables_mutex());
  auto &entry = users().try_emplace(block, Users{queue, 0, false}).first->second;
  ++entry.count;
  entry.are_of_several = entry.are_of_several || entry.queue != queue;
}

// Whether there were no others.
bool leave(uint64_t block) {
  const std::lock_guard lock(tables_mutex());
  const auto found = users().find(block);
  if (found == users().end()) { // in a child of a fork
    return false;
  }
  const bool was_alone = !found->second.are_of_several;
  if (--found->second.count == 0) {
    users().erase(found);
  }
  return was_alone;
}

} // namespace

struct RedZones::Watched {
  ToldOrder &order;
  Queue queue;
  uint64_t place;
  std::vector<Zone> zones;

  uint64_t tag() const { return ToldOrder::tag_of(queue); }

  // Whether the block is still what it was.
  bool is_live(const openreg_sanitizer_block &block) const {
    openreg_sanitizer_block now;
    return openreg_sanitizer_block_at(order.layer(), block.address, &now) &&
           now.generation == block.generation;
  }
};

// ---- which zones --------------------------------------------------------------------------------

std::unique_ptr<RedZones> RedZones::make(ToldOrder &order, Queue queue, uint64_t place,
                                         const char *name, const char *overload) {
  return std::unique_ptr<RedZones>(are_zones_watched.load(std::memory_order_relaxed) &&
                                           queue.device >= 0
                                       ? new RedZones(order, queue, place, name, overload)
                                       : nullptr);
}

RedZones::RedZones(ToldOrder &order, Queue queue, uint64_t place, const char *name,
                   const char *overload)
    : order_(order), name_(name), overload_(overload),
      watched_(std::make_shared<Watched>(Watched{order, queue, place, {}})),
      outer_(std::exchange(innermost, this)) {}

RedZones::~RedZones() {
  innermost = outer_;
  if (!has_ended_) {
    for (const auto &zone : watched_->zones) {
      leave(zone.owner.address);
    }
  }
}

bool RedZones::has_zone_of(uint64_t owner) const {
  for (const auto &zone : watched_->zones) {
    if (zone.owner.address == owner) {
      return true;
    }
  }
  return false;
}

void RedZones::add(const openreg_sanitizer_block &owner, const openreg_sanitizer_block &block,
                   uint64_t tag) {
  const Zone zone{owner.address + owner.bytes, end_of_block(owner), owner, block, tag, false};
  if (zone.begin < zone.end && !has_zone_of(owner.address)) {
    enter(owner.address, watched_->tag());
    watched_->zones.push_back(zone);
  }
}

void RedZones::watch(uint64_t address, uint64_t tag) {
  openreg_sanitizer_block block;
  if (openreg_sanitizer_block_at(order_.layer(), address, &block)) {
    add(block, block, tag);
  }
}

// The zone of the block in front, if that reaches to its last units.
void RedZones::add_in_front(const openreg_sanitizer_block &block, uint64_t tag) {
  openreg_sanitizer_block before;
  for (const auto distance : {kUnit, 2 * kUnit}) {
    if (block.address >= distance &&
        openreg_sanitizer_block_at(order_.layer(), block.address - distance, &before)) {
      if (end_of_block(before) == block.address) {
        add(before, block, tag);
      }
      return;
    }
  }
}

// ---- before the work ----------------------------------------------------------------------------

void RedZones::begin() {
  const auto count = watched_->zones.size();
  for (size_t i = 0; i < count; ++i) {
    add_in_front(openreg_sanitizer_block(watched_->zones[i].block), watched_->zones[i].tag);
  }
  std::vector<Run> runs;
  for (auto &zone : watched_->zones) {
    const Run run{zone.begin, zone.end};
    if (is_debugged()) { // and nothing runs now
      zone.is_filled = damage_in(run).begin == run.end;
      continue;
    }
    const auto owner = ToldOrder::queue_of_tag(zone.owner.owner);
    zone.is_filled = zone.owner.owner == watched_->tag() ||
                     (owner.device >= 0 && openreg_stream_is_idle(owner.device, owner.stream));
    if (zone.is_filled) {
      runs.push_back(run);
    }
  }
  if (!runs.empty()) {
    in_order(watched_->queue, [runs = std::move(runs)] {
      for (const auto &run : runs) {
        fill(run);
      }
    });
  }
}

void RedZones::allocated(const openreg_block &made) {
  const auto address = reinterpret_cast<uint64_t>(made.address);
  auto &zones = watched_->zones;
  std::erase_if(zones, [&](const Zone &zone) { // of blocks that are no more
    const bool is_gone = zone.begin < address + made.bytes && address < zone.end;
    if (is_gone) {
      leave(zone.owner.address);
    }
    return is_gone;
  });
  openreg_sanitizer_block block;
  if (!openreg_sanitizer_block_at(order_.layer(), address, &block) ||
      block.owner != watched_->tag()) {
    return;
  }
  const auto count = zones.size();
  add(block, block, 0);
  if (zones.size() == count) {
    return;
  }
  zones.back().is_filled = true;
  if (!is_debugged()) {
    in_order(watched_->queue, [run = Run{zones.back().begin, zones.back().end}] { fill(run); });
  }
}

void note_allocation(const openreg_block &block) {
  if (innermost != nullptr && block.address != nullptr) {
    innermost->allocated(block);
  }
}

// ---- behind it ----------------------------------------------------------------------------------

void RedZones::name_result(const at::Tensor &tensor) {
  const auto address = reinterpret_cast<uint64_t>(tensor.storage().data());
  for (auto &zone : watched_->zones) {
    if (zone.tag == 0 && zone.block.address == address) {
      zone.tag = describe(name_, overload_, -1, tensor);
    }
  }
}

void RedZones::end() {
  for (auto &zone : watched_->zones) {
    zone.tag = zone.tag == 0 ? describe(name_) : zone.tag;
    zone.is_filled = zone.is_filled && watched_->is_live(zone.owner); // else it was a temporary
  }
  has_ended_ = true;
  if (!watched_->zones.empty()) {
    in_order(watched_->queue, [watched = watched_] { look(*watched); });
  }
}

void RedZones::look(Watched &watched) {
  for (const auto &zone : watched.zones) {
    const bool was_alone = leave(zone.owner.address);
    // Of its own stream it cannot be anybody else's yet.
    if (!zone.is_filled || (zone.owner.owner != watched.tag() && !watched.is_live(zone.owner))) {
      continue;
    }
    const auto damage = damage_in({zone.begin, zone.end});
    if (damage.begin < damage.end) {
      fill(damage);
      if (was_alone) {
        report(watched, zone, damage);
      }
    }
  }
}

void RedZones::report(const Watched &watched, const Zone &zone, Run bytes) {
  openreg_sanitizer_finding finding{};
  finding.kind = OPENREG_SANITIZER_OUT_OF_BOUNDS;
  finding.second = {.site = watched.place,
                    .tag = zone.tag,
                    .actor = watched.tag(),
                    .actor_kind = OPENREG_SANITIZER_STREAM,
                    .mode = OPENREG_SANITIZER_WRITE,
                    .begin = bytes.begin,
                    .end = bytes.end,
                    .block = zone.block};
  finding.bytes = bytes;
  openreg_sanitizer_report(watched.order.layer(), &finding);
}

void watch_red_zones(bool are_watched) {
  are_zones_watched.store(are_watched, std::memory_order_relaxed);
}

} // namespace openreg
