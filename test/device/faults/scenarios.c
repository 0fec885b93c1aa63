/* Steps through the device layer. See scenarios.h. */
#define _GNU_SOURCE
#include "scenarios.h"
#include "device/device.h"
#include "gate.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAKEN_BYTES = 4 << 20 };

/* ---- steps ----------------------------------------------------------------------------------- */

static void *arena_of(int device) {
  void *base;
  size_t bytes;
  REQUIRE_OK(openreg_arena_get(device, &base, &bytes));
  return base;
}

static openreg_status query_both(void) {
  uint64_t free_bytes, total_bytes;
  for (int device = 0; device < 2; device++) {
    openreg_status status = openreg_ledger_query(device, &free_bytes, &total_bytes);
    if (status != OPENREG_OK)
      return status;
    REQUIRE(free_bytes <= total_bytes);
  }
  return OPENREG_OK;
}

static openreg_status take_some(void) {
  return openreg_ledger_reserve(0, TAKEN_BYTES);
}

static openreg_status take_too_much(void) {
  openreg_status status = openreg_ledger_reserve(0, (uint64_t)1 << 40);
  REQUIRE(status != OPENREG_OK);
  return status == OPENREG_OUT_OF_MEMORY ? OPENREG_OK : status;
}

static openreg_status give_all(void) {
  openreg_ledger_release(0, TAKEN_BYTES);
  return OPENREG_OK;
}

static openreg_status nothing_is_used(void) {
  uint64_t free_bytes, total_bytes;
  openreg_status status = openreg_ledger_query(0, &free_bytes, &total_bytes);
  REQUIRE(status != OPENREG_OK || free_bytes == total_bytes);
  return status;
}

static openreg_status write_pages(void) {
  char there[] = "there and back", back[sizeof there] = "";
  openreg_status status = openreg_fill(arena_of(0), 1, TAKEN_BYTES);
  if (status == OPENREG_OK)
    status = openreg_copy(arena_of(0), there, sizeof there);
  if (status == OPENREG_OK)
    status = openreg_copy(back, arena_of(0), sizeof back);
  REQUIRE(status != OPENREG_OK || strcmp(there, back) == 0);
  return status;
}

static openreg_status release_pages(void) {
  return openreg_arena_release(arena_of(0), TAKEN_BYTES);
}

static int high_stream(void) {
  return 1 + OPENREG_STREAMS_PER_POOL;
}

/* Uses a new stream in each call, because the first work starts the stream. */
static openreg_status work_on(int device, int stream) {
  static atomic_int count;
  int before = atomic_load(&count);
  openreg_status status = openreg_stream_launch(device, stream, count_up, &count);
  if (status == OPENREG_OK)
    status = openreg_stream_synchronize(device, stream);
  REQUIRE(status != OPENREG_OK || atomic_load(&count) > before);
  return status;
}

static openreg_status work_on_streams(void) {
  openreg_status status = work_on(0, OPENREG_STREAM_DEFAULT);
  return status == OPENREG_OK ? work_on(1, high_stream()) : status;
}

static openreg_status time_events(void) {
  openreg_event *events[2] = {NULL, NULL};
  double milliseconds;
  openreg_status status = OPENREG_OK;
  for (int i = 0; status == OPENREG_OK && i < 2; i++) {
    status = openreg_event_create(0, true, &events[i]);
    if (status == OPENREG_OK)
      status = openreg_event_record(events[i], 3);
    if (status == OPENREG_OK)
      status = openreg_stream_wait_event(1, 2, events[i]);
  }
  if (status == OPENREG_OK)
    status = openreg_device_synchronize(0);
  if (status == OPENREG_OK)
    status = openreg_event_elapsed_ms(events[0], events[1], &milliseconds);
  for (int i = 0; i < 2; i++)
    openreg_event_destroy(events[i]);
  return status;
}

static void in_bad_fork_body(void) {
  uint64_t free_bytes, total_bytes;
  REQUIRE(openreg_in_bad_fork());
  REQUIRE(openreg_ledger_query(0, &free_bytes, &total_bytes) == OPENREG_BAD_FORK);
}

static openreg_status fork_once(void) {
  child_fork_and_require(in_bad_fork_body);
  return OPENREG_OK;
}

