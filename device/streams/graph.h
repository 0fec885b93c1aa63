/* graph.h: the structure of graphs. */
#ifndef OPENREG_DEVICE_STREAMS_GRAPH_H
#define OPENREG_DEVICE_STREAMS_GRAPH_H

#include "device/capture.h"
#include "device/streams/stream.h"

#pragma GCC visibility push(hidden)

struct openreg_graph {
  openreg_graph_node *nodes;
  size_t count, capacity;
};

/* A set of nodes that the next node depends on. A stream and an event in a capture have one each.
 * All zeros is the empty set. */
struct capture_dependencies {
  uint32_t *nodes;
  size_t count, capacity;
};

/* Returns NULL if host memory is exhausted. */
openreg_graph *openreg_graph_create(void);

/* Adds a node, which owns `work` from now on. Removes redundant nodes from `dependencies`. Errors:
 * OUT_OF_MEMORY. */
openreg_status openreg_graph_add(openreg_graph *graph, const struct stream *stream,
                                 const openreg_graph_work *work,
                                 struct capture_dependencies *dependencies);

/* Whether each of `nodes` is in `end` or comes before a node of `end`. */
bool openreg_graph_comes_before(const openreg_graph *graph,
                                const struct capture_dependencies *nodes,
                                const struct capture_dependencies *end);

/* Make a set the union of two sets, or a single node. Return false if host memory is exhausted. */
bool openreg_capture_dependencies_add(struct capture_dependencies *dependencies,
                                      const struct capture_dependencies *more);
bool openreg_capture_dependencies_set(struct capture_dependencies *dependencies, uint32_t node);
void openreg_capture_dependencies_free(struct capture_dependencies *dependencies);

#pragma GCC visibility pop
#endif
