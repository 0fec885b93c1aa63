#include "launch/memory_plan.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace openreg {

namespace {

std::atomic<bool> planner_exists{false};
std::mutex planner_mutex;

// Never freed: it may hold a Python object.
Planner &the_planner() {
  static auto *planner = new Planner();
  return *planner;
}

std::atomic<uint64_t> launches[OPENREG_MAX_DEVICES][kPlanSources];

} // namespace

void set_planner(Planner planner) {
  const std::lock_guard<std::mutex> lock(planner_mutex);
  planner_exists.store(static_cast<bool>(planner), std::memory_order_relaxed);
  the_planner() = std::move(planner);
}

bool has_planner() {
  return planner_exists.load(std::memory_order_relaxed);
}

std::optional<MemoryPlan> plan_memory(const c10::OperatorHandle &op,
                                      const torch::jit::Stack &arguments) {
  Planner planner;
  {
    const std::lock_guard<std::mutex> lock(planner_mutex);
    planner = the_planner();
  }
  return planner ? planner(op, arguments) : std::nullopt;
}

void add_memory_plan(const MemoryPlan &memory, OutputPlan &plan, bool may_be_larger) {
  const auto fresh = plan.fresh_results();
  if (memory.results.size() != fresh.size()) {
    return;
  }
  std::unordered_map<int64_t, size_t> result_of; // by block
  for (size_t i = 0; i < memory.results.size(); ++i) {
    result_of.emplace(memory.results[i], i);
  }
  if (result_of.size() != fresh.size()) {
    return; // results that share a block
  }
  std::vector<MemoryEvent> events;
  std::unordered_map<int64_t, size_t> taken; // by block
  std::vector<size_t> bytes(fresh.size());   // of the results
  int64_t block = 0;
  for (const auto event : memory.events) {
    if (event < 0) {
      const auto found = taken.find(-event);
      if (found == taken.end()) {
        return;
      }
      events.push_back({MemoryEvent::Kind::kFree, found->second});
      continue;
    }
    ++block;
    if (const auto found = result_of.find(block); found != result_of.end()) {
      const auto needed = fresh[found->second]->bytes;
      bytes[found->second] = static_cast<size_t>(event);
      if (bytes[found->second] != needed && (!may_be_larger || bytes[found->second] < needed)) {
        return;
      }
      events.push_back({MemoryEvent::Kind::kResult, found->second});
    } else {
      taken.emplace(block, taken.size());
      events.push_back({MemoryEvent::Kind::kTake, static_cast<size_t>(event)});
    }
  }
  if (may_be_larger) {
    plan.set_result_bytes(bytes);
  }
  // Without events an inline launch allocates the results when the kernel does, and with them
  // whatever plan.results says.
  const bool is_as_without_plan =
      taken.empty() && std::ranges::is_sorted(events, {}, &MemoryEvent::value) &&
      std::ranges::is_sorted(fresh, {}, [](const auto *each) { return each->allocation.n; });
  if (!is_as_without_plan || !plan.events.empty()) {
    plan.events = std::move(events);
    if (plan.events.empty()) {
      plan.results = Placement();
    }
  }
  plan.source = memory.source;
}

void take_planned_memory(const c10::OperatorHandle &op, const torch::jit::Stack &arguments,
                         c10::DeviceIndex device) {
  if (!has_planner()) {
    return;
  }
  static auto *plans = new OutputPlans();
  auto key = c10::toString(op.operator_name());
  key.push_back(static_cast<char>(device));
  if (!OutputPlans::make_key(arguments, std::vector<bool>(arguments.size(), true), key)) {
    return;
  }
  auto plan = plans->find(key);
  if (plan == nullptr) {
    plan = std::make_shared<OutputPlan>();
    if (const auto memory = plan_memory(op, arguments); memory.has_value()) {
      add_memory_plan(*memory, *plan);
    }
    plans->learn(std::move(key), plan);
  }
  (void)plan->allocate(device);
  count_launch(device, plan->source);
}

void count_launch(c10::DeviceIndex device, PlanSource source) {
  launches[device][static_cast<size_t>(source)].fetch_add(1, std::memory_order_relaxed);
}

std::array<uint64_t, kPlanSources> count_launches(c10::DeviceIndex device) {
  std::array<uint64_t, kPlanSources> counts{};
  for (size_t i = 0; i < kPlanSources; ++i) {
    counts[i] = launches[device][i].load(std::memory_order_relaxed);
  }
  return counts;
}

} // namespace openreg
