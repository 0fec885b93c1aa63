"""Random programs of several streams, and a check of the sanitizer's findings in them.

Each program is correct when it is made: all conflicting launches are ordered, in one of many ways.
Then one step that orders launches is removed. Each finding must be a pair of launches that conflict
and that nothing orders. If there is such a pair, there must be a finding.

To check thousands of programs: ``PYTHONPATH=test/pymodule python THIS_FILE --seeds 0 3000``.
"""

import argparse
import random
from collections import Counter
from dataclasses import dataclass

import random_steps as model
import torch
import torch_openreg._C as C

from device import DEVICE, module

KINDS = ("race", "use after free", "unordered event", "never waited")
ORDERING = ("record", "wait", "wait_stream", "synchronize", "use")
MAX_EXTENSIONS = 400


# ---- making a program ----------------------------------------------------------------------------


class Maker:
    """Makes one program.

    Parameters
    ----------
    seed
        The seed of the random numbers.
    launches
        The number of launches, without those that make the first tensors.
    """

    def __init__(self, seed, launches):
        self.random = random.Random(seed)
        count = self.random.choice((2, 2, 3, 3, 4))
        two = self.random.random() < 0.3 and module.device_count() > 1
        self.devices = [0] + [self.random.randrange(2) if two else 0 for _ in range(count - 1)]
        self.is_new = [self.random.random() < 0.8 or s > 0 for s in range(count)]
        self.steps, self.tensors, self.events, self.owners = [], {}, 0, {}
        for stream in range(count):
            self.make_tensor(stream)
        for _ in range(self.random.randrange(2)):
            self.make_tensor(self.random.randrange(count))
        for _ in range(launches):
            self.add_something()

    # -- tensors

    def make_tensor(self, stream):
        shape = self.random.choice(model.SHAPES)
        number = self.odd()
        part = self.new_tensor(shape, stream)
        text = f"torch.full({shape}, {number}, device=s{stream}.device)"
        work = f"torch.tensor({number})"
        self.launch(stream, text, (), (part,), work, makes=True)

    def new_tensor(self, shape, stream):
        name = f"t{len(self.owners)}"
        self.tensors[name] = tuple(shape)
        self.owners[name] = stream
        return model.Part(name, tuple(shape), "")

    def odd(self):
        return self.random.randrange(3, 1 << 20) | 1

    def part(self, device, views):
        names = [name for name in self.tensors if self.devices[self.owners[name]] == device]
        if not names:
            return None
        name = self.random.choice(names)
        shape = self.tensors[name]
        return model.Part(name, shape, self.random.choice(model.views_of(shape, views)))

    def source(self, device, target):
        """Return a part that may be read while another one is written, or None."""
        for _ in range(30):
            part = self.part(device, model.READ_VIEWS)
            if part is None:
                return None
            try:
                fits = torch.broadcast_shapes(part.sizes, target.sizes) == target.sizes
            except RuntimeError:
                continue
            if fits and (part.name != target.name or not part.words & target.words):
                return part
        return None

    # -- launches

    def add_something(self):
        chosen = self.random.random()
        stream = self.random.randrange(len(self.devices))
        if chosen < 0.12:
            self.add_needless_order()
        elif chosen < 0.27 and len(self.tensors) > 1:
            name = self.random.choice(list(self.tensors))
            self.free(name)
            if self.random.random() < 0.7:
                self.make_tensor(self.owners[name])  # in the same memory
        self.add_launch(stream)

    def add_launch(self, stream):
        device = self.devices[stream]
        target = self.part(device, model.VIEWS)
        if target is None:
            self.make_tensor(stream)
            return
        operation = self.random.choice(
            ("fill", "copy", "add", "mul", "each", "clone", "cat", "cpu", "across", "copy", "add")
        )
        getattr(self, f"add_{operation}")(stream, device, target)

    def add_fill(self, stream, device, target):
        number = self.odd()
        self.launch(stream, f"{target}.fill_({number})", (), (target,), f"torch.tensor({number})")

    def add_copy(self, stream, device, target):
        if source := self.source(device, target):
            self.launch(stream, f"{target}.copy_({source})", (source,), (target,), "parts[0]")

    def add_add(self, stream, device, target):
        if source := self.source(device, target):
            number = self.odd()
            text = f"{target}.add_({source}, alpha={number})"
            work = f"parts[0] + parts[1] * {number}"
            self.launch(stream, text, (target, source), (target,), work)

    def add_mul(self, stream, device, target):
        first, second = self.source(device, target), self.source(device, target)
        if first and second and torch.broadcast_shapes(first.sizes, second.sizes) == target.sizes:
            text = f"torch.mul({first}, {second}, out={target})"
            self.launch(stream, text, (first, second), (target,), "parts[0] * parts[1] + 0")

    def add_each(self, stream, device, target):
        """Subtract from a tensor with a foreach operator."""
        if source := self.source(device, target):
            text = f"torch._foreach_sub_([{target}], [{source}])"
            self.launch(stream, text, (target, source), (target,), "parts[0] - parts[1]")

    def add_clone(self, stream, device, target):
        source = self.part(device, model.READ_VIEWS)
        if torch.Size(source.sizes).numel() <= model.SLOT:
            new = self.new_tensor(source.sizes, stream)
            text = f"{source}.clone(memory_format=torch.contiguous_format)"
            self.launch(stream, text, (source,), (new,), "parts[0]", makes=True)

    def add_cat(self, stream, device, target):
        first, second = self.part(device, model.VIEWS), self.part(device, model.VIEWS)
        sizes, others = torch.Size(first.sizes), torch.Size(second.sizes)
        fit = len(sizes) > 0 < len(others) and sizes[1:] == others[1:]
        if fit and sizes.numel() + others.numel() <= model.SLOT:
            new = self.new_tensor((sizes[0] + others[0], *sizes[1:]), stream)
            text = f"torch.cat(({first}, {second}))"
            self.launch(stream, text, (first, second), (new,), "torch.cat(parts)", makes=True)

    def add_cpu(self, stream, device, target):
        if self.random.random() < 0.3:
            self.launch(stream, f"{target}.cpu()", (target,), (), "parts[0]", waited_for=True)

    def add_across(self, stream, device, target):
        """Copy between devices. Both streams wait for the copy."""
        others = [s for s, other in enumerate(self.devices) if other != device]
        if others:
            other = self.random.choice(others)
            if source := self.source(self.devices[other], target):
                text = f"{target}.copy_({source}, non_blocking=True)"
                self.launch(stream, text, (source,), (target,), "parts[0]", other=other)

    def launch(self, stream, text, reads, writes, work, *, other=None, makes=False, **more):
        left = f"{writes[0]} = " if makes else ""
        streams = f"s{stream}" if other is None else f"s{other}), on(s{stream}"
        step = model.Step(
            f"with on({streams}): {left}{text}", "launch", stream, other, None, reads, writes, work,
            makes, **more,
        )  # fmt: skip
        self.add_ordered(step)

    # -- order

    def order(self):
        return model.Order(self.steps, self.devices)

    def add_ordered(self, step):
        """Add a launch, ordered after all launches that conflict with it."""
        while True:
            order = model.Order([*self.steps, step], self.devices)
            last = len(self.steps)
            unordered = [
                number
                for number, other in enumerate(self.steps)
                if other.is_launch
                and not order.is_ordered(number, last)
                and model.conflict(other, step)
            ]
            if not unordered:
                break
            self.add_order(self.random.choice(unordered), step)
        self.steps.append(step)

    def add_order(self, first, step):
        """Order a launch before the next one, in one of several ways."""
        stream, of_first = step.stream, self.steps[first].stream
        way = self.random.choice(("wait_stream", "event", "event", "early event", "host", "chain"))
        streams = [s for s in range(len(self.devices)) if s not in (stream, of_first)]
        if way == "wait_stream" or (way == "chain" and not streams):
            self.wait_stream(stream, of_first)
        elif way == "chain":
            between = self.random.choice(streams)
            self.wait_stream(between, of_first)
            self.wait_stream(stream, between)
        elif way == "event":
            self.wait(stream, self.record(of_first, len(self.steps)))
        elif way == "early event":
            self.wait(stream, self.record(of_first, first + 1))
        else:
            self.host_waits(of_first, first)

    def host_waits(self, stream, first):
        way = self.random.randrange(4)
        if way == 0:
            event = self.record(stream, first + 1)
            self.steps.append(model.Step(f"e{event}.synchronize()", "synchronize", event=event))
        elif way == 1:
            device = self.devices[stream]
            text = f"module.synchronize({device})"
            self.steps.append(model.Step(text, "synchronize", other=device))
        else:
            self.steps.append(model.Step(f"s{stream}.synchronize()", "synchronize", stream))

    def wait_stream(self, stream, other):
        text = f"s{stream}.wait_stream(s{other})"
        self.steps.append(model.Step(text, "wait_stream", stream, other))

    def wait(self, stream, event):
        way = self.random.choice((f"s{stream}.wait_event(e{event})", f"e{event}.wait(s{stream})"))
        self.steps.append(model.Step(way, "wait", stream, event=event))

    def record(self, stream, place):
        """Insert the record of an event into the program, and return the event's number."""
        at_end = place == len(self.steps)
        recorded = [
            step.event
            for step in self.steps
            if step.action == "record" and self.devices[step.stream] == self.devices[stream]
        ]
        if at_end and recorded and self.random.random() < 0.3:
            event = self.random.choice(recorded)  # again
        else:
            event = self.events
            self.events += 1
        self.steps.insert(
            place, model.Step(f"e{event}.record(s{stream})", "record", stream, event=event)
        )
        return event

    def add_needless_order(self):
        stream, other = (self.random.randrange(len(self.devices)) for _ in range(2))
        if stream != other:
            latest = [n for n, s in enumerate(self.steps) if s.is_launch and s.stream == other]
            self.add_order(latest[-1], model.Step("", "launch", stream))

    def free(self, name):
        """Free a tensor, after its stream waits for its users or they are recorded."""
        owner = self.owners[name]
        step = model.Step(f"del {name}", "free", owner, frees=name)
        whole = model.Step("", "launch", owner, None, None, (), (self.whole(name),))
        while True:
            order = model.Order([*self.steps, step], self.devices)
            unordered = [
                number
                for number, other in enumerate(self.steps)
                if other.is_launch
                and not order.is_ordered(number, len(self.steps))
                and model.conflict(other, whole)
            ]
            if not unordered:
                break
            first = self.random.choice(unordered)
            if self.random.random() < 0.5:
                stream = self.steps[first].stream
                text = f"{name}.record_stream(s{stream})"
                self.steps.append(model.Step(text, "use", stream, frees=name))
            else:
                self.add_order(first, whole)
        self.steps.append(step)
        del self.tensors[name]

    def whole(self, name):
        return model.Part(name, self.tensors[name], "")


