/* sanitizer.h: the public interface of the sanitizer layer.
 *
 * The sanitizer finds accesses to memory that no synchronization orders. The caller reports what a
 * program does: which work it submits to which queue, what waits for what, and which bytes each
 * piece of work reads and writes. The sanitizer judges the order of operations, never their timing.
 * So it finds the same errors in each run, whether or not a queue happened to be empty.
 *
 * Addresses are plain numbers. The sanitizer accesses no memory but its own, and knows nothing
 * about devices, so any simulator can use it.
 *
 * No false reports: if the caller's reports are correct, each finding is a real error. Where the
 * sanitizer would need too much work or memory, it forgets accesses, stays silent, and counts that
 * (openreg_sanitizer_counts).
 *
 * Order. A thread is anything that does one operation after the other: a stream, a host thread, or
 * another queue. Operation A happens before operation B if a chain of these rules leads from A to
 * B:
 *   - one thread's operations happen in the order in which they are reported;
 *   - openreg_sanitizer_order: everything that one thread did so far happens before everything that
 *     another thread does from now on;
 *   - openreg_sanitizer_record and _wait: everything up to a record happens before everything after
 *     a wait for that record;
 *   - submission: what the submitter did so far happens before the submitted work.
 * Report operations in the order in which the program performs them, and work when it is submitted.
 *
 * Conflict. Two accesses conflict if neither happens before the other, they share a byte, and at
 * least one of them writes. OPENREG_SANITIZER_PARTIAL says what holds for accesses whose bytes are
 * not known exactly. Accesses of two host threads never conflict: the sanitizer does not see locks.
 *
 * Caller data. A `call_site` says where in the program an operation was performed. A `tag`
 * describes a thread, a block, an access or a token. Both are 64-bit values that the sanitizer only
 * returns in findings. It interprets neither, except that findings of one kind with the same call
 * sites count as one finding.
 *
 * Threads. Any host thread may call any function at any time. Calls on one sanitizer share a lock,
 * which is held for about as long as it takes to compare a launch's accesses. The callback runs
 * without the lock, on the host thread that reported the second access. A child of fork must not
 * use its parent's sanitizer.
 *
 * Functions return a status as described in base.h. A function that fails changes nothing, unless
 * its comment says otherwise.
 */
#ifndef OPENREG_SANITIZER_H
#define OPENREG_SANITIZER_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct openreg_sanitizer openreg_sanitizer;

/* ---- regions --------------------------------------------------------------------------------- */

enum { OPENREG_SANITIZER_MAX_DIMS = 64 };

/* A strided region: the bytes of all elements of a tensor. Strides are in bytes, and may be zero or
 * negative. A region with a size of zero is empty. A region without dimensions is one element. */
typedef struct openreg_sanitizer_region {
  uint64_t address; /* of the element whose indices are all zero */
  uint64_t element_bytes;
  int dims;                       /* 0 to OPENREG_SANITIZER_MAX_DIMS */
  const int64_t *sizes, *strides; /* `dims` values each; only read during a call */
} openreg_sanitizer_region;

/* The bytes from `begin` up to, not including, `end`. */
typedef struct openreg_sanitizer_run {
  uint64_t begin, end;
} openreg_sanitizer_run;

typedef enum openreg_sanitizer_answer {
  OPENREG_SANITIZER_NO,
  OPENREG_SANITIZER_YES,
  OPENREG_SANITIZER_UNKNOWN, /* the work limit was reached, or the region is invalid */
} openreg_sanitizer_answer;

/* Returns whether two regions share a byte. If they do, `*common` (may be NULL) receives a range of
 * shared bytes. It is the first one, unless the elements of both regions are interleaved across
 * steps of an outer dimension. It is empty (begin equals end) if the search exceeds the work limit.
 */
openreg_sanitizer_answer openreg_sanitizer_overlap(const openreg_sanitizer_region *a,
                                                   const openreg_sanitizer_region *b,
                                                   openreg_sanitizer_run *common);

