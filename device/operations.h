/* operations.h: reports what a program does with streams, events and memory. Public, in addition to
 * device.h.
 *
 * A function of the device layer cannot tell whether the program called it, or a library for a
 * purpose of its own: an allocator records and queries events, too. So the library that the program
 * calls reports the call, in the program's order, before it acts. The CUDA runtime (cudart/) does.
 * A sanitizer observes.
 *
 * Without an observer a report costs a call and one predicted branch.
 */
#ifndef OPENREG_DEVICE_OPERATIONS_H
#define OPENREG_DEVICE_OPERATIONS_H

#include "device/device.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum openreg_operation_kind {
  OPENREG_OPERATION_RECORD,       /* `event` is recorded on the stream */
  OPENREG_OPERATION_WAIT,         /* later work of the stream waits for `event` */
  OPENREG_OPERATION_FORGET,       /* `event` is about to be destroyed */
  OPENREG_OPERATION_ORDER,        /* later work of the stream waits for all earlier work of stream
                                     number `awaited` of the device */
  OPENREG_OPERATION_SYNC_EVENT,   /* the host waits for `event`, or has found it reached */
  OPENREG_OPERATION_SYNC_STREAM,  /* the host waits for the stream, or has found it idle */
  OPENREG_OPERATION_SYNC_DEVICE,  /* the host waits for all work of the device */
  OPENREG_OPERATION_COPY,         /* the stream's work writes the bytes of `from` to `to` */
  OPENREG_OPERATION_FILL,         /* the stream's work fills `to` */
  OPENREG_OPERATION_ALLOCATED,    /* `to` is new memory of the device */
  OPENREG_OPERATION_FREE,         /* `to` is about to be freed; the thread may hold a lock */
  OPENREG_OPERATION_PINNED,       /* `to` is new pinned host memory */
  OPENREG_OPERATION_UNPIN,        /* `to` is about to be freed */
  OPENREG_OPERATION_BEGIN_ACCESS, /* the thread does a stream's work, which reads `from` or writes
                                     `to` in host memory, */
  OPENREG_OPERATION_END_ACCESS,   /* and has done so */
  OPENREG_OPERATION_BEGIN_CALL,   /* the thread calls a host function as a stream's work, */
  OPENREG_OPERATION_END_CALL,     /* and has returned from it */
} openreg_operation_kind;

/* `rows` rows of `bytes` bytes, whose starts are `pitch` bytes apart. */
typedef struct openreg_operation_range {
  const void *address; /* NULL: no memory */
  size_t bytes, rows, pitch;
} openreg_operation_range;

/* Fields that the kind does not name are unspecified. */
typedef struct openreg_operation {
  openreg_operation_kind kind;
  int device, stream, awaited;
  const openreg_event *event;
  const char *name; /* of the function that the program called; static storage */
  openreg_operation_range to, from;
} openreg_operation;

/* Called on the thread that performs the operation. It must neither call the library that reports
 * nor throw. */
typedef void (*openreg_operation_observer)(const openreg_operation *operation);

/* Installs the observer; NULL removes it. Any thread. A call of the old observer may still run. */
void openreg_operation_set_observer(openreg_operation_observer observer);

/* Passes an operation to the observer. */
void openreg_operation_report(const openreg_operation *operation);

#ifdef __cplusplus
}
#endif
#endif
