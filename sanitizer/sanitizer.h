/* sanitizer.h: the whole contract of the sanitizer layer.
 *
 * Names the accesses to memory that no order separates. It is told what a program does: which work
 * is submitted to which queue, what waits for what, which bytes each piece of work reads and
 * writes. It judges order, never time, so it finds the same in each run, whether or not the queues
 * happened to be empty. Addresses are numbers to it: it reads no memory but its own, and knows
 * nothing of devices, so that any simulator can use it.
 *
 * Never wrong. What it reports is so, given that what it was told is so. Where it would need more
 * work or more memory than it allows itself, it forgets, stays silent, and counts that
 * (openreg_sanitizer_counts).
 *
 * Order. Who does something is an actor: a stream, a host thread, another queue. An actor does one
 * thing after the other. One thing comes before another if a chain of these leads from it:
 *   - what one actor does, in the order in which it is told here;
 *   - openreg_sanitizer_order: all that one did until now is before all that another does from now;
 *   - openreg_sanitizer_record and _wait: what was done until a record is before what is done
 *     after a wait for it;
 *   - submission: what the submitter did is before the work.
 * So a program tells what it does in the order in which it does it, work when it is submitted.
 *
 * Conflict. Two accesses of which neither is before the other, to the same byte, one of them a
 * write; of bytes that are not known: see OPENREG_SANITIZER_PARTLY. Of two host threads it is never
 * reported: their locks are not seen.
 *
 * Numbers of the caller's: a `site` says where in the program something was done, a `tag` says more
 * of an actor, a block, a region or a token. They are 64 bits that come back in findings and mean
 * nothing here, but that findings with the same sites are one.
 *
 * Threads. Any thread may call anything, at any time, for one sanitizer; a lock is held for about
 * as long as a launch's accesses are compared. Callbacks run without it, on the thread that told of
 * the second access. A child of fork must not use its parent's.
 *
 * Functions return a status as base.h says. When one fails, nothing has changed but as said there.
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

/* The bytes of a strided box: of each element, those from its address on. Strides are in bytes, and
 * may be zero or negative; a size of zero makes it empty; without dimensions it is one element. */
typedef struct openreg_sanitizer_region {
  uint64_t address; /* of the element whose indices are all zero */
  uint64_t element_bytes;
  int dims;                       /* 0 to OPENREG_SANITIZER_MAX_DIMS */
  const int64_t *sizes, *strides; /* `dims` of each; only read during a call */
} openreg_sanitizer_region;

/* Bytes from `begin` to before `end`. */
typedef struct openreg_sanitizer_run {
  uint64_t begin, end;
} openreg_sanitizer_run;

typedef enum openreg_sanitizer_answer {
  OPENREG_SANITIZER_NO,
  OPENREG_SANITIZER_YES,
  OPENREG_SANITIZER_UNKNOWN, /* would take more work than is allowed, or is no region */
} openreg_sanitizer_answer;

/* Whether two regions have a byte in common. Then `*common` (NULL is allowed) are common bytes that
 * follow each other: the first ones, unless each region has elements between those of one index of
 * an outer dimension and the next; none (begin and end are equal) where to find them would take
 * more work than is allowed. */
openreg_sanitizer_answer openreg_sanitizer_overlap(const openreg_sanitizer_region *a,
                                                   const openreg_sanitizer_region *b,
                                                   openreg_sanitizer_run *common);

/* Whether each byte of `b` is one of `a`. */
openreg_sanitizer_answer openreg_sanitizer_covers(const openreg_sanitizer_region *a,
                                                  const openreg_sanitizer_region *b);

/* The bytes of a region, as ascending runs that do not touch. Writes the first `capacity` of them,
 * and returns how many there are; SIZE_MAX if that would take more work than is allowed. */
size_t openreg_sanitizer_runs(const openreg_sanitizer_region *region, openreg_sanitizer_run runs[],
                              size_t capacity);

/* ---- findings -------------------------------------------------------------------------------- */

/* X(name, what a sentence calls it): the order is the numeric value. The last two are never found
 * here: they are for openreg_sanitizer_report. */
#define OPENREG_SANITIZER_KIND_LIST(X)                                                             \
  X(RACE, "race")                     /* two accesses that conflict */                             \
  X(USE_AFTER_FREE, "use after free") /* they conflict, and the first was to an earlier block */   \
  X(HOST_ACCESS, "host access")       /* they conflict, and one is a host thread's */              \
  X(UNINITIALISED_READ, "uninitialised read") /* of bytes that nothing was written to */           \
  X(UNORDERED_EVENT, "unordered event") /* they conflict: another recording was waited for */      \
  X(NEVER_WAITED, "never waited")       /* they conflict, and the first is of deferred work */     \
  X(OUT_OF_BOUNDS, "out of bounds")                                                                \
  X(LEAK, "leak")

