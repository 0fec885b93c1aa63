/* graph.h: what a graph is made of, for the files that capture. */
#ifndef OPENREG_DEVICE_STREAMS_GRAPH_H
#define OPENREG_DEVICE_STREAMS_GRAPH_H

#include "device/capture.h"
#include "device/streams/stream.h"

#pragma GCC visibility push(hidden)

struct openreg_graph {
  openreg_graph_node *nodes;
  size_t count, room;
};

/* Nodes that come before whatever is behind them: those of a stream, or of an event. Zero is none.
 */
struct frontier {
  uint32_t *nodes;
  size_t count, room;
};

/* NULL without host memory. */
openreg_graph *openreg_graph_create(void);

/* Owns `work` from now on. Of the dependencies those are left that say all. Errors: OUT_OF_MEMORY.
 */
openreg_status openreg_graph_add(openreg_graph *graph, const struct stream *stream,
                                 const openreg_graph_work *work, struct frontier *dependencies);

/* Whether all of `nodes` are among those of `end`, or come before them. */
bool openreg_graph_comes_before(const openreg_graph *graph, const struct frontier *nodes,
                                const struct frontier *end);

/* Makes it the union of both, or one node alone. False without host memory. */
bool openreg_frontier_add(struct frontier *frontier, const struct frontier *more);
bool openreg_frontier_set(struct frontier *frontier, uint32_t node);
void openreg_frontier_free(struct frontier *frontier);

#pragma GCC visibility pop
#endif
