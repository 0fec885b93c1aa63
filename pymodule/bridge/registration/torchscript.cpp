// The classes torch.classes.cuda.Stream and Event, and the operators of the namespace cuda.
//
// TorchScript's compiler knows the module torch.cuda. It translates torch.cuda.synchronize() to the
// operator cuda::synchronize, and torch.cuda.Stream to the class. Names, signatures and defaults
// must be those of PyTorch's CUDA build, because saved programs contain them.

#include "registration/torchscript.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <limits>

#include "core/device_type.h"

namespace openreg {

namespace {

using torch::jit::Operator;
using torch::jit::pop;
using torch::jit::push;
using torch::jit::Stack;

// The guard that registration/guard.cpp registered. It notifies observers and releases the GIL.
c10::impl::VirtualGuardImpl guard() {
  return c10::impl::VirtualGuardImpl(kDeviceType);
}

// Returns the device that a program names by its index. A negative index means the current one.
c10::Device device_at(int64_t index) {
  // The greatest index does not exist, so the guard refuses it with CUDA's error.
  constexpr int64_t greatest = std::numeric_limits<c10::DeviceIndex>::max();
  return index < 0
             ? guard().getDevice()
             : c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(std::min(index, greatest)));
}

// Returns the device that an argument names: a device, an index, or None for the current one.
c10::Device device_of(const c10::IValue &argument) {
  if (argument.isNone()) {
    return guard().getDevice();
  }
  return device_at(argument.isInt() ? argument.toInt() : argument.toDevice().index());
}

// ---- classes ------------------------------------------------------------------------------------

class ScriptStream;
using StreamPtr = c10::intrusive_ptr<ScriptStream>;

class ScriptEvent final : public torch::CustomClassHolder {
public:
  // Every event can be waited for without using the processor, so `blocking` has no effect.
  // TorchScript has no method that sends an event to another process.
  ScriptEvent(bool enable_timing, bool, bool interprocess)
      : event_(kDeviceType,
               enable_timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT) {
    TORCH_CHECK(!(interprocess && enable_timing),
                "an event for other processes cannot measure time: pass enable_timing=False or "
                "interprocess=False");
  }

  double elapsed_time(const c10::intrusive_ptr<ScriptEvent> &end) const {
    return event_.elapsedTime(end->event_);
  }

  bool query() const { return event_.query(); }

  void synchronize() const { event_.synchronize(); }

  void record(const StreamPtr &stream);

  void wait(const StreamPtr &stream) const;

private:
  c10::Event event_;
};

using EventPtr = c10::intrusive_ptr<ScriptEvent>;

class ScriptStream final : public torch::CustomClassHolder {
public:
  explicit ScriptStream(const c10::Stream &stream) : stream_(stream) {}

  ScriptStream(std::optional<c10::Device> device, int64_t priority)
      : stream_(make(device.has_value() ? device_at(device->index()) : guard().getDevice(),
                     priority)) {}

  const c10::Stream &stream() const { return stream_; }

  bool query() const { return stream_.query(); }

  void synchronize() const { stream_.synchronize(); }

  EventPtr record_event(EventPtr event) const {
    if (!event) {
      event = c10::make_intrusive<ScriptEvent>(false, false, false);
    }
    event->record(c10::make_intrusive<ScriptStream>(stream_));
    return event;
  }

  void wait_event(const EventPtr &event) const {
    event->wait(c10::make_intrusive<ScriptStream>(stream_));
  }

  void wait_stream(const StreamPtr &other) const { wait_event(other->record_event({})); }

  int64_t device_index() const { return stream_.device_index(); }

  c10::Device device() const { return stream_.device(); }

  int64_t id() const { return stream_.id(); }

private:
  static c10::Stream make(c10::Device device, int64_t priority) {
    TORCH_CHECK(priority <= 0, "Expected cuda stream priority to be less than or equal to 0, got ",
                priority);
    return guard().getNewStream(device, static_cast<int>(priority));
  }

