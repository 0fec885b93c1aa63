/* threads.c: see threads.h. */
#define _GNU_SOURCE /* pthread_setname_np */
#include "base/threads.h"

#include <pthread.h>
#include <signal.h>

int openreg_thread_start(void *(*function)(void *), void *argument) {
  pthread_t thread;
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error != 0)
    return error;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigdelset(&blocked, SIGSEGV);
  sigdelset(&blocked, SIGBUS);
  sigdelset(&blocked, SIGFPE);
  sigdelset(&blocked, SIGILL);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  error = pthread_create(&thread, &attributes, function, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

void openreg_thread_name(const char *name) {
  pthread_setname_np(pthread_self(), name);
}