# ---- running it ----------------------------------------------------------------------------------


@dataclass
class Run:
    """The result of running a program."""

    found: set  # pairs of steps
    kinds: Counter
    addresses: dict  # of tensors, by name


def run(maker, steps, name="random program"):
    """Run a program under the sanitizer."""
    addresses = {}
    names = {
        "torch": torch,
        "module": module,
        "on": module.stream,
        **{f"e{event}": module.Event() for event in range(maker.events)},
    }
    for stream, device in enumerate(maker.devices):
        place = torch.device(DEVICE, device)
        names[f"s{stream}"] = (
            module.Stream(place) if maker.is_new[stream] else module.default_stream(place)
        )
    C.sanitizer_start(lambda finding: None, list(KINDS), False)
    try:
        for number, step in enumerate(steps):
            exec(compile("\n" * number + step.text, f"<{name}>", "exec"), names)
            if step.makes:
                made = step.writes[0].name
                addresses[made] = names[made].data_ptr()
        for device in set(maker.devices):
            module.synchronize(device)
        findings = C.sanitizer_findings()
    finally:
        C.sanitizer_stop()

    def step_of(side):
        return side["stack"][0][1] - 1

    found = {(step_of(each["first"]), step_of(each["second"])) for each in findings}
    return Run(found, Counter(each["kind"] for each in findings), addresses)


