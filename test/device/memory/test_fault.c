/* Faults in device memory: the message, and what happens afterwards. */
#define _GNU_SOURCE
#include "devices.h"
#include "device/memory/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* On the real machine, a warning about placement might appear in the expected output. */
#define IMAGINED_MACHINE "HWLOC_SYNTHETIC=core:2 pu:1"
#define QUIET_DEVICES                                                                              \
  ENVIRONMENT("OPENREG_DEVICE_COUNT=2", "OPENREG_DEVICE_MEMORY=64M", IMAGINED_MACHINE)

/* The compiler must not remove an access. */
static volatile char *volatile_base(int device) {
  return base_of(device);
}

/* The address is not known before the child runs, so the child prints it first. */
static void announce(const volatile void *address) {
  fprintf(stderr, "about to touch %p\n", (void *)(uintptr_t)address);
  fflush(stderr);
}

/* An emulator adds a line when its program dies by a signal. */
static bool is_the_emulators(const char *text) {
  return strncmp(text, "qemu: uncaught target signal ", 29) == 0;
}

static void expect_message(const child_result *result, const char *before, const char *after) {
  void *address;
  char expected[512];
  assert_int_equal(sscanf(result->errors, "about to touch %p", &address), 1);
  snprintf(expected, sizeof expected, "openreg: %s %p %s\n", before, address, after);
  const char *found = strstr(result->errors, "openreg: ");
  assert_non_null(found);
  const char *rest = found + strlen(expected);
  if (strncmp(found, expected, strlen(expected)) != 0 || !is_the_emulators(rest))
    assert_string_equal(found, expected);
}

#define NO_HOST_ACCESS                                                                             \
  "; host code cannot access device memory: copy it with .cpu(), or set OPENREG_HOST_ACCESS=1"

/* ---- message and death ----------------------------------------------------------------------- */

static void read_device_memory(void) {
  volatile char *address = volatile_base(1) + 4097;
  announce(address);
  (void)*address;
}

static void reading_device_memory_is_reported_and_kills(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, read_device_memory, QUIET_DEVICES);
  expect_message(&result, "the host accessed address", "of device 1" NO_HOST_ACCESS);
}

static void write_device_memory(void) {
  volatile char *address = volatile_base(0);
  announce(address);
  *address = 1;
}

static void writing_device_memory_is_reported_and_kills(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, write_device_memory, QUIET_DEVICES);
  expect_message(&result, "the host accessed address", "of device 0" NO_HOST_ACCESS);
}

static void read_beyond_the_end(void) {
  volatile char *address = volatile_base(0) + arena_bytes();
  announce(address);
  (void)*address;
}

static void accesses_beyond_the_end_are_reported(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, read_beyond_the_end,
                      ENVIRONMENT("OPENREG_DEVICE_MEMORY=6M", IMAGINED_MACHINE));
  expect_message(&result, "the host accessed address", "beyond the end of device 0");
}

static void run_off_the_kernel_view(void) {
  volatile char *address = openreg_kernel_view((char *)volatile_base(0) + arena_bytes());
  announce(address);
  *address = 1;
}

static void kernels_that_run_past_the_end_are_reported_too(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, run_off_the_kernel_view,
                      ENVIRONMENT("OPENREG_DEVICE_MEMORY=6M", IMAGINED_MACHINE));
  expect_message(&result, "the host accessed address", "beyond the end of device 0");
}

static void read_elsewhere(void) {
  REQUIRE_OK(openreg_initialize());
  volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  (void)*page;
}

static void other_faults_kill_without_a_message(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, read_elsewhere, QUIET_DEVICES);
  assert_null(strstr(result.errors, "openreg:"));
}

/* ---- previous handlers ----------------------------------------------------------------------- */

static volatile sig_atomic_t calls;
static void *volatile reported_address;
static sigjmp_buf back;

static void previous_with_info(int signal_number, siginfo_t *info, void *context) {
  (void)signal_number;
  (void)context;
  calls++;
  reported_address = info->si_addr;
  siglongjmp(back, 1);
}

static void install(int signal_number, int flags, void (*with_info)(int, siginfo_t *, void *),
                    void (*plain)(int)) {
  struct sigaction action = {.sa_flags = flags};
  if (with_info != NULL)
    action.sa_sigaction = with_info;
  else
    action.sa_handler = plain;
  REQUIRE(sigaction(signal_number, &action, NULL) == 0);
}

