#include "graph/dot.h"

#include <map>
#include <utility>
#include <vector>

namespace openreg {

void write_dot(std::ostream &out, const openreg_graph &graph) {
  std::map<std::pair<int, int>, std::vector<size_t>> of_streams;
  const auto count = openreg_graph_node_count(&graph);
  out << "digraph openreg {\n  node [shape=box, fontname=monospace];\n";
  for (size_t i = 0; i < count; ++i) {
    const auto &node = *openreg_graph_node_at(&graph, i);
    of_streams[{node.device, node.stream}].push_back(i);
  }
  for (const auto &[stream, nodes] : of_streams) {
    out << "  subgraph cluster_" << stream.first << "_" << stream.second
        << " {\n    label=\"device " << stream.first << ", stream " << stream.second << "\";\n";
    for (const auto i : nodes) {
      out << "    n" << i << " [label=\"" << i << ": "
          << openreg_graph_node_at(&graph, i)->work.name << "\"];\n";
    }
    out << "  }\n";
  }
  for (size_t i = 0; i < count; ++i) {
    const auto &node = *openreg_graph_node_at(&graph, i);
    for (size_t j = 0; j < node.dependency_count; ++j) {
      out << "  n" << node.dependencies[j] << " -> n" << i << ";\n";
    }
  }
  out << "}\n";
}

} // namespace openreg
