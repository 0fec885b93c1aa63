/* refusals.h: handles that must be refused, what they are made from, and how they are tried. */
#ifndef OPENREG_TEST_REFUSALS_H
#define OPENREG_TEST_REFUSALS_H

#include "board.h"
#include "device/ipc/handle.h"

/* ---- actors that export memory of device 0 --------------------------------------------------- */

/* A page, 5 MiB and an event, in this order; reports, and stays until it is cued. */
void export_two_and_an_event(void);

/* A page; when cued, withdraws it; when cued again, exports it again, as the second handle. Reports
 * after each, and stays until it is cued. */
void export_withdraw_export(void);

/* ---- trying handles -------------------------------------------------------------------------- */

/* Opens a handle for memory, and closes what was opened. */
openreg_status open_handle(const openreg_ipc_handle *handle);

/* Requires that it is refused with a sentence that holds `why`, and that nothing of it is kept. */
void expect_refusal(const openreg_ipc_handle *handle, const char *why);

/* Makes a handle of parts of any process, with the check that belongs to them. */
void seal(struct openreg_handle *parts, openreg_ipc_handle *handle);

/* ---- numbers at random ----------------------------------------------------------------------- */

/* A generator of its own, so that a failure can be repeated anywhere. */
extern uint64_t seed;
uint64_t draw(void);

/* Anything, but often on the edge of what is valid, or next to the honest value. */
uint64_t draw_nasty(uint64_t honest);

#endif
