/* check.h: cmocka with the headers that must precede it. */
#ifndef OPENREG_TEST_AMP_CHECK_H
#define OPENREG_TEST_AMP_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#endif
