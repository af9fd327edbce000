"""Source files as people write them, the change that a fix asks for, and the expected file or words. Not a test."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rn50_advisor.advisor.model.input.data_loaders import NO_WORKERS
from rn50_advisor.advisor.model.job_changes import CallChange

MORE = CallChange.of("DataLoader", num_workers=6, persistent_workers=True)
ONLY_MORE = CallChange.of("DataLoader", num_workers=6)


@dataclass(frozen=True)
class Snippet:
    """`after`: the file with the diff applied (None: no diff). `at`: text in the line of the call."""

    name: str
    before: str
    after: str | None
    words: tuple[str, ...] | None = ()  # None: there is nothing to add to the fix's own words
    change: CallChange = MORE
    known: dict[str, Any] = field(default_factory=lambda: {"num_workers": 2, "persistent_workers": False})
    at: str = "DataLoader("
    argv: tuple[str, ...] = ("python", "train.py")
    through: str = ""


def _replaced(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _case(name: str, before: str, *pairs: tuple[str, str], **more: Any) -> Snippet:
    return Snippet(name, before, _replaced(before, *pairs), **more)


def _marked(name: str, text: str, **more: Any) -> Snippet:
    """`«a→b»` in the text: `a` before, `b` after."""
    before, after = (re.sub("«(.*?)→(.*?)»", rf"\{kept}", text, flags=re.DOTALL) for kept in (1, 2))
    return Snippet(name, before, after, **more)


def _words(name: str, before: str, words: str, **more: Any) -> Snippet:
    return Snippet(name, before, None, (words,), **more)


IN_PROCESS = {"num_workers": 0, "persistent_workers": False, "pin_memory": False}

PLAIN = "loader = DataLoader(data, batch_size=8, num_workers=2)\n"

ONE_A_LINE = """\
from torch.utils import data

def loaders(train):
    return data.DataLoader(
        train,
        batch_size=64,  # what fits
        num_workers=«2→6»,  # see the wiki«→
        persistent_workers=True,»
    )
"""

HANGING = """\
loader = torch.utils.data.DataLoader(train,
                                     batch_size=64,
                                     num_workers=«2→6,
                                     persistent_workers=True»)  # as always
"""

COMMENT_LAST = """\
loader = DataLoader(
    train,
    num_workers=«2→6,»  # the machine is small
«→    persistent_workers=True
»)
"""

WRAPPED_LONG = """\
train_loader = torch.utils.data.DataLoader(
    train_dataset, batch_size=batch_size_of_this_rank, shuffle=(train_sampler is None),
    num_workers=«2→6», pin_memory=True, sampler=train_sampler, collate_fn=collate_on_this_rank«→,
    persistent_workers=True»)
"""

NESTED = (
    "model, loader = accelerator.prepare(model, DataLoader(ImageFolder(root, transform=Compose([A(1), B(2)])), "
    "32«→, num_workers=6, persistent_workers=True»))\n"
)

TUTORIAL = """\
dataloaders = {x: torch.utils.data.DataLoader(image_datasets[x], batch_size=4,
                                             shuffle=True, num_workers=«2→6, persistent_workers=True»)
              for x in ['train', 'val']}
"""

IMAGENET = """\
import argparse

parser = argparse.ArgumentParser(description='PyTorch ImageNet Training')
parser.add_argument('data', metavar='DIR', nargs='?', default='imagenet')
parser.add_argument('-j', '--workers', default=2, type=int, metavar='N',
                    help='number of data loading workers (default: 2)')
parser.add_argument('-b', '--batch-size', default=256, type=int)


def main():
    args = parser.parse_args()
    main_worker(args)


def main_worker(args):
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=(train_sampler is None),
        num_workers=args.workers, pin_memory=True, sampler=train_sampler)
"""

IMAGENET_SPAWNING = IMAGENET.replace(
    "    train_loader =", "    args.workers = int((args.workers + gpus - 1) / gpus)\n    train_loader ="
)

REFERENCES = """\
def get_args_parser(add_help=True):
    import argparse
    parser = argparse.ArgumentParser(description="PyTorch Classification Training", add_help=add_help)
    parser.add_argument(
        "-j", "--workers", default=«2→6», type=int, metavar="N", help="number of data loading workers (default: 16)"
    )
    return parser