static void touch_twice_and_survive(void) {
  install(SIGSEGV, SA_SIGINFO, previous_with_info, NULL);
  volatile char *address = volatile_base(1) + 100;
  for (volatile int i = 0; i < 2; i++) {
    if (sigsetjmp(back, 1) == 0)
      (void)*address;
    REQUIRE(calls == i + 1);
    REQUIRE(reported_address == (void *)(uintptr_t)address);
  }
  fprintf(stderr, "survived\n");
}

static void a_previous_handler_is_called_each_time_and_may_jump_out(void **state) {
  (void)state;
  child_result result;
  child_run(&result, touch_twice_and_survive, QUIET_DEVICES);
  assert_int_equal(result.wait_status, 0);
  const char *first = strstr(result.errors, "device 1" NO_HOST_ACCESS);
  assert_non_null(first);
  assert_non_null(strstr(first + 1, "device 1" NO_HOST_ACCESS));
  assert_non_null(strstr(first, "survived"));
}

static void previous_plain(int signal_number) {
  static const char text[] = "previous handler\n";
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
    _exit(2);
  _exit(signal_number == SIGSEGV ? 42 : 43);
}

static void touch_with_plain_handler(void) {
  install(SIGSEGV, 0, NULL, previous_plain);
  (void)*volatile_base(0);
}

static void a_plain_previous_handler_is_called_after_the_message(void **state) {
  (void)state;
  child_result result;
  child_run(&result, touch_with_plain_handler, QUIET_DEVICES);
  assert_int_equal(result.wait_status, 42 << 8);
  const char *message = strstr(result.errors, NO_HOST_ACCESS);
  assert_non_null(message);
  assert_non_null(strstr(message, "previous handler"));
}

static void elsewhere_with_plain_handler(void) {
  install(SIGSEGV, 0, NULL, previous_plain);
  read_elsewhere();
}

static void faults_elsewhere_go_to_the_previous_handler_only(void **state) {
  (void)state;
  child_result result;
  child_run(&result, elsewhere_with_plain_handler, QUIET_DEVICES);
  assert_int_equal(result.wait_status, 42 << 8);
  assert_string_equal(result.errors, "previous handler\n");
}

static void return_only(int signal_number) {
  (void)signal_number;
  calls++;
}

static void touch_with_one_shot_handler(void) {
  install(SIGSEGV, SA_RESETHAND, NULL, return_only);
  (void)*volatile_base(0);
}

static void a_previous_handler_for_one_shot_is_called_once(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, touch_with_one_shot_handler, QUIET_DEVICES);
}

static void touch_with_ignored_signal(void) {
  install(SIGSEGV, 0, NULL, SIG_IGN);
  (void)*volatile_base(0);
}

static void a_fault_kills_even_when_the_signal_was_ignored(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, touch_with_ignored_signal, QUIET_DEVICES);
}

/* ---- signals sent by processes --------------------------------------------------------------- */

static void raise_by_default(void) {
  REQUIRE_OK(openreg_initialize());
  raise(SIGSEGV);
}

static void a_sent_signal_still_kills(void **state) {
  (void)state;
  child_result result;
  child_expect_signal(&result, SIGSEGV, raise_by_default, QUIET_DEVICES);
  assert_null(strstr(result.errors, "openreg:"));
}

CHILD_TEST(a_sent_signal_that_is_ignored_stays_ignored) {
  install(SIGSEGV, 0, NULL, SIG_IGN);
  REQUIRE_OK(openreg_initialize());
  raise(SIGSEGV);
}

/* ---- no memory left -------------------------------------------------------------------------- */

/* Sends what the kernel sends if it has no page for an address. A process may send this signal to
 * itself. */
static void pretend_lack_of_memory(void *address) {
  siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_ADRERR};
  info.si_addr = address;
  REQUIRE(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info) == 0);
}

static void lack_memory(void) {
  install(SIGBUS, 0, NULL, previous_plain);
  volatile char *address = openreg_kernel_view((char *)volatile_base(1) + 5);
  announce(address);
  pretend_lack_of_memory((void *)(uintptr_t)address);
}

