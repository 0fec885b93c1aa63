/* programs.h: programs of several threads, and their errors by definition.
 *
 * A program is a list of steps. The test plays it to a sanitizer and to a model. The model keeps
 * for each step the set of all steps that happen before it, and for each access its bytes. Two
 * accesses conflict if they share a byte, one writes, at most one is a host thread's, and neither
 * is in the set of the other.
 */
#ifndef OPENREG_TEST_SANITIZER_PROGRAMS_H
#define OPENREG_TEST_SANITIZER_PROGRAMS_H

#include "random.h"

enum {
  MAX_STEPS = 256,
  MAX_ACTORS = 8,
  MAX_TOKENS = 4,
  MAX_BLOCKS = 6,
  MAX_ACCESSES = 3,
  MEMORY_BYTES = 512,
  MEMORY = 4096 /* its address */
};

typedef enum step_kind {
  CREATE,      /* thread, of parent `other`; -1: no parent */
  END,         /* thread */
  LAUNCH,      /* thread, submitted by `other` */
  ORDER,       /* from `other` to thread */
  RECORD,      /* token, thread, submitted by `other` */
  WAIT,        /* thread, token, submitted by `other` */
  SYNCHRONIZE, /* thread, with group `other` */
  ALLOCATE,    /* block: begin, bytes */
  FREE,        /* block */
  STEP_KINDS
} step_kind;

typedef struct step {
  step_kind kind;
  int thread, other, token, block;
  bool is_host;
  int64_t begin, bytes;
  int count;
  struct random_region regions[MAX_ACCESSES];
  unsigned modes[MAX_ACCESSES];
} step;

typedef struct program {
  int count;
  step steps[MAX_STEPS];
} program;

/* Makes a program that is as likely wrong as right. */
void make_any_program(uint64_t *random, program *made);

/* Makes a program in which each access is ordered after those that it conflicts with, by waits that
 * are all needed. */
void make_right_program(uint64_t *random, program *made);

/* Plays a program without one step (-1: with all) to a new sanitizer and to the model. Asserts that
 * the sanitizer found exactly the conflicts: each finding is a conflicting pair of the right kind,
 * and each access that conflicts with an earlier one was found. Returns the number of conflicts. */
int play_program(const program *played, int without);

#endif