def main(args):
    data_loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=train_sampler,
        num_workers=args.workers,
        pin_memory=True,
        collate_fn=collate_fn,
«→        persistent_workers=args.workers > 0,
»    )
"""

TIMM = """\
parser.add_argument('-j', '--workers', type=int, default=«2→6», metavar='N')
loader_train = create_loader(
    dataset_train,
    input_size=data_config['input_size'],
    num_workers=args.workers,
    pin_memory=args.pin_mem,
)
"""

FACTORY = """\
def make_loader(data, size, workers=2):
    return DataLoader(data, size, num_workers=workers)


def main():
    args = get_args()
    train = make_loader(load("train"), 32{passed})
    test = make_loader(load("test"), 64{passed})
"""

LIGHTNING = """\
class MNISTDataModule(pl.LightningDataModule):
    def __init__(self, data_dir: str = "./data", batch_size: int = 64, num_workers: int = 2):
        super().__init__()
        self.num_workers = num_workers

    def train_dataloader(self):
        return DataLoader(self.mnist_train, batch_size=self.batch_size, num_workers=self.num_workers)


trainer.fit(model, datamodule=MNISTDataModule(batch_size=32))
"""

HPARAMS = LIGHTNING.replace(
    "        self.num_workers = num_workers\n", "        self.save_hyperparameters()\n"
).replace("num_workers=self.num_workers", "num_workers=self.hparams.num_workers")

DATACLASS = """\
@dataclass
class Config:
    data: str = "."
    num_workers: int = 2


def main(cfg: Config):
    loader = DataLoader(Images(cfg.data), num_workers=cfg.num_workers)


main(Config({made}))
"""

CONSTANT = """\
NUM_WORKERS = 2  # of this machine

def train():
    return DataLoader(data, num_workers=NUM_WORKERS)
"""

CONFIG_DICT = """\
config = {"data": {"root": "/data", "num_workers": «2→6»}, "epochs": 3}
loader = DataLoader(data, num_workers=config["data"]["num_workers"])
"""

CLICK = """\
@click.command()
@click.option("--num-workers", default=«2→6»)
def main(num_workers):
    loader = DataLoader(data, num_workers=num_workers)
"""

ABSL = (
    'flags.DEFINE_integer("workers", «2→6», "loader processes")\nloader = DataLoader(data, num_workers=FLAGS.workers)\n'
)

SUBCLASS = """\
class Loader(torch.utils.data.DataLoader):
    def __init__(self, data):
        super().__init__(data, num_workers=«2→6»)
