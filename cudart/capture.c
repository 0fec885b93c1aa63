/* capture.c: capturing streams, and graphs.
 *
 * A graph is what a capture recorded (device/capture.h). cudaGraphInstantiate makes no copy: the
 * graph and its executables share it, and the last one to be destroyed frees it. The nodes can be
 * counted and their order can be read, but nodes cannot be added or changed.
 */
#include "cudart/internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct CUgraphNode_st {
  const openreg_graph_node *node;
  const struct contents *contents;
};

/* What a graph and its executables share. */
struct contents {
  openreg_graph *graph;
  size_t count;
  struct CUgraphNode_st *nodes;
  pthread_mutex_t running; /* a graph runs on one thread at a time */
  atomic_int holders;
};

struct CUgraph_st {
  struct contents *contents;
};

struct CUgraphExec_st {
  struct contents *contents;
};

/* ---- contents -------------------------------------------------------------------------------- */

static struct contents *contents_make(openreg_graph *graph) {
  size_t count = openreg_graph_node_count(graph);
  struct contents *contents = calloc(1, sizeof *contents);
  struct CUgraphNode_st *nodes = calloc(count > 0 ? count : 1, sizeof *nodes);
  if (contents == NULL || nodes == NULL) {
    free(contents);
    free(nodes);
    return NULL;
  }
  contents->graph = graph;
  contents->count = count;
  contents->nodes = nodes;
  pthread_mutex_init(&contents->running, NULL);
  atomic_init(&contents->holders, 1);
  for (size_t i = 0; i < count; i++)
    nodes[i] = (struct CUgraphNode_st){openreg_graph_node_at(graph, i), contents};
  return contents;
}

static struct contents *contents_hold(struct contents *contents) {
  atomic_fetch_add(&contents->holders, 1);
  return contents;
}

static void contents_release(struct contents *contents) {
  if (atomic_fetch_sub(&contents->holders, 1) > 1)
    return;
  openreg_graph_destroy(contents->graph);
  pthread_mutex_destroy(&contents->running);
  free(contents->nodes);
  free(contents);
}

/* ---- capture --------------------------------------------------------------------------------- */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  if (mode == NULL)
    return cudart_fail_null(__func__, "mode");
  if ((int)*mode < cudaStreamCaptureModeGlobal || (int)*mode > cudaStreamCaptureModeRelaxed)
    return cudart_fail(cudaErrorInvalidValue,
                       "cudaThreadExchangeStreamCaptureMode: unknown mode %d", (int)*mode);
  openreg_capture_mode before = openreg_capture_exchange_mode((openreg_capture_mode)*mode);
  *mode = (enum cudaStreamCaptureMode)before;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  struct cudart_stream found;
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  if ((int)mode < cudaStreamCaptureModeGlobal || (int)mode > cudaStreamCaptureModeRelaxed)
    return cudart_fail(cudaErrorInvalidValue, "cudaStreamBeginCapture: unknown mode %d", (int)mode);
  uint64_t mempool;
  openreg_status status = openreg_mempool_allocate_id(&mempool);
  if (status == OPENREG_OK)
    status = openreg_capture_begin(found.device, found.number, (openreg_capture_mode)mode, mempool);
  return cudart_return(status);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph) {
  struct cudart_stream found;
  if (pGraph == NULL)
    return cudart_fail_null(__func__, "pGraph");
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  *pGraph = NULL;
  openreg_graph *graph;
  openreg_status status = openreg_capture_end(found.device, found.number, &graph);
  if (status != OPENREG_OK)
    return cudart_return(status);
  struct CUgraph_st *result = malloc(sizeof *result);
  struct contents *contents = result != NULL ? contents_make(graph) : NULL;
  if (contents == NULL) {
    free(result);
    openreg_graph_destroy(graph);
    return cudart_fail(cudaErrorMemoryAllocation, "openreg: no host memory for a graph");
  }
  result->contents = contents;
  *pGraph = result;
  return cudaSuccess;
}

static cudaError_t get_status(cudaStream_t stream, enum cudaStreamCaptureStatus *capture_status,
                              unsigned long long *id) {
  struct cudart_stream found;
  if (capture_status == NULL)
    return cudart_fail_null("cudaStreamIsCapturing", "pCaptureStatus");
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  bool is_valid = false;
  uint64_t number = openreg_stream_capture(found.device, found.number, &is_valid);
  *capture_status = number == 0 ? cudaStreamCaptureStatusNone
                    : is_valid  ? cudaStreamCaptureStatusActive
                                : cudaStreamCaptureStatusInvalidated;
  if (id != NULL && number != 0)
    *id = number;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *pStatus) {
  return get_status(stream, pStatus, NULL);
}

