/* threads.h: threads of the layers' own. */
#ifndef OPENREG_BASE_THREADS_H
#define OPENREG_BASE_THREADS_H

#pragma GCC visibility push(hidden)

/* Starts a detached thread. Signals are the program's threads' to handle: this one begins with all
 * of them blocked but those that its own instructions raise. Returns 0 or an error number. */
int openreg_thread_start(void *(*function)(void *), void *argument);

/* Names the calling thread, as debuggers and ps show it: 15 characters at most. */
void openreg_thread_name(const char *name);

#pragma GCC visibility pop
#endif
