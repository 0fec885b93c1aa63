/* Helper processes. See helper.h. */
#include "helper.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int cues, reports; /* of this process, if it is a helper */

static bool read_whole(int file, void *bytes, size_t count) {
  ssize_t got;
  do
    got = read(file, bytes, count);
  while (got < 0 && errno == EINTR);
  return got == (ssize_t)count;
}

helper helper_start(void (*body)(void)) {
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
  return (helper){.pid = pid, .commands = commands[1], .reports = answers[0]};
}

uint64_t helper_receive(helper *helper) {
  uint64_t what = 0;
  REQUIRE(read_whole(helper->reports, &what, sizeof what));
  return what;
}

void helper_cue(helper *helper) {
  REQUIRE(write(helper->commands, "", 1) == 1);
}

uint64_t helper_step(helper *helper) {
  helper_cue(helper);
  return helper_receive(helper);
}

static void end(helper *helper, int *wait_status) {
  REQUIRE(waitpid(helper->pid, wait_status, 0) == helper->pid);
  close(helper->commands);
  close(helper->reports);
}

void helper_kill(helper *helper) {
  int wait_status;
  REQUIRE(kill(helper->pid, SIGKILL) == 0);
  end(helper, &wait_status);
  REQUIRE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
}

void helper_finish(helper *helper) {
  int wait_status;
  end(helper, &wait_status);
  REQUIRE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
}

void helper_dismiss(helper *helper) {
  helper_cue(helper);
  helper_finish(helper);
}

void report(uint64_t what) {
  REQUIRE(write(reports, &what, sizeof what) == sizeof what);
}

void await_cue(void) {
  char cue;
  REQUIRE(read_whole(cues, &cue, 1));
}