# ---- judging it ----------------------------------------------------------------------------------


@dataclass
class Verdict:
    """The judgement of the sanitizer's findings in a program."""

    mistakes: list  # of the sanitizer, as sentences
    has_conflict: bool
    kinds: Counter
    results: int | None  # number of different results over all orders; None: too many orders


def judge(maker, steps, max_extensions=0):
    """Run a program, and compare the findings with the conflicts."""
    seen = run(maker, steps)
    order = model.Order(steps, maker.devices)

    def address(part):
        return seen.addresses[part.name]

    pairs = model.conflicts(steps, order, address)
    mistakes = [f"found {pair}, which is no conflict" for pair in seen.found - pairs]
    if pairs:
        # The sanitizer must find the first launch that conflicts with an earlier one.
        expected = min(second for _, second in pairs)
        if expected not in {second for _, second in seen.found}:
            mistakes.append(f"did not find {[pair for pair in pairs if pair[1] == expected]}")
    results = None
    if max_extensions:
        sequences = model.extensions(steps, order, max_extensions)
        if sequences is not None:
            results = len({model.result(steps, each, address) for each in sequences})
            if results > 1 and not pairs:
                mistakes.append("results differ without a conflict")
    return Verdict(mistakes, bool(pairs), seen.kinds, results)


