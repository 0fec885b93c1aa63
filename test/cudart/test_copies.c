/* Copies and fills. */
#include "support.h"

#include <stdlib.h>

enum { LONG = 4 << 20 };

/* volatile: the leak checker must see what nothing reads. */
static char *volatile kept[16];

/* Pageable memory, which the process keeps until it ends. */
static char *host(size_t bytes, int value) {
  static int count;
  char *memory = malloc(bytes);
  REQUIRE(memory != NULL && count < 16);
  kept[count++] = memory;
  memset(memory, value, bytes);
  return memory;
}

static char *pinned(size_t bytes, int value) {
  void *memory;
  REQUIRE_SUCCESS(cudaMallocHost(&memory, bytes));
  memset(memory, value, bytes);
  return memory;
}

/* Every byte of device memory has this value. */
static bool is_filled(const char *device, size_t bytes, int value) {
  char *copy = host(bytes, ~value), *expected = host(bytes, value);
  REQUIRE_SUCCESS(cudaMemcpy(copy, device, bytes, cudaMemcpyDeviceToHost));
  return memcmp(copy, expected, bytes) == 0;
}

CHILD_TEST(copies_of_every_kind) {
  char *from = host(LONG, 1), *to = host(LONG, 2), *a = device_memory(LONG);
  REQUIRE_SUCCESS(cudaSetDevice(1));
  char *b = device_memory(LONG);
  REQUIRE_SUCCESS(cudaMemcpy(a, from, LONG, cudaMemcpyHostToDevice));
  REQUIRE_SUCCESS(cudaMemcpy(b, a, LONG, cudaMemcpyDeviceToDevice));
  REQUIRE_SUCCESS(cudaMemcpy(to, b, LONG, cudaMemcpyDeviceToHost));
  REQUIRE(memcmp(to, from, LONG) == 0);
  REQUIRE_SUCCESS(cudaMemset(a, 3, LONG));
  REQUIRE_SUCCESS(cudaMemcpyPeer(b, 1, a, 0, LONG));
  REQUIRE(is_filled(b, LONG, 3));
  REQUIRE_SUCCESS(cudaMemcpyPeerAsync(a, 0, b, 1, 100, NULL));
  REQUIRE_SUCCESS(cudaMemcpy(a, from, LONG, cudaMemcpyDefault));
  REQUIRE(is_filled(a, LONG, 1));
  REQUIRE_SUCCESS(cudaMemcpy(to, from, 10, cudaMemcpyHostToHost));
}

CHILD_TEST(a_copy_follows_the_work_of_its_stream) {
  static gate gate = GATE_CLOSED;
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  char *device = device_memory(LONG), *memory = pinned(LONG, 1);
  REQUIRE_SUCCESS(cudaMemset(device, 2, LONG));
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaMemcpyAsync(device, memory, LONG, cudaMemcpyHostToDevice, stream));
  REQUIRE(is_filled(device, LONG, 2));
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(is_filled(device, LONG, 1));
}

CHILD_TEST(a_pageable_source_may_change_after_the_call) {
  static gate gate = GATE_CLOSED;
  enum { SHORT = 1000 };
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  char *device = device_memory(SHORT), *memory = host(SHORT, 1);
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaMemcpyAsync(device, memory, SHORT, cudaMemcpyHostToDevice, stream));
  memset(memory, 5, SHORT);
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(is_filled(device, SHORT, 1));
}

CHILD_TEST(a_pageable_destination_is_filled_when_the_call_returns) {
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  char *device = device_memory(LONG), *memory = host(LONG, 1), *expected = host(LONG, 9);
  REQUIRE_SUCCESS(cudaMemsetAsync(device, 9, LONG, stream));
  REQUIRE_SUCCESS(cudaMemcpyAsync(memory, device, LONG, cudaMemcpyDeviceToHost, stream));
  REQUIRE(memcmp(memory, expected, LONG) == 0);
}

CHILD_TEST(rows_are_copied_and_filled) {
  enum { PITCH = 32, WIDTH = 10, HEIGHT = 3 };
  char *device = device_memory(PITCH * HEIGHT), *from = host(WIDTH * HEIGHT, 1);
  char *all = host(PITCH * HEIGHT, 7);
  REQUIRE_SUCCESS(cudaMemset(device, 0, PITCH * HEIGHT));
  REQUIRE_SUCCESS(cudaMemcpy2D(device, PITCH, from, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
  REQUIRE_SUCCESS(cudaMemset2D(device + 20, PITCH, 2, 4, HEIGHT));
  REQUIRE_SUCCESS(cudaMemcpy(all, device, PITCH * HEIGHT, cudaMemcpyDeviceToHost));
  for (int i = 0; i < PITCH * HEIGHT; i++) {
    int column = i % PITCH;
    REQUIRE(all[i] == (column < WIDTH ? 1 : column >= 20 && column < 24 ? 2 : 0));
  }
  REQUIRE(cudaMemcpy2D(device, 4, from, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice) ==
          cudaErrorInvalidPitchValue);
}

CHILD_TEST(pinned_memory_counts_for_both_sides) {
  char *memory = pinned(100, 1), *device = device_memory(100);
  REQUIRE_SUCCESS(cudaMemcpy(device, memory, 100, cudaMemcpyHostToDevice));
  REQUIRE_SUCCESS(cudaMemcpy(device, memory, 100, cudaMemcpyDeviceToDevice));
  REQUIRE_SUCCESS(cudaMemset(memory, 4, 100));
  REQUIRE(memory[99] == 4);
}

CHILD_TEST(wrong_copies_are_refused) {
  char *memory = host(100, 1), *device = device_memory(100);
  REQUIRE_ERROR(cudaErrorInvalidValue, "on the host",
                cudaMemcpy(memory, memory, 100, cudaMemcpyHostToDevice));
  REQUIRE(cudaMemcpy(device, device, 100, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  REQUIRE(cudaMemcpy(device, memory, 100, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  REQUIRE(cudaMemcpy(device, memory, 100, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  REQUIRE(cudaMemcpy(device, memory, 100, cudaMemcpyHostToHost) == cudaErrorInvalidValue);
  REQUIRE(cudaMemcpy(device, memory, 100, (enum cudaMemcpyKind)9) ==
          cudaErrorInvalidMemcpyDirection);
  REQUIRE(cudaMemcpy(NULL, memory, 100, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  REQUIRE_ERROR(cudaErrorInvalidValue, "leave the memory",
                cudaMemcpy(memory, device, (size_t)1 << 40, cudaMemcpyDeviceToHost));
  REQUIRE(cudaMemset(memory, 0, 100) == cudaErrorInvalidValue);
  REQUIRE(cudaMemcpyPeer(device, 0, device, 5, 1) == cudaErrorInvalidDevice);
  REQUIRE_SUCCESS(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_of_every_kind),
      cmocka_unit_test(a_copy_follows_the_work_of_its_stream),
      cmocka_unit_test(a_pageable_source_may_change_after_the_call),
      cmocka_unit_test(a_pageable_destination_is_filled_when_the_call_returns),
      cmocka_unit_test(rows_are_copied_and_filled),
      cmocka_unit_test(pinned_memory_counts_for_both_sides),
      cmocka_unit_test(wrong_copies_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