static void a_machine_without_memory_is_reported(void **state) {
  (void)state;
  child_result result;
  child_run(&result, lack_memory, QUIET_DEVICES);
  assert_int_equal(result.wait_status, 43 << 8);
  assert_non_null(strstr(result.errors,
                         "openreg: this machine has no memory left for device 1 (no page "
                         "for address 0x"));
}

/* ---- forked children ------------------------------------------------------------------------- */

static void fork_and_touch(bool kernel_view) {
  volatile char *parents_address = volatile_base(1);
  if (kernel_view)
    parents_address = openreg_kernel_view((char *)parents_address);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    announce(parents_address);
    (void)*parents_address;
    _exit(0);
  }
  int wait_status;
  REQUIRE(waitpid(child, &wait_status, 0) == child);
  REQUIRE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSEGV);
}

static void expect_forked_message(void (*body)(void)) {
  child_result result;
  child_run(&result, body, QUIET_DEVICES);
  assert_int_equal(result.wait_status, 0);
  expect_message(&result, "a forked process accessed address",
                 "of device 1; a process that was forked after devices were initialized cannot use "
                 "them: start it with the 'spawn' method");
}

static void fork_and_touch_device_view(void) {
  fork_and_touch(false);
}
static void fork_and_touch_kernel_view(void) {
  fork_and_touch(true);
}

static void a_forked_child_that_accesses_a_device_view_gets_a_message_about_the_fork(void **state) {
  (void)state;
  expect_forked_message(fork_and_touch_device_view);
}

static void a_forked_child_cannot_reach_the_kernel_view(void **state) {
  (void)state;
  expect_forked_message(fork_and_touch_kernel_view);
}

static void a_forked_child_cannot_access_memory_with_host_access_either(void **state) {
  (void)state;
  child_result result;
  child_run(&result, fork_and_touch_device_view,
            ENVIRONMENT("OPENREG_DEVICE_MEMORY=4M", "OPENREG_HOST_ACCESS=1"));
  assert_int_equal(result.wait_status, 0);
  assert_non_null(strstr(result.errors, "openreg: a forked process accessed address"));
}

/* ---- resolvers ------------------------------------------------------------------------------- */

static char *closed_pages;
static _Atomic int asked, asked_for_write, asked_for_unknown;

static bool open_pages(void *address, openreg_fault_access access) {
  size_t offset = (size_t)((char *)address - closed_pages);
  if (offset >= MIB)
    return false;
  asked++;
  asked_for_write += access == OPENREG_FAULT_WRITE;
  asked_for_unknown += access == OPENREG_FAULT_UNKNOWN;
  return mprotect(closed_pages, MIB, PROT_READ | PROT_WRITE) == 0;
}

static void *write_there(void *argument) {
  (void)argument;
  closed_pages[MIB / 2] = 5;
  return NULL;
}

static void close_and_touch(void) {
  (void)volatile_base(0);
  closed_pages = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(closed_pages != MAP_FAILED);
  openreg_fault_set_resolver(open_pages);
  REQUIRE(*(volatile char *)(closed_pages + 9) == 0);
  REQUIRE(asked == 1 && asked_for_write == 0);
#ifdef __x86_64__
  REQUIRE(asked_for_unknown == 0);
#endif
  asked_for_unknown = 0;
  REQUIRE(mprotect(closed_pages, MIB, PROT_READ) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, write_there, NULL) == 0);
  REQUIRE(pthread_join(thread, NULL) == 0);
  REQUIRE(asked == 2 && asked_for_write + asked_for_unknown == 1 && closed_pages[MIB / 2] == 5);
  fprintf(stderr, "went on\n");
}

static void a_resolver_may_allow_the_access(void **state) {
  (void)state;
  child_result result;
  child_run(&result, close_and_touch, QUIET_DEVICES);
  assert_int_equal(result.wait_status, 0);
  assert_string_equal(result.errors, "went on\n");
}

static void close_and_refuse(void) {
  closed_pages = NULL;
  volatile char *address = volatile_base(1);
  openreg_fault_set_resolver(open_pages);
  announce(address);
  (void)*address;
}

static void unresolved_faults_are_reported_as_before(void **state) {
  (void)state;
  child_result result;
  child_run(&result, close_and_refuse, QUIET_DEVICES);
  expect_message(&result, "the host accessed address", "of device 1" NO_HOST_ACCESS);
  assert_true(WIFSIGNALED(result.wait_status));
}

