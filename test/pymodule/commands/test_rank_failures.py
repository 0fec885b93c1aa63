"""`openreg run --ranks`: the first failure ends the job, and no process is left."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios

import pytest
from openreg_program import OPENREG
from torch_openreg.commands.ranks.failures import Failures

# If a process does not end within this time, the test fails.
PATIENCE_SECONDS = 60

pytestmark = pytest.mark.own_processes

# A rank that only a signal ends.
SLEEP = "exec sleep 600"


@contextlib.contextmanager
def started(words, environment, **settings):
    """Run a job that does not end by itself, and kill it after the block."""
    command = [*OPENREG, "run", *map(str, words)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings
    ) as process:
        try:
            yield process
        finally:
            process.kill()


# ---- the first failure ---------------------------------------------------------------------------

FAIL = """
import os, signal

class OwnError(Exception):
    pass

def fail():
    raise OwnError("boom\\nand more")

if os.environ.get("RANK", "1") != "1":
    signal.pause()
fail()
"""


def test_the_first_failure_ends_the_job_with_its_traceback(start, direct, script):
    program = script("fail.py", FAIL)
    expected = direct(sys.executable, program)
    result = start("--ranks", 3, program, expect=1)
    sentence = "openreg: rank 1 of 3 failed first and ended the job: exit status 1\n"
    assert result.stderr == sentence + expected.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "words",
    [["broken.py"], ["-m", "broken"], ["-m", "absent"], ["python", "-c", "1 / 0"]],
)
def test_errors_before_and_in_a_program_are_pythons(start, direct, script, words):
    script("broken.py", "x = (\n")
    expected = direct(sys.executable, *words[words[0] == "python" :])
    result = start("--ranks", 1, *words, expect=1)
    sentence = "openreg: rank 0 of 1 failed first and ended the job: exit status 1\n"
    assert result.stderr.replace(sentence, "") == expected.stderr
    assert sentence in result.stderr


def test_a_hook_of_the_program_prints_its_own(start, script):
    script(
        "hook.py",
        """
        import sys
        sys.excepthook = lambda kind, error, trace: print("hooked", error, file=sys.stderr)
        raise ValueError("boom")
        """,
    )
    result = start("--ranks", 1, "hook.py", expect=1)
    assert result.stderr.splitlines()[1:] == ["hooked boom"]


def test_a_lost_peer_is_not_blamed_on_those_who_lose_it(start, script):
    script(
        "lose.py",
        """
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(4)
        dist.all_reduce(x)
        if dist.get_rank() == 2:
            raise ValueError("the cause")
        dist.all_reduce(x)
        """,
    )
    result = start("--ranks", 4, "lose.py", expect=1)
    assert "openreg: rank 2 of 4 failed first and ended the job: exit status 1\n" in result.stderr
    assert result.stderr.splitlines()[-1] == "[rank2]: ValueError: the cause"
    assert result.stderr.count("Traceback") == 1


@pytest.mark.parametrize(
    ("end", "status", "how"),
    [
        ("exit 3", 3, "exit status 3"),
        ("kill -SEGV $$", 128 + signal.SIGSEGV, "ended by SIGSEGV"),
        ("kill -KILL $$", 128 + signal.SIGKILL, "ended by SIGKILL"),
    ],
)
def test_the_status_is_that_of_the_first_failure(start, end, status, how):
    code = f"test $RANK = 2 && {end}; {SLEEP}"
    result = start("--ranks", 4, "sh", "-c", code, expect=status)
    assert result.stderr == f"openreg: rank 2 of 4 failed first and ended the job: {how}\n"


def test_ranks_that_succeed_end_nothing(start):
    assert start("--ranks", 3, "sh", "-c", "exit 0").stderr == ""


def test_a_rank_that_does_not_end_is_killed(start, tmp_path):
    os.mkfifo(tmp_path / "deaf")
    fail = "read line < deaf; exit 5"
    ignore = 'trap "" TERM; echo > deaf; while :; do sleep 1; done'
    code = f"if test $RANK = 0; then {fail}; else {ignore}; fi"
    result = start("--ranks", 2, "--grace", 0, "sh", "-c", code, expect=5)
    assert result.stderr == ("openreg: rank 0 of 2 failed first and ended the job: exit status 5\n")


def test_a_rank_that_failed_and_does_not_end_is_killed(start, script):
    script(
        "hang.py",
        """
        import threading
        threading.Thread(target=threading.Event().wait).start()
        1 / 0
        """,
    )
    result = start("--ranks", 1, "--grace", 0, "hang.py", expect=1)
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


# ---- signals -------------------------------------------------------------------------------------


# Not `print`: an unbuffered Python writes the newline separately, so lines of ranks would mix.
WAIT = """
import os, signal
os.write(1, b"ready\\n")
signal.pause()
"""


def wait_for_ranks(process, count):
    """Wait until each rank has printed "ready"."""
    for _ in range(count):
        assert process.stdout.readline() == b"ready\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_ends_the_job(environment, number):
    command = ["--ranks", 2, "sh", "-c", f"echo ready; {SLEEP}"]
    with started(command, environment) as process:
        wait_for_ranks(process, 2)
        process.send_signal(number)
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out, errors) == (-number, b"", b"")


def test_a_job_under_nohup_survives_a_hangup(environment):
    """The hangup is forwarded first, and would end the job if it were not ignored."""
    command = ["--ranks", 2, "sh", "-c", f"echo ready; {SLEEP}"]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the fixture of all tests restores it
    with started(command, environment) as process:
        wait_for_ranks(process, 2)
        process.send_signal(signal.SIGHUP)
        process.terminate()
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out, errors) == (-signal.SIGTERM, b"", b"")


def test_ranks_handle_a_signal_themselves(environment):
    """They may take as long as they need: the launcher does not kill them after the signal."""
    code = 'trap "echo handled; exit 0" TERM; echo ready; while :; do sleep 0.01; done'
    with started(["--ranks", 2, "sh", "-c", code], environment) as process:
        wait_for_ranks(process, 2)
        process.terminate()
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out, errors) == (0, b"handled\n" * 2, b"")


def test_an_interrupt_shows_where_the_first_rank_was(environment, script):
    program = script("wait.py", WAIT)
    with started(["--ranks", 2, program], environment) as process:
        wait_for_ranks(process, 2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == -signal.SIGINT
        assert errors.count(b"Traceback") == 1
        assert errors.endswith(b"KeyboardInterrupt\n")


COUNT_INTERRUPTS = """
import os, signal, sys
if os.environ["RANK"] == "0":
    os.setpgid(0, 0)  # not the foreground process group of the terminal
