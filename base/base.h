/* base.h: what the contracts of all layers have in common.
 *
 * Statuses with their sentences, and the instruction set that kernels run with. All functions may
 * be called from any thread. The other headers of this folder are for the insides of layers.
 * Nothing here depends on another folder.
 */
#ifndef OPENREG_BASE_H
#define OPENREG_BASE_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---------------------------------------------------------------------------------- */

/* X(name, sentence): the one list of what can go wrong. The order is the numeric value. */
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
#define X(name, sentence) OPENREG_##name,
  OPENREG_STATUS_LIST(X)
#undef X
} openreg_status;

/* The constant's name without prefix ("OUT_OF_MEMORY"), and its sentence. Static storage. */
const char *openreg_status_name(openreg_status status);
const char *openreg_status_sentence(openreg_status status);

/* The sentence of this thread's last failure; "" before the first. Owned by the library, valid
 * until this thread's next failure. Successful calls leave it alone, and so does NOT_READY, which
 * is an answer. */
const char *openreg_last_error(void);

/* Records a failure for this thread, printf style, and returns `status`: how the layers above
 * report theirs. The sentence is kept as given; those of the layers start with "openreg: ". The
 * arguments may contain openreg_last_error() itself. */
openreg_status openreg_fail(openreg_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- environment ----------------------------------------------------------------------------- */

/* Looks a variable up as getenv does: NULL when it is not set. */
typedef const char *(*openreg_getenv)(const char *name);

/* ---- instruction sets ------------------------------------------------------------------------ */

/* Kernels are compiled for each of these, narrowest first, and give the same bits with each. */
typedef enum openreg_simd {
  OPENREG_SIMD_C, /* what every machine has */
  OPENREG_SIMD_AVX2,
  OPENREG_SIMD_AVX512,
  OPENREG_SIMD_COUNT,
} openreg_simd;

/* The widest that this machine has, or, for tests, the one that the environment variable
 * OPENREG_SIMD names: c, avx2 or avx512. Decided by the first call. Ends the process with a
 * sentence when the machine does not have what is named. */
openreg_simd openreg_simd_chosen(void);

/* As OPENREG_SIMD spells it. Static storage. */
const char *openreg_simd_name(openreg_simd simd);

#ifdef __cplusplus
}
#endif
#endif
