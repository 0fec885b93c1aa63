"""A helper process that calls functions for the tests, with the arguments that they send."""

import traceback

import torch

from device import module

# Children of the fork server have imported PyTorch and use no device: they start in milliseconds.
torch.multiprocessing.set_forkserver_preload(["torch"])

kept = {}  # objects that functions called in a peer keep for later calls


def serve(connection):
    """Call functions until the other end is closed."""
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, function(*arguments)))
        except Exception as error:
            traceback.print_exc()  # sending an exception loses its traceback
            connection.send((False, error))
        del function, arguments  # otherwise they would live until the next call


class Peer:
    """A process that serves; `method` is how it is started."""

    def __init__(self, method="forkserver"):
        context = torch.multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if not self.connection.closed:
            self.leave()

    def start(self, function, *arguments):
        """Call in the peer, without waiting."""
        self.connection.send((function, arguments))

    def finish(self):
        """Return what was started, or raise what it raised."""
        succeeded, answer = self.connection.recv()
        if not succeeded:
            raise answer
        return answer

    def call(self, function, *arguments):
        """Call in the peer."""
        self.start(function, *arguments)
        return self.finish()

    def leave(self):
        """Have it exit, and wait until it has."""
        self.connection.close()
        self.process.join()
        self.process.close()

    def kill(self):
        """Kill it, and wait until it is dead."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def keep(name, value):
    """Keep a value in the peer."""
    kept[name] = value


def drop(name):
    """Drop what is kept."""
    del kept[name]
    module.synchronize()
    module.ipc_collect()


def values(name):
    """Return what is kept as plain Python."""
    return kept[name].tolist()
