/* test_known_answers.c: runs every line of known_answers.txt, whose head explains the format.
 *
 * Each line is a test, named by the line. Buffers are full of PATTERN before the operator runs.
 * Afterwards no element may be PATTERN, and everything behind the last element must be.
 */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 128, NAMES = 16, EXPECTED = 32, GUARD_BYTES = 64 };

typedef struct answer {
  char *line;
  const char *operator;
  const char *names[NAMES], *values[NAMES];
  int name_count, expected_count;
  const char *expected[EXPECTED];
} answer;

/* ---- reading --------------------------------------------------------------------------------- */

static const char *text_of(const answer *answer, const char *name, const char *otherwise) {
  for (int i = 0; i < answer->name_count; i++) {
    if (strcmp(answer->names[i], name) == 0)
      return answer->values[i];
  }
  if (!otherwise)
    fail_msg("%s: no %s", answer->line, name);
  return otherwise;
}

static uint64_t integer_of(const answer *answer, const char *name, const char *otherwise) {
  return strtoull(text_of(answer, name, otherwise), NULL, 10);
}

static double real_of(const answer *answer, const char *name, const char *otherwise) {
  return strtod(text_of(answer, name, otherwise), NULL);
}

static openreg_type type_of(const answer *answer) {
  static const struct {
    const char *name;
    openreg_type type;
  } types[] = {{"float16", OPENREG_FLOAT16},
               {"float32", OPENREG_FLOAT32},
               {"float64", OPENREG_FLOAT64},
               {"int32", OPENREG_INT32},
               {"int64", OPENREG_INT64}};
  const char *name = text_of(answer, "type", "float32");
  for (size_t i = 0; i < LENGTH(types); i++) {
    if (strcmp(types[i].name, name) == 0)
      return types[i].type;
  }
  fail_msg("%s: no type %s", answer->line, name);
  return OPENREG_FLOAT32;
}

static openreg_grid grid_of(const answer *answer) {
  openreg_grid grid;
  assert_int_equal(sscanf(text_of(answer, "grid", "132x2048"), "%dx%d", &grid.multiprocessor_count,
                          &grid.max_threads_per_multiprocessor),
                   2);
  return grid;
}

/* Splits a copy of the line, which the answer keeps, at its blanks. */
static void parse(answer *answer, const char *line) {
  answer->line = strdup(line);
  char *rest = strdup(line), *save = NULL;
  const char *origin = strtok_r(rest, " ", &save);
  if (strcmp(origin, "published") != 0 && strcmp(origin, "derived") != 0)
    fail_msg("%s: no origin", line);
  answer->operator= strtok_r(NULL, " ", &save);
  char *word;
  while ((word = strtok_r(NULL, " ", &save)) && strcmp(word, ":") != 0) {
    assert_true(answer->name_count < NAMES);
    char *equal = strchr(word, '=');
    if (!equal)
      fail_msg("%s: %s: no value", line, word);
    *equal = '\0';
    answer->names[answer->name_count] = word;
    answer->values[answer->name_count++] = equal + 1;
  }
  while ((word = strtok_r(NULL, " ", &save))) {
    assert_true(answer->expected_count < EXPECTED);
    answer->expected[answer->expected_count++] = word;
  }
  assert_true(answer->expected_count > 0);
}

/* ---- running --------------------------------------------------------------------------------- */

static void run_philox(const answer *answer) {
  uint32_t counter[4], key[2], words[4];
  assert_int_equal(sscanf(text_of(answer, "counter", NULL), "%x,%x,%x,%x", &counter[0], &counter[1],
                          &counter[2], &counter[3]),
                   4);
  assert_int_equal(sscanf(text_of(answer, "key", NULL), "%x,%x", &key[0], &key[1]), 2);
  memset(words, PATTERN, sizeof words);
  openreg_philox4x32_10(counter, key, words);
  assert_int_equal(answer->expected_count, 4);
  for (int i = 0; i < 4; i++)
    assert_int_equal(words[i], strtoul(answer->expected[i], NULL, 16));
}

static uint64_t run_random(const answer *answer, const openreg_output *output,
                           openreg_philox philox, openreg_grid grid) {
  openreg_random_form form = OPENREG_RANDOM_WHOLE_TYPE;
  if (strcmp(text_of(answer, "form", NULL), "from_to") == 0)
    form = OPENREG_RANDOM_FROM_TO;
  const uint64_t range = integer_of(answer, "range", "1");
  openreg_random(output, openreg_whole, philox, grid, form, range,
                 (int64_t)real_of(answer, "base", "0"));
  return openreg_random_words(output, grid, form, range);
}

static uint64_t run_bernoulli_tensor(const answer *answer, const openreg_output *output,
                                     openreg_philox philox) {
  const uint64_t n = (uint64_t)output->sizes[0];
  float *probabilities = malloc(n * sizeof *probabilities);
  assert_non_null(probabilities);
  for (uint64_t i = 0; i < n; i++)
    probabilities[i] = (float)real_of(answer, "p", NULL);
  openreg_bernoulli_tensor(output, openreg_whole, philox, probabilities);
  free(probabilities);
  return openreg_bernoulli_tensor_words(output);
}

