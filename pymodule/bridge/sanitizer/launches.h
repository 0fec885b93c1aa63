// Reports operators and other work on the devices.
//
// PyTorch calls back before and after each call of an operator, on any thread. An operator is
// reported after its call if it reaches a kernel of a device. The accesses use the arguments as
// they were before the call. Operators that such a kernel calls are a part of it. Other operators
// are not reported themselves, but the operators that they call are.
#pragma once

#include "device/operations.h"
#include "sanitizer/session.h"

namespace openreg {

// Registers the callbacks with PyTorch, or removes them. A child of fork inherits its parent's.
void observe_operators(bool observe);

// Reports work that is not an operator.
void report_work(SanitizerSession &session, StreamKey stream, const Observer::Work &work);

// Reports a storage that moves to a new block, unless that is a part of a launch.
void report_resize(SanitizerSession &session, StreamKey stream, uint64_t from, uint64_t to,
                   size_t kept, size_t bytes);

// Reports a copy or a fill that the program submitted through the CUDA runtime.
void report_transfer(SanitizerSession &session, const openreg_operation &operation);

// Reports that the host waits for a stream.
void synchronize_host(SanitizerSession &session, StreamKey stream);

} // namespace openreg
