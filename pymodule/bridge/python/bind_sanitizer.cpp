#include "python/bind_sanitizer.h"

#include <pthread.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/device_type.h"
#include "sanitizer/blocks.h"
#include "sanitizer/descriptions.h"
#include "sanitizer/host_memory.h"
#include "sanitizer/launches.h"
#include "sanitizer/report_order.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/red_zones.h"
#include "streams/gpu_trace.h"

namespace py = pybind11;

namespace openreg {

namespace {

ToldOrder *told = nullptr; // as soon as it was started, for good; a fork forgets its parent's
PyObject *reporter = nullptr;
unsigned kinds = 0; // that are reported, as bits

// ---- findings for Python ------------------------------------------------------------------------

py::list to_python(const Stack &stack) {
  py::list frames;
  for (const auto &frame : stack) {
    frames.append(py::make_tuple(frame.file, frame.line, frame.function));
  }
  return frames;
}

py::list stack_at(uint64_t place) {
  return to_python(describe_place(place).stack);
}

const char *verb_of(unsigned mode) {
  const bool reads = (mode & OPENREG_SANITIZER_READ) != 0;
  const bool writes = (mode & OPENREG_SANITIZER_WRITE) != 0;
  return reads && writes ? "reads and writes" : reads ? "reads" : writes ? "writes" : "";
}

std::string name_of_dtype(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Undefined ? std::string()
                                             : std::string(c10::getDtypeNames(dtype).first);
}

py::object to_python(const openreg_sanitizer_side &side) {
  if (side.mode == 0 && side.block.generation == 0) {
    return py::none();
  }
  const auto description = description_of(side.tag);
  const auto place = describe_place(side.site);
  const auto queue = ToldOrder::queue_of_tag(side.actor);
  const auto owner = ToldOrder::queue_of_tag(side.block.owner);
  py::dict block;
  block["bytes"] = side.block.bytes;
  block["stack"] = stack_at(side.block.site);
  block["freed"] = side.block.is_freed ? py::object(stack_at(side.block.freed_site)) : py::none();
  py::dict result;
  result["operator"] = description.name;
  result["argument"] = description.argument;
  result["mode"] = verb_of(side.mode);
  result["shape"] = description.sizes;
  result["dtype"] = name_of_dtype(description.dtype);
  result["device"] = side.block.owner == ToldOrder::kHostTag ? -1 // pinned memory
                     : description.device >= 0               ? description.device
                     : queue.device >= 0                     ? queue.device
                                                             : owner.device;
  result["stream_device"] = queue.device;
  result["stream"] = queue.stream;
  result["stack"] = to_python(place.stack);
  result["forward"] =
      place.forward.empty() ? py::object(py::none()) : py::object(to_python(place.forward));
  result["block"] = block;
  return result;
}

py::dict to_python(const openreg_sanitizer_finding &finding) {
  py::dict result;
  result["kind"] = openreg_sanitizer_kind_name(finding.kind);
  result["count"] = finding.count;
  const auto start = finding.second.block.address;
  result["bytes"] = py::make_tuple(static_cast<int64_t>(finding.bytes.begin - start),
                                   static_cast<int64_t>(finding.bytes.end - start));
  result["first"] = to_python(finding.first);
  result["second"] = to_python(finding.second);
  result["event"] = py::none();
  if (finding.kind == OPENREG_SANITIZER_UNORDERED_EVENT) {
    py::dict event;
    event["recorded"] = stack_at(finding.recorded_site);
    event["waited"] = stack_at(finding.waited_site);
    event["waited_early"] = finding.waited_early;
    result["event"] = event;
  }
  return result;
}

// Found by threads in the handler of a fault, where no Python may run: told as soon as it may.
std::mutex waiting_mutex;
std::vector<openreg_sanitizer_finding> &waiting = *new std::vector<openreg_sanitizer_finding>();

void report(const openreg_sanitizer_finding *finding, void *);

int report_waiting(void *) {
  std::vector<openreg_sanitizer_finding> findings;
  {
    const std::lock_guard lock(waiting_mutex);
    findings.swap(waiting);
  }
  for (const auto &finding : findings) {
    report(&finding, nullptr);
  }
  return 0;
}

void report(const openreg_sanitizer_finding *finding, void *) {
  if (is_in_fault()) {
    const std::lock_guard lock(waiting_mutex);
    waiting.push_back(*finding);
    Py_AddPendingCall(&report_waiting, nullptr); // else it is told when the sanitizer ends
    return;
  }
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0 || reporter == nullptr) {
    return;
  }
  const KeptPythonError kept;
  try {
    const py::handle call(reporter);
    call(to_python(*finding));
  } catch (py::error_already_set &error) {
    error.discard_as_unraisable("openreg sanitizer");
  }
}

std::vector<openreg_sanitizer_block> live_blocks(openreg_sanitizer *layer) {
  std::vector<openreg_sanitizer_block> blocks(openreg_sanitizer_blocks(layer, nullptr, 0));
  blocks.resize(
      std::min(blocks.size(), openreg_sanitizer_blocks(layer, blocks.data(), blocks.size())));
  return blocks;
}

// ---- what Python calls --------------------------------------------------------------------------

unsigned bits_of(const std::vector<std::string> &names) {
  unsigned bits = 0;
  for (const auto &kind : names) {
    int found = -1;
    for (int i = 0; i < OPENREG_SANITIZER_KIND_COUNT; ++i) {
      if (kind == openreg_sanitizer_kind_name(static_cast<openreg_sanitizer_kind>(i))) {
        found = i;
      }
    }
    TORCH_CHECK_VALUE(found >= 0, "openreg sanitizer: no kind of finding is called '", kind, "'");
    bits |= OPENREG_SANITIZER_KIND_BIT(found);
  }
  return bits;
}

openreg_sanitizer *layer_or_refuse() {
  TORCH_CHECK(told != nullptr, "openreg sanitizer: it was not started");
  return told->layer();
}

void watch(ToldOrder *order) {
  watch_blocks(order);
  watch_launches(order);
  installed_watcher.store(order, std::memory_order_release);
}

// A fork has memory and streams of its own.
void forget_parent() {
  told = nullptr;
  watch_blocks(nullptr);
  forget_launches();
  installed_watcher.store(nullptr);
}

// What there is from before is not looked at: of what came after it nothing is known.
void forget_all(openreg_sanitizer *layer) {
  for (const auto &block : live_blocks(layer)) {
    openreg_sanitizer_free(layer, block.address, 0);
  }
  openreg_sanitizer_forget(layer, 0, UINT64_MAX);
}

int exit_status = 0; // that a process is to have which would have 0

void end_with_status(int status, void *) {
  if (status == 0 && exit_status != 0) {
    std::fflush(nullptr);
    _exit(exit_status);
  }
}

void start(py::object report_to, const std::vector<std::string> &names, bool whole_stacks) {
  kinds = bits_of(names);
  const bool finds_host_accesses =
      (kinds & OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_HOST_ACCESS)) != 0;
  watch_red_zones((kinds & OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_OUT_OF_BOUNDS)) != 0);
  Py_XDECREF(reporter);
  reporter = report_to.release().ptr();
  keep_whole_stacks(whole_stacks);
  if (told != nullptr) {
    openreg_sanitizer_findings_clear(told->layer());
    openreg_sanitizer_set_kinds(told->layer(), kinds);
    watch(told);
    watch_pages(told, finds_host_accesses);
    return;
  }
  static const bool is_first = [] {
    pthread_atfork(nullptr, nullptr, &forget_parent);
    on_exit(&end_with_status, nullptr); // early, and so called late
    return true;
  }();
  (void)is_first;
  openreg_sanitizer_options options{};
  options.kinds = kinds;
  options.callback = &report;
  openreg_sanitizer *layer = nullptr;
  check(openreg_sanitizer_create(&options, &layer));
  told = new ToldOrder(layer); // as long as the process
  watch(told);
  watch_pages(told, finds_host_accesses);
}

