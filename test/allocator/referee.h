/* referee.h: a second account of two devices, too simple to be wrong: who owns each granule of an
 * arena, and which block each unit of it belongs to.
 *
 * The referee learns of what happens from the observer, and objects to whatever is not allowed
 * then: a block on memory that is not free or not of its pool, a free that comes before streams and
 * processes are done, memory given back that is in use or kept. What it adds up must be what the
 * statistics say, after each operation. Streams are busy, and other processes have memory, when the
 * referee says so: the linker puts its functions in front of the device layer's.
 */
#ifndef OPENREG_TEST_ALLOCATOR_REFEREE_H
#define OPENREG_TEST_ALLOCATOR_REFEREE_H

#include "support.h"

enum {
  ALL = OPENREG_POOL_ALL,
  SMALL = OPENREG_POOL_SMALL,
  LARGE = OPENREG_POOL_LARGE,
  GRANULE = 2 * MIB,
  GRANULES = CAPACITY / GRANULE,
  UNIT = 512,
  UNITS = CAPACITY / UNIT,
  MOST = 500, /* blocks, on both devices */
  POOLS = 5,  /* memory pools at a time */
  STREAMS = 3 /* that are allocated on, and recorded */
};

/* ---- what the referee knows ------------------------------------------------------------------ */

extern const int streams[STREAMS];

struct owner {
  uint64_t mempool;
  int stream, kind; /* 0: unreserved */
};

struct slot {
  openreg_block *block;                             /* while the program holds it */
  enum { NO_BLOCK, HELD, GIVEN_BACK, AWAITING } is; /* AWAITING: FREE_REQUESTED was told */
  int device, stream, kind;
  size_t unit, units, requested;
  uint64_t mempool;
  unsigned recorded;
  unsigned unseen;  /* recorded streams that were not idle since it was freed */
  unsigned waiting; /* that were not idle when the allocator had to look */
  int holders;      /* other processes */
  bool exported;
};

struct mempool {
  uint64_t number; /* 0: none */
  bool use_on_oom;
};

struct arena {
  char *base;
  struct owner owners[GRANULES];
  uint16_t blocks[UNITS]; /* slot + 1; 0: free */
  double fraction;
  unsigned busy;             /* a bit for each of `streams` */
  openreg_memory_stats sums; /* but for segments and splits, which are counted by scanning */
};

extern struct arena arenas[TEST_DEVICES];
extern struct slot slots[MOST];
extern struct mempool mempools[POOLS];
extern int slot_count, waiting_count;

/* The operation that is being done, which the test says before it does it. */
struct operation {
  int device, stream, latest; /* latest: the slot of the block that was handed out */
  size_t requested;
  uint64_t mempool, emptied; /* emptied: the only pool whose kept memory may be given back */
  bool reserved;
};
extern struct operation now;

bool is_kept(uint64_t mempool);
bool owns(const struct owner *owner, uint64_t mempool, int stream, int kind);

/* ---- what happens ---------------------------------------------------------------------------- */

/* The observer. */
void watch(const openreg_memory_event *event);

/* A stream, given by its bit, begins or ends work. */
void set_busy(int device, unsigned bit, bool busy);

/* What the allocator does now for blocks that wait for streams. */
void device_looks(int device);

/* ---- what must be so ------------------------------------------------------------------------- */

/* After each operation. */
void assert_no_objection(void);
void assert_stats_are_the_referees(int device);

/* After an operation that looked after blocks that wait: each of them waits for a reason; with
 * `shared_too` also those that other processes had. */
void assert_nothing_waits_in_vain(int device, bool shared_too);

/* After emptying: what is left free, of pools that do not keep it or of the `only` one, is less
 * than a granule in each place. */
void assert_is_empty(int device, uint64_t only);

/* After a request that failed: neither free memory nor what could be reserved would have served. */
void assert_refusal_is_right(void);

/* At any time; all of it takes long. */
void look_at_everything(void);

#endif