/* The graph of a running capture, and the nodes that the next one will depend on, are not shown. */
static cudaError_t get_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                            unsigned long long *id, const void *graph, const void *dependencies) {
  cudaError_t error = get_status(stream, status, id);
  bool wants_graph = graph != NULL || dependencies != NULL;
  return error == cudaSuccess && *status != cudaStreamCaptureStatusNone && wants_graph
             ? cudart_refuse("cudaStreamGetCaptureInfo", "the graph of a running capture")
             : error;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edgeData, size_t *numDependencies) {
  (void)edgeData;
  (void)numDependencies;
  return get_info(stream, status, id, graph, dependencies);
}
#else
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **dependencies,
                                        const cudaGraphEdgeData **edgeData,
                                        size_t *numDependencies) {
  (void)edgeData;
  (void)numDependencies;
  return get_info(stream, status, id, graph, dependencies);
}

cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **dependencies,
                                        size_t *numDependencies) {
  (void)numDependencies;
  return get_info(stream, status, id, graph, dependencies);
}

/* The function's first form, which programs of CUDA 11 use. */
#undef cudaStreamGetCaptureInfo
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id) {
  return get_status(stream, status, id);
}
#endif

/* ---- graphs ---------------------------------------------------------------------------------- */

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph == NULL)
    return cudart_fail_null(__func__, "graph");
  contents_release(graph->contents);
  free(graph);
  return cudaSuccess;
}

/* As in CUDA: without `nodes` returns how many there are; with it, at most *numNodes of them. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes) {
  if (graph == NULL || numNodes == NULL)
    return cudart_fail_null(__func__, graph == NULL ? "graph" : "numNodes");
  size_t count = graph->contents->count;
  for (size_t i = 0; nodes != NULL && i < *numNodes; i++)
    nodes[i] = i < count ? &graph->contents->nodes[i] : NULL;
  *numNodes = count;
  return cudaSuccess;
}

static cudaError_t get_dependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
                                    cudaGraphEdgeData *edges, size_t *count) {
  if (node == NULL || count == NULL)
    return cudart_fail_null("cudaGraphNodeGetDependencies",
                            node == NULL ? "node" : "pNumDependencies");
  size_t actual = node->node->dependency_count;
  for (size_t i = 0; dependencies != NULL && i < *count; i++)
    dependencies[i] = i < actual ? &node->contents->nodes[node->node->dependencies[i]] : NULL;
  if (edges != NULL)
    memset(edges, 0, *count * sizeof *edges);
  *count = actual;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *pDependencies,
                                         cudaGraphEdgeData *edgeData, size_t *pNumDependencies) {
  return get_dependencies(node, pDependencies, edgeData, pNumDependencies);
}
#else
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *pDependencies,
                                         size_t *pNumDependencies) {
  return get_dependencies(node, pDependencies, NULL, pNumDependencies);
}

cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t *pDependencies,
                                            cudaGraphEdgeData *edgeData, size_t *pNumDependencies) {
  return get_dependencies(node, pDependencies, edgeData, pNumDependencies);
}
#endif

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags) {
  enum {
    KNOWN = cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
            cudaGraphInstantiateFlagUseNodePriority
  };
  if (pGraphExec == NULL || graph == NULL)
    return cudart_fail_null("cudaGraphInstantiate", graph == NULL ? "graph" : "pGraphExec");
  if ((flags & ~(unsigned long long)KNOWN) != 0)
    return cudart_fail(cudaErrorInvalidValue, "cudaGraphInstantiate: unsupported flags 0x%llx",
                       flags);
  struct CUgraphExec_st *exec = malloc(sizeof *exec);
  if (exec == NULL)
    return cudart_fail(cudaErrorMemoryAllocation, "openreg: no host memory for a graph");
  exec->contents = contents_hold(graph->contents);
  *pGraphExec = exec;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(pGraphExec, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  struct cudart_stream found;
  return graphExec != NULL ? cudart_find_stream(stream, &found)
                           : cudart_fail_null(__func__, "graphExec");
}

static openreg_status run_graph(const void *data) {
  struct contents *contents = *(struct contents *const *)data;
  pthread_mutex_lock(&contents->running);
  openreg_status status = openreg_graph_run(contents->graph);
  pthread_mutex_unlock(&contents->running);
  return status;
}

static void drop_graph(const void *data) {
  contents_release(*(struct contents *const *)data);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  static const struct cudart_work work = {
      .run = run_graph, .drop = drop_graph, .name = "cudaGraphLaunch"};
  struct cudart_stream found;
  if (graphExec == NULL)
    return cudart_fail_null(__func__, "graphExec");
  cudaError_t error = cudart_find_stream(stream, &found);
  if (error != cudaSuccess)
    return error;
  openreg_status status = openreg_capture_refuse(found.device, found.number, "launching a graph");
  if (status != OPENREG_OK)
    return cudart_return(status);
  struct contents *contents = contents_hold(graphExec->contents);
  return cudart_return(cudart_submit(found, &work, &contents, sizeof contents));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  if (graphExec == NULL)
    return cudart_fail_null(__func__, "graphExec");
  contents_release(graphExec->contents);
  free(graphExec);
  return cudaSuccess;
}