void set_exit_status(int status) {
  exit_status = status;
}

// One finding for each place that allocated what is still there, with all of its bytes.
void report_leaks() {
  std::map<std::pair<uint64_t, uint64_t>, openreg_sanitizer_finding> leaks; // by place and owner
  for (const auto &block : live_blocks(told->layer())) {
    if (block.owner == ToldOrder::kHostTag) { // the host's memory
      continue;
    }
    auto &leak = leaks[{block.site, block.owner}];
    leak.kind = OPENREG_SANITIZER_LEAK;
    ++leak.count;
    const auto bytes = leak.second.block.bytes;
    leak.second.block = block;
    leak.second.block.bytes += bytes;
    leak.bytes = {block.address, block.address};
  }
  for (const auto &[key, leak] : leaks) {
    report(&leak, nullptr);
  }
}

void stop() {
  if (told == nullptr) {
    return;
  }
  if ((kinds & OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_LEAK)) != 0) {
    report_leaks();
  }
  kinds = 0;
  watch_red_zones(false);
  openreg_sanitizer_set_kinds(told->layer(), 0);
  watch(nullptr);
  forget_host_memory();
  forget_all(told->layer());
  report_waiting(nullptr);
}

py::list findings() {
  auto *const layer = layer_or_refuse();
  py::list all;
  openreg_sanitizer_finding finding;
  for (size_t i = 0; openreg_sanitizer_finding_get(layer, i, &finding); ++i) {
    all.append(to_python(finding));
  }
  return all;
}

py::dict counts() {
  openreg_sanitizer_counters counters;
  openreg_sanitizer_counts(layer_or_refuse(), &counters);
  py::dict result;
  result["accesses"] = counters.accesses;
  result["comparisons"] = counters.comparisons;
  result["unknown"] = counters.unknown;
  result["forgotten_records"] = counters.forgotten_records;
  result["forgotten_blocks"] = counters.forgotten_blocks;
  result["forgotten_bytes"] = counters.forgotten_bytes;
  result["lost_findings"] = counters.lost_findings;
  result["blocks"] = counters.blocks;
  result["shadow_bytes"] = counters.shadow_bytes;
  return result;
}

} // namespace

void define_sanitizer(py::module &module) {
  module.def("sanitizer_start", &start, py::arg("report"), py::arg("kinds"),
             py::arg("whole_stacks") = false);
  module.def("sanitizer_stop", &stop);
  module.def("sanitizer_set_exit_status", &set_exit_status, py::arg("status"));
  module.def("sanitizer_findings", &findings);
  module.def("sanitizer_clear", [] { openreg_sanitizer_findings_clear(layer_or_refuse()); });
  module.def("sanitizer_counts", &counts);
}

} // namespace openreg