/* Returns whether region `a` contains each byte of region `b`. */
openreg_sanitizer_answer openreg_sanitizer_covers(const openreg_sanitizer_region *a,
                                                  const openreg_sanitizer_region *b);

/* Lists the bytes of a region as ascending runs that do not touch. Writes the first `capacity` runs
 * to `runs`. Returns the number of all runs, or SIZE_MAX if the work limit was reached or the
 * region is invalid. */
size_t openreg_sanitizer_runs(const openreg_sanitizer_region *region, openreg_sanitizer_run runs[],
                              size_t capacity);

/* ---- findings -------------------------------------------------------------------------------- */

/* X(name, text): the kinds of findings in the order of their numeric values. The sanitizer itself
 * never finds the last two. They are for openreg_sanitizer_report. */
#define OPENREG_SANITIZER_KIND_LIST(X)                                                             \
  X(RACE, "race")                     /* two accesses conflict */                                  \
  X(USE_AFTER_FREE, "use after free") /* a conflict; the first access was to an earlier block */   \
  X(HOST_ACCESS, "host access")       /* a conflict with an access of a host thread */             \
  X(UNINITIALISED_READ, "uninitialised read") /* reads bytes that were never written */            \
  X(UNORDERED_EVENT, "unordered event")       /* a conflict; the wait was for another record */    \
  X(NEVER_WAITED, "never waited") /* a conflict; the first access is of deferred work */           \
  X(OUT_OF_BOUNDS, "out of bounds")                                                                \
  X(LEAK, "leak")

typedef enum openreg_sanitizer_kind {
#define X(name, text) OPENREG_SANITIZER_##name,
  OPENREG_SANITIZER_KIND_LIST(X)
#undef X
      OPENREG_SANITIZER_KIND_COUNT
} openreg_sanitizer_kind;

/* Returns the text of a kind, such as "use after free". The string has static storage. */
const char *openreg_sanitizer_kind_name(openreg_sanitizer_kind kind);

typedef enum openreg_sanitizer_thread_kind {
  OPENREG_SANITIZER_STREAM, /* a stream or another queue */
  OPENREG_SANITIZER_HOST,   /* a host thread */
} openreg_sanitizer_thread_kind;

/* A block of memory, as the caller described it. */
typedef struct openreg_sanitizer_block {
  uint64_t address, bytes;
  uint64_t call_site, tag;
  uint64_t owner;           /* tag of the thread it was allocated for; 0: none */
  uint64_t generation;      /* counts all blocks, from 1; 0: there is no block */
  uint64_t freed_call_site; /* if it was freed */
  bool is_freed;
} openreg_sanitizer_block;

/* One of the two accesses of a finding. */
typedef struct openreg_sanitizer_side {
  uint64_t call_site, tag;
  uint64_t thread; /* tag of the thread */
  openreg_sanitizer_thread_kind thread_kind;
  unsigned mode; /* bits of openreg_sanitizer_mode; 0: there is no such access */
  /* Bounds of the region, or of the rest that later accesses did not replace. The sanitizer merges
   * adjacent accesses of one call site. Then these are the bounds of all of them, and `tag` is the
   * last one's. */
  uint64_t begin, end;
  openreg_sanitizer_block block;
} openreg_sanitizer_side;

/* A conflict means that nothing orders `first.thread`, after `first.call_site`, before
 * `second.thread`, before `second.call_site`. For an uninitialized read, `second` is the read, and
 * only the block of `first` is set. */
typedef struct openreg_sanitizer_finding {
  openreg_sanitizer_kind kind;
  openreg_sanitizer_side first, second; /* in the order in which they were reported */
  openreg_sanitizer_run bytes;          /* the first affected bytes */
  uint64_t count;                       /* number of occurrences */
  /* Only for an unordered event. `token` is the token's tag. A wait for the record at
   * `recorded_call_site` would have ordered both accesses. The wait at `waited_call_site` was for
   * another record: `waited_early` if the right record came after the wait; otherwise the token had
   * been recorded again in between. */
  uint64_t token, recorded_call_site, waited_call_site;
  bool waited_early;
} openreg_sanitizer_finding;

