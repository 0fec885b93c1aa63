// A graph in the language of Graphviz, for people.
#pragma once

#include <ostream>

#include "device/capture.h"

namespace openreg {

void write_dot(std::ostream &out, const openreg_graph &graph);

} // namespace openreg