/* The three operators with parameters per element; all elements have the same. */
static uint64_t run_with_parameters(const answer *answer, const openreg_output *output,
                                    openreg_philox philox) {
  const char *name = answer->operator;
  const uint64_t n = (uint64_t)output->sizes[0];
  const bool binomial = strcmp(name, "binomial") == 0;
  const char *parameter = binomial ? "count" : strcmp(name, "gamma") == 0 ? "alpha" : "lambda";
  double *first = malloc(n * sizeof *first), *second = malloc(n * sizeof *second);
  assert_true(first && second);
  for (uint64_t i = 0; i < n; i++) {
    reference_put(output->type, first, i, real_of(answer, parameter, NULL));
    reference_put(output->type, second, i, real_of(answer, "p", "0"));
  }
  uint64_t words;
  if (binomial) {
    openreg_binomial(output->type, n, first, second, output->data, openreg_whole, philox);
    words = openreg_binomial_words();
  } else if (strcmp(name, "gamma") == 0) {
    openreg_gamma(output->type, n, first, output->data, openreg_whole, philox);
    words = openreg_gamma_words();
  } else {
    openreg_poisson(output->type, n, first, output->data, openreg_whole, philox);
    words = openreg_poisson_words();
  }
  free(second);
  free(first);
  return words;
}

/* The output is the noise; all elements of x are negative. */
static uint64_t run_rrelu(const answer *answer, const openreg_output *output, openreg_philox philox,
                          openreg_grid grid) {
  const uint64_t n = (uint64_t)output->sizes[0];
  double *x = malloc(n * sizeof *x);
  assert_non_null(x);
  for (uint64_t i = 0; i < n; i++)
    reference_put(output->type, x, i, -1);
  openreg_rrelu(output->type, n, x, output->data, x, openreg_whole, philox, grid,
                real_of(answer, "lower", NULL), real_of(answer, "upper", NULL));
  free(x);
  return openreg_rrelu_words(output->type, n, grid);
}

/* The output is the mask; x is zeros at an aligned address. test_dropout.c tests the result. */
static uint64_t run_dropout(const answer *answer, const openreg_output *output,
                            openreg_philox philox, openreg_grid grid) {
  const uint64_t n = (uint64_t)output->sizes[0];
  const openreg_type type = type_of(answer);
  void *x = calloc(n, 8), *result = calloc(n, 8);
  assert_true(x && result);
  openreg_dropout(type, n, openreg_dropout_vector_width(type, n, 0, true), x, result, output->data,
                  openreg_whole, philox, grid, real_of(answer, "p", NULL));
  free(result);
  free(x);
  return openreg_dropout_words(n, grid);
}

static uint64_t run_multinomial(const answer *answer, const openreg_output *output,
                                openreg_philox philox) {
  enum { MOST = 16 };
  float weights[MOST], cumulative[MOST], sum = 0;
  const uint64_t categories = integer_of(answer, "n", NULL);
  const char *text = text_of(answer, "weights", NULL);
  assert_true(categories <= MOST);
  for (uint64_t i = 0; i < categories; i++, text += strcspn(text, ",") + 1) {
    weights[i] = strtof(text, NULL);
    sum += weights[i];
    cumulative[i] = sum;
  }
  const uint64_t samples = (uint64_t)output->sizes[0];
  openreg_multinomial(output->data, OPENREG_FLOAT32, weights, cumulative, 1, categories, samples,
                      philox);
  return openreg_multinomial_words(1, samples);
}