/* Called once for each new finding, not for further occurrences. */
typedef void (*openreg_sanitizer_callback)(const openreg_sanitizer_finding *finding, void *context);

/* ---- the sanitizer --------------------------------------------------------------------------- */

#define OPENREG_SANITIZER_KIND_BIT(kind) (1u << (kind))
#define OPENREG_SANITIZER_ALL_KINDS      (OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_KIND_COUNT) - 1)

/* Zero means the default for each option. */
typedef struct openreg_sanitizer_options {
  unsigned kinds; /* bits of the kinds to report; 0: all */
  openreg_sanitizer_callback callback;
  void *context;
  /* If true, an access to freed memory that was not allocated again is reported as use after free.
   * If false, such an access is ignored. That is right for programs that keep using memory after
   * reporting it as freed. */
  bool report_freed;
  uint32_t max_records;   /* remembered accesses per block: 128; at least 2 */
  uint32_t max_intervals; /* runs of unwritten bytes per block: 16384 */
  uint32_t max_freed;     /* remembered freed blocks: 65536 */
  uint32_t max_findings;  /* 10000 */
  uint64_t max_bytes;     /* of host memory, approximately; default: no limit. Above it, the
                             sanitizer remembers less. */
} openreg_sanitizer_options;

/* Creates a sanitizer. `options` may be NULL. The caller destroys the sanitizer.
 * Errors: OUT_OF_MEMORY. */
openreg_status openreg_sanitizer_create(const openreg_sanitizer_options *options,
                                        openreg_sanitizer **sanitizer);

/* Frees a sanitizer, its threads and its tokens. No other call on it may be running. NULL is
 * allowed. */
void openreg_sanitizer_destroy(openreg_sanitizer *sanitizer);

/* Sets the kinds to report from now on. The sanitizer only tracks unwritten bytes of blocks that
 * were allocated while uninitialized reads were reported. */
void openreg_sanitizer_set_kinds(openreg_sanitizer *sanitizer, unsigned kinds);

/* Returns the number of findings. */
size_t openreg_sanitizer_finding_count(openreg_sanitizer *sanitizer);

/* Copies the finding at `index`, in the order in which they were found. Returns false if `index` is
 * too large. */
bool openreg_sanitizer_finding_get(openreg_sanitizer *sanitizer, size_t index,
                                   openreg_sanitizer_finding *finding);

/* Forgets all findings. If they occur again, they are new findings. */
void openreg_sanitizer_findings_clear(openreg_sanitizer *sanitizer);

/* Adds a finding of the caller's own, if its kind is reported. A finding with the same kind and
 * call sites is added only once. The sanitizer sets `count`. */
void openreg_sanitizer_report(openreg_sanitizer *sanitizer,
                              const openreg_sanitizer_finding *finding);

/* Statistics. The counters up to `lost_findings` cover the sanitizer's whole life. */
typedef struct openreg_sanitizer_counters {
  uint64_t accesses;          /* count of reported accesses */
  uint64_t comparisons;       /* count of compared pairs without order */
  uint64_t unknown;           /* count of comparisons that exceeded the work limit */
  uint64_t forgotten_records; /* count of accesses that were forgotten */
  uint64_t forgotten_blocks;  /* count of freed blocks that were forgotten */
  uint64_t
      forgotten_bytes;    /* sum of bytes that were marked as written to limit the number of runs */
  uint64_t lost_findings; /* count of occurrences that found no room */
  uint32_t threads, slots;               /* live threads; entries of a vector clock */
  uint64_t tokens, blocks, freed_blocks; /* numbers of existing ones */
  uint64_t shadow_bytes;                 /* host memory of the sanitizer, approximately */
} openreg_sanitizer_counters;

void openreg_sanitizer_counts(openreg_sanitizer *sanitizer, openreg_sanitizer_counters *counters);
uint64_t openreg_sanitizer_shadow_bytes(openreg_sanitizer *sanitizer);

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct openreg_sanitizer_thread openreg_sanitizer_thread;
typedef struct openreg_sanitizer_token openreg_sanitizer_token;

