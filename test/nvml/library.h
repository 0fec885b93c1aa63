/* library.h: libnvidia-ml.so.1 as programs use it: loaded by its file name, functions found by
 * name.
 *
 * The test program has its own copy of the device layer besides the one in the library, as programs
 * that load the extension module do.
 */
#ifndef OPENREG_TEST_NVML_LIBRARY_H
#define OPENREG_TEST_NVML_LIBRARY_H

#include "helper.h"
#include "nvml/nvml.h"

struct library {
#define X(name, parameters) nvmlReturn_t(*name) parameters;
  NVML_FUNCTION_LIST(X)
#undef X
  const char *(*nvmlErrorString)(nvmlReturn_t);
};

extern struct library library;

/* Loads the library. Each function of the lists must exist. */
void library_load(void);

/* NULL: the library does not have the function. */
void *library_find(const char *name);

/* Loads and initializes the library. */
void library_start(void);

nvmlDevice_t handle_of(unsigned index);

#define REQUIRE_CODE(code, call) REQUIRE((call) == NVML_##code)
#define REQUIRE_SUCCESS(call)    REQUIRE_CODE(SUCCESS, call)

#endif