static uint64_t run_operator(const answer *answer, const openreg_output *output,
                             openreg_philox philox, openreg_grid grid) {
  const char *name = answer->operator;
  if (strcmp(name, "uniform") == 0) {
    openreg_uniform(output, openreg_whole, philox, grid, real_of(answer, "from", "0"),
                    real_of(answer, "to", "1"));
    return openreg_uniform_words(output, grid);
  }
  if (strcmp(name, "normal") == 0) {
    openreg_normal(output, openreg_whole, philox, grid, real_of(answer, "mean", "0"),
                   real_of(answer, "std", "1"));
    return openreg_normal_words(output, grid);
  }
  if (strcmp(name, "log_normal") == 0) {
    openreg_log_normal(output, openreg_whole, philox, grid, real_of(answer, "mean", "0"),
                       real_of(answer, "std", "1"));
    return openreg_log_normal_words(output, grid);
  }
  if (strcmp(name, "cauchy") == 0) {
    openreg_cauchy(output, openreg_whole, philox, grid, real_of(answer, "median", "0"),
                   real_of(answer, "sigma", "1"));
    return openreg_cauchy_words(output, grid);
  }
  if (strcmp(name, "geometric") == 0) {
    openreg_geometric(output, openreg_whole, philox, grid, real_of(answer, "p", NULL));
    return openreg_geometric_words(output, grid);
  }
  if (strcmp(name, "exponential") == 0) {
    openreg_exponential(output, openreg_whole, philox, grid, real_of(answer, "lambda", NULL));
    return openreg_exponential_words(output, grid);
  }
  if (strcmp(name, "bernoulli") == 0) {
    openreg_bernoulli(output, openreg_whole, philox, grid, real_of(answer, "p", NULL));
    return openreg_bernoulli_words(output, grid);
  }
  if (strcmp(name, "randperm") == 0) {
    const uint64_t n = (uint64_t)output->sizes[0];
    assert_true(openreg_randperm(output->data, n, philox, grid));
    return openreg_randperm_words(n, grid);
  }
  if (strcmp(name, "bernoulli_tensor") == 0)
    return run_bernoulli_tensor(answer, output, philox);
  if (strcmp(name, "random") == 0)
    return run_random(answer, output, philox, grid);
  if (strcmp(name, "dropout") == 0)
    return run_dropout(answer, output, philox, grid);
  if (strcmp(name, "multinomial") == 0)
    return run_multinomial(answer, output, philox);
  if (strcmp(name, "rrelu") == 0)
    return run_rrelu(answer, output, philox, grid);
  if (strcmp(name, "poisson") == 0 || strcmp(name, "gamma") == 0 || strcmp(name, "binomial") == 0)
    return run_with_parameters(answer, output, philox);
  fail_msg("%s: no operator %s", answer->line, name);
  return 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Allows half a unit of the last printed digit, and the error of the float sine and logarithm. */
static void assert_printed(double got, const char *expected, int digits) {
  const double value = strtod(expected, NULL);
  const double allowed = digits ? 0.5 * pow(10, -digits) + 2e-6 : 0;
  if (!(fabs(got - value) <= allowed))
    fail_msg("%.9g, expected %s", got, expected);
}

static void compare(const answer *answer, const openreg_output *output) {
  const int digits = (int)integer_of(answer, "digits", "0");
  const char *at = text_of(answer, "at", "");
  for (int i = 0; i < answer->expected_count; i++) {
    uint64_t element = (uint64_t)i;
    if (*at) {
      char *end;
      element = strtoull(at, &end, 10);
      at = *end ? end + 1 : end;
    }
    assert_true(element < (uint64_t)output->sizes[0]);
    if (output->type == OPENREG_INT64)
      assert_true(((const int64_t *)output->data)[element] ==
                  strtoll(answer->expected[i], NULL, 10));
    else
      assert_printed(reference_element(output->type, output->data, element), answer->expected[i],
                     digits);
  }
}

static void line_gives_its_answer(void **state) {
  const answer *answer = *state;
  if (strcmp(answer->operator, "philox") == 0) {
    run_philox(answer);
    return;
  }
  openreg_type type = type_of(answer);
  int64_t n = (int64_t)integer_of(answer, "n", NULL), stride = 1;
  if (strcmp(answer->operator, "dropout") == 0)
    type = OPENREG_BOOL;
  if (strcmp(answer->operator, "randperm") == 0 || strcmp(answer->operator, "multinomial") == 0)
    type = OPENREG_INT64;
  if (strcmp(answer->operator, "multinomial") == 0)
    n = (int64_t)integer_of(answer, "samples", NULL);
  const size_t bytes = (size_t)n * openreg_type_bytes(type);
  uint8_t *memory = malloc(bytes + GUARD_BYTES);
  assert_non_null(memory);
  memset(memory, PATTERN, bytes + GUARD_BYTES);
  const openreg_output output = {memory, type, 1, &n, &stride};
  const openreg_philox philox = {integer_of(answer, "seed", NULL),
                                 integer_of(answer, "offset", "0")};
  const uint64_t words = run_operator(answer, &output, philox, grid_of(answer));
  compare(answer, &output);
  if (*text_of(answer, "words", ""))
    assert_int_equal(words, integer_of(answer, "words", NULL));
  for (uint64_t i = 0; i < (uint64_t)n; i++)
    assert_false(reference_is_untouched(type, memory, i, PATTERN));
  for (size_t b = 0; b < GUARD_BYTES; b++)
    assert_int_equal(memory[bytes + b], PATTERN);
  free(memory);
}

int main(int argc, char **argv) {
  static answer answers[LINES];
  static struct CMUnitTest tests[LINES];
  size_t count = 0;
  FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!file) {
    fprintf(stderr, "usage: test_known_answers FILE\n");
    return 2;
  }
  char line[1024];
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == '#' || line[0] == '\0')
      continue;
    if (count == LINES) {
      fprintf(stderr, "%s: more than %d lines\n", argv[1], LINES);
      return 2;
    }
    parse(&answers[count], line);
    tests[count] = (struct CMUnitTest){.name = answers[count].line,
                                       .test_func = line_gives_its_answer,
                                       .initial_state = &answers[count]};
    count++;
  }
  fclose(file);
  return count ? _cmocka_run_group_tests("known_answers", tests, count, NULL, NULL) : 2;
}