/* This process's bytes in a snapshot, which must show them; -1 if the process is not in it. */
static int64_t find_self(const openreg_ledger_snapshot *snapshot) {
  for (int i = 0; i < snapshot->process_count; i++)
    if (snapshot->processes[i].pid == getpid())
      return (int64_t)snapshot->processes[i].bytes[0];
  return -1;
}

/* A group that cannot be read is skipped and named. */
static openreg_status list_groups(void) {
  openreg_ledger_snapshot *snapshots;
  const char *problem;
  int count;
  openreg_status status = openreg_ledger_list(&snapshots, &count, &problem);
  if (status != OPENREG_OK)
    return status;
  int64_t bytes = -1;
  for (int i = 0; i < count; i++)
    bytes = bytes >= 0 ? bytes : find_self(&snapshots[i]);
  REQUIRE(bytes == TAKEN_BYTES || problem != NULL);
  openreg_ledger_free_snapshots(snapshots, count);
  return OPENREG_OK;
}

static openreg_status preview(void) {
  static openreg_ledger_snapshot snapshot;
  openreg_status status = openreg_ledger_preview(&snapshot);
  REQUIRE(status != OPENREG_OK || snapshot.device_count == 2);
  return status;
}

/* ---- two processes --------------------------------------------------------------------------- */

typedef struct handles {
  openreg_ipc_handle memory, event;
} handles;

int scenario_channel;
static handles shared;
static void *imported;
static openreg_event *event;

static openreg_status create_event(void) {
  openreg_status status = openreg_event_create(0, false, &event);
  return status == OPENREG_OK ? openreg_event_record(event, 0) : status;
}

static openreg_status destroy_event(void) {
  openreg_event_destroy(event);
  return OPENREG_OK;
}

static openreg_status export_memory(void) {
  return openreg_ipc_export(arena_of(0), TAKEN_BYTES, 0, &shared.memory);
}

static openreg_status export_event(void) {
  return openreg_event_export(event, &shared.event);
}

static openreg_status send_handles(void) {
  REQUIRE(send(scenario_channel, &shared, sizeof shared, MSG_NOSIGNAL) == sizeof shared);
  return OPENREG_OK;
}

static openreg_status receive_handles(void) {
  REQUIRE(recv(scenario_channel, &shared, sizeof shared, MSG_WAITALL) == sizeof shared);
  return OPENREG_OK;
}

static openreg_status say_done(void) {
  REQUIRE(send(scenario_channel, "", 1, MSG_NOSIGNAL) == 1);
  return OPENREG_OK;
}

static openreg_status await_done(void) {
  char byte;
  REQUIRE(recv(scenario_channel, &byte, 1, 0) == 1);
  return OPENREG_OK;
}

static openreg_status withdraw(void) {
  return openreg_ipc_withdraw(arena_of(0));
}

static openreg_status import_event(void) {
  return openreg_event_import(&shared.event, &event);
}

static openreg_status wait_for_event(void) {
  openreg_status status = openreg_stream_wait_event(0, 0, event);
  return status == OPENREG_OK ? openreg_stream_synchronize(0, 0) : status;
}

/* The work on stream 1 finishes only after the other process has seen it pending. */
static gate seen = GATE_CLOSED;

static openreg_status close_gate(void) {
  return openreg_stream_launch(0, 1, gate_pass, &seen);
}

static openreg_status record_import(void) {
  return openreg_event_record(event, 1);
}

static openreg_status record_is_done(void) {
  gate_open(&seen);
  openreg_status status = openreg_event_synchronize(event);
  return status == OPENREG_OK ? openreg_stream_synchronize(0, 1) : status;
}

static openreg_status see_record(void) {
  openreg_status status = openreg_event_query(event);
  REQUIRE(status != OPENREG_OK);
  return status == OPENREG_NOT_READY ? OPENREG_OK : status;
}

static openreg_status wait_for_record(void) {
  return openreg_stream_wait_event(0, 2, event);
}

static openreg_status wait_is_over(void) {
  openreg_status status = openreg_event_synchronize(event);
  return status == OPENREG_OK ? openreg_stream_synchronize(0, 2) : status;
}

static openreg_status open_memory(void) {
  size_t bytes;
  int device;
  openreg_status status = openreg_ipc_open(&shared.memory, 0, &imported, &bytes, &device);
  REQUIRE(status != OPENREG_OK || (bytes == TAKEN_BYTES && device == 0));
  return status;
}