typedef enum openreg_sanitizer_kind {
#define X(name, text) OPENREG_SANITIZER_##name,
  OPENREG_SANITIZER_KIND_LIST(X)
#undef X
      OPENREG_SANITIZER_KIND_COUNT
} openreg_sanitizer_kind;

/* "use after free"; static storage. */
const char *openreg_sanitizer_kind_name(openreg_sanitizer_kind kind);

typedef enum openreg_sanitizer_actor_kind {
  OPENREG_SANITIZER_STREAM, /* or any other queue */
  OPENREG_SANITIZER_HOST,   /* a host thread */
} openreg_sanitizer_actor_kind;

/* A block of memory, as the caller described it. */
typedef struct openreg_sanitizer_block {
  uint64_t address, bytes;
  uint64_t site, tag;
  uint64_t owner;      /* tag of the actor it was allocated for; 0: none */
  uint64_t generation; /* of all blocks the so-many-th, from 1 on; 0: there is no block */
  uint64_t freed_site; /* of one that is freed */
  bool is_freed;
} openreg_sanitizer_block;

/* One side of a finding. */
typedef struct openreg_sanitizer_side {
  uint64_t site, tag;
  uint64_t actor; /* its tag */
  openreg_sanitizer_actor_kind actor_kind;
  unsigned mode; /* openreg_sanitizer_mode; 0: there was no such access */
  /* Bounds of the region, or of what later accesses left of it. Where accesses of one site that
   * follow each other in memory have become one, those of all, and the tag is the last one's. */
  uint64_t begin, end;
  openreg_sanitizer_block block;
} openreg_sanitizer_side;

/* What is missing between two accesses that conflict is an order from `first.actor`, after
 * `first.site`, to `second.actor`, before `second.site`. Of an uninitialised read, `second` is the
 * read, and `first` has only the block. */
typedef struct openreg_sanitizer_finding {
  openreg_sanitizer_kind kind;
  openreg_sanitizer_side first, second; /* in the order in which they were told */
  openreg_sanitizer_run bytes;          /* the first that are concerned */
  uint64_t count;                       /* how often it was found */
  /* Of an unordered event: the token's tag; where it was recorded such that a wait would have been
   * enough; where it was waited for, of that recording too early or too late: `waited_early` if
   * that recording came after the wait, else the token had been recorded again in between. */
  uint64_t token, recorded_site, waited_site;
  bool waited_early;
} openreg_sanitizer_finding;

/* Is called when something is found that was not found before. */
typedef void (*openreg_sanitizer_callback)(const openreg_sanitizer_finding *finding, void *context);

/* ---- the sanitizer --------------------------------------------------------------------------- */

#define OPENREG_SANITIZER_KIND_BIT(kind) (1u << (kind))
#define OPENREG_SANITIZER_ALL_KINDS      (OPENREG_SANITIZER_KIND_BIT(OPENREG_SANITIZER_KIND_COUNT) - 1)

/* Zero means the default. */
typedef struct openreg_sanitizer_options {
  unsigned kinds; /* those that are reported, as bits; 0: all */
  openreg_sanitizer_callback callback;
  void *context;
  /* Memory that is freed may not be accessed until it is allocated again: reported as use after
   * free, with the access and the block. Without it such an access is not looked at, which is right
   * for programs that go on to use memory of which they said that it was freed. */
  bool report_freed;
  uint32_t most_records;   /* accesses remembered of a block: 128; at least 2 */
  uint32_t most_intervals; /* of unwritten bytes of a block: 16384 */
  uint32_t most_freed;     /* freed blocks remembered: 65536 */
  uint32_t most_findings;  /* 10000 */
  uint64_t most_bytes;     /* of host memory, about: no limit. Above it less is remembered. */
} openreg_sanitizer_options;

/* `options` may be NULL. Errors: OUT_OF_MEMORY. */
openreg_status openreg_sanitizer_create(const openreg_sanitizer_options *options,
                                        openreg_sanitizer **sanitizer);

/* Frees it with its actors and tokens. No call on it may be running. NULL is allowed. */
void openreg_sanitizer_destroy(openreg_sanitizer *sanitizer);

/* Chooses which kinds are reported from now on. What is unwritten is only known of blocks that were
 * allocated while uninitialised reads were reported. */
void openreg_sanitizer_set_kinds(openreg_sanitizer *sanitizer, unsigned kinds);

