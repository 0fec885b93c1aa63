/* openreg_planning.h: the runtime as the planner uses it.
 *
 * The planner (pymodule/torch_openreg/plans/) is a process in which PyTorch's CUDA build runs to
 * find out what memory its operators take. Nothing is computed there. After
 * openreg_cudart_start_planning:
 *
 * - A kernel launch succeeds and does nothing.
 * - A copy or fill of device memory does nothing. A copy to the host writes zeros there, and
 * counts.
 * - openreg_cudart_plan_malloc hands out addresses without memory behind them, and records each
 *   call. It and openreg_cudart_plan_free have the signatures that PyTorch's CUDAPluggableAllocator
 *   expects.
 *
 * All functions must be called from one thread at a time.
 */
#ifndef OPENREG_PLANNING_H
#define OPENREG_PLANNING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* A block that was taken (bytes > 0, as requested) or freed (bytes < 0). */
struct openreg_planned_event {
  uint64_t address;
  int64_t bytes;
};

/* Returns a sentence that says why this process has no devices; NULL if it has some. The sentence
 * is valid until the thread's next error. */
const char *openreg_cudart_device_error(void);

/* Starts planning, for the rest of the process. `binary_version` is what kernels say about the code
 * that the device runs, such as 90 for sm_90. Returns 0, or -1 if the system has no addresses
 * left. */
int openreg_cudart_start_planning(int binary_version);

/* Returns an address of the planner's range, a multiple of 512; NULL if `bytes` is 0, or if the
 * range has no room. */
void *openreg_cudart_plan_malloc(ssize_t bytes, int device, struct CUstream_st *stream);
void openreg_cudart_plan_free(void *address, ssize_t bytes, int device, struct CUstream_st *stream);

/* Forgets the recorded events and the count of copies to the host. From now on these write `value`,
 * 0 to 127, as an integer of 64 bits, repeated. */
void openreg_cudart_clear_plan(int value);

/* Returns the number of recorded events, and where they are. They are valid until the next
 * call of another function. */
size_t openreg_cudart_planned_events(const struct openreg_planned_event **events);

/* Returns how many copies to the host there were. */
uint64_t openreg_cudart_planned_reads(void);

#ifdef __cplusplus
}
#endif
#endif
