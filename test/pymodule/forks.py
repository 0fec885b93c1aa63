"""A process that has imported PyTorch. The programs of tests are forks of it.

Importing takes seconds and a fork takes milliseconds, and the tests start hundreds of programs. A
fork behaves as a new interpreter after the import: it has used no device, reads its variables on
first use, and exits in the same way. Tests about importing need a new interpreter.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

# Variables that the import reads. Setting them in a fork would be too late.
READ_BY_IMPORTING = (
    "OPENREG_BLOCK_OPERATORS",
    "OPENREG_UNSUPPORTED_DTYPES",
    "PYTHON",
    "PYTORCH_",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)


class Forks:
    """The process that forks programs. It starts with the first program."""

    def __init__(self):
        self._server = None

    def _start(self):
        # numpy must start no thread, because forks would not have it. Forks inherit the encoding.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code, environment):
        """Run a program to its end; what comes back is what `subprocess.run` returns."""
        if self._server is None:
            self._start()
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, name) for name in ("stdout", "stderr")]
            request = {"code": code, "environment": environment, "outputs": list(map(str, paths))}
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            status = int(self._server.stdout.readline())
            return subprocess.CompletedProcess(
                code, status, *(path.read_text(errors="replace") for path in paths)
            )

    def close(self):
        """End it."""
        if self._server is not None:
            self._server.stdin.close()
            self._server.wait()
            self._server.stdout.close()


def serve():
    """Fork for each request; returns the request in the fork, and None at the end."""
    import torch  # noqa: F401

    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def become(request):
    """Take the place of an interpreter that was started for the program."""
    files = [os.open(os.devnull, os.O_RDONLY)]
    files += [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in request["outputs"]]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = ["-c"]
    threading.main_thread()._set_native_id()  # which Python leaves as it was in the parent
    main = sys.modules["__main__"].__dict__
    for name in [name for name in main if name not in ("__builtins__", "__name__")]:
        del main[name]
    return compile(request["code"], "<string>", "exec")


if __name__ == "__main__":
    request = serve()
    if request is not None:
        exec(become(request))