"""

FLAGS = """\
parser.add_argument("--workers", type=int, default=«2→6»)
parser.add_argument("--persistent", action="store_true")
loader = DataLoader(data, num_workers=args.workers, persistent_workers=args.persistent)
"""

FULL = """\
loader = DataLoader(
    data,
    num_workers=«2,
    prefetch_factor=4→0»,
«    persistent_workers=True,
    multiprocessing_context="spawn",
→»)
"""

TRAINER = """\
args = TrainingArguments("out", per_device_train_batch_size=8, report_to=[])
trainer = Trainer(model, args, train_dataset=data)
trainer.train()
"""

NOT_EDITED = (
    ("the literal is not what ran", "loader = DataLoader(data, num_workers=4)\n"),
    ("two calls on one line", "a, b = DataLoader(data, num_workers=2), DataLoader(other, num_workers=2)\n"),
    ("a factory that was not recorded", "loader = make_loader(data)  # a DataLoader(\n"),
    ("no Python", "loader = DataLoader(data, num_workers=2\n"),
    ("nested like nothing a person writes", "x = " + "-" * 3000 + "1\nloader = DataLoader(data, num_workers=2)\n"),
    ("lines that are counted in two ways", "x = 1\rloader = DataLoader(data, num_workers=2)\n"),
)

# The literal of the same name in the first line belongs to another scope.
ANOTHER_NAME = (
    ("a lambda's", "workers = 2\nmake = lambda workers: DataLoader(data, num_workers=workers)\n"),
    ("a class's", "workers = 2\nclass Job:\n    workers = 2\n    loader = DataLoader(data, num_workers=workers)\n"),
    (
        "a case's",
        "workers = 2\nmatch v:\n    case [workers]:\n        loader = DataLoader(data, num_workers=workers)\n",
    ),
    (
        "an inner function's, too",
        "def make():\n    workers = 2\n    def more():\n        nonlocal workers\n        workers += 1\n    more()\n"
        "    return DataLoader(data, num_workers=workers)\n",
    ),
)

SNIPPETS = (
    _case("one line", PLAIN, ("num_workers=2)", "num_workers=6, persistent_workers=True)")),
    _marked(
        "a loader without the argument",
        "loader = DataLoader(data«→, num_workers=6, persistent_workers=True»)\n",
        known=IN_PROCESS,
    ),
    _marked("one argument a line", ONE_A_LINE),
    _marked("hanging arguments", HANGING),
    _marked("a comment on the last one", COMMENT_LAST),
    _marked("no space on the line", WRAPPED_LONG),
    _marked("a call in a call", NESTED, known=IN_PROCESS),
    _marked("a comprehension", TUTORIAL),
    _marked(
        "by position",
        "loader = DataLoader(data, 8, True, None, None, «2→6», collate«→, persistent_workers=True»)\n",
    ),
    _marked("tabs", "def f():\n\treturn DataLoader(\n\t\tdata,\n\t\tnum_workers=«2→6»,\n\t)\n", change=ONLY_MORE),
    _marked(
        "carriage returns",
        "def f():\r\n    return DataLoader(\r\n        data,\r\n        num_workers=«2→6,\r\n"
        "        persistent_workers=True»,\r\n    )\r\n",
    ),
    _case("no end of line", PLAIN.rstrip(), ("=2)", "=6)"), change=ONLY_MORE),
    _marked("other alphabets", 'größe = "日本"; loader = DataLoader(data, num_workers=«2→6»)\n', change=ONLY_MORE),
    _case("a mark of the byte order", "\ufeff" + PLAIN, ("=2)", "=6)"), change=ONLY_MORE),
    _marked(
        "another name",
        "from torch.utils.data import DataLoader as Loader\nloader = Loader(data«→, num_workers=6»)\n",
        change=ONLY_MORE,
        known=IN_PROCESS,
        at=" Loader(data)",
    ),
    _marked(
        "what is so already is left",
        "loader = DataLoader(data, num_workers=«2→6», persistent_workers=True)\n",
        known={"num_workers": 2, "persistent_workers": True},
    ),
    _marked("false becomes true", "loader = DataLoader(data, num_workers=«2→6», persistent_workers=«False→True»)\n"),
    _case(
        "the order of arrival",
        PLAIN,
        ("=2)", "=2, in_order=False)"),
        change=CallChange.of("DataLoader", num_workers=2, in_order=False),
        known={"num_workers": 2, "in_order": True},
    ),
    _marked("no workers: what needs them goes too", FULL, change=NO_WORKERS),
    Snippet(
        "persistent workers made anew in each epoch",
        "for epoch in range(3):\n    loader = DataLoader(data, num_workers=2)\n",
        None,
        None,
        change=CallChange.of("DataLoader", num_workers=2, persistent_workers=True),
    ),
    _case(
        "pytorch/examples",
        IMAGENET,
        ("default=2, type=int, metavar='N',", "default=6, type=int, metavar='N',"),
        ("sampler=train_sampler)", "sampler=train_sampler,\n        persistent_workers=args.workers > 0)"),
        words=("pass --workers 6",),
    ),
    _case(
        "pytorch/examples, set on the command line",
        IMAGENET,
        ("sampler=train_sampler)", "sampler=train_sampler,\n        persistent_workers=args.workers > 0)"),
        words=("pass --workers 6 instead of --workers 2",),
        argv=("python", "main.py", "-j", "2", "imagenet"),
    ),
    _case(
        "pytorch/examples, which shares workers among GPUs",
        IMAGENET_SPAWNING,
        ("sampler=train_sampler)", "sampler=train_sampler,\n        persistent_workers=args.workers > 0)"),
        words=("pass --workers 6 (line 16 may change it)",),
    ),
    _words(
        "pytorch/examples, which did share them",
        IMAGENET_SPAWNING,
        "num_workers is `args.workers` there",
        known={"num_workers": 1, "persistent_workers": False},
    ),
    _marked("torchvision's references", REFERENCES, words=("pass --workers 6",)),
    _marked(
        "timm",
        TIMM,
        words=("pass --workers 6", "persistent_workers=True where the loader itself is made"),
        at="create_loader(",
        through="timm.data.loader.create_loader",
    ),
    _case(
        "a factory of the user's, its default",
        FACTORY.format(passed=""),
        ("workers=2", "workers=6"),
        ("num_workers=workers)", "num_workers=workers, persistent_workers=workers > 0)"),
    ),
    _case(
        "a factory of the user's, an option",
        'p.add_argument("--nw", default="2", type=int)\n' + FACTORY.format(passed=", args.nw"),
        ('default="2"', "default='6'"),
        words=("pass --nw 6",),
        change=ONLY_MORE,
    ),
    _words(
        "a factory of the user's, called in two ways",
        FACTORY.format(passed=", 2").replace('load("test"), 64, 2', 'load("test"), 64, 1'),
        "num_workers is `workers` there",
    ),
    _case("Lightning", LIGHTNING, ("num_workers: int = 2", "num_workers: int = 6"), change=ONLY_MORE),
    _case("Lightning's hyperparameters", HPARAMS, ("num_workers: int = 2", "num_workers: int = 6"), change=ONLY_MORE),
    _case("a dataclass", DATACLASS.format(made=""), ("int = 2", "int = 6"), change=ONLY_MORE),
    _case(
        "a dataclass with a field that says more",
        DATACLASS.format(made="").replace("int = 2", 'int = field(default=2, metadata={"help": "processes"})'),
        ("default=2", "default=6"),
        change=ONLY_MORE,
    ),
    _case(
        "a dataclass that Hugging Face's parser fills",
        DATACLASS.format(made="").replace(
            "main(Config())", "main(*HfArgumentParser(Config).parse_args_into_dataclasses())"
        ),
        ("int = 2", "int = 6"),
        change=ONLY_MORE,
        words=("pass --num_workers 6",),
    ),
    _case(
        "a dataclass made with it",
        DATACLASS.format(made="num_workers=2").replace("int = 2", "int = 4"),
        ("Config(num_workers=2)", "Config(num_workers=6)"),
        change=ONLY_MORE,
    ),
    _case(
        "a constant",
        CONSTANT,
        ("NUM_WORKERS = 2 ", "NUM_WORKERS = 6 "),
        ("num_workers=NUM_WORKERS)", "num_workers=NUM_WORKERS, persistent_workers=NUM_WORKERS > 0)"),
    ),
    _marked("a dict", CONFIG_DICT, change=ONLY_MORE),
    _marked(
        "an option by another name",
        "add = parser.add_argument\nadd('--workers', default=«2→6»)\n"
        "loader = DataLoader(data, num_workers=args.workers)\n",
        change=ONLY_MORE,
        words=("pass --workers 6",),
    ),
    _marked(
        "what a loop runs over",
        "for batch in DataLoader(data, num_workers=2«→, persistent_workers=True»):\n    pass\n",
        change=CallChange.of("DataLoader", num_workers=2, persistent_workers=True),
    ),
    _marked("click", CLICK, change=ONLY_MORE, words=("pass --num-workers 6",)),
    _marked("absl", ABSL, change=ONLY_MORE, words=("pass --workers 6",)),
    _words(
        "the environment",
        'loader = DataLoader(data, num_workers=int(os.environ.get("WORKERS", "2")))\n',
        "set WORKERS=6",
        change=ONLY_MORE,
    ),
    _marked("a subclass", SUBCLASS, change=ONLY_MORE, at="super().__init__(data"),
    _marked("a switch of the command line", FLAGS, words=("pass --workers 6", "pass --persistent")),
    _case(
        "prefetching by a variable number of workers",
        CONSTANT,
        ("num_workers=NUM_WORKERS)", "num_workers=NUM_WORKERS, prefetch_factor=4 if NUM_WORKERS else None)"),
        change=CallChange.of("DataLoader", num_workers=2, prefetch_factor=4),
        known={"num_workers": 2, "prefetch_factor": 2},
    ),
    _words(
        "computed",
        "workers = min(8, os.cpu_count())\nloader = DataLoader(data, num_workers=workers)\n",
        "num_workers is `workers` there, `min(8, os.cpu_count())` in line 1",
    ),
    _words(
        "set in two places",
        "workers = 2\nif fast:\n    workers = 8\nloader = DataLoader(data, num_workers=workers)\n",
        "num_workers is `workers` there",
    ),
    *(_words(f"a name that is {name}", before, "num_workers is `workers` there") for name, before in ANOTHER_NAME),
    _words(
        "one of some choices",
        "parser.add_argument('--workers', default=2, choices=(0, 2, 4))\nloader = DataLoader(d, num_workers=args.workers)\n",
        "num_workers is `args.workers` there",
    ),
    _words(
        "a loop's",
        "for workers in (1, 2):\n    loader = DataLoader(data, num_workers=workers)\n",
        "num_workers is `workers` there",
    ),
    _marked(
        "a dict in sight",
        'options = {"batch_size": 8, "num_workers": «2→6»}\n'
        "loader = DataLoader(data, **options«→, persistent_workers=True»)\n",
    ),
    _marked(
        "another dict in sight",
        "def load(data):\n    options = dict(batch_size=8, num_workers=«2→6»)\n"
        "    return DataLoader(data, **options)\n",
        change=ONLY_MORE,
    ),
    _words(
        "a dict that grows",
        'options = {"num_workers": 2}\noptions.update(more)\nloader = DataLoader(data, **options)\n',
        "its arguments come from `**options` there",
    ),
    _words(
        "arguments from elsewhere",
        "loader = DataLoader(*arguments, num_workers=2)\n",
        "its arguments come from `*arguments` there",
    ),
    _words(
        "a dict from elsewhere",
        "def load(data, **options):\n    return DataLoader(data, num_workers=2, **options)\n",
        "its arguments come from `**options` there",
    ),
    _marked(
        "persistence that follows the workers",
        "nw = args.workers\n"
        "loader = DataLoader(data, num_workers=nw, persistent_workers=True if nw > 0 else False)\n"
        'p.add_argument("--workers", default=«0→6»)\n',
        known=IN_PROCESS,
        words=("pass --workers 6",),
    ),
    _words(
        "persistence that follows the workers by another name",
        "keep = args.workers > 0\nloader = DataLoader(data, num_workers=args.workers, persistent_workers=keep)\n"
        'p.add_argument("--workers", default=4)\n',
        "pass --workers 6 instead of --workers 0",
        known=IN_PROCESS,
        argv=("python", "train.py", "--workers=0"),
    ),
    _case(
        "a Hugging Face trainer",
        TRAINER,
        ("report_to=[])", "report_to=[], dataloader_num_workers=6, dataloader_persistent_workers=True)"),
        known=IN_PROCESS,
        at="trainer.train()",
        through="transformers.trainer.get_train_dataloader",
    ),
    _case(
        "a Hugging Face trainer with the setting",
        TRAINER.replace("report_to=[]", "dataloader_num_workers=2"),
        ("=2)", "=6)"),
        change=ONLY_MORE,
        at="trainer.train()",
        through="transformers.trainer.get_train_dataloader",
    ),
    Snippet(
        "a Hugging Face trainer without such a setting",
        TRAINER,
        None,
        None,
        change=CallChange.of("DataLoader", num_workers=2, in_order=False),
        known={"num_workers": 2, "in_order": True},
        at="trainer.train()",
        through="transformers.trainer.get_train_dataloader",
    ),
    _words(
        "a Hugging Face script",
        "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(args=args).train()\n",
        "pass --dataloader_num_workers 6",
        change=ONLY_MORE,
        at=".train()",
        through="transformers.trainer.get_train_dataloader",
    ),
    _marked(
        "no workers, where persistence follows",
        "nw = args.workers\nloader = DataLoader(data, num_workers=nw, persistent_workers=nw > 0)\n"
        'p.add_argument("--workers", default=«2→0»)\n',
        change=NO_WORKERS,
        known={"num_workers": 2, "persistent_workers": True},
        words=("pass --workers 0",),
    ),
    _marked(
        "DDP's search",
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "net = DDP(net, find_unused_parameters=«True→False»)\n",
        change=CallChange.of("DistributedDataParallel", find_unused_parameters=False),
        known={"find_unused_parameters": True},
        at="= DDP(",
    ),
    *(Snippet(name, text, None, None) for name, text in NOT_EDITED),
)
