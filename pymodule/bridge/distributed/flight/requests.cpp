// Handlers for PyTorch's debug server, which requests the flight recorder by these names.

#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include <algorithm>

#include "distributed/flight/recorder.h"

namespace openreg {

namespace {

namespace plane = c10d::control_plane;

using Parts = FlightRecorder::Parts;

// Reads the parameters of a request. Returns false for an invalid one, after answering it.
bool read_parameters(const plane::Request &request, bool may_have_frames, Parts &parts,
                     plane::Response &response) {
  const auto refuse = [&](std::string why) {
    response.setStatus(400);
    response.setContent(std::move(why), "text/plain");
    return false;
  };
  std::map<std::string, bool *> known{{"includecollectives", &parts.calls},
                                      {"onlyactive", &parts.only_active}};
  if (may_have_frames) {
    known["includestacktraces"] = &parts.frames;
  }
  for (const auto &[name, value] : request.params()) {
    const auto found = known.find(name);
    if (found == known.end()) {
      return refuse("Invalid parameters - unexpected param passed in");
    }
    if (value != "true" && value != "false") {
      return refuse("Invalid value for " + name + " valid values are true or false");
    }
    *found->second = value == "true";
  }
  return true;
}

void answer_pickled(const plane::Request &request, plane::Response &response) {
  Parts parts;
  if (read_parameters(request, true, parts, response)) {
    response.setStatus(200);
    response.setContent(FlightRecorder::get().dump(parts), "application/octet-stream");
  }
}

void answer_json(const plane::Request &request, plane::Response &response) {
  Parts parts;
  if (read_parameters(request, false, parts, response)) {
    response.setStatus(200);
    response.setContent(FlightRecorder::get().dump_json(parts), "application/json");
  }
}

} // namespace

// PyTorch's CUDA build has handlers of these names for NCCL's recorder, and a name can be
// registered only once. There the debug server reads that recorder; ours is available in the other
// ways only.
void register_flight_requests() {
  const auto names = plane::getHandlerNames();
  if (std::find(names.begin(), names.end(), "dump_nccl_trace_pickle") != names.end()) {
    return;
  }
  plane::registerHandler("dump_nccl_trace_pickle", &answer_pickled);
  plane::registerHandler("dump_nccl_trace_json", &answer_json);
}

} // namespace openreg
