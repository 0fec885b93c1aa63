/* c_tour.c: uses two simulated devices from C, without Python and without PyTorch.
 *
 * The program allocates memory on both devices. It fills the first with the random numbers of a
 * GPU, copies them to the second and reads them back. Then it prints the numbers and the
 * allocator's statistics. To run it: build/c/examples/c_tour
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "device/device.h"
#include "generator/generator.h"

enum { COUNT = 1 << 20, FIRST = 0, SECOND = 1 };
static const double MIB = 1 << 20;

/* Ends the program at the first failure, with the message of the last error. */
static void check(openreg_status status) {
  if (status == OPENREG_OK)
    return;
  fprintf(stderr, "c_tour: %s: %s\n", openreg_status_name(status), openreg_last_error());
  exit(EXIT_FAILURE);
}

static void expect(bool holds, const char *what) {
  if (holds)
    return;
  fprintf(stderr, "c_tour: expected that %s\n", what);
  exit(EXIT_FAILURE);
}

static void print_devices(void) {
  int count;
  check(openreg_device_count(&count));
  for (int device = 0; device < count; device++) {
    openreg_device_properties properties;
    check(openreg_device_get_properties(device, &properties));
    printf("device %d: %s, %d multiprocessors, %.1f MiB, cores %s\n", device,
           properties.profile.name, properties.profile.multiprocessor_count,
           properties.total_memory_bytes / MIB, properties.cpuset);
  }
  expect(count > SECOND, "there are two devices (OPENREG_DEVICE_COUNT)");
}

/* Computes torch.manual_seed(seed); torch.rand(COUNT) on this device. A kernel works on the kernel
 * view, because the host must not touch the device view. */
static void fill_uniform(openreg_block *block, uint64_t seed) {
  openreg_device_properties properties;
  check(openreg_device_get_properties(block->device, &properties));
  openreg_grid grid = {properties.profile.multiprocessor_count,
                       properties.profile.max_threads_per_multiprocessor};

  const int64_t size = COUNT, stride = 1;
  openreg_output output = {openreg_kernel_view(block->address), OPENREG_FLOAT32, 1, &size, &stride};

  openreg_generator *generator = openreg_generator_create();
  expect(generator != NULL, "the host has memory for a generator");
  openreg_generator_seed(generator, seed);
  openreg_philox philox = openreg_generator_take(generator, openreg_uniform_words(&output, grid));
  openreg_uniform(&output, openreg_whole, philox, grid, 0, 1);
  openreg_generator_destroy(generator);
}

static void print_figures(const float *numbers) {
  double sum = 0, squares = 0;
  for (int i = 0; i < COUNT; i++) {
    expect(numbers[i] >= 0 && numbers[i] < 1, "numbers lie in [0, 1)");
    sum += numbers[i];
    squares += (double)numbers[i] * numbers[i];
  }
  double mean = sum / COUNT, deviation = sqrt(squares / COUNT - mean * mean);
  printf("%d uniform numbers: %.4f %.4f %.4f %.4f ...\n", COUNT, numbers[0], numbers[1], numbers[2],
         numbers[3]);
  printf("mean %.4f (expected 0.5), standard deviation %.4f (expected %.4f)\n", mean, deviation,
         1 / sqrt(12));
  /* Six standard errors of the mean; one is 1 / sqrt(12 * COUNT). */
  expect(fabs(mean - 0.5) < 6 / sqrt(12.0 * COUNT), "the mean is that of a uniform distribution");
}

static void print_memory(int device) {
  openreg_memory_stats stats;
  uint64_t free_bytes, total_bytes;
  check(openreg_memory_get_stats(device, &stats));
  check(openreg_ledger_query(device, &free_bytes, &total_bytes));
  printf("device %d: %.1f MiB allocated, %.1f MiB reserved, %.1f of %.1f MiB free\n", device,
         stats.allocated_bytes[OPENREG_POOL_ALL].current / MIB,
         stats.reserved_bytes[OPENREG_POOL_ALL].current / MIB, free_bytes / MIB, total_bytes / MIB);
}

int main(void) {
  const size_t bytes = COUNT * sizeof(float);
  print_devices();

  openreg_block *source, *destination;
  check(openreg_block_allocate(FIRST, OPENREG_STREAM_DEFAULT, bytes, &source));
  check(openreg_block_allocate(SECOND, OPENREG_STREAM_DEFAULT, bytes, &destination));

  fill_uniform(source, 0);
  check(openreg_copy(destination->address, source->address, bytes));

  float *numbers = malloc(bytes);
  expect(numbers != NULL, "the host has memory for the numbers");
  check(openreg_copy(numbers, destination->address, bytes));
  expect(memcmp(numbers, openreg_kernel_view(source->address), bytes) == 0,
         "the second device returns the numbers that the first computed");
  print_figures(numbers);
  free(numbers);

  print_memory(FIRST);
  print_memory(SECOND);

  openreg_block_free(source);
  openreg_block_free(destination);
  check(openreg_cache_empty(FIRST));
  check(openreg_cache_empty(SECOND));
  print_memory(FIRST);
  return EXIT_SUCCESS;
}
