// Type promotion of a pointwise operator's arguments.
#pragma once

#include <ATen/native/TypeProperties.h>

namespace openreg::native {

using at::native::result_type;
using at::native::ResultTypeState;
using at::native::update_result_type_state;

} // namespace openreg::native
