#pragma once

#include <pybind11/pybind11.h>

namespace openreg {

// What Python calls of the sanitizer.
void define_sanitizer(pybind11::module &module);

} // namespace openreg
