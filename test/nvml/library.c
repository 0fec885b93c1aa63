/* library.c: see library.h. */
#include "library.h"

#include <dlfcn.h>
#include <string.h>

struct library library;

static void *loaded;

void *library_find(const char *name) {
  return dlsym(loaded, name);
}

static void *must_find(const char *name) {
  void *function = library_find(name);
  REQUIRE(function != NULL);
  return function;
}

void library_load(void) {
  loaded = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(loaded != NULL);
#define X(name, parameters) library.name = (nvmlReturn_t(*) parameters)must_find(#name);
  NVML_FUNCTION_LIST(X)
#undef X
  library.nvmlErrorString = (const char *(*)(nvmlReturn_t))must_find("nvmlErrorString");
}

void library_start(void) {
  library_load();
  REQUIRE_SUCCESS(library.nvmlInitWithFlags(0));
}

nvmlDevice_t handle_of(unsigned index) {
  nvmlDevice_t device;
  REQUIRE_SUCCESS(library.nvmlDeviceGetHandleByIndex_v2(index, &device));
  return device;
}
