/* check.h: cmocka, and what every test of this layer starts from. */
#ifndef OPENREG_TEST_GENERATOR_CHECK_H
#define OPENREG_TEST_GENERATOR_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "generator/generator.h"
#include "reference.h"

/* Fills buffers before use. No operator gives an element of these bytes but by chance: a number
 * below 0 that is nearly 0, an integer of one value in 2^16 or more, a bool that is none. */
enum { PATTERN = 0xA5 };

/* An H100, and a GPU so small that a few thousand elements go round its grid several times. */
static const openreg_grid h100 __attribute__((unused)) = {132, 2048};
static const openreg_grid tiny __attribute__((unused)) = {2, 512};

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

#endif