got = []
def interrupted(*_):
    got.append(1)
    os.write(1, b"interrupted\\n")
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(len(got) if os.environ["RANK"] == "0" else 0))
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


def test_the_terminals_interrupt_is_not_sent_on(environment):
    """The terminal sends it to the foreground group. A rank outside of the group gets no signal."""
    command = ["--ranks", 2, sys.executable, "-S", "-c", COUNT_INTERRUPTS]
    mine, theirs = os.openpty()

    def have_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with started(command, environment, stdin=theirs, preexec_fn=have_terminal) as process:
        wait_for_ranks(process, 2)
        os.write(mine, b"\x03")
        assert process.stdout.readline() == b"interrupted\n"
        process.terminate()
        out, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out, errors) == (0, b"", b"")
    os.close(mine)
    os.close(theirs)


@pytest.mark.parametrize("python", [True, False])
def test_a_launcher_that_is_killed_takes_all_ranks_with_it(environment, script, python):
    program = script("wait.py", WAIT)
    command = [program] if python else ["sh", "-c", f"echo ready; {SLEEP}"]
    with started(["--ranks", 3, *command], environment) as process:
        wait_for_ranks(process, 3)
        process.kill()
        # The output ends when no process has it open.
        assert process.communicate(timeout=PATIENCE_SECONDS)[0] == b""


# ---- deciding which rank failed first ------------------------------------------------------------


def judged(*events, size=8):
    failures = Failures(size)
    for event, *arguments in events:
        getattr(failures, event)(*arguments)
    failures.judge()
    return failures


def test_the_first_rank_to_report_failed_first():
    failures = judged(("raised", 5, "x"), ("raised", 2, "y"), ("exited", 2, 1), ("exited", 5, 1))
    assert (failures.first, failures.status()) == (5, 1)


def test_a_killed_rank_failed_before_those_who_report_in_the_same_moment():
    failures = judged(("raised", 2, "lost a peer"), ("exited", 5, -9), ("exited", 2, 1))
    assert (failures.first, failures.status()) == (5, -9)


def test_an_exception_was_before_an_exit_in_the_same_moment():
    failures = judged(("exited", 2, 3), ("raised", 5, "x"), ("exited", 5, 1))
    assert failures.first == 5


def test_the_first_failure_does_not_change():
    failures = judged(("exited", 3, 7))
    failures.exited(1, -11)
    assert not failures.judge()
    assert (failures.first, failures.status()) == (3, 7)


def test_successes_are_no_failures():
    failures = judged(("exited", 0, 0), ("exited", 1, 0), size=2)
    assert (failures.first, failures.status(), failures.sentences()) == (None, 0, "")


def test_later_failures_are_printed_before_the_first():
    failures = judged(("raised", 3, "Traceback ...\nValueError: boom\n"))
    failures.terminated([0, 1, 2, 4, 5, 6, 7])
    for rank in (0, 1, 2, 6):
        failures.raised(rank, f"[rank{rank}]: Traceback ...\n[rank{rank}]: RuntimeError: lost\n")
        failures.exited(rank, 1)
    for rank, status in (3, 1), (4, -15), (5, 9), (7, -11):
        failures.exited(rank, status)
    assert failures.sentences() == (
        "openreg: ranks 0-2, 6 failed later: RuntimeError: lost\n"
        "openreg: rank 5 failed later: exit status 9\n"
        "openreg: rank 3 of 8 failed first and ended the job: exit status 1\n"
        "Traceback ...\nValueError: boom\n"
    )
