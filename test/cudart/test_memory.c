/* Device memory, host memory, and what a pointer points to. */
#include "support.h"

#include "allocator/allocator.h"
#include "devices.h"

#include <signal.h>
#include <stdlib.h>

static enum cudaMemoryType type_of(const void *address) {
  struct cudaPointerAttributes attributes;
  REQUIRE_SUCCESS(cudaPointerGetAttributes(&attributes, address));
  return attributes.type;
}

CHILD_TEST(memory_is_taken_from_the_device_and_returned) {
  size_t free_bytes, total_bytes;
  REQUIRE_SUCCESS(cudaMemGetInfo(&free_bytes, &total_bytes));
  REQUIRE(free_bytes == 64 * MIB && total_bytes == 64 * MIB);
  char *memory = device_memory(3 * MIB);
  REQUIRE(openreg_arena_device_of(memory) == 0);
  REQUIRE_SUCCESS(cudaMemGetInfo(&free_bytes, NULL));
  REQUIRE(free_bytes == 60 * MIB);
  REQUIRE_SUCCESS(cudaFree(memory));
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(memory_belongs_to_the_current_device) {
  struct cudaPointerAttributes attributes;
  REQUIRE_SUCCESS(cudaSetDevice(1));
  char *memory = device_memory(1);
  REQUIRE_SUCCESS(cudaSetDevice(0));
  REQUIRE_SUCCESS(cudaPointerGetAttributes(&attributes, memory + 100));
  REQUIRE(attributes.type == cudaMemoryTypeDevice && attributes.device == 1);
  REQUIRE(attributes.devicePointer == memory + 100 && attributes.hostPointer == NULL);
  REQUIRE_SUCCESS(cudaFree(memory));
}

CHILD_TEST(too_much_memory_is_refused) {
  void *memory = &memory;
  REQUIRE_ERROR(cudaErrorMemoryAllocation, "less than", cudaMalloc(&memory, 65 * MIB));
  REQUIRE(memory == NULL);
  REQUIRE(cudaMalloc(&memory, SIZE_MAX) == cudaErrorMemoryAllocation);
  REQUIRE_SUCCESS(cudaMalloc(&memory, 0));
  REQUIRE(memory == NULL);
}

CHILD_TEST(only_the_start_of_memory_can_be_freed_and_once) {
  char *memory = device_memory(100);
  REQUIRE_ERROR(cudaErrorInvalidValue, "starts at", cudaFree(memory + 1));
  REQUIRE_SUCCESS(cudaFree(memory));
  REQUIRE(cudaFree(memory) == cudaErrorInvalidValue);
  REQUIRE_SUCCESS(cudaFree(NULL));
}

CHILD_TEST(memory_of_the_caching_allocator_is_not_cudas) {
  openreg_block *block;
  REQUIRE_OK(openreg_block_allocate(0, 0, 100, &block));
  REQUIRE(cudaFree(block->address) == cudaErrorInvalidValue);
  REQUIRE(type_of(block->address) == cudaMemoryTypeDevice);
}

CHILD_TEST(rows_have_a_pitch) {
  void *memory;
  size_t pitch;
  REQUIRE_SUCCESS(cudaMallocPitch(&memory, &pitch, 1000, 3));
  REQUIRE(pitch == 1024);
  REQUIRE(cudaMallocPitch(&memory, &pitch, SIZE_MAX, 3) == cudaErrorMemoryAllocation);
}

CHILD_TEST(a_reset_frees_the_devices_memory) {
  (void)device_memory(MIB);
  REQUIRE_SUCCESS(cudaSetDevice(1));
  char *other = device_memory(MIB);
  REQUIRE_SUCCESS(cudaSetDevice(0));
  REQUIRE_SUCCESS(cudaDeviceReset());
  REQUIRE(free_on(0) == 64 * MIB && free_on(1) == 62 * MIB);
  REQUIRE_SUCCESS(cudaFree(other));
}

CHILD_TEST(managed_memory_is_the_hosts_and_the_devices) {
  struct cudaPointerAttributes attributes;
  char *memory, copied[4];
  REQUIRE_SUCCESS(cudaMallocManaged((void **)&memory, 3 * MIB, cudaMemAttachGlobal));
  REQUIRE(free_on(0) == 60 * MIB);
  memcpy(memory + 3 * MIB - 4, "host", 4);
  REQUIRE_SUCCESS(cudaMemcpy(copied, memory + 3 * MIB - 4, 4, cudaMemcpyDeviceToHost));
  REQUIRE(memcmp(copied, "host", 4) == 0);
  REQUIRE_SUCCESS(cudaMemset(memory, 'x', MIB));
  REQUIRE(memory[0] == 'x' && memory[MIB - 1] == 'x' && memory[MIB] == 0);
  REQUIRE_SUCCESS(cudaPointerGetAttributes(&attributes, memory + 1));
  REQUIRE(attributes.type == cudaMemoryTypeManaged && attributes.device == 0);
  REQUIRE(attributes.devicePointer == memory + 1 && attributes.hostPointer == memory + 1);
  cudaIpcMemHandle_t handle;
  REQUIRE(cudaIpcGetMemHandle(&handle, memory) == cudaErrorInvalidValue);
  REQUIRE_SUCCESS(cudaFree(memory));
  REQUIRE(free_on(0) == 64 * MIB && type_of(memory) == cudaMemoryTypeDevice);
}

CHILD_TEST(managed_memory_has_a_size_and_a_scope) {
  void *memory = &memory;
  REQUIRE_ERROR(cudaErrorInvalidValue, "expected 1 byte or more",
                cudaMallocManaged(&memory, 0, cudaMemAttachGlobal));
  REQUIRE(memory == NULL);
  REQUIRE(cudaMallocManaged(&memory, 1, 0) == cudaErrorInvalidValue);
  REQUIRE(cudaMallocManaged(&memory, 1, cudaMemAttachSingle) == cudaErrorInvalidValue);
  REQUIRE(cudaMallocManaged(NULL, 1, cudaMemAttachHost) == cudaErrorInvalidValue);
  REQUIRE(cudaMallocManaged(&memory, 65 * MIB, cudaMemAttachGlobal) == cudaErrorMemoryAllocation);
}

static void write_to_freed_memory(void) {
  char *memory;
  REQUIRE_SUCCESS(cudaMallocManaged((void **)&memory, MIB, cudaMemAttachHost));
  memory[0] = 1;
  REQUIRE_SUCCESS(cudaFree(memory));
  memory[0] = 2;
}

static void freed_managed_memory_is_no_longer_the_hosts(void **state) {
  child_result result;
  (void)state;
  child_expect_signal(&result, SIGSEGV, write_to_freed_memory, SMALL_DEVICES);
  assert_non_null(strstr(result.errors, "host code cannot access device memory"));
}

/* ---- host memory ----------------------------------------------------------------------------- */

CHILD_TEST(host_memory_is_pinned_until_it_is_freed) {
  void *memory;
  unsigned flags;
  REQUIRE_SUCCESS(cudaHostAlloc(&memory, 10000, cudaHostAllocPortable));
  memset(memory, 1, 10000);
  REQUIRE(openreg_pinned_contains((char *)memory + 9999));
  REQUIRE(type_of(memory) == cudaMemoryTypeHost);
  REQUIRE_SUCCESS(cudaHostGetFlags(&flags, memory));
  REQUIRE(flags == (cudaHostAllocPortable | cudaHostAllocMapped));
  REQUIRE(cudaHostUnregister(memory) == cudaErrorHostMemoryNotRegistered);
  REQUIRE(cudaFreeHost((char *)memory + 1) == cudaErrorInvalidValue);
  REQUIRE_SUCCESS(cudaFreeHost(memory));
  REQUIRE(!openreg_pinned_contains(memory));
  REQUIRE(cudaFreeHost(memory) == cudaErrorInvalidValue);
  REQUIRE_SUCCESS(cudaFreeHost(NULL));
}

CHILD_TEST(host_memory_is_not_counted_as_the_pools) {
  void *memory;
  openreg_pinned_stats stats;
  REQUIRE_SUCCESS(cudaMallocHost(&memory, 10000));
  REQUIRE_OK(openreg_pinned_get_stats(&stats));
  REQUIRE(stats.allocated_bytes.current == 0);
}

CHILD_TEST(memory_is_registered_once) {
  static char memory[10000];
  void *device;
  REQUIRE(type_of(memory) == cudaMemoryTypeUnregistered);
  REQUIRE_SUCCESS(cudaHostRegister(memory, 5000, cudaHostRegisterDefault));
  REQUIRE(type_of(memory + 4999) == cudaMemoryTypeHost);
  REQUIRE(type_of(memory + 5000) == cudaMemoryTypeUnregistered);
  REQUIRE_SUCCESS(cudaHostGetDevicePointer(&device, memory, 0));
  REQUIRE(device == memory);
  REQUIRE_ERROR(cudaErrorHostMemoryAlreadyRegistered, "registered already",
                cudaHostRegister(memory + 4000, 2000, 0));
  REQUIRE_SUCCESS(cudaHostRegister(memory + 5000, 5000, 0));
  REQUIRE(cudaHostUnregister(memory + 1) == cudaErrorHostMemoryNotRegistered);
  REQUIRE_SUCCESS(cudaHostUnregister(memory));
  REQUIRE(cudaHostUnregister(memory) == cudaErrorHostMemoryNotRegistered);
  REQUIRE(type_of(memory + 5000) == cudaMemoryTypeHost);
  REQUIRE(cudaFreeHost(memory + 5000) == cudaErrorInvalidValue);
}

CHILD_TEST(what_cannot_be_registered_is_refused) {
  static char memory[100];
  REQUIRE(cudaHostRegister(NULL, 100, 0) == cudaErrorInvalidValue);
  REQUIRE(cudaHostRegister(memory, 0, 0) == cudaErrorInvalidValue);
  REQUIRE(cudaHostRegister(memory, 100, 64) == cudaErrorInvalidValue);
  REQUIRE(cudaHostRegister(memory, SIZE_MAX, 0) == cudaErrorInvalidValue);
  REQUIRE_ERROR(cudaErrorInvalidValue, "device memory", cudaHostRegister(device_memory(1), 1, 0));
}

CHILD_TEST(many_ranges_are_found) {
  enum { COUNT = 1000, BYTES = 64 };
  char *memory = malloc(2 * COUNT * BYTES);
  for (int i = 0; i < COUNT; i++) /* in an order that is not that of the addresses */
    REQUIRE_SUCCESS(cudaHostRegister(memory + (size_t)(i * 7 % COUNT) * 2 * BYTES, BYTES, 0));
  for (int i = 0; i < 2 * COUNT; i++)
    REQUIRE(openreg_pinned_contains(memory + (size_t)i * BYTES) == (i % 2 == 0));
  for (int i = 0; i < COUNT; i += 2)
    REQUIRE_SUCCESS(cudaHostUnregister(memory + (size_t)i * 2 * BYTES));
  for (int i = 0; i < 2 * COUNT; i++)
    REQUIRE(openreg_pinned_contains(memory + (size_t)i * BYTES) == (i % 4 == 2));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_taken_from_the_device_and_returned),
      cmocka_unit_test(memory_belongs_to_the_current_device),
      cmocka_unit_test(too_much_memory_is_refused),
      cmocka_unit_test(only_the_start_of_memory_can_be_freed_and_once),
      cmocka_unit_test(memory_of_the_caching_allocator_is_not_cudas),
      cmocka_unit_test(rows_have_a_pitch),
      cmocka_unit_test(a_reset_frees_the_devices_memory),
      cmocka_unit_test(managed_memory_is_the_hosts_and_the_devices),
      cmocka_unit_test(managed_memory_has_a_size_and_a_scope),
      cmocka_unit_test(freed_managed_memory_is_no_longer_the_hosts),
      cmocka_unit_test(host_memory_is_pinned_until_it_is_freed),
      cmocka_unit_test(host_memory_is_not_counted_as_the_pools),
      cmocka_unit_test(memory_is_registered_once),
      cmocka_unit_test(what_cannot_be_registered_is_refused),
      cmocka_unit_test(many_ranges_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
