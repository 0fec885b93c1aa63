// Which index of an operator is out of range. Asked when its kernel has raised an error, which may
// be long after the launch; so what is in the indices is looked at only then.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <string_view>

#include "sanitizer/report_order.h"

namespace openreg {

// Whether it is an operator with indices that are known here, by its name without the overload's.
bool takes_indices(std::string_view name);

// Of a launch at a place, of such an operator. Its `fail` reports the first index that is out of
// range, if one is; to be called when no work can change the indices.
std::unique_ptr<Watcher::Queued> watch_indices(ToldOrder &order, Queue queue, uint64_t place,
                                               const c10::OperatorHandle &op,
                                               c10::ArrayRef<c10::IValue> arguments);

} // namespace openreg