/* How many findings there are, and a copy of one, in the order in which they were found: false if
 * there are not so many. */
size_t openreg_sanitizer_finding_count(openreg_sanitizer *sanitizer);
bool openreg_sanitizer_finding_get(openreg_sanitizer *sanitizer, size_t index,
                                   openreg_sanitizer_finding *finding);

/* Forgets all findings: they will be found anew. */
void openreg_sanitizer_findings_clear(openreg_sanitizer *sanitizer);

/* Adds what the caller itself found, if its kind is reported: once for its kind and sites; `count`
 * is set here. */
void openreg_sanitizer_report(openreg_sanitizer *sanitizer,
                              const openreg_sanitizer_finding *finding);

/* What the sanitizer did and what it did not do. Counts are of its whole life. */
typedef struct openreg_sanitizer_counters {
  uint64_t accesses;          /* count of those told */
  uint64_t comparisons;       /* count of pairs that no order separates */
  uint64_t unknown;           /* count of those that would have taken too much work */
  uint64_t forgotten_records; /* count of accesses that had to be forgotten */
  uint64_t forgotten_blocks;  /* count of freed blocks that had to be */
  uint64_t forgotten_bytes; /* sum of bytes taken for written because their set had too many runs */
  uint64_t lost_findings;   /* count of occurrences for which there was no room */
  uint32_t actors, slots;   /* number of live ones; entries of a clock */
  uint64_t tokens, blocks, freed_blocks; /* numbers of those that there are */
  uint64_t shadow_bytes;                 /* size of host memory that all takes, about */
} openreg_sanitizer_counters;

void openreg_sanitizer_counts(openreg_sanitizer *sanitizer, openreg_sanitizer_counters *counters);
uint64_t openreg_sanitizer_shadow_bytes(openreg_sanitizer *sanitizer);

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct openreg_sanitizer_actor openreg_sanitizer_actor;
typedef struct openreg_sanitizer_token openreg_sanitizer_token;

/* A new actor; what `parent` did until now is before all that it does. Without parent (NULL),
 * before it is what is before all live actors, as of a thread of which nobody knows who started it.
 * `group` is what openreg_sanitizer_synchronize names: a device; negative: none.
 * Errors: OUT_OF_MEMORY. */
openreg_status openreg_sanitizer_actor_create(openreg_sanitizer *sanitizer,
                                              openreg_sanitizer_actor_kind kind, int group,
                                              uint64_t tag, openreg_sanitizer_actor *parent,
                                              openreg_sanitizer_actor **actor);

/* The actor does nothing any more, and its handle is no more. What it did stays and is judged. */
void openreg_sanitizer_actor_end(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor);

/* What `from` did until now is before what `to` does from now: a submission, a synchronisation with
 * a stream, the GIL's going from one thread to another. */
void openreg_sanitizer_order(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *from,
                             openreg_sanitizer_actor *to);

/* What all actors of a group did until now, also those that have ended, is before what `actor` does
 * from now. */
void openreg_sanitizer_synchronize(openreg_sanitizer *sanitizer, int group,
                                   openreg_sanitizer_actor *actor);

/* Whether all that `from` did until now is before what `to` does from now. */
bool openreg_sanitizer_is_ordered(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *from,
                                  openreg_sanitizer_actor *to);

/* A token stands for a point in what an actor did: an event, a piece of work. It has no point at
 * first. It is had by the caller once, and by whoever retains it; the last release frees it.
 * Errors: OUT_OF_MEMORY. */
openreg_status openreg_sanitizer_token_create(openreg_sanitizer *sanitizer, uint64_t tag,
                                              openreg_sanitizer_token **token);
void openreg_sanitizer_token_retain(openreg_sanitizer *sanitizer, openreg_sanitizer_token *token);
void openreg_sanitizer_token_release(openreg_sanitizer *sanitizer, openreg_sanitizer_token *token);

/* The token's point is now what `actor` has done, to which `submitter` (NULL: none) submits this;
 * an earlier point is forgotten. Errors: OUT_OF_MEMORY; a wait then orders everything. */
openreg_status openreg_sanitizer_record(openreg_sanitizer *sanitizer,
                                        openreg_sanitizer_token *token,
                                        openreg_sanitizer_actor *actor,
                                        openreg_sanitizer_actor *submitter, uint64_t site);

/* What is before the token's point is before what `actor` does from now, to which `submitter`
 * (NULL: none) submits this. A token without a point orders nothing. */
