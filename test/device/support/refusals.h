/* refusals.h: makes and tries handles that must be rejected. */
#ifndef OPENREG_TEST_REFUSALS_H
#define OPENREG_TEST_REFUSALS_H

#include "board.h"
#include "device/ipc/handle.h"

/* ---- helpers that export memory of device 0 -------------------------------------------------- */

/* Exports a page, 5 MiB and an event, in this order; reports, and waits for a cue. */
void export_two_and_an_event(void);

/* Exports a page. When cued, withdraws it; when cued again, exports it again as the second handle.
 * Reports after each step and waits for a cue. */
void export_withdraw_export(void);

/* ---- trying handles -------------------------------------------------------------------------- */

/* Opens a handle of memory, and closes it again. */
openreg_status open_handle(const openreg_ipc_handle *handle);

/* Requires that the handle is rejected with a message that contains `why`, and that nothing remains
 * open. */
void expect_refusal(const openreg_ipc_handle *handle, const char *why);

/* Makes a handle from parts of any process, with the correct checksum. */
void seal(struct openreg_handle *parts, openreg_ipc_handle *handle);

/* ---- random numbers -------------------------------------------------------------------------- */

/* A private generator, so that failures can be reproduced anywhere. */
extern uint64_t seed;
uint64_t draw(void);

/* Any value, but often at the limit of valid values, or next to the valid value. */
uint64_t draw_nasty(uint64_t honest);

#endif
