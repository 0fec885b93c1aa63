/* fault.c: reports faults in device memory, or in a truncated shared file, with a message.
 *
 * The handler first asks the resolver (device/faults.h), which may allow the access. Otherwise it
 * writes which device and address were accessed and what to do instead. Then it does what would
 * have happened without it: it runs the previous handler, or lets the process die from the same
 * signal.
 *
 * The handler calls only async-signal-safe functions. It reads only data that does not change after
 * the handler was installed, except the process state (forked or not) and the resolver.
 */
#define _GNU_SOURCE
#include "device/memory/fault.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "device/memory/arena.h"

/* ---- text without stdio ---------------------------------------------------------------------- */

typedef struct text {
  char characters[512]; /* larger than the longest message below */
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

/* ---- messages -------------------------------------------------------------------------------- */

static struct {
  const char *start; /* NULL: none */
  size_t bytes;
  const char *path;
} shared_file;

void openreg_fault_watch_file(const void *address, size_t bytes, const char *path) {
  shared_file.start = address;
  shared_file.bytes = bytes;
  shared_file.path = path;
}

/* In a forked child the addresses may belong to something else. */
static bool is_in_shared_file(const void *address) {
  return shared_file.start != NULL && !openreg_in_bad_fork() &&
         (uintptr_t)address - (uintptr_t)shared_file.start < shared_file.bytes;
}

static void describe_short_file(text *out) {
  put(out, "openreg: another program truncated ");
  put(out, shared_file.path);
  put(out, ": processes that share devices through this file cannot continue; end them and remove "
           "the file\n");
}

static void describe(text *out, int signal_number, const void *address,
                     const openreg_arena_location *place) {
  put(out, "openreg: ");
  if (signal_number == SIGBUS) {
    put(out, "this machine has no memory left for ");
    put_device(out, place->device);
    put(out, " (no page for address ");
    put_address(out, address);
    put(out, "); use smaller tensors or fewer devices\n");
    return;
  }
  put(out,
      openreg_in_bad_fork() ? "a forked process accessed address " : "the host accessed address ");
  put_address(out, address);
  put(out, place->beyond_arena ? " beyond the end of " : " of ");
  put_device(out, place->device);
  if (place->imported)
    put(out, " that belongs to another process");
  if (openreg_in_bad_fork())
    put(out, "; a process that was forked after devices were initialized cannot use them: start it "
             "with the 'spawn' method\n");
  else if (place->beyond_arena)
    put(out, "\n");
  else
    put(out, "; host code cannot access device memory: copy it with .cpu(), or set "
             "OPENREG_HOST_ACCESS=1\n");
}

static void report(int signal_number, const void *address) {
  openreg_arena_location place;
  text out = {.length = 0};
  if (signal_number == SIGBUS && is_in_shared_file(address))
    describe_short_file(&out);
  else if (openreg_arena_locate(address, &place))
    describe(&out, signal_number, address, &place);
  else
    return;
  /* There is nowhere to report that writing the message failed. */
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
  /* The kernel uses positive codes: the faulting instruction runs again when the handler returns.
   * Other codes come from kill and similar calls and happen once. */
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

void openreg_fault_set_resolver(openreg_fault_resolver new_resolver) {
  atomic_store(&resolver, new_resolver);
}

#if defined(__x86_64__)
openreg_fault_access openreg_fault_access_of(const void *context) {
  enum { PAGE_FAULT_WRITES = 2 }; /* a bit of the processor's error code */
  const ucontext_t *interrupted = context;
  greg_t error = interrupted->uc_mcontext.gregs[REG_ERR];
  return error & PAGE_FAULT_WRITES ? OPENREG_FAULT_WRITE : OPENREG_FAULT_READ;
}
#elif defined(__aarch64__)
/* The kernel stores the exception syndrome (ESR_EL1, Arm Architecture Reference Manual) in one of
 * the records behind the registers. A record of size 0 ends the list. QEMU's user-mode emulation
 * has no such record. */
static bool find_syndrome(const ucontext_t *interrupted, uint64_t *syndrome) {
  const unsigned char *records = interrupted->uc_mcontext.__reserved;
  size_t offset = 0, bytes = sizeof interrupted->uc_mcontext.__reserved;
  struct _aarch64_ctx head;
  while (offset + sizeof(struct esr_context) <= bytes) {
    memcpy(&head, records + offset, sizeof head);
    if (head.magic == ESR_MAGIC) {
      memcpy(syndrome, records + offset + offsetof(struct esr_context, esr), sizeof *syndrome);
      return true;
    }
    if (head.size == 0 || head.size > bytes - offset)
      return false;
    offset += head.size;
  }
  return false;
}

openreg_fault_access openreg_fault_access_of(const void *context) {
  enum { CLASS_SHIFT = 26, CLASS_BITS = 0x3F, DATA_ABORT = 0x24 }; /* from user mode */
  enum { WRITES = 1 << 6, MAINTAINS_CACHES = 1 << 8 };
  uint64_t syndrome;
  if (!find_syndrome(context, &syndrome))
    return OPENREG_FAULT_UNKNOWN;
  /* Cache maintenance always has the write bit, and writes nothing. */
  bool is_write = (syndrome >> CLASS_SHIFT & CLASS_BITS) == DATA_ABORT && (syndrome & WRITES) &&
                  !(syndrome & MAINTAINS_CACHES);
  return is_write ? OPENREG_FAULT_WRITE : OPENREG_FAULT_READ;
}
#else
openreg_fault_access openreg_fault_access_of(const void *context) {
  (void)context;
  return OPENREG_FAULT_UNKNOWN;
}
#endif

static bool resolve(const siginfo_t *info, const void *context) {
  openreg_fault_resolver current = atomic_load(&resolver);
  return current && info->si_code == SEGV_ACCERR &&
         current(info->si_addr, openreg_fault_access_of(context));
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
  /* The previous handler runs with the signal mask that it asked for, and may still leave by
   * longjmp. */
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
