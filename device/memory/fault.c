/* fault.c: turns a fault in the memory of a device, or in a file that was made shorter, into a
 * sentence.
 *
 * Who is asked about faults (device/faults.h) comes first, and may have the access made after all.
 * Else the handler writes which device and address were touched and what to do instead, and then
 * lets happen what would have happened without it: the previous handler runs, or the process dies
 * by the same signal. It calls only what POSIX lets a signal handler call, and reads nothing that
 * changes after the handler was installed, but for the word that says whether this is a fork, and
 * who is asked.
 */
#define _GNU_SOURCE
#include "device/memory/fault.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>
#include <unistd.h>

#include "device/faults.h"
#include "device/memory/arena.h"

/* ---- text without stdio ---------------------------------------------------------------------- */

typedef struct text {
  char characters[512]; /* longer than the longest sentence below */
  size_t length;
} text;

static void put(text *out, const char *string) {
  for (; *string != '\0' && out->length < sizeof out->characters; string++)
    out->characters[out->length++] = *string;
}

static void put_number(text *out, uintptr_t number, unsigned base) {
  char digits[sizeof number * 8 + 1];
  size_t start = sizeof digits - 1;
  digits[start] = '\0';
  do {
    digits[--start] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number > 0);
  put(out, digits + start);
}

static void put_address(text *out, const void *address) {
  put(out, "0x");
  put_number(out, (uintptr_t)address, 16);
}

static void put_device(text *out, int device) {
  put(out, "device ");
  put_number(out, (uintptr_t)device, 10);
}

/* ---- the sentences --------------------------------------------------------------------------- */

static struct {
  const char *start; /* NULL: there is none */
  size_t bytes;
  const char *path;
} shared_file;

void openreg_fault_watch_file(const void *address, size_t bytes, const char *path) {
  shared_file.start = address;
  shared_file.bytes = bytes;
  shared_file.path = path;
}

/* The addresses stand for something else in a forked child. */
static bool is_in_shared_file(const void *address) {
  return shared_file.start != NULL && !openreg_in_bad_fork() &&
         (uintptr_t)address - (uintptr_t)shared_file.start < shared_file.bytes;
}

static void describe_short_file(text *out) {
  put(out, "openreg: another program made ");
  put(out, shared_file.path);
  put(out, " shorter: the processes that share devices by it cannot go on (end them, and remove "
           "the file)\n");
}

static void describe(text *out, int signal_number, const void *address,
                     const openreg_arena_place *place) {
  put(out, "openreg: ");
  if (signal_number == SIGBUS) {
    put(out, "this machine has no memory left for ");
    put_device(out, place->device);
    put(out, " (no page for address ");
    put_address(out, address);
    put(out, "; use smaller tensors, or fewer devices)\n");
    return;
  }
  put(out,
      openreg_in_bad_fork() ? "a forked process touched address " : "the host touched address ");
  put_address(out, address);
  put(out, place->beyond_arena ? " beyond the end of " : " of ");
  put_device(out, place->device);
  if (place->imported)
    put(out, " that belongs to another process");
  if (openreg_in_bad_fork())
    put(out, " (a process forked after devices were initialized has none; start it with the "
             "'spawn' method)\n");
  else if (place->beyond_arena)
    put(out, "\n");
  else
    put(out, " (memory of a device cannot be touched by the host; use .cpu() to copy it, or set "
             "OPENREG_HOST_ACCESS=1)\n");
}

static void report(int signal_number, const void *address) {
  openreg_arena_place place;
  text out = {.length = 0};
  if (signal_number == SIGBUS && is_in_shared_file(address))
    describe_short_file(&out);
  else if (openreg_arena_locate(address, &place))
    describe(&out, signal_number, address, &place);
  else
    return;
  /* A sentence that cannot be written has nowhere else to go. */
  if (write(STDERR_FILENO, out.characters, out.length) < 0)
    return;
}

/* ---- the handler ----------------------------------------------------------------------------- */

static struct sigaction previous_segv, previous_bus;

static void restore_default(int signal_number) {
  struct sigaction standard = {.sa_handler = SIG_DFL};
  sigaction(signal_number, &standard, NULL);
}

static void run_previous(int signal_number, siginfo_t *info, void *context) {
  const struct sigaction *previous = signal_number == SIGSEGV ? &previous_segv : &previous_bus;
  /* Positive codes are the kernel's: the instruction faults again as soon as this returns. Others
   * come from kill and its like, which happen once. */
  bool from_kernel = info->si_code > 0;
  if (previous->sa_flags & SA_RESETHAND)
    restore_default(signal_number);
  if (previous->sa_flags & SA_SIGINFO) {
    previous->sa_sigaction(signal_number, info, context);
  } else if (previous->sa_handler == SIG_IGN && !from_kernel) {
    return;
  } else if (previous->sa_handler == SIG_DFL || previous->sa_handler == SIG_IGN) {
    restore_default(signal_number);
    if (!from_kernel)
      raise(signal_number);
  } else {
    previous->sa_handler(signal_number);
  }
}

static _Atomic openreg_fault_resolver resolver;

void openreg_fault_resolve_with(openreg_fault_resolver asked) {
  atomic_store(&resolver, asked);
}

static openreg_fault_access access_of(const void *context) {
#ifdef __x86_64__
  enum { PAGE_FAULT_WRITES = 2 }; /* a bit of the processor's error code */
  const ucontext_t *interrupted = context;
  greg_t error = interrupted->uc_mcontext.gregs[REG_ERR];
  return error & PAGE_FAULT_WRITES ? OPENREG_FAULT_WRITE : OPENREG_FAULT_READ;
#else
  (void)context;
  return OPENREG_FAULT_UNKNOWN;
#endif
}

static bool resolve(const siginfo_t *info, const void *context) {
  openreg_fault_resolver asked = atomic_load(&resolver);
  return asked && info->si_code == SEGV_ACCERR && asked(info->si_addr, access_of(context));
}

static void handle(int signal_number, siginfo_t *info, void *context) {
  int saved_errno = errno;
  bool is_resolved = signal_number == SIGSEGV && resolve(info, context);
  if (!is_resolved && info->si_code > 0)
    report(signal_number, info->si_addr);
  errno = saved_errno;
  if (!is_resolved)
    run_previous(signal_number, info, context);
}

static void install(int signal_number, struct sigaction *previous) {
  int failed = sigaction(signal_number, NULL, previous);
  /* The previous handler finds the mask that it asked for, and may leave by longjmp if it could. */
  struct sigaction action = {.sa_sigaction = handle, .sa_mask = previous->sa_mask};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (previous->sa_flags & (SA_NODEFER | SA_RESTART));
  failed |= sigaction(signal_number, &action, NULL);
  assert(failed == 0);
  (void)failed;
}

void openreg_fault_install(void) {
  install(SIGSEGV, &previous_segv);
  install(SIGBUS, &previous_bus);
}
