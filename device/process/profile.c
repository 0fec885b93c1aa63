/* profile.c: the table of GPUs that a device can pretend to be.
 *
 * Multiprocessors, threads and compute capability determine which random numbers a device
 * generates, so they must be exact. Sources:
 *
 * - Memory, in MiB: torch.cuda.get_device_properties on Linux. It varies by a few MiB between
 *   drivers. Values marked "estimate" were not taken from real output.
 * - Cache in MiB, clocks in MHz (the memory clock as the driver reports it) and bus width in bits:
 *   data sheets, or deviceQuery of the CUDA samples. Those of the B200 and the H20 are estimates.
 * - Context sizes: docs/gpu-memory.md, which also says which ones are estimates.
 */
#include "device/process/config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MIB(count) ((uint64_t)(count) << 20)

/* clang-format off */
static const openreg_profile table[] = {
    /* key       name                          SM   TPM   capab.   L2 clock memory bus  memory  context */
    {"b200",      "NVIDIA B200",                148, 2048, 10, 0, 126, 1965,  3996, 8192, MIB(182642), MIB(616)},
    {"h200",      "NVIDIA H200",                132, 2048,  9, 0,  50, 1980,  3201, 6144, MIB(143156), MIB(520)},
    {"h100",      "NVIDIA H100 80GB HBM3",      132, 2048,  9, 0,  50, 1980,  2619, 5120, MIB(81079),  MIB(527)},
    {"h100-pcie", "NVIDIA H100 PCIe",           114, 2048,  9, 0,  50, 1755,  1593, 5120, MIB(81008),  MIB(456)},
    {"a100",      "NVIDIA A100-SXM4-40GB",      108, 2048,  8, 0,  40, 1410,  1215, 5120, MIB(40536),  MIB(414)}, /* estimate */
    {"a100-80gb", "NVIDIA A100-SXM4-80GB",      108, 2048,  8, 0,  40, 1410,  1593, 5120, MIB(81251),  MIB(414)}, /* estimate */
    {"v100",      "Tesla V100-SXM2-16GB",        80, 2048,  7, 0,   6, 1530,   877, 4096, MIB(16160),  MIB(320)},
    {"v100-32gb", "Tesla V100-SXM2-32GB",        80, 2048,  7, 0,   6, 1530,   877, 4096, MIB(32510),  MIB(320)}, /* estimate */
    {"l40s",      "NVIDIA L40S",                142, 1536,  8, 9,  96, 2520,  9001,  384, MIB(45589),  MIB(426)},
    {"l4",        "NVIDIA L4",                   58, 1536,  8, 9,  48, 2040,  6251,  192, MIB(22491),  MIB(174)}, /* estimate */
    {"t4",        "Tesla T4",                    40, 1024,  7, 5,   4, 1590,  5001,  256, MIB(15102),  MIB(80) },
    {"rtx4090",   "NVIDIA GeForce RTX 4090",    128, 1536,  8, 9,  72, 2520, 10501,  384, MIB(24210),  MIB(386)}, /* estimate */
    {"rtx3090",   "NVIDIA GeForce RTX 3090",     82, 1536,  8, 6,   6, 1695,  9751,  384, MIB(24259),  MIB(256)},
    {"a10g",      "NVIDIA A10G",                 80, 1536,  8, 6,   6, 1710,  6251,  384, MIB(22587),  MIB(240)},
    {"rtx4090d",  "NVIDIA GeForce RTX 4090 D",  114, 1536,  8, 9,  72, 2520, 10501,  384, MIB(24210),  MIB(342)}, /* estimate */
    {"h20",       "NVIDIA H20",                  78, 2048,  9, 0,  60, 1980,  2619, 6144, MIB(97285),  MIB(312)},
    {"rtx3060",   "NVIDIA GeForce RTX 3060",     28, 1536,  8, 6,   3, 1777,  7501,  192, MIB(12044),  MIB(84) },
};
/* clang-format on */

enum { TABLE_LENGTH = sizeof table / sizeof table[0] };

/* Limits of profiles given as numbers. CUDA's random number kernels use blocks of 256 threads, and
 * a multiprocessor must hold at least one block. No GPU comes near the upper limits. */
enum {
  MAX_MULTIPROCESSORS = 1024,
  MIN_THREADS = 256,
  MAX_THREADS = 4096,
};

/* Parses one to four decimal digits that make up the whole text. Returns -1 for anything else. */
static int parse_short_number(const char *text, size_t length) {
  if (length < 1 || length > 4)
    return -1;
  int number = 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9')
      return -1;
    number = number * 10 + (text[i] - '0');
  }
  return number;
}

/* 2 KiB for each thread that the GPU can hold, rounded up to pages of 2 MiB. This is within 5 % of
 * known context sizes (docs/gpu-memory.md). */
static uint64_t estimate_context(int multiprocessors, int threads) {
  uint64_t bytes = (uint64_t)multiprocessors * (uint64_t)threads * 2048;
  return (bytes + MIB(2) - 1) & ~(MIB(2) - 1);
}

static bool find_numbers(const char *text, size_t length, openreg_profile *profile) {
  const char *cross = memchr(text, 'x', length);
  if (cross == NULL)
    return false;
  int multiprocessors = parse_short_number(text, (size_t)(cross - text));
  int threads = parse_short_number(cross + 1, (size_t)(text + length - cross - 1));
  if (multiprocessors < 1 || multiprocessors > MAX_MULTIPROCESSORS || threads < MIN_THREADS ||
      threads > MAX_THREADS)
    return false;
  *profile = (openreg_profile){
      .multiprocessor_count = multiprocessors,
      .max_threads_per_multiprocessor = threads,
      .major = 8,
      .minor = 0,
      .context_bytes = estimate_context(multiprocessors, threads),
  };
  snprintf(profile->key, sizeof profile->key, "%dx%d", multiprocessors, threads);
  snprintf(profile->name, sizeof profile->name, "openreg %dx%d", multiprocessors, threads);
  return true;
}

const openreg_profile *openreg_profile_at(int index) {
  return index >= 0 && index < TABLE_LENGTH ? &table[index] : NULL;
}

bool openreg_profile_find(const char *text, size_t length, openreg_profile *profile) {
  for (int i = 0; i < TABLE_LENGTH; i++) {
    if (strlen(table[i].key) == length && strncasecmp(table[i].key, text, length) == 0) {
      *profile = table[i];
      return true;
    }
  }
  return find_numbers(text, length, profile);
}