  c10::Stream stream_;
};

void ScriptEvent::record(const StreamPtr &stream) {
  event_.record(stream->stream());
}

void ScriptEvent::wait(const StreamPtr &stream) const {
  event_.block(stream->stream());
}

void register_classes() {
  // Both names must exist before methods that take or return them are defined.
  auto streams = torch::class_<ScriptStream>("cuda", "Stream");
  auto events = torch::class_<ScriptEvent>("cuda", "Event");
  streams
      .def(torch::init<std::optional<c10::Device>, int64_t>(), "",
           {torch::arg("device") = std::nullopt, torch::arg("priority") = 0})
      .def("query", &ScriptStream::query)
      .def("record_event", &ScriptStream::record_event)
      .def("synchronize", &ScriptStream::synchronize)
      .def("wait_event", &ScriptStream::wait_event)
      .def("wait_stream", &ScriptStream::wait_stream)
      .def("device_index", &ScriptStream::device_index)
      .def_property("device", &ScriptStream::device)
      .def("id", &ScriptStream::id);
  events
      .def(torch::init<bool, bool, bool>(), "",
           {torch::arg("enable_timing") = false, torch::arg("blocking") = false,
            torch::arg("interprocess") = false})
      .def("elapsed_time", &ScriptEvent::elapsed_time)
      .def("query", &ScriptEvent::query)
      .def("record", &ScriptEvent::record)
      .def("synchronize", &ScriptEvent::synchronize)
      .def("wait", &ScriptEvent::wait);
}

// ---- operators ----------------------------------------------------------------------------------

void push_stream(Stack &stack, const c10::Stream &stream) {
  push(stack, c10::make_intrusive<ScriptStream>(stream));
}

void script_current_stream(Stack &stack) {
  push_stream(stack, guard().getStream(device_of(pop(stack))));
}

void script_default_stream(Stack &stack) {
  push_stream(stack, guard().getDefaultStream(device_of(pop(stack))));
}

void script_set_stream(Stack &stack) {
  const auto stream = pop(stack).toCustomClass<ScriptStream>();
  guard().setDevice(stream->device());
  guard().exchangeStream(stream->stream());
}

void script_current_device(Stack &stack) {
  push(stack, static_cast<int64_t>(guard().getDevice().index()));
}

void script_set_device(Stack &stack) {
  const auto index = pop(stack).toInt();
  TORCH_CHECK(index >= 0, "device id must be non-negative!", index);
  guard().setDevice(device_at(index));
}

// Unlike set_device these two ignore negative indices.
void script_exchange_device(Stack &stack) {
  const auto index = pop(stack).toInt();
  if (index < 0) {
    push(stack, int64_t{-1});
    return;
  }
  push(stack, static_cast<int64_t>(guard().exchangeDevice(device_at(index)).index()));
}

void device_index_of(Stack &stack) {
  push(stack, static_cast<int64_t>(pop(stack).toDevice().index()));
}

void script_device_count(Stack &stack) {
  push(stack, static_cast<int64_t>(guard().deviceCount()));
}

void synchronize_current(Stack &) {
  guard().synchronizeDevice(guard().getDevice().index());
}

void script_synchronize(Stack &stack) {
  guard().synchronizeDevice(device_of(pop(stack)).index());
}

} // namespace

void register_torchscript() {
  register_classes();
  // The compiler may remove a call of an operator whose schema shows no effect, unless it knows the
  // operator's name. It does not know those of the two operators that exchange the device.
  constexpr auto by_schema = c10::AliasAnalysisKind::FROM_SCHEMA;
  constexpr auto conservative = c10::AliasAnalysisKind::CONSERVATIVE;
#define STREAM_CLASS "__torch__.torch.classes.cuda.Stream"
  static const torch::jit::RegisterOperators operators({
      Operator("cuda::current_stream.device(Device? device) -> " STREAM_CLASS,
               script_current_stream, by_schema),
      Operator("cuda::current_stream.int(int? val) -> " STREAM_CLASS, script_current_stream,
               by_schema),
      Operator("cuda::default_stream.device(Device? device) -> " STREAM_CLASS,
               script_default_stream, by_schema),
      Operator("cuda::default_stream.int(int? val) -> " STREAM_CLASS, script_default_stream,
               by_schema),
      Operator("cuda::set_stream(" STREAM_CLASS " stream) -> ()", script_set_stream, by_schema),
      Operator("cuda::_current_device() -> int", script_current_device, by_schema),
      Operator("cuda::_set_device(int val) -> ()", script_set_device, by_schema),
      Operator("cuda::_exchange_device(int index) -> int", script_exchange_device, conservative),
      Operator("cuda::_maybe_exchange_device(int index) -> int", script_exchange_device,
               conservative),
      Operator("cuda::device_index(Device device) -> int", device_index_of, by_schema),
      Operator("cuda::device_count() -> int", script_device_count, by_schema),
      Operator("cuda::synchronize() -> ()", synchronize_current, by_schema),
      Operator("cuda::synchronize.device(Device? device) -> ()", script_synchronize, by_schema),
      Operator("cuda::synchronize.int(int? val) -> ()", script_synchronize, by_schema),
  });
#undef STREAM_CLASS
}

} // namespace openreg
