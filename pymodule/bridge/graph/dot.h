// Writes a graph in the Graphviz DOT language.
#pragma once

#include <ostream>

#include "device/capture.h"

namespace openreg {

// One node per captured operation, clustered by stream, and an edge per dependency.
void write_dot(std::ostream &out, const openreg_graph &graph);

} // namespace openreg
