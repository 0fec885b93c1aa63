/* check.h: cmocka, and what all tests of this layer share. */
#ifndef OPENREG_TEST_GENERATOR_CHECK_H
#define OPENREG_TEST_GENERATOR_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "generator/generator.h"
#include "reference.h"

/* Fills buffers before use. Operators give an element of these bytes only by chance: a negative
 * number near 0, one integer value of 2^16 or more, an invalid bool. */
enum { PATTERN = 0xA5 };

/* An H100, and a GPU so small that a few thousand elements wrap around its grid several times. */
static const openreg_grid h100 __attribute__((unused)) = {132, 2048};
static const openreg_grid tiny __attribute__((unused)) = {2, 512};

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

#endif