def text_of(steps):
    """Return the text of a program, with the step numbers that mistakes name."""
    return "\n".join(f"{number:3} {step.text}" for number, step in enumerate(steps))


def variants(maker):
    """Yield the program, then each variant in which one ordering step is missing."""
    yield maker.steps
    for number, step in enumerate(maker.steps):
        if step.action in ORDERING:
            yield [*maker.steps[:number], step.removed(), *maker.steps[number + 1 :]]


def check(seed, launches, *, max_variants, max_extensions=0):
    """Judge a program and some of its variants. The first verdict is the whole program's.

    Raises
    ------
    AssertionError
        If the sanitizer makes a mistake. The message contains the program.
    """
    maker = Maker(seed, launches)
    whole, *others = variants(maker)
    chosen = [whole, *maker.random.sample(others, min(max_variants, len(others)))]
    verdicts = []
    for steps in chosen:
        verdict = judge(maker, steps, max_extensions)
        if steps is whole and verdict.has_conflict:
            verdict.mistakes.append("the program is not right")
        assert not verdict.mistakes, f"seed {seed}, {launches} launches: {verdict.mistakes}\n" + (
            f"streams are on devices {maker.devices}\n{text_of(steps)}"
        )
        verdicts.append(verdict)
    return verdicts


def main():
    """Judge many programs, and print statistics."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 3000), metavar=("FROM", "TO"))
    parser.add_argument("--launches", type=int, default=14)
    parser.add_argument("--variants", type=int, default=3)
    parser.add_argument(
        "--extensions",
        type=int,
        default=0,
        help="maximum number of orders whose results are compared",
    )
    options = parser.parse_args()
    counts = Counter()
    for seed in range(*options.seeds):
        try:
            verdicts = check(
                seed,
                options.launches,
                max_variants=options.variants,
                max_extensions=options.extensions,
            )
        except AssertionError as mistake:
            print(mistake, flush=True)
            counts["programs with mistakes"] += 1
            continue
        counts.update(counts_of(verdicts))
    for what, count in counts.items():
        print(f"{count:8} {what}")


def counts_of(verdicts):
    """Return statistics on verdicts."""
    counts = Counter({"right programs": 1, "programs without a step": len(verdicts) - 1})
    for verdict in verdicts[1:]:
        counts["programs with a conflict"] += verdict.has_conflict
        counts.update({f"findings: {kind}": count for kind, count in verdict.kinds.items()})
        if verdict.results is not None:
            conflict = "a conflict" if verdict.has_conflict else "no conflict"
            differ = "results differ" if verdict.results > 1 else "results do not differ"
            counts[f"with {conflict}, {differ}"] += 1
    return counts


if __name__ == "__main__":
    main()