void openreg_sanitizer_wait(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor,
                            openreg_sanitizer_token *token, openreg_sanitizer_actor *submitter,
                            uint64_t site);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Tells of a block. Of `block` are read: address, bytes, site, tag, owner. Unless `is_initialised`,
 * its bytes are unwritten. Blocks of an address range may come and go, in any sizes; the accesses
 * to those that were there before are remembered. A block that is laid over live ones ends those.
 * One of no bytes is none. Errors: INVALID_ARGUMENT (a block that goes beyond the last address),
 * OUT_OF_MEMORY: then accesses to it are not looked at. */
openreg_status openreg_sanitizer_alloc(openreg_sanitizer *sanitizer,
                                       const openreg_sanitizer_block *block, bool is_initialised);

/* Tells that the block that begins at `address` is freed; nothing happens if there is none. That
 * is no access: what is judged is how those of the next block here are ordered with those to this
 * one. So memory that is given to others only when its users are done needs an order from these to
 * those, and nothing else. */
void openreg_sanitizer_free(openreg_sanitizer *sanitizer, uint64_t address, uint64_t site);

/* Forgets all accesses to freed blocks, or parts of them, in a range: what is left of these is
 * ordered with what is done there from now on, as after memory was given back to the system. */
void openreg_sanitizer_forget(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes);

/* The bytes of live blocks in a range are written, as by memory that came from elsewhere. */
void openreg_sanitizer_initialise(openreg_sanitizer *sanitizer, uint64_t address, uint64_t bytes);

/* The live block in which an address lies; false: none. */
bool openreg_sanitizer_block_at(openreg_sanitizer *sanitizer, uint64_t address,
                                openreg_sanitizer_block *block);

/* Copies of the first `capacity` live blocks, by address; returns how many there are. */
size_t openreg_sanitizer_blocks(openreg_sanitizer *sanitizer, openreg_sanitizer_block blocks[],
                                size_t capacity);

/* ---- accesses -------------------------------------------------------------------------------- */

/* What is done to a region, as bits. */
typedef enum openreg_sanitizer_mode {
  OPENREG_SANITIZER_READ = 1,
  OPENREG_SANITIZER_WRITE = 2,
  /* With READ: its bytes go elsewhere as they are, so that unwritten ones are no finding. */
  OPENREG_SANITIZER_MOVED = 4,
  /* Of work whose end must be waited for through a handle, as an asynchronous collective's: an
   * access that conflicts with it is "never waited". */
  OPENREG_SANITIZER_DEFERRED = 8,
  /* Which of its bytes is not known, as where an index says it. Two of these do not conflict. A
   * WRITE conflicts with what has all of its bytes, which is not found of an access of which some
   * were replaced later; it counts as a write to all. A READ alone counts as one of all, but
   * unwritten bytes are no finding. */
  OPENREG_SANITIZER_PARTLY = 16,
} openreg_sanitizer_mode;

typedef struct openreg_sanitizer_access {
  openreg_sanitizer_region region;
  uint64_t tag;
  unsigned mode; /* READ or WRITE, or both, and others */
  /* Of a WRITE: if `is_moved`, what is written are the bytes of the access with this index, of the
   * same sizes, element by element, and are unwritten where those were. Where elements are of
   * another size, they are converted: one is unwritten if a byte was. */
  bool is_moved;
  uint32_t source;
} openreg_sanitizer_access;

/* What an actor does in one go: its accesses are not ordered among each other, and what is
 * unwritten is what was before all of them. Each region should lie in one block; bytes outside of
 * the block in which it begins, and regions that begin in none, are not looked at. */
typedef struct openreg_sanitizer_launch {
  openreg_sanitizer_actor *actor, *submitter; /* NULL: no submitter */
  uint64_t site;
  const openreg_sanitizer_access *accesses;
  size_t count;
} openreg_sanitizer_launch;

/* Tells of it, and compares it with all that was told before. Calls back what was found, before it
 * returns. Errors: INVALID_ARGUMENT (an access that is none: more dimensions than allowed, a
 * negative size, addresses beyond 2^63, neither READ nor WRITE, a source that is none; nothing is
 * looked at then), OUT_OF_MEMORY (what could not be remembered is forgotten). */
openreg_status openreg_sanitizer_run_launch(openreg_sanitizer *sanitizer,
                                            const openreg_sanitizer_launch *launch);

/* Whether an access would conflict with what was told before, whatever kinds are reported. Changes
 * nothing. What is no access does not. */
bool openreg_sanitizer_would_conflict(openreg_sanitizer *sanitizer, openreg_sanitizer_actor *actor,
                                      const openreg_sanitizer_region *region, unsigned mode);

#ifdef __cplusplus
}
#endif
#endif
