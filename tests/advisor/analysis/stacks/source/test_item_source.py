"""From the source of the functions on a stack to the place where the work of its innermost line could be done once for all items."""

from __future__ import annotations

import textwrap

import pytest

from rn50_advisor.advisor.analysis.stacks.source.item_source import same_for_all_items
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entry
from rn50_advisor.advisor.model.recording import Source

FILE = "/job/data.py"
IMPORTS = "import math, random, re\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\n"
TAPS = """\
RATE = 16000

def sinc(cut, taps):
    n = np.arange(taps) - taps // 2
    kernel = np.zeros(taps)
    for at in range(taps):
        kernel[at] = 2 * cut / RATE * math.cos(at)  # inside
    return kernel * np.hamming(taps)
"""


def at(text: str, part: str) -> int:
    (line,) = [n for n, words in enumerate(text.splitlines(), 1) if part in words]
    return line


def place(text: str, *stack: tuple[str, str], more: str = "") -> str | None:
    """The words at the place that is found. `stack`: (function, words of its line), outermost first."""
    entries = [Entry(FILE, at(text, words), function, "called") for function, words in stack]
    others = (Source("/job/train.py", "", more),) if more else ()
    found = same_for_all_items((Source(FILE, "", text), *others), entries)
    return None if found is None else text.splitlines()[found.line - 1].split("  #")[0].strip()


def item(line: str, after: str = "", *, init: str = "", more: str = "", rest: str = "") -> bool:
    """True if a line of `__getitem__` computes the same for each item. `init`: a line of `__init__`; `rest`: more methods."""
    text = (
        IMPORTS
        + TAPS
        + textwrap.dedent("""\
        class Clips(Dataset):
            width = 512
            def __init__(self, clips, cut, generator):
                self.clips, self.cut, self.generator = clips, cut, generator
                self.epoch = 0
                {init}
            def __getitem__(self, index):
                clip = self.clips[index]
                {line}  # here
                {after}
                return clip
            {rest}
        """).format(line=line, after=after or "pass", init=init or "pass", rest=rest)
    )
    return place(text, ("__getitem__", "# here"), more=more) is not None


@pytest.mark.parametrize(
    "line",
    [
        "window = np.hanning(400)",
        "kernel = sinc(self.cut, 101)",
        "window = torch.hann_window(self.width) / self.width",
        "table = {c: n for n, c in enumerate(sorted('abcdefgh'))}",
        "pattern = re.compile('|'.join(str(n) for n in range(900)))",
        "grid = np.stack(np.meshgrid(np.arange(RATE // 100), np.arange(self.width)))",
        "bank = F.normalize(torch.eye(self.width), dim=1)",
    ],
)
def test_what_uses_nothing_of_the_item_is_the_same_for_all(line: str) -> None:
    assert item(line)


@pytest.mark.parametrize(
    "line",
    [
        "window = np.hanning(len(clip))",
        "grid = torch.arange(clip.shape[0])",
        "mask = torch.ones(clip.size(0))",
        "zeros = torch.zeros_like(clip)",
        "kernel = sinc(index, 101)",
        "kernel = sinc(random.uniform(100, 200), 101)",
        "kernel = sinc(np.random.uniform(100, 200), 101)",
        "noise = torch.randn(self.width, generator=self.generator)",
        "noise = self.generator.standard_normal(512)",
        "table = np.loadtxt('labels.txt')",
        "table = json.load(open('labels.json'))",
        "other = self.clips[index - 1]",
        "level = np.full(512, time.time())",
        "view = clip.reshape(4, 4)",
        "values = scipy.stats.norm.rvs(512)",
        "for part in range(self.width): pass",
        "if self.width > 9: pass",
    ],
)
def test_what_uses_the_item_chance_or_a_file_is_not(line: str) -> None:
    assert not item(line)


def test_what_changes_during_training_is_not_the_same() -> None:
    line = "kernel = sinc(self.epoch, 101)"
    assert item(line)
    assert not item(line, rest="def set_epoch(self, epoch): self.epoch = epoch")
    assert not item(line, more="for epoch in range(3):\n    data.epoch = epoch\n")
    assert not item(line, more="setattr(data, 'epoch', 3)\n")
    assert not item(line, more="class Harder(Clips):\n    def harder(self):\n        self.epoch += 1\n")
    assert item(line, more="class Other:\n    def later(self):\n        self.epoch += 1\n")


def test_a_global_that_a_function_changes_is_not_the_same() -> None:
    line = "window = np.hanning(RATE)"
    assert item(line)
    assert not item(line, rest="def later(self):\n        global RATE\n        RATE = 8000")


