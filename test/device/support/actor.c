/* Other processes: see actor.h. */
#include "actor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int cues, reports; /* of this process, when it is an actor */

static bool read_whole(int file, void *bytes, size_t count) {
  ssize_t got;
  do
    got = read(file, bytes, count);
  while (got < 0 && errno == EINTR);
  return got == (ssize_t)count;
}

actor actor_start(void (*body)(void)) {
  int commands[2], answers[2];
  REQUIRE(pipe(commands) == 0 && pipe(answers) == 0);
  fflush(NULL);
  pid_t director = getpid(), pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    REQUIRE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == director);
    close(commands[1]);
    close(answers[0]);
    cues = commands[0];
    reports = answers[1];
    body();
    exit(0);
  }
  close(commands[0]);
  close(answers[1]);
  return (actor){.pid = pid, .commands = commands[1], .reports = answers[0]};
}

uint64_t actor_hear(actor *actor) {
  uint64_t what = 0;
  REQUIRE(read_whole(actor->reports, &what, sizeof what));
  return what;
}

void actor_cue(actor *actor) {
  REQUIRE(write(actor->commands, "", 1) == 1);
}

uint64_t actor_step(actor *actor) {
  actor_cue(actor);
  return actor_hear(actor);
}

static void end(actor *actor, int *wait_status) {
  REQUIRE(waitpid(actor->pid, wait_status, 0) == actor->pid);
  close(actor->commands);
  close(actor->reports);
}

void actor_kill(actor *actor) {
  int wait_status;
  REQUIRE(kill(actor->pid, SIGKILL) == 0);
  end(actor, &wait_status);
  REQUIRE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
}

void actor_finish(actor *actor) {
  int wait_status;
  end(actor, &wait_status);
  REQUIRE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
}

void actor_dismiss(actor *actor) {
  actor_cue(actor);
  actor_finish(actor);
}

void report(uint64_t what) {
  REQUIRE(write(reports, &what, sizeof what) == sizeof what);
}

void await_cue(void) {
  char cue;
  REQUIRE(read_whole(cues, &cue, 1));
}
