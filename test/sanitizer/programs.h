/* programs.h: programs of several actors, and what is wrong with them by definition.
 *
 * A program is a list of steps. It is played to a sanitizer and to a model, which keeps for each
 * step the set of all steps before it, and for each access its bytes: two accesses conflict if they
 * have a byte in common, one writes, not both are hosts', and neither is in the set of the other.
 */
#ifndef OPENREG_TEST_SANITIZER_PROGRAMS_H
#define OPENREG_TEST_SANITIZER_PROGRAMS_H

#include "random.h"

enum {
  MOST_STEPS = 256,
  MOST_ACTORS = 8,
  MOST_TOKENS = 4,
  MOST_BLOCKS = 6,
  MOST_ACCESSES = 3,
  MEMORY_BYTES = 512,
  MEMORY = 4096 /* its address */
};

typedef enum step_kind {
  CREATE,      /* actor, of parent `other`, or without one (-1) */
  END,         /* actor */
  LAUNCH,      /* actor, submitted by `other` */
  ORDER,       /* from `other` to actor */
  RECORD,      /* token, actor, submitted by `other` */
  WAIT,        /* actor, token, submitted by `other` */
  SYNCHRONIZE, /* actor, with group `other` */
  ALLOCATE,    /* block: begin, bytes */
  FREE,        /* block */
  STEP_KINDS
} step_kind;

typedef struct step {
  step_kind kind;
  int actor, other, token, block;
  bool is_host;
  int64_t begin, bytes;
  int count;
  struct random_region regions[MOST_ACCESSES];
  unsigned modes[MOST_ACCESSES];
} step;

typedef struct program {
  int count;
  step steps[MOST_STEPS];
} program;

/* One that is as likely wrong as right. */
void make_any_program(uint64_t *random, program *made);

/* One in which each access is ordered after those that it conflicts with, by a wait that it
 * needs. */
void make_right_program(uint64_t *random, program *made);

/* Plays a program without a step (-1: with all) to a new sanitizer and to the model, and asserts
 * that the sanitizer found exactly what is wrong: each finding is a pair that conflicts, of the
 * kind that it is, and each access that conflicts with an earlier one was found. Returns how many
 * conflict. */
int play_program(const program *played, int without);

#endif
