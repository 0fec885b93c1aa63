#include "python/bind.h"

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
#include "sanitizer/runtime_calls.h"
#include "sanitizer/session.h"
#include "sanitizer/call_sites.h"
#include "sanitizer/red_zones.h"
#include "streams/observer.h"

namespace py = pybind11;

namespace openreg {

namespace {

// Null until the first start, and in a child of fork. Never freed.
SanitizerSession *session = nullptr;
OrderReporter *reporter = nullptr;
PyObject *report_function = nullptr;
unsigned kinds = 0; // bits of the kinds that are reported

// ---- findings for Python ------------------------------------------------------------------------

py::list to_python(const Stack &stack) {
  py::list frames;
  for (const auto &frame : stack) {
    frames.append(py::make_tuple(frame.file, frame.line, frame.function));
  }
  return frames;
}

py::list stack_at(uint64_t call_site) {
  return to_python(describe_call_site(call_site).stack);
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
  const auto call_site = describe_call_site(side.call_site);
  const auto stream = SanitizerSession::stream_of_tag(side.thread);
  const auto owner = SanitizerSession::stream_of_tag(side.block.owner);
  py::dict block;
  block["bytes"] = side.block.bytes;
  block["stack"] = stack_at(side.block.call_site);
  block["freed"] =
      side.block.is_freed ? py::object(stack_at(side.block.freed_call_site)) : py::none();
  py::dict result;
  result["operator"] = description.name;
  result["argument"] = description.argument;
  result["mode"] = verb_of(side.mode);
  result["shape"] = description.sizes;
  result["dtype"] = name_of_dtype(description.dtype);
  result["device"] = side.block.owner == SanitizerSession::kHostTag ? -1 // pinned memory
                     : description.device >= 0                      ? description.device
                     : stream.device >= 0                           ? stream.device
                                                                    : owner.device;
  result["stream_device"] = stream.device;
  result["stream"] = stream.stream;
  result["stack"] = to_python(call_site.stack);
  result["forward"] =
      call_site.forward.empty() ? py::object(py::none()) : py::object(to_python(call_site.forward));
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
    event["recorded"] = stack_at(finding.recorded_call_site);
    event["waited"] = stack_at(finding.waited_call_site);
    event["waited_early"] = finding.waited_early;
    result["event"] = event;
  }
  return result;
}

// Findings of threads in a fault handler, where no Python may run. They are reported as soon as
// possible.
std::mutex pending_mutex;
std::vector<openreg_sanitizer_finding> &pending_findings =
    *new std::vector<openreg_sanitizer_finding>();

void report(const openreg_sanitizer_finding *finding, void *);

int report_pending(void *) {
  std::vector<openreg_sanitizer_finding> findings;
  {
    const std::lock_guard lock(pending_mutex);
    findings.swap(pending_findings);
  }
  for (const auto &finding : findings) {
    report(&finding, nullptr);
  }
  return 0;
}

void report(const openreg_sanitizer_finding *finding, void *) {
  if (is_in_fault()) {
    const std::lock_guard lock(pending_mutex);
    pending_findings.push_back(*finding);
    Py_AddPendingCall(&report_pending, nullptr); // if it fails, stop() reports them
    return;
  }
  if (Py_IsInitialized() == 0 || Py_IsFinalizing() != 0 || report_function == nullptr) {
    return;
  }
  const py::gil_scoped_acquire gil;
  const py::error_scope error; // memory may be freed while an exception propagates
  try {
    const py::handle call(report_function);
    call(to_python(*finding));
  } catch (py::error_already_set &error) {
    error.discard_as_unraisable("openreg sanitizer");
  }
}

std::vector<openreg_sanitizer_block> live_blocks(openreg_sanitizer *sanitizer) {
  std::vector<openreg_sanitizer_block> blocks(openreg_sanitizer_blocks(sanitizer, nullptr, 0));
  blocks.resize(
      std::min(blocks.size(), openreg_sanitizer_blocks(sanitizer, blocks.data(), blocks.size())));
  return blocks;
}

// ---- what Python calls --------------------------------------------------------------------------

std::string all_kinds() {
  std::string names;
  for (int i = 0; i < OPENREG_SANITIZER_KIND_COUNT; ++i) {
    names += i == 0 ? "'" : ", '";
    names += openreg_sanitizer_kind_name(static_cast<openreg_sanitizer_kind>(i));
    names += "'";
  }
  return names;
}

unsigned bits_of(const std::vector<std::string> &names) {
  unsigned bits = 0;
  for (const auto &kind : names) {
    int found = -1;
    for (int i = 0; i < OPENREG_SANITIZER_KIND_COUNT; ++i) {
      if (kind == openreg_sanitizer_kind_name(static_cast<openreg_sanitizer_kind>(i))) {
        found = i;
      }
    }
    TORCH_CHECK_VALUE(found >= 0, "openreg sanitizer: unknown kind of finding '", kind,
                      "': expected one of ", all_kinds());
    bits |= OPENREG_SANITIZER_KIND_BIT(found);
  }
  return bits;
}

openreg_sanitizer *sanitizer_or_fail() {
  TORCH_CHECK(session != nullptr, "openreg sanitizer: it is not running; start it first");
  return session->sanitizer();
}

void activate() {
  SanitizerSession::activate(session);
  observe_blocks(true);
  observe_operators(true);
  observe_runtime();
  add_observer(*reporter);
}

void deactivate() {
  SanitizerSession::activate(nullptr);
  observe_blocks(false);
  observe_operators(false);
  remove_observer(*reporter);
}

// A child of fork has memory and streams of its own.
void detach_from_parent() {
  session = nullptr;
  if (reporter != nullptr) {
    remove_observer(*reporter);
    reporter = nullptr;
  }
  SanitizerSession::activate(nullptr);
}

// Frees all blocks. After the sanitizer stopped, their state is no longer known.
void free_all_blocks(openreg_sanitizer *sanitizer) {
  for (const auto &block : live_blocks(sanitizer)) {
    openreg_sanitizer_free(sanitizer, block.address, 0);
  }
  openreg_sanitizer_forget(sanitizer, 0, UINT64_MAX);
}

int exit_status = 0; // the exit status of the process, if it would be 0

void apply_exit_status(int status, void *) {
  if (status == 0 && exit_status != 0) {
    std::fflush(nullptr);
    _exit(exit_status);
  }
}

void start(py::object report_to, const std::vector<std::string> &names, bool whole_stacks) {
  kinds = bits_of(names);
  const bool finds_host_accesses =
      (kinds & OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_HOST_ACCESS)) != 0;
  enable_red_zones((kinds & OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_OUT_OF_BOUNDS)) != 0);
  Py_XDECREF(report_function);
  report_function = report_to.release().ptr();
  set_whole_stacks(whole_stacks);
  if (session != nullptr) {
    openreg_sanitizer_findings_clear(session->sanitizer());
    openreg_sanitizer_set_kinds(session->sanitizer(), kinds);
    activate();
    set_page_protection(session, finds_host_accesses);
    return;
  }
  static const bool is_first = [] {
    pthread_atfork(nullptr, nullptr, &detach_from_parent);
    on_exit(&apply_exit_status, nullptr); // registered early, so it runs late
    return true;
  }();
  (void)is_first;
  openreg_sanitizer_options options{};
  options.kinds = kinds;
  options.callback = &report;
  openreg_sanitizer *sanitizer = nullptr;
  check(openreg_sanitizer_create(&options, &sanitizer));
  session = new SanitizerSession(sanitizer); // never freed
  reporter = new OrderReporter(*session);
  activate();
  set_page_protection(session, finds_host_accesses);
}

