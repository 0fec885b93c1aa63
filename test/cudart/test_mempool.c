/* Memory in the order of streams. */
#include "support.h"

#include "devices.h"

static void *allocate(size_t bytes, cudaStream_t stream) {
  void *memory;
  REQUIRE_SUCCESS(cudaMallocAsync(&memory, bytes, stream));
  return memory;
}

static cudaMemPool_t default_pool(void) {
  cudaMemPool_t pool;
  REQUIRE_SUCCESS(cudaDeviceGetDefaultMemPool(&pool, 0));
  return pool;
}

static uint64_t attribute(enum cudaMemPoolAttr attr) {
  uint64_t value = 0;
  REQUIRE_SUCCESS(cudaMemPoolGetAttribute(default_pool(), attr, &value));
  return value;
}

CHILD_TEST(freed_memory_is_reused_on_its_stream) {
  static gate gate = GATE_CLOSED;
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  void *memory = allocate(MIB, stream);
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaFreeAsync(memory, stream));
  REQUIRE(allocate(MIB, stream) == memory);
  gate_open(&gate);
}

CHILD_TEST(another_stream_gets_it_when_the_work_is_done) {
  static gate gate = GATE_CLOSED;
  uint64_t keep = UINT64_MAX;
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  cudaStream_t other = make_stream(cudaStreamNonBlocking);
  REQUIRE_SUCCESS(cudaMemPoolSetAttribute(default_pool(), cudaMemPoolAttrReleaseThreshold, &keep));
  void *memory = allocate(MIB, stream);
  hold(stream, &gate);
  REQUIRE_SUCCESS(cudaFreeAsync(memory, stream));
  REQUIRE(allocate(MIB, other) != memory);
  gate_open(&gate);
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(allocate(MIB, other) == memory);
}

CHILD_TEST(a_wait_returns_free_memory_to_the_device) {
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  void *memory = allocate(3 * MIB, stream);
  REQUIRE(free_on(0) == 60 * MIB);
  REQUIRE_SUCCESS(cudaFreeAsync(memory, stream));
  REQUIRE(free_on(0) == 60 * MIB);
  REQUIRE_SUCCESS(cudaStreamSynchronize(stream));
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(the_threshold_keeps_memory) {
  uint64_t keep = 4 * MIB;
  cudaMemPool_t pool = default_pool();
  REQUIRE_SUCCESS(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  void *first = allocate(4 * MIB, NULL), *second = allocate(4 * MIB, NULL);
  REQUIRE(attribute(cudaMemPoolAttrUsedMemCurrent) == 8 * MIB);
  REQUIRE_SUCCESS(cudaFreeAsync(first, NULL));
  REQUIRE_SUCCESS(cudaFreeAsync(second, NULL));
  REQUIRE_SUCCESS(cudaDeviceSynchronize());
  REQUIRE(attribute(cudaMemPoolAttrUsedMemCurrent) == 0);
  REQUIRE(attribute(cudaMemPoolAttrReservedMemCurrent) == 4 * MIB);
  REQUIRE(attribute(cudaMemPoolAttrReservedMemHigh) == 8 * MIB);
  REQUIRE_SUCCESS(cudaMemPoolTrimTo(pool, 0));
  REQUIRE(free_on(0) == 64 * MIB);
  keep = 0;
  REQUIRE_SUCCESS(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &keep));
  REQUIRE(attribute(cudaMemPoolAttrUsedMemHigh) == 0);
}

CHILD_TEST(cached_memory_does_not_cause_out_of_memory) {
  uint64_t keep = UINT64_MAX;
  REQUIRE_SUCCESS(cudaMemPoolSetAttribute(default_pool(), cudaMemPoolAttrReleaseThreshold, &keep));
  REQUIRE_SUCCESS(cudaFreeAsync(allocate(10 * MIB, NULL), NULL));
  void *memory = allocate(60 * MIB, NULL);
  REQUIRE_ERROR(cudaErrorMemoryAllocation, "less than", cudaMallocAsync(&memory, 60 * MIB, NULL));
}

CHILD_TEST(wrong_frees_are_refused) {
  void *memory = allocate(MIB, NULL);
  REQUIRE(cudaFreeAsync(device_memory(1), NULL) == cudaErrorInvalidValue);
  REQUIRE_SUCCESS(cudaSetDevice(1));
  REQUIRE_ERROR(cudaErrorInvalidValue, "different devices", cudaFreeAsync(memory, NULL));
  REQUIRE_SUCCESS(cudaSetDevice(0));
  REQUIRE_SUCCESS(cudaFreeAsync(memory, NULL));
  REQUIRE(cudaFreeAsync(memory, NULL) == cudaErrorInvalidValue);
  REQUIRE_ERROR(cudaErrorInvalidValue, "freed already", cudaFree(memory));
  REQUIRE_SUCCESS(cudaFreeAsync(NULL, NULL));
}

CHILD_TEST(free_accepts_memory_of_a_pool) {
  REQUIRE_SUCCESS(cudaFree(allocate(MIB, NULL)));
  REQUIRE(free_on(0) == 64 * MIB);
}

CHILD_TEST(pools_can_be_made_and_chosen) {
  struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                   .location = {cudaMemLocationTypeDevice, 0}};
  cudaMemPool_t pool, current;
  void *memory;
  REQUIRE_SUCCESS(cudaMemPoolCreate(&pool, &props));
  REQUIRE_SUCCESS(cudaDeviceSetMemPool(0, pool));
  REQUIRE_SUCCESS(cudaDeviceGetMemPool(&current, 0));
  REQUIRE(current == pool && pool != default_pool());
  memory = allocate(MIB, NULL);
  REQUIRE(attribute(cudaMemPoolAttrUsedMemCurrent) == 0);
  REQUIRE_SUCCESS(cudaMemPoolDestroy(pool));
  REQUIRE_SUCCESS(cudaDeviceGetMemPool(&current, 0));
  REQUIRE(current == default_pool());
  REQUIRE(cudaMallocFromPoolAsync(&memory, 1, pool, NULL) == cudaErrorInvalidValue);
  REQUIRE(cudaMemPoolDestroy(default_pool()) == cudaErrorInvalidValue);
  REQUIRE(cudaDeviceSetMemPool(1, default_pool()) == cudaErrorInvalidValue);
  props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  REQUIRE(cudaMemPoolCreate(&pool, &props) == cudaErrorNotSupported);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(freed_memory_is_reused_on_its_stream),
      cmocka_unit_test(another_stream_gets_it_when_the_work_is_done),
      cmocka_unit_test(a_wait_returns_free_memory_to_the_device),
      cmocka_unit_test(the_threshold_keeps_memory),
      cmocka_unit_test(cached_memory_does_not_cause_out_of_memory),
      cmocka_unit_test(wrong_frees_are_refused),
      cmocka_unit_test(free_accepts_memory_of_a_pool),
      cmocka_unit_test(pools_can_be_made_and_chosen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
