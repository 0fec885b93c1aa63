/* The library as programs load it: by SONAME, with versioned symbols. */
#define _GNU_SOURCE
#include "child.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static void *load(void) {
  void *library = dlopen(CUDART_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  REQUIRE(library != NULL);
  return library;
}

CHILD_TEST(once_loaded_it_is_found_by_its_soname) {
  void *library = load();
  void *again = dlopen(CUDART_SONAME, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(again == library);
}

CHILD_TEST(symbols_have_nvidias_version) {
  void *library = load();
  REQUIRE(dlvsym(library, "cudaMalloc", CUDART_SONAME) != NULL);
  REQUIRE(dlvsym(library, "__cudaRegisterFatBinary", CUDART_SONAME) != NULL);
  REQUIRE(dlvsym(library, "openreg_cudart_sentence", CUDART_SONAME) != NULL);
  REQUIRE(dlsym(library, "cudart_fail") == NULL);
}

/* PyTorch loads all of NVIDIA's libraries if it finds this text. */
CHILD_TEST(its_file_name_does_not_look_like_nvidias) {
  struct link_map *map;
  REQUIRE(dlinfo(load(), RTLD_DI_LINKMAP, &map) == 0);
  REQUIRE(strstr(map->l_name, "openreg_cudart_" TEXT(CUDART_MAJOR)) != NULL);
  REQUIRE(strstr(map->l_name, "libcudart.so") == NULL);
}

CHILD_TEST(functions_that_openreg_lacks_are_refused_by_name) {
  void *library = load();
  int (*create)(void) = (int (*)(void))dlsym(library, "cudaGraphCreate");
  int (*per_thread)(void) = (int (*)(void))dlsym(library, "cudaMemcpyAsync_ptsz");
  const char *(*sentence)(int) = (const char *(*)(int))dlsym(library, "openreg_cudart_sentence");
  REQUIRE(create != NULL && per_thread != NULL && sentence != NULL);
  REQUIRE(create() == 801);
  REQUIRE(strstr(sentence(801), "cudaGraphCreate") != NULL);
  REQUIRE(per_thread() == 801);
  REQUIRE(strstr(sentence(801), "per-thread") != NULL);
}

CHILD_TEST(a_program_can_use_a_device) {
  void *library = load();
  int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(library, "cudaMalloc");
  int (*copy)(void *, const void *, size_t, int) =
      (int (*)(void *, const void *, size_t, int))dlsym(library, "cudaMemcpy");
  void *memory;
  char from[] = "twelve bytes", to[sizeof from] = "";
  REQUIRE(allocate(&memory, sizeof from) == 0);
  REQUIRE(copy(memory, from, sizeof from, 1) == 0);
  REQUIRE(copy(to, memory, sizeof from, 2) == 0);
  REQUIRE(strcmp(to, from) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(once_loaded_it_is_found_by_its_soname),
      cmocka_unit_test(symbols_have_nvidias_version),
      cmocka_unit_test(its_file_name_does_not_look_like_nvidias),
      cmocka_unit_test(functions_that_openreg_lacks_are_refused_by_name),
      cmocka_unit_test(a_program_can_use_a_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
