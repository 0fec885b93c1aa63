/* library.h: libnvidia-ml.so.1 as programs have it: loaded by its file, asked by names.
 *
 * The test program has a device layer of its own beside the one in the library, as a program has
 * the extension module's.
 */
#ifndef OPENREG_TEST_NVML_LIBRARY_H
#define OPENREG_TEST_NVML_LIBRARY_H

#include "actor.h"
#include "nvml/nvml.h"

struct library {
#define X(name, parameters) nvmlReturn_t(*name) parameters;
  NVML_FUNCTION_LIST(X)
#undef X
  const char *(*nvmlErrorString)(nvmlReturn_t);
};

extern struct library library;

/* Loads it; each function of the lists must be there. */
void library_load(void);

/* NULL: the library does not have it. */
void *library_find(const char *name);

/* Loads and initializes it. */
void library_start(void);

nvmlDevice_t handle_of(unsigned index);

#define REQUIRE_CODE(code, call) REQUIRE((call) == NVML_##code)
#define REQUIRE_SUCCESS(call)    REQUIRE_CODE(SUCCESS, call)

#endif
