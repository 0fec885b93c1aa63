/* graph.c: graphs of captured work. Nodes are stored in the order of capture. Dependencies always
 * allow this order, because a node can only depend on nodes captured before it.
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
  if (graph->count < graph->capacity)
    return true;
  size_t capacity = graph->capacity ? 2 * graph->capacity : 64;
  openreg_graph_node *nodes = realloc(graph->nodes, capacity * sizeof *nodes);
  if (nodes == NULL)
    return false;
  graph->nodes = nodes;
  graph->capacity = capacity;
  return true;
}

/* Dependencies have smaller indices than the nodes that depend on them, so one backward pass finds
 * all. */
bool openreg_graph_comes_before(const openreg_graph *graph,
                                const struct capture_dependencies *nodes,
                                const struct capture_dependencies *end) {
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

/* Removes nodes that come before other nodes of the set. */
static void reduce(const openreg_graph *graph, struct capture_dependencies *dependencies) {
  for (size_t i = dependencies->count; dependencies->count > 1 && i-- > 0;) {
    uint32_t node = dependencies->nodes[i];
    struct capture_dependencies one = {.nodes = &node, .count = 1};
    dependencies->nodes[i] = dependencies->nodes[--dependencies->count];
    if (!openreg_graph_comes_before(graph, &one, dependencies)) {
      dependencies->nodes[dependencies->count++] = dependencies->nodes[i];
      dependencies->nodes[i] = node;
    }
  }
}

openreg_status openreg_graph_add(openreg_graph *graph, const struct stream *stream,
                                 const openreg_graph_work *work,
                                 struct capture_dependencies *dependencies) {
  reduce(graph, dependencies);
  size_t bytes = dependencies->count * sizeof *dependencies->nodes;
  uint32_t *kept = bytes ? malloc(bytes) : NULL;
  if ((bytes != 0 && kept == NULL) || !make_room(graph)) {
    free(kept);
    work_destroy(work);
    return openreg_fail(OPENREG_OUT_OF_MEMORY, "openreg: no host memory for a graph node");
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

/* ---- capture dependencies -------------------------------------------------------------------- */

static bool dependencies_contain(const struct capture_dependencies *dependencies, uint32_t node) {
  for (size_t i = 0; i < dependencies->count; i++)
    if (dependencies->nodes[i] == node)
      return true;
  return false;
}

bool openreg_capture_dependencies_add(struct capture_dependencies *dependencies,
                                      const struct capture_dependencies *more) {
  size_t capacity = dependencies->count + more->count;
  if (capacity > dependencies->capacity) {
    uint32_t *nodes = realloc(dependencies->nodes, capacity * sizeof *nodes);
    if (nodes == NULL)
      return false;
    dependencies->nodes = nodes;
    dependencies->capacity = capacity;
  }
  for (size_t i = 0; i < more->count; i++)
    if (!dependencies_contain(dependencies, more->nodes[i]))
      dependencies->nodes[dependencies->count++] = more->nodes[i];
  return true;
}

bool openreg_capture_dependencies_set(struct capture_dependencies *dependencies, uint32_t node) {
  struct capture_dependencies one = {.nodes = &node, .count = 1};
  dependencies->count = 0;
  return openreg_capture_dependencies_add(dependencies, &one);
}

void openreg_capture_dependencies_free(struct capture_dependencies *dependencies) {
  free(dependencies->nodes);
  *dependencies = (struct capture_dependencies){0};
}