def test_what_is_filled_with_the_item_is_needed_anew() -> None:
    canvas = "canvas = np.zeros((512, 512))"
    assert item(canvas, "clip = clip * canvas.mean()")
    assert not item(canvas, "canvas[index] = clip")
    assert not item(canvas, "canvas += clip")
    assert not item(canvas, "draw(canvas, clip)", rest="pass\ndef draw(canvas, clip):\n    canvas[0] = clip")
    assert not item(canvas, "self.painter.paint(canvas, clip)")


@pytest.mark.parametrize("test", ["self.kernel is None", "not hasattr(self, 'kernel')", "'kernel' not in self.kernel"])
def test_what_is_kept_after_the_first_item_is_not_repeated(test: str) -> None:
    text = (
        IMPORTS
        + TAPS
        + textwrap.dedent(f"""\
        class Clips:
            def __getitem__(self, index):
                if {test}:
                    self.kernel = sinc(100, 101)  # here
                return self.kernel
        """)
    )
    assert place(text, ("__getitem__", "# here"), ("sinc", "# inside")) is None


CALLED = (
    IMPORTS
    + TAPS
    + textwrap.dedent("""\
    class Filters:
        def __init__(self, cut):
            self.cut = cut
            self.taps = 51
        def bank(self):
            return [sinc(self.cut, n) for n in range(self.taps)]  # bank
        def of(self, clip):
            bank = self.bank()  # of
            return bank[0] @ clip

    class Clips:
        def __init__(self, clips):
            self.clips, self.filters = clips, Filters(100)
            self.each = [Filters(n) for n in range(9)]
        def __getitem__(self, index):
            return self.filters.of(self.clips[index])  # item
        def other(self, index):
            return self.each[index].of(self.clips[index])  # each

    class Bank:
        def __init__(self, cut):
            self.kernel = sinc(cut, 101)  # init

    def collate(batch):
        bank = Bank(3000)  # bank of class
        return [bank.kernel @ clip for clip in batch]

    def batches():
        start = sinc(1, 2)  # before
        for n in range(9):
            kernel = sinc(3, 4)  # in loop
            yield n, kernel

    class Stream:
        def __iter__(self):
            for each in batches():  # stream
                yield each
    """)
)


def test_the_place_is_as_far_out_as_it_can_be() -> None:
    inside = ("sinc", "# inside")
    of = (("of", "# of"), ("bank", "# bank"), inside)
    assert place(CALLED.replace("# bank of class", ""), ("__getitem__", "# item"), *of) == "bank = self.bank()"
    assert place(CALLED, ("collate", "# bank of class"), ("__init__", "# init"), inside) == "bank = Bank(3000)"


def test_a_call_in_the_iterable_of_a_comprehension_is_judged_outside_of_it() -> None:
    text = IMPORTS + textwrap.dedent("""\
        def mel(hertz):
            return 2595 * math.log10(1 + hertz / 700)
        def bank(rate):
            points = [10 ** (m / 2595) for m in np.linspace(mel(0), mel(rate), 40)]
            return [math.sin(point) for point in points]  # inside
        class Clips:
            def __getitem__(self, index):
                return bank(16000), [bank(n) for n in range(len(bank(index)))]  # item
        """)
    assert place(text, ("__getitem__", "# item"), ("bank", "# inside")) is None
    constant = text.replace(", [bank(n) for n in range(len(bank(index)))]", "")
    assert place(constant, ("__getitem__", "# item"), ("bank", "# inside")) == "return bank(16000)"


def test_an_object_that_differs_with_the_item_has_other_attributes() -> None:
    text = CALLED.replace("# bank of class", "").replace("def other", "def __call__")
    stack = (("of", "# of"), ("bank", "# bank"), ("sinc", "# inside"))
    assert place(text, ("__call__", "# each"), *stack) is None
    assert place(text, *stack) is None  # a library calls this method, perhaps on the item


def test_a_stream_repeats_what_it_does_in_its_loop() -> None:
    outer, inside = ("__iter__", "# stream"), ("sinc", "# inside")
    assert place(CALLED, outer, ("batches", "# in loop"), inside) == "kernel = sinc(3, 4)"
    assert place(CALLED, outer, ("batches", "# before"), inside) is None


def test_a_function_that_draws_numbers_is_not_the_place_for_its_lines_that_do_not() -> None:
    text = CALLED.replace("kernel = np.zeros(taps)", "kernel = np.random.rand(taps)")
    stack = (("collate", "# bank of class"), ("__init__", "# init"), ("sinc", "n = np.arange(taps)"))
    assert place(text, *stack) == "n = np.arange(taps) - taps // 2"


def test_without_the_source_nothing_is_known() -> None:
    assert same_for_all_items((), [Entry(FILE, 3, "__getitem__", "called")]) is None
    assert same_for_all_items((Source(FILE, "", CALLED),), []) is None