/* ---- read or write --------------------------------------------------------------------------- */

#ifdef __aarch64__
enum { SYNDROME_CLASSES = 26 };

/* Adds a record to those of a signal's context. */
static size_t add_record(ucontext_t *context, size_t offset, uint32_t magic, uint32_t bytes,
                         uint64_t content) {
  unsigned char *record = context->uc_mcontext.__reserved + offset;
  struct _aarch64_ctx head = {.magic = magic, .size = bytes};
  memcpy(record, &head, sizeof head);
  memcpy(record + sizeof head, &content, sizeof content);
  return offset + bytes;
}

static openreg_fault_access access_of_syndrome(uint64_t syndrome) {
  static ucontext_t context;
  memset(&context, 0, sizeof context);
  size_t end = add_record(&context, 0, FPSIMD_MAGIC, sizeof(struct fpsimd_context), 0);
  add_record(&context, end, ESR_MAGIC, sizeof(struct esr_context), syndrome);
  return openreg_fault_access_of(&context);
}

static void the_syndrome_tells_reads_from_writes(void **state) {
  (void)state;
  const uint64_t data_abort = UINT64_C(0x24) << SYNDROME_CLASSES, write = 1 << 6, cache = 1 << 8;
  const uint64_t instruction_abort = UINT64_C(0x20) << SYNDROME_CLASSES;
  assert_int_equal(access_of_syndrome(data_abort | 0xF), OPENREG_FAULT_READ);
  assert_int_equal(access_of_syndrome(data_abort | write | 0xF), OPENREG_FAULT_WRITE);
  assert_int_equal(access_of_syndrome(data_abort | write | cache | 0xF), OPENREG_FAULT_READ);
  assert_int_equal(access_of_syndrome(instruction_abort | write | 0xF), OPENREG_FAULT_READ);
}

static void an_access_without_a_syndrome_is_unknown(void **state) {
  (void)state;
  static ucontext_t context;
  size_t room = sizeof context.uc_mcontext.__reserved;
  assert_int_equal(openreg_fault_access_of(&context), OPENREG_FAULT_UNKNOWN);
  add_record(&context, 0, FPSIMD_MAGIC, (uint32_t)room, 0);
  assert_int_equal(openreg_fault_access_of(&context), OPENREG_FAULT_UNKNOWN);
  add_record(&context, 0, FPSIMD_MAGIC, (uint32_t)room - 8, 0);
  assert_int_equal(openreg_fault_access_of(&context), OPENREG_FAULT_UNKNOWN);
  add_record(&context, 0, FPSIMD_MAGIC, UINT32_MAX, 0);
  assert_int_equal(openreg_fault_access_of(&context), OPENREG_FAULT_UNKNOWN);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reading_device_memory_is_reported_and_kills),
      cmocka_unit_test(writing_device_memory_is_reported_and_kills),
      cmocka_unit_test(accesses_beyond_the_end_are_reported),
      cmocka_unit_test(kernels_that_run_past_the_end_are_reported_too),
      cmocka_unit_test(other_faults_kill_without_a_message),
      cmocka_unit_test(a_previous_handler_is_called_each_time_and_may_jump_out),
      cmocka_unit_test(a_plain_previous_handler_is_called_after_the_message),
      cmocka_unit_test(faults_elsewhere_go_to_the_previous_handler_only),
      cmocka_unit_test(a_previous_handler_for_one_shot_is_called_once),
      cmocka_unit_test(a_fault_kills_even_when_the_signal_was_ignored),
      cmocka_unit_test(a_sent_signal_still_kills),
      cmocka_unit_test(a_sent_signal_that_is_ignored_stays_ignored),
      cmocka_unit_test(a_machine_without_memory_is_reported),
      cmocka_unit_test(a_forked_child_that_accesses_a_device_view_gets_a_message_about_the_fork),
      cmocka_unit_test(a_forked_child_cannot_reach_the_kernel_view),
      cmocka_unit_test(a_forked_child_cannot_access_memory_with_host_access_either),
      cmocka_unit_test(a_resolver_may_allow_the_access),
      cmocka_unit_test(unresolved_faults_are_reported_as_before),
#ifdef __aarch64__
      cmocka_unit_test(the_syndrome_tells_reads_from_writes),
      cmocka_unit_test(an_access_without_a_syndrome_is_unknown),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