/* Creates a thread. What `parent` did so far happens before everything that the new thread does.
 * With `parent` NULL, the new thread starts after everything that happens before all live threads:
 * use it for a thread whose creator is unknown. `group` is the device for
 * openreg_sanitizer_synchronize; negative: none. Errors: OUT_OF_MEMORY. */
openreg_status openreg_sanitizer_thread_create(openreg_sanitizer *sanitizer,
                                               openreg_sanitizer_thread_kind kind, int group,
                                               uint64_t tag, openreg_sanitizer_thread *parent,
                                               openreg_sanitizer_thread **thread);

/* Ends a thread and invalidates its handle. The sanitizer keeps the thread's accesses. */
void openreg_sanitizer_thread_end(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *thread);

/* Reports that everything `from` did so far happens before everything `to` does from now on. Use it
 * for a submission, a synchronization with a stream, or the GIL's change from one thread to
 * another.
 */
void openreg_sanitizer_order(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *from,
                             openreg_sanitizer_thread *to);

/* Reports that everything the threads of a group did so far, including threads that have ended,
 * happens before everything `thread` does from now on. */
void openreg_sanitizer_synchronize(openreg_sanitizer *sanitizer, int group,
                                   openreg_sanitizer_thread *thread);

/* Returns whether everything `from` did so far happens before everything `to` does from now on. */
bool openreg_sanitizer_is_ordered(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *from,
                                  openreg_sanitizer_thread *to);

/* Creates a token: a point in a thread's operations, such as an event or a piece of work. A new
 * token was not recorded yet. Tokens are reference counted: the caller owns one reference, and the
 * last release frees the token. Errors: OUT_OF_MEMORY. */
openreg_status openreg_sanitizer_token_create(openreg_sanitizer *sanitizer, uint64_t tag,
                                              openreg_sanitizer_token **token);
void openreg_sanitizer_token_retain(openreg_sanitizer *sanitizer, openreg_sanitizer_token *token);
void openreg_sanitizer_token_release(openreg_sanitizer *sanitizer, openreg_sanitizer_token *token);

/* Records the current point of `thread` in a token, and replaces an earlier record. `submitter`
 * submits the record to `thread`; NULL: none. Errors: OUT_OF_MEMORY. After that error, a wait for
 * the token orders the waiting thread after everything. */
openreg_status openreg_sanitizer_record(openreg_sanitizer *sanitizer,
                                        openreg_sanitizer_token *token,
                                        openreg_sanitizer_thread *thread,
                                        openreg_sanitizer_thread *submitter, uint64_t call_site);

/* Reports that what happened before the token's record happens before everything `thread` does from
 * now on. `submitter` submits the wait to `thread`; NULL: none. A token that was never recorded
 * orders nothing. */
void openreg_sanitizer_wait(openreg_sanitizer *sanitizer, openreg_sanitizer_thread *thread,
                            openreg_sanitizer_token *token, openreg_sanitizer_thread *submitter,
                            uint64_t call_site);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Reports an allocation. The sanitizer reads address, bytes, call_site, tag and owner of `block`.
 * If `is_initialised` is false, all bytes of the block are unwritten. Blocks may reuse addresses in
 * any sizes; the sanitizer remembers the accesses to earlier blocks. A block that overlaps live
 * blocks frees them. A block of zero bytes is ignored. Errors: INVALID_ARGUMENT (the block ends
 * beyond the last address); OUT_OF_MEMORY (accesses to the block are ignored). */
openreg_status openreg_sanitizer_alloc(openreg_sanitizer *sanitizer,
                                       const openreg_sanitizer_block *block, bool is_initialised);

/* Reports that the block at `address` is freed. Does nothing if no block begins there. A free is no
 * access. The sanitizer checks that the accesses to the next block here are ordered after those to
 * this one. An allocator that waits for the users of a block only has to report that order. */
void openreg_sanitizer_free(openreg_sanitizer *sanitizer, uint64_t address, uint64_t call_site);

