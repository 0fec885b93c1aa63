// torch.profiler records with Kineto. Kineto asks for a session when a profile with devices is
// prepared. It reports the beginning and end of operators to the session, and collects its events
// at the end.
//
// Each recorded piece of work (notes.h) becomes an event on the track of its stream, linked to its
// operator. A second event on the thread that submitted the work is the start of the arrow.

#include "profiler/kineto.h"

#include <dlfcn.h>

#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/device_type.h"
#include "core/status.h"
#include "profiler/events.h"
#include "profiler/notes.h"
#include "streams/inline_guard.h"

namespace openreg {

namespace {

using libkineto::ActivityType;

const std::set<ActivityType> &device_activities() {
  static const std::set<ActivityType> activities{
      ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
      ActivityType::GPU_MEMSET,        ActivityType::GPU_USER_ANNOTATION,
      ActivityType::CUDA_RUNTIME,      ActivityType::PRIVATEUSE1_RUNTIME,
      ActivityType::CUDA_SYNC,
  };
  return activities;
}

// A profile of the host only also names the types of calls.
bool includes_device_work(const std::set<ActivityType> &types) {
  constexpr std::array kWork{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                             ActivityType::GPU_MEMSET, ActivityType::GPU_USER_ANNOTATION};
  return std::ranges::any_of(kWork, [&](auto type) { return types.contains(type); });
}

// PyTorch only synchronizes the current device before it stops a profile.
void wait_for_devices() {
  if (!openreg_is_initialized() || openreg_in_bad_fork()) {
    return;
  }
  int count = 0;
  check(openreg_device_count(&count));
  const WithoutGil no_gil;
  for (int device = 0; device < count; ++device) {
    check(openreg_device_drain(device)); // the program sees failures later
  }
}

// In a build with CUDA, Kineto is a part of libtorch_cpu and asks the CUDA runtime for the devices.
// In CUDA mode that is openreg's, so Kineto lists the same devices.
bool kineto_lists_devices() {
  static const bool lists = [] {
    void *const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    return in_cuda_mode() && library != nullptr && dlsym(library, "cudaGetDeviceCount") != nullptr;
  }();
  return lists;
}

class Session final : public libkineto::IActivityProfilerSession {
public:
  explicit Session(const std::set<ActivityType> &types) : types_(types) {}
  ~Session() override {
    if (is_running_) {
      end_recording();
    }
  }

  void start() override {
    clock_.measure();
    begin_recording(/*names_operators=*/!types_.contains(ActivityType::CPU_OP));
    is_running_ = true;
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    if (!is_running_) {
      return;
    }
    is_running_ = false;
    wait_for_devices();
    end_recording();
    clock_.measure();
    records_ = take_records();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger &logger) override {
    processTrace(
        logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }

  void processTrace(libkineto::ActivityLogger &logger,
                    libkineto::getLinkedActivityCallback linked_activity, int64_t begin_ns,
                    int64_t end_ns) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(begin_ns, end_ns, platform_name());
    Events events(*buffer_, clock_, linked_activity, types_);
    events.add(std::exchange(records_, {}));
    events.log(logger);
  }

  // processTrace names the devices, because there are several.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }

  // Returns the events. The caller's trace points to them.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override { enter_operator(id); }
  void popCorrelationId() override { leave_operator(); }
  void pushUserCorrelationId(uint64_t id) override { enter_range(id); }
  void popUserCorrelationId() override { leave_range(); }

  std::string getDeviceProperties() override {
    return kineto_lists_devices() ? std::string() : device_properties();
  }

private:
  std::set<ActivityType> types_; // that the program wants
  bool is_running_ = false;
  Clock clock_;
  Records records_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class KinetoProfiler final : public libkineto::IActivityProfiler {
public:
  const std::string &name() const override { return name_; }

  const std::set<ActivityType> &availableActivities() const override { return device_activities(); }

  std::unique_ptr<libkineto::IActivityProfilerSession>
  configure(const std::set<ActivityType> &types, const libkineto::Config &) override {
    if (!includes_device_work(types) || openreg_in_bad_fork()) {
      return nullptr; // a profile of the host only, or a forked process without devices
    }
    return std::make_unique<Session>(types);
  }

  std::unique_ptr<libkineto::IActivityProfilerSession>
  configure(int64_t, int64_t, const std::set<ActivityType> &types,
            const libkineto::Config &config) override {
    return configure(types, config);
  }

private:
  std::string name_ = platform_name();
};

} // namespace

void collect_device_activity(bool collect) {
  wait_for_devices();
  if (collect) {
    resume_recording();
  } else {
    pause_recording();
  }
}

void register_kineto_profiler() {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<KinetoProfiler>(); });
}

} // namespace openreg
