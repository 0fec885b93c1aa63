/* library.c: initialization, versions, and queries about the machine.
 *
 * Initialization only reads the configuration, because that is what can be wrong. There is nothing
 * to shut down, but queries after the last nvmlShutdown must fail.
 */
#include "nvml/view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A machine that runs PyTorch 2.13 with the newest CUDA version it is built for: CUDA 13.0, and the
 * driver branch released with it. */
static const char driver_version[] = "580.00";
static const char nvml_version[] = "13.580.00";
enum { CUDA_VERSION = 13000 };

static _Atomic int initialized; /* number of initializations without a shutdown */

/* ---- initializing ---------------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  const openreg_config *config;
  if ((flags & ~7u) != 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (openreg_config_get(&config) != OPENREG_OK)
    return NVML_ERROR_DRIVER_NOT_LOADED;
  atomic_fetch_add(&initialized, 1);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) {
  return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void) {
  return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void) {
  int count = atomic_load(&initialized);
  do {
    if (count == 0)
      return NVML_ERROR_UNINITIALIZED;
  } while (!atomic_compare_exchange_weak(&initialized, &count, count - 1));
  return NVML_SUCCESS;
}

nvmlReturn_t openreg_nvml_require_initialized(void) {
  return atomic_load(&initialized) > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

const char *nvmlErrorString(nvmlReturn_t code) {
  switch (code) {
#define X(name, number, message)                                                                   \
  case NVML_##name:                                                                                \
    return message;
    NVML_CODE_LIST(X)
#undef X
  }
  return nvmlErrorString(NVML_ERROR_UNKNOWN);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static nvmlReturn_t copy_text(const char *text, char *to, unsigned length) {
  nvmlReturn_t code = openreg_nvml_require_initialized();
  return code == NVML_SUCCESS ? openreg_nvml_copy_text(text, to, length) : code;
}

static nvmlReturn_t return_value(unsigned number, unsigned *to) {
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code == NVML_SUCCESS && to == NULL)
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    *to = number;
  return code;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
  return copy_text(driver_version, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
  return copy_text(nvml_version, version, length);
}

/* As in NVML, this works without initialization. */
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
  if (version == NULL)
    return NVML_ERROR_INVALID_ARGUMENT;
  *version = CUDA_VERSION;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlUnitGetCount(unsigned *count) {
  return return_value(0, count);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned *count) {
  return return_value(0, count);
}

/* ---- processes ------------------------------------------------------------------------------- */

static nvmlReturn_t code_of_error(int error) {
  if (error == ENOENT || error == ESRCH)
    return NVML_ERROR_NOT_FOUND;
  return error == EACCES || error == EPERM ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_OPERATING_SYSTEM;
}

/* Reads the first word of a file of the process, which ends with a zero byte or at the end of the
 * line. */
static nvmlReturn_t read_word(unsigned pid, const char *what, char *word, size_t word_bytes) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/%s", pid, what);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return code_of_error(errno);
  ssize_t length = read(file, word, word_bytes - 1);
  int error = errno;
  close(file);
  if (length < 0)
    return code_of_error(error);
  word[length] = '\0';
  word[strcspn(word, "\n")] = '\0';
  return NVML_SUCCESS;
}

/* Returns the program's path, truncated to `length`. Kernel threads have no command line; for them,
 * returns their name. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
  char word[4096] = "";
  nvmlReturn_t code = openreg_nvml_require_initialized();
  if (code == NVML_SUCCESS && (name == NULL || length == 0))
    code = NVML_ERROR_INVALID_ARGUMENT;
  if (code == NVML_SUCCESS)
    code = read_word(pid, "cmdline", word, sizeof word);
  if (code == NVML_SUCCESS && word[0] == '\0')
    code = read_word(pid, "comm", word, sizeof word);
  if (code == NVML_SUCCESS)
    snprintf(name, length, "%s", word);
  return code;
}
