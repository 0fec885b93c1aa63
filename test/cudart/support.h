/* support.h: what the tests of the CUDA runtime share. */
#ifndef OPENREG_TEST_CUDART_SUPPORT_H
#define OPENREG_TEST_CUDART_SUPPORT_H

#include <string.h>

#include "child.h"
#include "cudart/include/cuda_runtime_api.h"
#include "gate.h"

#define REQUIRE_SUCCESS(call) REQUIRE((call) == cudaSuccess)

/* The call fails with this error, has become the last error, and has a sentence that contains the
 * text. Clears the last error. */
#define REQUIRE_ERROR(error, text, call)                                                           \
  do {                                                                                             \
    REQUIRE((call) == (error));                                                                    \
    REQUIRE(strstr(openreg_cudart_sentence(error), text) != NULL);                                 \
    REQUIRE(cudaGetLastError() == (error));                                                        \
  } while (0)

/* A host function that waits at a gate. */
static inline void wait_at_gate(void *gate) {
  (void)gate_pass(gate);
}

/* Keeps a stream busy until the gate is opened. */
static inline void hold(cudaStream_t stream, gate *gate) {
  REQUIRE_SUCCESS(cudaLaunchHostFunc(stream, wait_at_gate, gate));
  gate_await(gate);
}

static inline cudaStream_t make_stream(unsigned flags) {
  cudaStream_t stream;
  REQUIRE_SUCCESS(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

static inline char *device_memory(size_t bytes) {
  void *memory;
  REQUIRE_SUCCESS(cudaMalloc(&memory, bytes));
  return memory;
}

#endif
