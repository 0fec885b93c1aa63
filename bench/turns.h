/* turns.h: how C benchmarks measure. The two sides take turns. Ratios are computed between
 * neighboring turns, because machines are shared and absolute times mean little.
 *
 * Each measurement prints one line: its key, the median of the ratios and their middle half, and
 * then the medians of both times in nanoseconds.
 */
#ifndef OPENREG_BENCH_TURNS_H
#define OPENREG_BENCH_TURNS_H

#include "device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_TURNS = 64 };

static inline void check(openreg_status status) {
  if (status != OPENREG_OK) {
    fprintf(stderr, "%s\n", openreg_last_error());
    exit(1);
  }
}

static inline void require(bool condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
  }
}

static inline double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline int compare_turns(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static inline double quarter(double turns[], int count, int which) {
  qsort(turns, (size_t)count, sizeof *turns, compare_turns);
  return turns[which * count / 4];
}

static inline void print_ratios(const char *key, double ratios[], double mine[], double others[],
                                int count) {
  printf("%s %.4f %.4f %.4f %.2f %.2f\n", key, quarter(ratios, count, 2), quarter(ratios, count, 1),
         quarter(ratios, count, 3), quarter(mine, count, 2), quarter(others, count, 2));
  fflush(stdout);
}

struct work {
  void (*run)(void *data, int times);
  void *data;
};

static inline double time_of(struct work work, int times) {
  double start = now_ns();
  work.run(work.data, times);
  return (now_ns() - start) / times;
}

static inline void measure(const char *key, struct work mine, struct work other, int times,
                           int turns) {
  double ratios[MAX_TURNS], mine_ns[MAX_TURNS], other_ns[MAX_TURNS];
  require(turns <= MAX_TURNS, "too many turns");
  time_of(mine, times);
  time_of(other, times);
  for (int i = 0; i < turns; i++) {
    if (i % 2) /* the order alternates, so that neither side gains from it */
      mine_ns[i] = time_of(mine, times);
    other_ns[i] = time_of(other, times);
    if (i % 2 == 0)
      mine_ns[i] = time_of(mine, times);
    ratios[i] = mine_ns[i] / other_ns[i];
  }
  print_ratios(key, ratios, mine_ns, other_ns, turns);
}

#endif
