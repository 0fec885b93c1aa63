/* graph.c: graphs of captured work: nodes in the order of capture, which is one that their
 * dependencies allow, for a node can only depend on what there was before it.
 */
#include "device/streams/graph.h"

#include <stdlib.h>
#include <string.h>

openreg_graph *openreg_graph_create(void) {
  return calloc(1, sizeof(openreg_graph));
}

static void work_destroy(const openreg_graph_work *work) {
  if (work->destroy != NULL)
    work->destroy(work->data);
}

void openreg_graph_destroy(openreg_graph *graph) {
  if (graph == NULL)
    return;
  for (size_t i = graph->count; i-- > 0;) {
    work_destroy(&graph->nodes[i].work);
    free((void *)graph->nodes[i].dependencies);
  }
  free(graph->nodes);
  free(graph);
}

static bool make_room(openreg_graph *graph) {
  if (graph->count < graph->room)
    return true;
  size_t room = graph->room ? 2 * graph->room : 64;
  openreg_graph_node *nodes = realloc(graph->nodes, room * sizeof *nodes);
  if (nodes == NULL)
    return false;
  graph->nodes = nodes;
  graph->room = room;
  return true;
}

/* A node has a smaller number than those that depend on it: one pass downwards finds all. */
bool openreg_graph_comes_before(const openreg_graph *graph, const struct frontier *nodes,
                                const struct frontier *end) {
  bool *found = calloc(graph->count + 1, sizeof *found);
  if (found == NULL)
    return false;
  for (size_t i = 0; i < end->count; i++)
    found[end->nodes[i]] = true;
  for (size_t i = graph->count; i-- > 0;) {
    const openreg_graph_node *node = &graph->nodes[i];
    for (size_t j = 0; found[i] && j < node->dependency_count; j++)
      found[node->dependencies[j]] = true;
  }
  bool all = true;
  for (size_t i = 0; i < nodes->count; i++)
    all = all && found[nodes->nodes[i]];
  free(found);
  return all;
}

/* Takes away what comes before the others anyway. */
static void reduce(const openreg_graph *graph, struct frontier *frontier) {
  for (size_t i = frontier->count; frontier->count > 1 && i-- > 0;) {
    uint32_t node = frontier->nodes[i];
    struct frontier one = {.nodes = &node, .count = 1};
    frontier->nodes[i] = frontier->nodes[--frontier->count];
    if (!openreg_graph_comes_before(graph, &one, frontier)) {
      frontier->nodes[frontier->count++] = frontier->nodes[i];
      frontier->nodes[i] = node;
    }
  }
}

openreg_status openreg_graph_add(openreg_graph *graph, const struct stream *stream,
                                 const openreg_graph_work *work, struct frontier *dependencies) {
  reduce(graph, dependencies);
  size_t bytes = dependencies->count * sizeof *dependencies->nodes;
  uint32_t *kept = bytes ? malloc(bytes) : NULL;
  if ((bytes != 0 && kept == NULL) || !make_room(graph)) {
    free(kept);
    work_destroy(work);
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a node of a graph");
  }
  if (bytes != 0)
    memcpy(kept, dependencies->nodes, bytes);
  graph->nodes[graph->count++] = (openreg_graph_node){
      .device = openreg_stream_device(stream),
      .stream = openreg_stream_number(stream),
      .work = *work,
      .dependency_count = dependencies->count,
      .dependencies = kept,
  };
  return OPENREG_OK;
}

openreg_status openreg_graph_run(const openreg_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) {
    const openreg_graph_work *work = &graph->nodes[i].work;
    openreg_status status = work->run(work->data);
    if (status != OPENREG_OK)
      return status;
  }
  return OPENREG_OK;
}

size_t openreg_graph_node_count(const openreg_graph *graph) {
  return graph->count;
}

const openreg_graph_node *openreg_graph_node_at(const openreg_graph *graph, size_t index) {
  return &graph->nodes[index];
}

/* ---- frontiers ------------------------------------------------------------------------------- */

static bool frontier_has(const struct frontier *frontier, uint32_t node) {
  for (size_t i = 0; i < frontier->count; i++)
    if (frontier->nodes[i] == node)
      return true;
  return false;
}

bool openreg_frontier_add(struct frontier *frontier, const struct frontier *more) {
  size_t room = frontier->count + more->count;
  if (room > frontier->room) {
    uint32_t *nodes = realloc(frontier->nodes, room * sizeof *nodes);
    if (nodes == NULL)
      return false;
    frontier->nodes = nodes;
    frontier->room = room;
  }
  for (size_t i = 0; i < more->count; i++)
    if (!frontier_has(frontier, more->nodes[i]))
      frontier->nodes[frontier->count++] = more->nodes[i];
  return true;
}

bool openreg_frontier_set(struct frontier *frontier, uint32_t node) {
  struct frontier one = {.nodes = &node, .count = 1};
  frontier->count = 0;
  return openreg_frontier_add(frontier, &one);
}

void openreg_frontier_free(struct frontier *frontier) {
  free(frontier->nodes);
  *frontier = (struct frontier){0};
}