/* Forgets all accesses to freed blocks in a range of addresses, as if they happened before
 * everything from now on. Use it when memory was returned to the system. */
void openreg_sanitizer_forget(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes);

/* Marks a range of addresses in live blocks as written. Use it for data that came from elsewhere.
 */
void openreg_sanitizer_initialise(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes);

/* Finds the live block that contains an address. Returns false if there is none. */
bool openreg_sanitizer_block_at(openreg_sanitizer *sanitizer, uint64_t address,
                                openreg_sanitizer_block *block);

/* Copies the first `capacity` live blocks, by address. Returns the number of all live blocks. */
size_t openreg_sanitizer_blocks(openreg_sanitizer *sanitizer, openreg_sanitizer_block blocks[],
                                size_t capacity);

/* ---- accesses -------------------------------------------------------------------------------- */

/* Properties of an access, as bits. */
typedef enum openreg_sanitizer_mode {
  OPENREG_SANITIZER_READ = 1,
  OPENREG_SANITIZER_WRITE = 2,
  /* With READ: the bytes are only copied. Copying unwritten bytes is no error. */
  OPENREG_SANITIZER_MOVED = 4,
  /* Work whose end must be waited for through a handle, such as an asynchronous collective. A
   * conflict with it is "never waited". */
  OPENREG_SANITIZER_DEFERRED = 8,
  /* The access uses only some bytes of the region, and it is not known which, as with an index.
   *   - Two PARTIAL accesses do not conflict.
   *   - A PARTIAL WRITE conflicts with accesses that contain its whole region. The sanitizer misses
   *     that if a later access replaced a part of the earlier one. The whole region counts as
   *     written.
   *   - A PARTIAL READ without WRITE counts as an access to the whole region.
   *   - A PARTIAL READ without MOVED is an uninitialized read only if the whole region is
   * unwritten. So report such an access only if it reads at least one byte. */
  OPENREG_SANITIZER_PARTIAL = 16,
} openreg_sanitizer_mode;

typedef struct openreg_sanitizer_access {
  openreg_sanitizer_region region;
  uint64_t tag;
  unsigned mode; /* READ, WRITE or both, with further bits */
  /* For a WRITE: if `is_moved`, it writes a copy of the bytes of the launch's access number
   * `source`, element by element. Both regions have the same sizes. Bytes stay unwritten where the
   * source is unwritten. If the element sizes differ, elements are converted, and an element is
   * unwritten if one byte of the source element is. */
  bool is_moved;
  uint32_t source;
} openreg_sanitizer_access;

/* The accesses that a thread performs as one operation. They are not ordered among each other, and
 * bytes count as unwritten if they were so before the launch. A region should lie in one block. The
 * sanitizer ignores bytes outside of the block in which the region begins, and regions that begin
 * in no block. */
typedef struct openreg_sanitizer_launch {
  openreg_sanitizer_thread *thread, *submitter; /* submitter may be NULL */
  uint64_t call_site;
  const openreg_sanitizer_access *accesses;
  size_t count;
} openreg_sanitizer_launch;

/* Reports a launch, and compares it with all earlier accesses. Calls the callback for new findings
 * before it returns. Errors: INVALID_ARGUMENT (the sanitizer ignores the launch, because an access
 * has too many dimensions, a negative size, an address beyond 2^63, neither READ nor WRITE, or an
 * invalid source); OUT_OF_MEMORY (the sanitizer forgets what it could not store). */
openreg_status openreg_sanitizer_check_launch(openreg_sanitizer *sanitizer,
                                              const openreg_sanitizer_launch *launch);

/* Returns whether an access would conflict with an earlier one, whatever kinds are reported.
 * Changes nothing. Returns false for an invalid region. */
bool openreg_sanitizer_would_conflict(openreg_sanitizer *sanitizer,
                                      openreg_sanitizer_thread *thread,
                                      const openreg_sanitizer_region *region, unsigned mode);

#ifdef __cplusplus
}
#endif
#endif
