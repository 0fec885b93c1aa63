/* threads.h: threads that the layers start themselves. */
#ifndef OPENREG_BASE_THREADS_H
#define OPENREG_BASE_THREADS_H

#pragma GCC visibility push(hidden)

/* Starts a detached thread. All signals are blocked in it except those that its own instructions
 * raise: the program's threads handle signals. Returns 0 or an error number. */
int openreg_thread_start(void *(*function)(void *), void *argument);

/* Sets the calling thread's name, which debuggers and ps show. At most 15 characters. */
void openreg_thread_name(const char *name);

#pragma GCC visibility pop
#endif