static openreg_status read_memory(void) {
  char back[64] = "";
  openreg_status status = openreg_stream_synchronize(0, 0);
  if (status == OPENREG_OK)
    status = openreg_copy(back, imported, sizeof back);
  REQUIRE(status != OPENREG_OK || strcmp(back, "there and back") == 0);
  return status;
}

static openreg_status close_memory(void) {
  return openreg_ipc_close(imported);
}

/* The exporter is a child of the importer. */
static openreg_status await_end_of_exporter(void) {
  int wait_status;
  REQUIRE(wait(&wait_status) > 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
  return OPENREG_OK;
}

/* Checks that nothing is in use and that no other process, living or dead, is in this process's
 * group. Reports success if the group cannot be read. */
static openreg_status look_for_remains(bool *none) {
  openreg_ledger_snapshot *snapshots;
  const char *problem;
  int count;
  openreg_status status = openreg_ledger_list(&snapshots, &count, &problem);
  if (status != OPENREG_OK)
    return status;
  *none = true;
  for (int i = 0; i < count; i++)
    if (find_self(&snapshots[i]) >= 0)
      *none = snapshots[i].process_count == 1 && snapshots[i].devices[0].used_bytes == 0;
  openreg_ledger_free_snapshots(snapshots, count);
  return OPENREG_OK;
}

/* The reclaimer's thread releases what could not be released at once. */
static openreg_status await_no_remains(void) {
  bool none = false;
  openreg_status status = OPENREG_OK;
  while (status == OPENREG_OK && !none) {
    sched_yield();
    status = look_for_remains(&none);
  }
  return status;
}

const scenario_step scenario_exporter[] = {
    {"initialize", openreg_initialize},
    {"take", take_some},
    {"write pages", write_pages},
    {"create an event", create_event},
    {"export memory", export_memory},
    {"export an event", export_event},
    {"send", send_handles},
    {"await a record", await_done},
    {"see the record", see_record},
    {"wait for the record", wait_for_record},
    {"seen", say_done},
    {"the wait is over", wait_is_over},
    {"await", await_done},
    {"withdraw", withdraw},
    {"destroy the event", destroy_event},
    {"give", give_all},
    {"nothing is used", nothing_is_used},
    {NULL, NULL},
};

const scenario_step scenario_importer[] = {
    {"initialize", openreg_initialize},
    {"receive", receive_handles},
    {"import an event", import_event},
    {"wait for the event", wait_for_event},
    {"close a gate", close_gate},
    {"record the event", record_import},
    {"recorded", say_done},
    {"await that it is seen", await_done},
    {"the record is done", record_is_done},
    {"open memory", open_memory},
    {"read memory", read_memory},
    {"close memory", close_memory},
    {"destroy the event", destroy_event},
    {"done", say_done},
    {"query", query_both},
    {NULL, NULL},
};

const scenario_step scenario_exporter_that_ends[] = {
    {"initialize", openreg_initialize},
    {"take", take_some},
    {"write pages", write_pages},
    {"create an event", create_event},
    {"export memory", export_memory},
    {"export an event", export_event},
    {"send", send_handles},
    {"await that it is imported", await_done},
    {NULL, NULL},
};

const scenario_step scenario_importer_that_stays[] = {
    {"initialize", openreg_initialize},
    {"receive", receive_handles},
    {"import an event", import_event},
    {"open memory", open_memory},
    {"imported", say_done},
    {"await the end of the exporter", await_end_of_exporter},
    {"read memory", read_memory},
    {"wait for the event", wait_for_event},
    {"record the event", record_import},
    {"close memory", close_memory},
    {"destroy the event", destroy_event},
    {"nothing remains", await_no_remains},
    {NULL, NULL},
};

const scenario_step scenario_alone[] = {
    {"preview", preview},
    {"initialize", openreg_initialize},
    {"query", query_both},
    {"take", take_some},
    {"take too much", take_too_much},
    {"write pages", write_pages},
    {"release pages", release_pages},
    {"work on streams", work_on_streams},
    {"time events", time_events},
    {"fork", fork_once},
    {"list", list_groups},
    {"give", give_all},
    {"nothing is used", nothing_is_used},
    {NULL, NULL},
};
