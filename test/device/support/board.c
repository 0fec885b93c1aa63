/* Memory shared between a test process and its helpers. See board.h. */
#define _GNU_SOURCE
#include "board.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct board *board;

void board_make(void) {
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(board != MAP_FAILED);
}

helper board_with(void (*body)(void)) {
  board_make();
  helper first = helper_start(body);
  helper_receive(&first);
  return first;
}

char *open_memory(const openreg_ipc_handle *handle) {
  void *address;
  size_t bytes;
  int device;
  REQUIRE_OK(openreg_ipc_open(handle, 0, &address, &bytes, &device));
  return address;
}

void export_memory(void *address, size_t bytes, openreg_ipc_handle *handle) {
  REQUIRE_OK(openreg_ipc_export(address, bytes, 0, handle));
}

void poke(char *address, char value) {
  REQUIRE_OK(openreg_copy(address, &value, 1));
}

char peek(const char *address) {
  char value = 0;
  REQUIRE_OK(openreg_copy(&value, address, 1));
  return value;
}

int count_mappings(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  REQUIRE(maps != NULL);
  int count = 0;
  for (char line[512]; fgets(line, sizeof line, maps) != NULL;)
    count += strstr(line, "/memfd:openreg:") != NULL;
  fclose(maps);
  return count;
}