void set_exit_status(int status) {
  exit_status = status;
}

// Reports one finding for each call site that allocated leaked blocks, with the sum of their bytes.
void report_leaks() {
  std::map<std::pair<uint64_t, uint64_t>, openreg_sanitizer_finding>
      leaks; // by call site and owner
  for (const auto &block : live_blocks(session->sanitizer())) {
    if (block.owner == SanitizerSession::kHostTag) { // pinned memory
      continue;
    }
    auto &leak = leaks[{block.call_site, block.owner}];
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
  if (session == nullptr) {
    return;
  }
  if ((kinds & OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_LEAK)) != 0) {
    report_leaks();
  }
  kinds = 0;
  enable_red_zones(false);
  openreg_sanitizer_set_kinds(session->sanitizer(), 0);
  deactivate();
  forget_host_memory();
  free_all_blocks(session->sanitizer());
  report_pending(nullptr);
}

py::list findings() {
  auto *const sanitizer = sanitizer_or_fail();
  py::list all;
  openreg_sanitizer_finding finding;
  for (size_t i = 0; openreg_sanitizer_finding_get(sanitizer, i, &finding); ++i) {
    all.append(to_python(finding));
  }
  return all;
}

py::dict counts() {
  openreg_sanitizer_counters counters;
  openreg_sanitizer_counts(sanitizer_or_fail(), &counters);
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
  module.def("sanitizer_clear", [] { openreg_sanitizer_findings_clear(sanitizer_or_fail()); });
  module.def("sanitizer_counts", &counts);
}

} // namespace openreg
