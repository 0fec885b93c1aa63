/* Kernels: registered as NVIDIA's compiler does it, and refused. */
#include "support.h"

#include <signal.h>
#include <stdio.h>

void **__cudaRegisterFatBinary(void *code);
void __cudaRegisterFatBinaryEnd(void **module);
void __cudaUnregisterFatBinary(void **module);
void __cudaRegisterFunction(void **module, const char *stub, char *function, const char *name,
                            int thread_limit, uint3 *thread, uint3 *block, dim3 *block_size,
                            dim3 *grid_size, int *warp_size);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream);

static const dim3 one = {1, 1, 1};

/* What NVIDIA's compiler makes of `void scale(float *, int)` and of a call of it. */
static void stub(void) {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream) == cudaSuccess)
    (void)cudaLaunchKernel((const void *)stub, grid, block, NULL, shared, stream);
}

static void call(void) {
  if (__cudaPushCallConfiguration(one, one, 0, NULL) == 0)
    stub();
}

static void **register_stub(void) {
  static char code[16];
  void **module = __cudaRegisterFatBinary(code);
  __cudaRegisterFunction(module, (const char *)stub, "_Z5scalePfi", "_Z5scalePfi", -1, NULL, NULL,
                         NULL, NULL, NULL);
  __cudaRegisterFatBinaryEnd(module);
  return module;
}

CHILD_TEST(a_launch_is_refused_and_names_the_kernel) {
  register_stub();
  call();
  REQUIRE(cudaPeekAtLastError() == cudaErrorNotSupported);
  REQUIRE_ERROR(cudaErrorNotSupported, "scale",
                cudaGetLastError() ? cudaLaunchKernel((const void *)stub, one, one, NULL, 0, NULL)
                                   : cudaSuccess);
  REQUIRE(strstr(openreg_last_error(), "scale") != NULL);
}

CHILD_TEST(other_forms_of_a_launch_are_refused_too) {
  cudaKernel_t kernel;
  cudaLaunchConfig_t config = {.gridDim = one, .blockDim = one};
  register_stub();
  REQUIRE_ERROR(cudaErrorNotSupported, "scale",
                cudaLaunchKernelExC(&config, (const void *)stub, NULL));
  REQUIRE_ERROR(cudaErrorNotSupported, "scale",
                cudaLaunchCooperativeKernel((const void *)stub, one, one, NULL, 0, NULL));
  REQUIRE_SUCCESS(__cudaGetKernel(&kernel, (const void *)stub));
  REQUIRE_ERROR(cudaErrorNotSupported, "scale",
                __cudaLaunchKernel(kernel, one, one, NULL, 0, NULL));
}

static void launch_twice_and_die(void) {
  register_stub();
  call();
  call();
  raise(SIGKILL);
}

static void the_sentence_is_printed_once_for_a_kernel(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGKILL, launch_twice_and_die, SMALL_DEVICES);
  const char *first = strstr(result.errors, "scale");
  assert_non_null(first);
  assert_null(strstr(first + 1, "scale"));
}

CHILD_TEST(unknown_kernels_are_refused) {
  cudaKernel_t kernel;
  REQUIRE(cudaLaunchKernel((const void *)call, one, one, NULL, 0, NULL) ==
          cudaErrorInvalidDeviceFunction);
  REQUIRE(__cudaGetKernel(&kernel, (const void *)call) == cudaErrorInvalidDeviceFunction);
  stub();
  REQUIRE(cudaGetLastError() == cudaErrorMissingConfiguration);
}

CHILD_TEST(an_unloaded_library_takes_its_kernels_along) {
  const char *name;
  void **module = register_stub();
  REQUIRE_SUCCESS(cudaFuncGetName(&name, (const void *)stub));
  REQUIRE(strcmp(name, "_Z5scalePfi") == 0);
  __cudaUnregisterFatBinary(module);
  REQUIRE(cudaFuncGetName(&name, (const void *)stub) == cudaErrorInvalidDeviceFunction);
}

CHILD_TEST(many_kernels_are_found) {
  enum { COUNT = 5000 };
  static char stubs[COUNT], names[COUNT][16];
  void **module = __cudaRegisterFatBinary(stubs);
  for (int i = 0; i < COUNT; i++) {
    snprintf(names[i], sizeof names[i], "kernel%d", i);
    __cudaRegisterFunction(module, &stubs[i], names[i], names[i], -1, NULL, NULL, NULL, NULL, NULL);
  }
  for (int i = 0; i < COUNT; i++) {
    const char *name;
    REQUIRE_SUCCESS(cudaFuncGetName(&name, &stubs[i]));
    REQUIRE(strcmp(name, names[i]) == 0);
  }
}

CHILD_TEST_IN(occupancy_is_limited_by_threads_blocks_and_shared_memory,
              ENVIRONMENT("OPENREG_DEVICE_COUNT=1", "OPENREG_DEVICE_MEMORY=64M",
                          "OPENREG_PROFILE=h100")) {
  int blocks;
  const void *kernel = (const void *)stub;
  struct cudaFuncAttributes attributes;
  register_stub();
  REQUIRE_SUCCESS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0));
  REQUIRE(blocks == 8);
  REQUIRE_SUCCESS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, 0));
  REQUIRE(blocks == 32);
  REQUIRE_SUCCESS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, 100 << 10));
  REQUIRE(blocks == 2);
  REQUIRE_SUCCESS(cudaFuncGetAttributes(&attributes, kernel));
  REQUIRE(attributes.maxThreadsPerBlock == 1024 && attributes.binaryVersion == 90);
  REQUIRE(cudaFuncGetAttributes(&attributes, &blocks) == cudaErrorInvalidDeviceFunction);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_launch_is_refused_and_names_the_kernel),
      cmocka_unit_test(other_forms_of_a_launch_are_refused_too),
      cmocka_unit_test(the_sentence_is_printed_once_for_a_kernel),
      cmocka_unit_test(unknown_kernels_are_refused),
      cmocka_unit_test(an_unloaded_library_takes_its_kernels_along),
      cmocka_unit_test(many_kernels_are_found),
      cmocka_unit_test(occupancy_is_limited_by_threads_blocks_and_shared_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
