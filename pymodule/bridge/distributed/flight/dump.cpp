// Dumps of the flight recorder. PyTorch's tools define the keys.

#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include <charconv>
#include <cstdio>
#include <string_view>

#include "distributed/flight/recorder.h"

namespace openreg {

namespace {

using c10::IValue;
using Dict = c10::Dict<IValue, IValue>;
using List = c10::List<IValue>;

Dict new_dict() {
  return Dict(c10::AnyType::get(), c10::AnyType::get());
}

List new_list() {
  return List(c10::AnyType::get());
}

template <class Number> int64_t integer(Number number) {
  return static_cast<int64_t>(number);
}

// ---- JSON ---------------------------------------------------------------------------------------

void write_json(const IValue &value, std::string &text);

void write_string(std::string_view words, std::string &text) {
  text += '"';
  for (const char each : words) {
    if (each == '"' || each == '\\') {
      text.append({'\\', each});
    } else if (static_cast<unsigned char>(each) < ' ') {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(each));
      text += escaped;
    } else {
      text += each;
    }
  }
  text += '"';
}

void write_number(double number, std::string &text) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(digits, end);
}

template <class Elements> void write_list(const Elements &elements, std::string &text) {
  text += '[';
  bool is_first = true;
  for (const IValue &each : elements) {
    text += std::exchange(is_first, false) ? "" : ",";
    write_json(each, text);
  }
  text += ']';
}

void write_dict(const Dict &dict, std::string &text) {
  text += '{';
  bool is_first = true;
  for (const auto &each : dict) {
    text += std::exchange(is_first, false) ? "" : ",";
    write_string(each.key().toStringView(), text);
    text += ':';
    write_json(each.value(), text);
  }
  text += '}';
}

void write_json(const IValue &value, std::string &text) {
  if (value.isString()) {
    write_string(value.toStringView(), text);
  } else if (value.isInt()) {
    text += std::to_string(value.toInt());
  } else if (value.isBool()) {
    text += value.toBool() ? "true" : "false";
  } else if (value.isDouble()) {
    write_number(value.toDouble(), text);
  } else if (value.isTuple()) {
    write_list(value.toTupleRef().elements(), text);
  } else if (value.isList()) {
    write_list(value.toListRef(), text);
  } else {
    write_dict(value.toGenericDict(), text);
  }
}

// ---- calls --------------------------------------------------------------------------------------

List describe_frames(const PythonStack &stack) {
  auto described = new_list();
  for (const auto &frame : stack.describe()) {
    auto each = new_dict();
    each.insert("name", frame.name);
    each.insert("filename", frame.filename);
    each.insert("line", integer(frame.line));
    described.push_back(std::move(each));
  }
  return described;
}

void describe_tensors(const FlightTensors &tensors, const std::string &side, Dict &into) {
  auto sizes = new_list(), dtypes = new_list();
  for (const auto &tensor : tensors) {
    auto own = new_list();
    for (const auto size : tensor.sizes) {
      own.push_back(size);
    }
    sizes.push_back(std::move(own));
    dtypes.push_back(c10::toString(tensor.dtype));
  }
  into.insert(side + "_sizes", std::move(sizes));
  into.insert(side + "_dtypes", std::move(dtypes));
}

IValue time(int64_t ns, bool as_json) {
  return ns == 0 && !as_json ? IValue() : IValue(ns);
}

Dict describe_call(const FlightEntry &record, bool as_json) {
  const auto &call = record.call;
  const auto completed_ns = record.completed_ns(), started_ns = record.started_ns();
  auto entry = new_dict();
  entry.insert("record_id", integer(record.id));
  entry.insert("pg_id", integer(call.group->id));
  entry.insert("process_group", std::make_tuple(call.group->name, call.group->description));
  entry.insert("thread_name", record.thread_name);
  entry.insert("thread_id", c10::str(record.thread));
  entry.insert("collective_seq_id", integer(call.collective_number));
  entry.insert("p2p_seq_id", integer(call.message_number));
  entry.insert("op_id", integer(call.call_number));
  entry.insert("profiling_name", "nccl:" + call.title); // the tools accept no other prefix
  entry.insert("time_created_ns", record.created_ns);
  if (call.is_timed && completed_ns != 0) {
    entry.insert("duration_ms", record.duration_ms());
  }
  describe_tensors(call.inputs, "input", entry);
  describe_tensors(call.outputs, "output", entry);
  entry.insert("state", completed_ns != 0 ? "completed"
                        : started_ns != 0 ? "started"
                                          : "scheduled");
  entry.insert("time_discovered_started_ns", time(started_ns, as_json));
  entry.insert("time_discovered_completed_ns", time(completed_ns, as_json));
  entry.insert("retired", record.is_retired());
  entry.insert("timeout_ms", static_cast<int64_t>(call.timeout.count()));
  entry.insert("is_p2p", call.is_message);
  return entry;
}

std::string pickle(const IValue &value) {
  std::string bytes;
  torch::jit::Pickler pickler([&](const char *data, size_t size) { bytes.append(data, size); },
                              nullptr, nullptr, nullptr, nullptr, false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return bytes;
}

} // namespace

// ---- the dump -----------------------------------------------------------------------------------

IValue FlightRecorder::describe_groups() {
  auto groups = new_dict();
  for (const auto &each : ranks_) {
    auto group = new_dict();
    group.insert("name", each.name);
    group.insert("desc", each.description);
    group.insert("ranks", c10::str("[", c10::Join(", ", each.ranks), "]"));
    groups.insert_or_assign(each.name, std::move(group));
  }
  return groups;
}

IValue FlightRecorder::describe_progress(bool as_json) {
  const auto number = [&](int64_t last) {
    return as_json ? IValue(std::to_string(last)) : IValue(last);
  };
  auto groups = new_dict();
  for (const auto &[id, each] : groups_) {
    auto group = new_dict();
    group.insert("last_enqueued_collective", number(each->queued));
    group.insert("last_started_collective", number(each->started));
    group.insert("last_completed_collective", number(each->completed));
    groups.insert(std::to_string(id), std::move(group));
  }
  return groups;
}

IValue FlightRecorder::describe(Parts parts, bool as_json) {
  auto all = new_dict();
  all.insert("version", c10d::version_val_str);
  {
    const std::lock_guard lock(mutex_);
    all.insert("comm_lib_version", library_version_);
    all.insert("pg_config", describe_groups());
    all.insert("pg_status", describe_progress(as_json));
  }
  if (!parts.calls) {
    return all;
  }
  auto entries = new_list();
  for (const auto &record : records(parts.only_active)) {
    auto entry = describe_call(*record, as_json);
    if (parts.frames && record->call.stack != nullptr) {
      entry.insert("frames", describe_frames(*record->call.stack));
    }
    entries.push_back(std::move(entry));
  }
  if (!as_json || !entries.empty()) {
    all.insert("entries", std::move(entries));
  }
  return all;
}

std::string FlightRecorder::dump(Parts parts) {
  return pickle(describe(parts, false));
}

std::string FlightRecorder::dump_json(Parts parts) {
  parts.frames = false;
  std::string text;
  write_json(describe(parts, true), text);
  return text;
}

} // namespace openreg
