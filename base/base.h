/* base.h: what the public headers of all layers share.
 *
 * It declares status codes with their messages, and the instruction set that kernels use. All
 * functions may be called from any thread. The other headers in this folder are internal to the
 * layers. Nothing here depends on another folder.
 */
#ifndef OPENREG_BASE_H
#define OPENREG_BASE_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---------------------------------------------------------------------------------- */

/* X(name, message): the list of all errors. The order determines the numeric value. */
#define OPENREG_STATUS_LIST(X)                                                                     \
  X(OK, "success")                                                                                 \
  X(INVALID_ARGUMENT, "invalid argument")                                                          \
  X(INVALID_CONFIGURATION, "invalid configuration")                                                \
  X(INVALID_DEVICE, "invalid device ordinal")                                                      \
  X(INVALID_ADDRESS, "address is not in the memory of any device")                                 \
  X(OUT_OF_MEMORY, "out of memory")                                                                \
  X(BAD_FORK, "device was initialized before this process was forked")                             \
  X(NOT_READY, "work has not finished")                                                            \
  X(SYSTEM, "a system call failed")                                                                \
  X(NOT_PERMITTED, "operation not permitted from where it was called")                             \
  X(LAUNCH_FAILURE, "work on a stream failed")                                                     \
  X(COMMUNICATION_FAILURE, "communication between ranks failed")                                   \
  X(CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")                       \
  X(CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")                \
  X(CAPTURE_MERGE, "operation would result in a merge of separate capture sequences")              \
  X(CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began")                     \
  X(CAPTURE_UNJOINED, "capturing stream has unjoined work")                                        \
  X(CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")                  \
  X(CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing stream")       \
  X(CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream")     \
  X(CAPTURE_WRONG_THREAD,                                                                          \
    "attempt to terminate a thread-local capture sequence from another thread")

typedef enum openreg_status {
#define X(name, message) OPENREG_##name,
  OPENREG_STATUS_LIST(X)
#undef X
} openreg_status;

/* The constant's name without the prefix, such as "OUT_OF_MEMORY", and its message. Static
 * storage. */
const char *openreg_status_name(openreg_status status);
const char *openreg_status_message(openreg_status status);

/* Message of the calling thread's last failure; "" before the first failure. The library owns the
 * text, which stays valid until the thread's next failure. Successful calls and NOT_READY, which is
 * a result rather than a failure, do not change it. */
const char *openreg_last_error(void);

/* Sets the calling thread's last failure, printf style, and returns `status`. Layers report all
 * their errors this way. The message is stored unchanged; messages of the layers begin with
 * "openreg: ". Arguments may refer to openreg_last_error() itself. */
openreg_status openreg_fail(openreg_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- environment ----------------------------------------------------------------------------- */

/* Looks up a variable as getenv does. NULL: not set. */
typedef const char *(*openreg_getenv)(const char *name);

/* ---- instruction sets ------------------------------------------------------------------------ */

/* Kernels are compiled for each of these, narrowest first. All variants produce identical bits. */
typedef enum openreg_simd {
  OPENREG_SIMD_C, /* available on every machine */
  OPENREG_SIMD_AVX2,
  OPENREG_SIMD_AVX512,
  OPENREG_SIMD_COUNT,
} openreg_simd;

/* The widest instruction set that this machine supports, unless the environment variable
 * OPENREG_SIMD (c, avx2 or avx512; for tests) names another one. The first call decides. If the
 * machine does not support the named set, prints a message and aborts the process. */
openreg_simd openreg_simd_chosen(void);

/* The spelling that OPENREG_SIMD uses. Static storage. */
const char *openreg_simd_name(openreg_simd simd);

#ifdef __cplusplus
}
#endif
#endif
