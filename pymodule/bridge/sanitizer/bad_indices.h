// Finds which index of an operator is out of range. The search runs after a kernel raised an error,
// which may be long after the launch, and reads the indices only then.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string_view>

#include "sanitizer/session.h"

namespace openreg {

// Returns whether the operator has indices that can be checked. `name` is without the overload.
bool takes_indices(std::string_view name);

// Returns a check of a launch. Its `fail` reports the first index that is out of range, if any.
// Call it only when no work can change the indices.
std::unique_ptr<Observer::LaunchObserver> watch_indices(SanitizerSession &session, StreamKey stream,
                                                        uint64_t call_site,
                                                        const c10::OperatorHandle &op,
                                                        c10::ArrayRef<c10::IValue> arguments);

} // namespace openreg
