/* The cost of the sanitizer for each access, without PyTorch. There is nothing to compare it with,
 * so each line is a key and nanoseconds per access: the median of the rounds, and their middle
 * half. */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "bench/turns.h"
#include "sanitizer/sanitizer.h"

enum { TURNS = 41, REPEATS = 20000, BLOCKS = 10000, FIRST = 1 << 20 };

static openreg_sanitizer *sanitizer;
static openreg_sanitizer_thread *host, *streams[2];
static openreg_sanitizer_token *token;

static openreg_sanitizer_thread *make_actor(openreg_sanitizer_thread_kind kind) {
  openreg_sanitizer_thread *thread;
  check(openreg_sanitizer_thread_create(sanitizer, kind, 0, 0, NULL, &thread));
  return thread;
}

static uint64_t block_at(int block) {
  return (uint64_t)FIRST * (uint64_t)(block + 1);
}

static void begin(void) {
  check(openreg_sanitizer_create(NULL, &sanitizer));
  host = make_actor(OPENREG_SANITIZER_HOST);
  streams[0] = make_actor(OPENREG_SANITIZER_STREAM);
  streams[1] = make_actor(OPENREG_SANITIZER_STREAM);
  check(openreg_sanitizer_token_create(sanitizer, 0, &token));
  for (int i = 0; i < BLOCKS; i++) {
    openreg_sanitizer_block block = {.address = block_at(i), .bytes = FIRST / 2};
    check(openreg_sanitizer_alloc(sanitizer, &block, false));
  }
}

static void end(void) {
  require(openreg_sanitizer_finding_count(sanitizer) == 0, "something was found");
  openreg_sanitizer_destroy(sanitizer);
}

static openreg_sanitizer_region matrix(uint64_t address) {
  static const int64_t sizes[] = {64, 256}, strides[] = {1024, 4};
  return (openreg_sanitizer_region){address, 4, 2, sizes, strides};
}

static openreg_sanitizer_region columns(uint64_t address) {
  static const int64_t sizes[] = {64, 32}, strides[] = {1024, 4};
  return (openreg_sanitizer_region){address, 4, 2, sizes, strides};
}

static void launch(int stream, const openreg_sanitizer_access accesses[], size_t count) {
  openreg_sanitizer_launch what = {.thread = streams[stream],
                                   .submitter = host,
                                   .call_site = 1,
                                   .accesses = accesses,
                                   .count = count};
  check(openreg_sanitizer_check_launch(sanitizer, &what));
}

/* Like c = a + b, in blocks that follow each other. */
static void add_in(int stream, openreg_sanitizer_region (*region)(uint64_t), int first) {
  openreg_sanitizer_access accesses[] = {
      {.region = region(block_at(first)), .mode = OPENREG_SANITIZER_WRITE},
      {.region = region(block_at((first + 1) % BLOCKS)), .mode = OPENREG_SANITIZER_READ},
      {.region = region(block_at((first + 2) % BLOCKS)), .mode = OPENREG_SANITIZER_READ},
  };
  launch(stream, accesses, 3);
}

static void one_stream(int times) {
  for (int i = 0; i < times; i++)
    add_in(0, matrix, 0);
}

static void hundred_blocks(int times) {
  for (int i = 0; i < times; i++)
    add_in(0, matrix, i % 100);
}

static void all_blocks(int times) {
  for (int i = 0; i < times; i++)
    add_in(0, matrix, i * 37 % BLOCKS);
}

static void strided(int times) {
  for (int i = 0; i < times; i++)
    add_in(0, columns, i % 100);
}

/* Two streams that wait for each other after each launch. */
static void two_streams(int times) {
  for (int i = 0; i < times; i++) {
    add_in(i % 2, matrix, 0);
    check(openreg_sanitizer_record(sanitizer, token, streams[i % 2], host, 0));
    openreg_sanitizer_wait(sanitizer, streams[(i + 1) % 2], token, host, 0);
  }
}

/* Two streams without order write both halves of each row. */
static void halves_of_two_streams(int times) {
  for (int i = 0; i < times; i++) {
    openreg_sanitizer_access accesses[3];
    for (int k = 0; k < 3; k++)
      accesses[k] = (openreg_sanitizer_access){
          .region = columns(block_at(200 + (i + k) % 100) + (uint64_t)(i % 2) * 512),
          .mode = OPENREG_SANITIZER_WRITE};
    launch(i % 2, accesses, 3);
  }
}

/* A block that is allocated, written, read and freed: three accesses. */
static void reuse(int times) {
  for (int i = 0; i < times; i++) {
    openreg_sanitizer_block block = {.address = block_at(500 + i % 100), .bytes = FIRST / 2};
    check(openreg_sanitizer_alloc(sanitizer, &block, false));
    openreg_sanitizer_access access = {.region = matrix(block.address),
                                       .mode = OPENREG_SANITIZER_WRITE};
    launch(0, &access, 1);
    access.mode = OPENREG_SANITIZER_READ;
    launch(0, &access, 1);
    launch(0, &access, 1);
    openreg_sanitizer_free(sanitizer, block.address, 0);
  }
}

static void measure_alone(const char *key, void (*run)(int times)) {
  double turns[TURNS];
  begin();
  for (int i = 0; i < BLOCKS; i++) { /* all are written */
    openreg_sanitizer_access access = {.region = {block_at(i), FIRST / 2, 0, NULL, NULL},
                                       .mode = OPENREG_SANITIZER_WRITE};
    launch(0, &access, 1);
  }
  openreg_sanitizer_order(sanitizer, streams[0], streams[1]);
  run(REPEATS);
  for (int i = 0; i < TURNS; i++) {
    double start = now_ns();
    run(REPEATS);
    turns[i] = (now_ns() - start) / (3.0 * REPEATS);
  }
  printf("%s %.1f %.1f %.1f\n", key, quarter(turns, TURNS, 2), quarter(turns, TURNS, 1),
         quarter(turns, TURNS, 3));
  fflush(stdout);
  end();
}

int main(void) {
  measure_alone("one_stream", one_stream);
  measure_alone("hundred_blocks", hundred_blocks);
  measure_alone("ten_thousand_blocks", all_blocks);
  measure_alone("strided", strided);
  measure_alone("two_streams_and_an_event", two_streams);
  measure_alone("halves_of_two_streams", halves_of_two_streams);
  measure_alone("allocate_use_free", reuse);
  return 0;
}
