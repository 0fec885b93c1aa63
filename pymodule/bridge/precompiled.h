// The precompiled header: what nearly every file of the bridge includes.
#ifndef OPENREG_BRIDGE_PRECOMPILED_H
#define OPENREG_BRIDGE_PRECOMPILED_H

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#endif
