/* test_lanes.c: the hot loops in the instruction set that OPENREG_SIMD names, and the choice. */
#include "check.h"
#include "lanes.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process that runs a kernel with OPENREG_SIMD=`name` writes before it ends; its status goes
 * to `status`. */
static void run_with(const char *name, char *text, size_t bytes, int *status) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv("OPENREG_SIMD", name, 1);
    openreg_generator_simd();
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t got;
  while (length + 1 < bytes && (got = read(ends[0], text + length, bytes - 1 - length)) > 0)
    length += (size_t)got;
  text[length] = '\0';
  close(ends[0]);
  assert_int_equal(waitpid(child, status, 0), child);
}

/* Before any other: the choice is made once a process, and a child inherits it. */
static void unknown_instruction_set_ends_the_process_with_a_sentence(void **state) {
  (void)state;
  char text[256];
  int status = 0;
  run_with("neon", text, sizeof text, &status);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  const char *sentence =
      "openreg: OPENREG_SIMD=neon: expected an instruction set of this machine: c";
  assert_memory_equal(text, sentence, strlen(sentence));
}

static void no_instruction_set_is_the_widest(void **state) {
  (void)state;
  char text[256];
  int status = -1;
  run_with("", text, sizeof text, &status);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_string_equal(text, "");
}

static void named_instruction_set_is_the_one_that_runs(void **state) {
  (void)state;
  const char *wanted = getenv("OPENREG_SIMD");
  if (wanted && *wanted)
    assert_string_equal(openreg_generator_simd(), wanted);
  const char *name = openreg_generator_simd();
  assert_true(strcmp(name, "c") == 0 || strcmp(name, "avx2") == 0 || strcmp(name, "avx512") == 0);
}

/* Every count up to a batch: vectors and what is left over. The words are edges, then anything. */
enum { COUNT = PHILOX_BATCH };
static uint32_t words[COUNT];

static void fill_words(void) {
  const uint32_t edges[] = {0,          1,          2,          0x7FFFFFFF, 0x80000000, 0x80000001,
                            0xFFFFFF7F, 0xFFFFFF80, 0xFFFFFFFE, 0xFFFFFFFF, 0x01000001, 0x00FFFFFF};
  for (uint32_t j = 0; j < COUNT; j++)
    words[j] = j < LENGTH(edges) ? edges[j] : j * UINT32_C(2654435769) ^ j << 13;
}

static void remainders_are_those_of_division(void **state) {
  (void)state;
  fill_words();
  for (uint32_t d = 1; d != 0; d = d < 2000 ? d + 1 : d > UINT32_MAX / 9 * 8 ? 0 : d / 8 * 9 + 1) {
    uint32_t got[COUNT];
    lanes_chosen()->remainders(words, COUNT, divisor_of(d), 0, got);
    for (int j = 0; j < COUNT; j++)
      assert_int_equal(got[j], words[j] % d);
  }
  for (int bit = 1; bit < 32; bit++) {
    for (int64_t off = -1; off <= 1; off++) {
      const uint32_t d = (uint32_t)((INT64_C(1) << bit) + off);
      uint32_t got[COUNT];
      lanes_chosen()->remainders(words, COUNT, divisor_of(d), 0, got);
      for (int j = 0; j < COUNT; j++)
        assert_int_equal(got[j], words[j] % d);
    }
  }
  uint32_t got[COUNT];
  lanes_chosen()->remainders(words, COUNT, divisor_of(UINT32_MAX), 0, got);
  for (int j = 0; j < COUNT; j++)
    assert_int_equal(got[j], words[j] % UINT32_MAX);
}

static void uniforms_are_scaled_with_one_rounding(void **state) {
  (void)state;
  const float ranges[][2] = {{1, 0}, {2, -1}, {0.3f, 0.7f}, {1e30f, -3}};
  fill_words();
  for (size_t r = 0; r < LENGTH(ranges); r++) {
    for (unsigned count = 0; count <= COUNT; count++) {
      float got[COUNT];
      memset(got, PATTERN, sizeof got);
      lanes_chosen()->scale(words, count, ranges[r][0], ranges[r][1], got);
      for (unsigned j = 0; j < count; j++)
        assert_true(got[j] ==
                    fmaf(reference_uniform_of_word(words[j]), ranges[r][0], ranges[r][1]));
      for (unsigned j = count; j < COUNT; j++)
        assert_true(reference_is_untouched(OPENREG_FLOAT32, got, j, PATTERN));
    }
  }
}

static void uniforms_are_compared_strictly(void **state) {
  (void)state;
  fill_words();
  for (unsigned k = 0; k < COUNT; k++) {
    const float p = reference_uniform_of_word(words[k]);
    float got[COUNT];
    lanes_chosen()->below(words, COUNT, p, got);
    for (unsigned j = 0; j < COUNT; j++)
      assert_true(got[j] == (float)(reference_uniform_of_word(words[j]) < p));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unknown_instruction_set_ends_the_process_with_a_sentence),
      cmocka_unit_test(no_instruction_set_is_the_widest),
      cmocka_unit_test(named_instruction_set_is_the_one_that_runs),
      cmocka_unit_test(remainders_are_those_of_division),
      cmocka_unit_test(uniforms_are_scaled_with_one_rounding),
      cmocka_unit_test(uniforms_are_compared_strictly),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
