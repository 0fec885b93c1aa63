#include "sanitizer/red_zones.h"

#include <atomic>
#include <optional>
#include <unordered_map>
#include <utility>

#include "sanitizer/descriptions.h"
#include "sanitizer/tables.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

constexpr uint64_t kUnit = 512; // block sizes are multiples of this

std::atomic<bool> are_enabled{false};
constinit thread_local RedZones *innermost = nullptr;

using Run = openreg_sanitizer_run;

void fill(const Run &run) {
  openreg_pattern_fill(reinterpret_cast<void *>(run.begin), run.end - run.begin,
                       OPENREG_DEBUG_ZONE);
}

// Returns the bytes from the first to the last one that differ from the pattern; none: undamaged.
std::optional<Run> find_damage(const Run &zone) {
  size_t begin = 0, end = 0;
  if (!openreg_pattern_find_damage(reinterpret_cast<void *>(zone.begin), zone.end - zone.begin,
                                   OPENREG_DEBUG_ZONE, &begin, &end)) {
    return std::nullopt;
  }
  return Run{zone.begin + begin, zone.begin + end};
}

// With OPENREG_DEBUG_MEMORY=1, the allocator fills and checks the zones, too.
bool has_debug_zones() {
  const openreg_config *config = nullptr;
  return openreg_config_get(&config) == OPENREG_OK && config->debug_memory;
}

uint64_t end_of_block(const openreg_sanitizer_block &block) {
  return block.address + block.bytes + openreg_red_zone_bytes(block.bytes);
}

// Runs work inline if the stream is idle or the calling thread's own; otherwise queues it.
template <class Work> void run_on_stream(StreamKey stream, Work work) {
  if (openreg_stream_try_begin_inline(stream.device, stream.stream) == OPENREG_OK) {
    work();
    openreg_stream_end_inline(stream.device, stream.stream);
    return;
  }
  const auto run = [](void *data) {
    const std::unique_ptr<Work> owner(static_cast<Work *>(data));
    (*owner)();
    return OPENREG_OK;
  };
  launch_on_stream(stream.device, stream.stream, run,
                   std::make_unique<Work>(std::move(work)).release());
}

// ---- users of zones -----------------------------------------------------------------------------

struct ZoneUsers {
  uint64_t stream; // of one of them, as a tag
  int count;
  bool on_several_streams; // since the first user entered
};

// By the address of the block in front of the zone. Guarded by `tables_mutex`.
std::unordered_map<uint64_t, ZoneUsers> &users() {
  static auto &all = *new std::unordered_map<uint64_t, ZoneUsers>();
  return all;
}

void add_user(uint64_t block, uint64_t stream) {
  const std::lock_guard lock(tables_mutex());
  auto &entry = users().try_emplace(block, ZoneUsers{stream, 0, false}).first->second;
  ++entry.count;
  entry.on_several_streams = entry.on_several_streams || entry.stream != stream;
}

// Returns whether there were no users on other streams.
bool remove_user(uint64_t block) {
  const std::lock_guard lock(tables_mutex());
  const auto found = users().find(block);
  if (found == users().end()) { // in a child of fork
    return false;
  }
  const bool was_only_user = !found->second.on_several_streams;
  if (--found->second.count == 0) {
    users().erase(found);
  }
  return was_only_user;
}

} // namespace

struct RedZones::State {
  SanitizerSession &session;
  StreamKey stream;
  uint64_t call_site;
  std::vector<Zone> zones;

  uint64_t tag() const { return SanitizerSession::tag_of(stream); }

  // Returns whether the block was not freed in the meantime.
  bool is_live(const openreg_sanitizer_block &block) const {
    openreg_sanitizer_block now;
    return openreg_sanitizer_block_at(session.sanitizer(), block.address, &now) &&
           now.generation == block.generation;
  }
};

// ---- zones of a call ----------------------------------------------------------------------------

std::unique_ptr<RedZones> RedZones::make(SanitizerSession &session, StreamKey stream,
                                         uint64_t call_site, const char *name,
                                         const char *overload) {
  return std::unique_ptr<RedZones>(are_enabled.load(std::memory_order_relaxed) && stream.device >= 0
                                       ? new RedZones(session, stream, call_site, name, overload)
                                       : nullptr);
}

RedZones::RedZones(SanitizerSession &session, StreamKey stream, uint64_t call_site,
                   const char *name, const char *overload)
    : session_(session), name_(name), overload_(overload),
      state_(std::make_shared<State>(State{session, stream, call_site, {}})),
      outer_(std::exchange(innermost, this)) {}

RedZones::~RedZones() {
  innermost = outer_;
  if (!has_ended_) {
    for (const auto &zone : state_->zones) {
      remove_user(zone.owner.address);
    }
  }
}

bool RedZones::has_zone_of(uint64_t owner) const {
  for (const auto &zone : state_->zones) {
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
    add_user(owner.address, state_->tag());
    state_->zones.push_back(zone);
  }
}

