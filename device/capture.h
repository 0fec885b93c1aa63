/* capture.h: the fourth contract of the device layer: streams that record what they are given
 * instead of doing it, and the graphs that come of it.
 *
 * A capture begins on one stream, its origin. From then on work of the stream becomes a node of a
 * graph, behind the node before it. A stream that waits for an event of a capturing stream joins
 * the capture, and its work becomes nodes too; when the capture ends, all of them must come before
 * something that the origin waited for. Nothing is done, and no memory is touched, before the graph
 * is launched: that is, run as work of any stream, as often as wanted.
 *
 * What the host cannot know during a capture it must not ask. Waiting for a capturing stream, for
 * its device, or for an event of it fails, and so does asking whether they have finished; work of
 * the stream that is no node of a graph (openreg_stream_launch, inline work that waits for its
 * turn) and a dependency on work that was not captured fail as well. Such a call fails with
 * CAPTURE_..., as CUDA's, and makes the capture invalid: it goes on, and fails when it ends. The
 * stream is then as it was before the capture.
 *
 * While a capture lasts its streams are not idle, and work that was submitted to them before goes
 * on; ending it waits for that.
 *
 * All functions may be called from any thread.
 */
#ifndef OPENREG_DEVICE_CAPTURE_H
#define OPENREG_DEVICE_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who must not ask for what may disturb a capture: memory from the device, and whether an event was
 * reached, of whichever stream: no thread, the one that began the capture, or nobody. */
typedef enum openreg_capture_mode {
  OPENREG_CAPTURE_GLOBAL,
  OPENREG_CAPTURE_THREAD_LOCAL,
  OPENREG_CAPTURE_RELAXED,
} openreg_capture_mode;

/* Work that can be done any number of times, by one thread at a time. */
typedef struct openreg_graph_work {
  openreg_status (*run)(void *data); /* as openreg_stream_function */
  void (*destroy)(void *data);       /* NULL: nothing is to be done */
  void *data;
  const char *name; /* for people; static storage, or freed by `destroy` */
} openreg_graph_work;

typedef struct openreg_graph openreg_graph;

/* Begins to capture what the stream is given. `mempool` is a number for whoever allocates memory
 * for the captured work (below); not 0. Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK,
 * CAPTURE_UNSUPPORTED for the default stream and for one that captures already, OUT_OF_MEMORY (of
 * the host). */
openreg_status openreg_capture_begin(int device, int stream, openreg_capture_mode mode,
                                     uint64_t mempool);

/* Ends the capture that began on the stream, and gives its graph, the caller's to destroy. Unless
 * the capture was begun in relaxed mode the thread must be the one that began it. Errors:
 * CAPTURE_UNMATCHED for a stream on which none began, CAPTURE_WRONG_THREAD: the capture goes on.
 * CAPTURE_INVALIDATED, CAPTURE_UNJOINED: it has ended, and there is no graph. */
openreg_status openreg_capture_end(int device, int stream, openreg_graph **graph);

/* Whether the stream captures; two loads, for a device and a stream that exist. */
bool openreg_stream_is_capturing(int device, int stream);

/* The number of the stream's capture, from 1 on, and whether it is still valid; 0: none. */
uint64_t openreg_stream_capture(int device, int stream, bool *is_valid);

/* The `mempool` of the stream's capture; 0: it does not capture. */
uint64_t openreg_stream_capture_mempool(int device, int stream);

/* Whether any stream captures: one load. */
bool openreg_captures_exist(void);

/* Adds a node to the graph of a stream that captures, which owns `work` from now on, also if this
 * fails. Errors: OUT_OF_MEMORY (of the host), CAPTURE_UNMATCHED for a stream that does not. */
openreg_status openreg_capture_add(int device, int stream, const openreg_graph_work *work);

/* Says that a stream that captures was asked for what cannot be captured, `what`: invalidates, and
 * fails with CAPTURE_UNSUPPORTED. OK for a stream that does not capture. */
openreg_status openreg_capture_refuse(int device, int stream, const char *what);

/* The same for what may disturb a capture of any stream, by the modes of those that there are. */
openreg_status openreg_capture_refuse_unsafe(const char *what);

/* ---- graphs ---------------------------------------------------------------------------------- */

/* Does the work of all nodes on the calling thread, which must be the stream that the graph is
 * launched on, in an order that the graph allows: that in which it was captured. Ends with what a
 * node fails with. One thread at a time. */
openreg_status openreg_graph_run(const openreg_graph *graph);

/* NULL is allowed. */
void openreg_graph_destroy(openreg_graph *graph);

/* Node `index` < count, in the order of capture. */
typedef struct openreg_graph_node {
  int device, stream; /* that it was captured on */
  openreg_graph_work work;
  size_t dependency_count;
  const uint32_t *dependencies; /* nodes that must come before, and no others need */
} openreg_graph_node;

size_t openreg_graph_node_count(const openreg_graph *graph);
const openreg_graph_node *openreg_graph_node_at(const openreg_graph *graph, size_t index);

#ifdef __cplusplus
}
#endif
#endif
