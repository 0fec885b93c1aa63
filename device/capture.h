/* capture.h: stream capture and graphs. Public, in addition to device.h.
 *
 * A capture begins on one stream, its origin. From then on each piece of work submitted to the
 * stream becomes a node of a graph, after the stream's previous node. A stream that waits for an
 * event of a capturing stream joins the capture. Before the capture ends, all joined streams must
 * be joined back: the origin must wait for their last nodes. Nothing runs and no memory is touched
 * until the graph is launched, that is, until openreg_graph_run runs as work of a stream. A graph
 * may be launched any number of times.
 *
 * During a capture the host cannot know the results of captured work. These operations fail with a
 * CAPTURE_... status, as in CUDA:
 *
 * - waiting for a capturing stream, its device or one of its events, or querying them;
 * - submitting work to the stream that cannot become a node (openreg_stream_launch, inline work
 *   that waits its turn);
 * - depending on work that was not captured.
 *
 * Such a failure invalidates the capture: it continues, and fails when it ends. Afterwards the
 * stream is in the state it had before the capture.
 *
 * Streams are not idle while they capture. Work submitted before the capture still runs, and ending
 * the capture waits for it.
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

/* Which threads must not do what may disturb the capture (allocate from the device, or query an
 * event of any stream): all threads, the thread that began the capture, or no thread. */
typedef enum openreg_capture_mode {
  OPENREG_CAPTURE_GLOBAL,
  OPENREG_CAPTURE_THREAD_LOCAL,
  OPENREG_CAPTURE_RELAXED,
} openreg_capture_mode;

/* Work that can run any number of times, on one thread at a time. */
typedef struct openreg_graph_work {
  openreg_status (*run)(void *data); /* as openreg_stream_function */
  void (*destroy)(void *data);       /* NULL: nothing to destroy */
  void *data;
  const char *name; /* shown to users; static storage, or freed by `destroy` */
} openreg_graph_work;

typedef struct openreg_graph openreg_graph;

/* Begins a capture on the stream. `mempool` is a number for the allocator (see below); not 0.
 * Errors: INVALID_DEVICE, INVALID_ARGUMENT, BAD_FORK, CAPTURE_UNSUPPORTED (the default stream, or a
 * stream that already captures), OUT_OF_MEMORY (of the host). */
openreg_status openreg_capture_begin(int device, int stream, openreg_capture_mode mode,
                                     uint64_t mempool);

/* Ends the capture that began on the stream and returns its graph, which the caller destroys.
 * Except in relaxed mode, only the thread that began the capture may end it. CAPTURE_UNMATCHED (no
 * capture began on this stream) and CAPTURE_WRONG_THREAD leave the capture running. After
 * CAPTURE_INVALIDATED and CAPTURE_UNJOINED the capture has ended without a graph. */
openreg_status openreg_capture_end(int device, int stream, openreg_graph **graph);

/* Whether the stream captures. Two loads; device and stream must exist. */
bool openreg_stream_is_capturing(int device, int stream);

/* The number of the stream's capture, from 1 on, and whether it is still valid. 0: none. */
uint64_t openreg_stream_capture(int device, int stream, bool *is_valid);

/* The `mempool` of the stream's capture. 0: the stream does not capture. */
uint64_t openreg_stream_capture_mempool(int device, int stream);

/* Whether any stream captures: one load. */
bool openreg_captures_exist(void);

/* Adds a node to the graph of a capturing stream. The graph owns `work` from now on, even if this
 * fails. Errors: OUT_OF_MEMORY (of the host), CAPTURE_UNMATCHED (the stream does not capture). */
openreg_status openreg_capture_add(int device, int stream, const openreg_graph_work *work);

/* Reports that a capturing stream was asked for something that cannot be captured; `what` describes
 * it. Invalidates the capture and returns CAPTURE_UNSUPPORTED. Returns OK if the stream does not
 * capture. */
openreg_status openreg_capture_refuse(int device, int stream, const char *what);

/* The same for operations that may disturb a capture of any stream, depending on the captures'
 * modes. */
openreg_status openreg_capture_refuse_unsafe(const char *what);

/* Sets the calling thread's mode, which is global at first, and returns the one before. In relaxed
 * mode captures forbid this thread nothing. In thread-local mode they forbid it only what its own
 * captures do. As cudaThreadExchangeStreamCaptureMode. */
openreg_capture_mode openreg_capture_exchange_mode(openreg_capture_mode mode);

/* ---- graphs ---------------------------------------------------------------------------------- */

/* Runs the work of all nodes on the calling thread, in the order of capture. The thread must be
 * executing the stream that the graph is launched on. Stops at the first failure and returns it.
 * Only one thread at a time may run a graph. */
openreg_status openreg_graph_run(const openreg_graph *graph);

/* NULL is allowed. */
void openreg_graph_destroy(openreg_graph *graph);

/* Node `index` < count, in the order of capture. */
typedef struct openreg_graph_node {
  int device, stream; /* where it was captured */
  openreg_graph_work work;
  size_t dependency_count;
  const uint32_t *dependencies; /* direct dependencies; implied ones are left out */
} openreg_graph_node;

size_t openreg_graph_node_count(const openreg_graph *graph);
const openreg_graph_node *openreg_graph_node_at(const openreg_graph *graph, size_t index);

#ifdef __cplusplus
}
#endif
#endif