void RedZones::watch(uint64_t address, uint64_t tag) {
  openreg_sanitizer_block block;
  if (openreg_sanitizer_block_at(session_.sanitizer(), address, &block)) {
    add(block, block, tag);
  }
}

// Adds the zone of the preceding block, if that block ends where this one begins.
void RedZones::add_in_front(const openreg_sanitizer_block &block, uint64_t tag) {
  openreg_sanitizer_block before;
  for (const auto distance : {kUnit, 2 * kUnit}) {
    if (block.address >= distance &&
        openreg_sanitizer_block_at(session_.sanitizer(), block.address - distance, &before)) {
      if (end_of_block(before) == block.address) {
        add(before, block, tag);
      }
      return;
    }
  }
}

// ---- before the operator ------------------------------------------------------------------------

void RedZones::begin() {
  const auto count = state_->zones.size();
  for (size_t i = 0; i < count; ++i) {
    add_in_front(openreg_sanitizer_block(state_->zones[i].block), state_->zones[i].tag);
  }
  std::vector<Run> runs;
  for (auto &zone : state_->zones) {
    const Run run{zone.begin, zone.end};
    if (has_debug_zones()) { // nothing runs now
      zone.is_filled = !find_damage(run).has_value();
      continue;
    }
    const auto owner = SanitizerSession::stream_of_tag(zone.owner.owner);
    zone.is_filled = zone.owner.owner == state_->tag() ||
                     (owner.device >= 0 && openreg_stream_is_idle(owner.device, owner.stream));
    if (zone.is_filled) {
      runs.push_back(run);
    }
  }
  if (!runs.empty()) {
    run_on_stream(state_->stream, [runs = std::move(runs)] {
      for (const auto &run : runs) {
        fill(run);
      }
    });
  }
}

void RedZones::add_allocated(const openreg_block &made) {
  const auto address = reinterpret_cast<uint64_t>(made.address);
  auto &zones = state_->zones;
  std::erase_if(zones, [&](const Zone &zone) { // zones of blocks that no longer exist
    const bool is_gone = zone.begin < address + made.bytes && address < zone.end;
    if (is_gone) {
      remove_user(zone.owner.address);
    }
    return is_gone;
  });
  openreg_sanitizer_block block;
  if (!openreg_sanitizer_block_at(session_.sanitizer(), address, &block) ||
      block.owner != state_->tag()) {
    return;
  }
  const auto count = zones.size();
  add(block, block, 0);
  if (zones.size() == count) {
    return;
  }
  zones.back().is_filled = true;
  if (!has_debug_zones()) {
    run_on_stream(state_->stream, [run = Run{zones.back().begin, zones.back().end}] { fill(run); });
  }
}

void watch_allocated_block(const openreg_block &block) {
  if (innermost != nullptr && block.address != nullptr) {
    innermost->add_allocated(block);
  }
}

// ---- after the operator -------------------------------------------------------------------------

void RedZones::name_result(const at::Tensor &tensor) {
  const auto address = reinterpret_cast<uint64_t>(tensor.storage().data());
  for (auto &zone : state_->zones) {
    if (zone.tag == 0 && zone.block.address == address) {
      zone.tag = describe(name_, overload_, -1, tensor);
    }
  }
}

void RedZones::end() {
  for (auto &zone : state_->zones) {
    zone.tag = zone.tag == 0 ? describe(name_) : zone.tag;
    zone.is_filled = zone.is_filled && state_->is_live(zone.owner); // a freed owner was a temporary
  }
  has_ended_ = true;
  if (!state_->zones.empty()) {
    run_on_stream(state_->stream, [state = state_] { check(*state); });
  }
}

void RedZones::check(State &state) {
  for (const auto &zone : state.zones) {
    const bool was_only_user = remove_user(zone.owner.address);
    // A zone on the operator's own stream cannot have another user yet.
    if (!zone.is_filled || (zone.owner.owner != state.tag() && !state.is_live(zone.owner))) {
      continue;
    }
    const auto damage = find_damage({zone.begin, zone.end});
    if (damage.has_value()) {
      fill(*damage);
      if (was_only_user) {
        report(state, zone, *damage);
      }
    }
  }
}

void RedZones::report(const State &state, const Zone &zone, Run bytes) {
  openreg_sanitizer_finding finding{};
  finding.kind = OPENREG_SANITIZER_OUT_OF_BOUNDS;
  finding.second = {.call_site = state.call_site,
                    .tag = zone.tag,
                    .thread = state.tag(),
                    .thread_kind = OPENREG_SANITIZER_STREAM,
                    .mode = OPENREG_SANITIZER_WRITE,
                    .begin = bytes.begin,
                    .end = bytes.end,
                    .block = zone.block};
  finding.bytes = bytes;
  openreg_sanitizer_report(state.session.sanitizer(), &finding);
}

void enable_red_zones(bool are_watched) {
  are_enabled.store(are_watched, std::memory_order_relaxed);
}

} // namespace openreg
