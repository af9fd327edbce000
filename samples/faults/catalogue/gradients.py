"""Gradients, logits and activations that a job computes for nothing or twice, and optimizers that take long to use them."""

from __future__ import annotations

from typing import Any

from samples.faults.catalogue.healthy import healthy
from samples.faults.scenario import Job, Scenario, Untouched, fault, sound_twin

perceptron = Job("faults/jobs/compute/perceptron.py")
blanks = Job("faults/jobs/compute/blanks.py")
teachers = Job("faults/jobs/compute/teachers.py")
adversarial = Job("faults/jobs/compute/adversarial.py")
pictures = Job("faults/jobs/compute/cifar.py")


def seeded(name: str, rule: str, job: Job, **more: Any) -> Scenario:
    untouched: tuple[Untouched, ...] = ("forward", "backward") if rule == "CMP014" else ("forward",)
    return fault(name, rule, job, untouched=untouched, **more)


LARGE = ("--batch=16", "--width=1024", "--layers=4", "--steps=300")
SMALL = ("--batch=16", "--width=128", "--layers=24", "--steps=1200")
MODERATE = ("--batch=256", "--width=768", "--layers=4", "--steps=300")
TUNED = ("--batch=256", "--width=768", "--steps=400")
LAST_LAYER = ("--model=resnet18", "--steps=150", "--head-only")
MANY = ("--batch=16", "--width=64", "--layers=150", "--steps=1500", "--optimizer=AdamW", "--fused")
DEEP = ("--batch=256", "--layers=12", "--steps=300")
COMPETING = ("--perceptrons", "--width=512", "--judge=512", "--steps=400")
EXACTING = ("--judge=48", "--width=16", "--detached")
TWO_LOSSES = ("--second-loss=apart", "--width=512", "--batch=64", "--steps=600")
LENIENT = ("--judge=12", "--width=32", "--detached", "--steps=250")
SCENARIOS = (
    seeded("optimizer-not-fused", "CMP014", perceptron(*LARGE, "--optimizer=AdamW"), fixed="--fused"),
    seeded("optimizer-of-many-tensors-not-fused", "CMP014", perceptron(*SMALL, "--optimizer=Adam"), fixed="--fused"),
    seeded(
        "optimizer-not-fused-a-little",
        "CMP014",
        perceptron(*MODERATE, "--optimizer=AdamW"),
        fixed="--fused",
        strength="just above",
    ),
    seeded(
        "optimizer-not-fused-hardly",
        "CMP014",
        perceptron("--batch=1536", "--width=256", "--steps=200", "--optimizer=AdamW"),
        strength="just below",
    ),
    fault(
        "last-layer-alone-in-the-optimizer",
        "CMP020",
        pictures(*LAST_LAYER),
        line="optimizer = torch.optim.SGD(",
        fixed="--frozen",
        note="the other layers get gradients, too",
    ),
    fault(
        "last-layers-alone-in-the-optimizer",
        "CMP020",
        perceptron(*TUNED, "--updated=3"),
        fixed="--frozen",
        line="optimizer = make(",
    ),
    fault(
        "biases-alone-in-the-optimizer",
        "CMP020",
        perceptron(*TUNED, "--updated=biases"),
        fixed="--frozen",
        line="optimizer = make(",
        note="no layer can be left out of the backward pass",
    ),
    fault(
        "first-layer-not-in-the-optimizer",
        "CMP020",
        perceptron(*TUNED, "--layers=16", "--updated=15"),
        strength="just below",
    ),
    fault(
        "teacher-with-gradients",
        "CMP020",
        teachers("--steps=250"),
        line="found = self.teacher(x)",
        fixed=("--steps=400", "--teacher=no_grad"),
        note="its outputs enter the loss; nothing that learns lies behind it",
    ),
    fault(
        "small-teacher-with-gradients",
        "CMP020",
        teachers("--width=96", "--layers=1", "--steps=400"),
        line="found = self.teacher(x)",
        fixed=("--steps=500", "--teacher=no_grad"),
        strength="just above",
    ),
    fault(
        "tiny-teacher-with-gradients",
        "CMP020",
        teachers("--width=8", "--layers=1", "--steps=400"),
        strength="just above",
        fixed=("--steps=500", "--teacher=frozen"),
    ),
    fault(
        "judge-of-pictures-with-gradients",
        "CMP020",
        teachers("--of=pictures", "--width=32", "--steps=150"),
        line="return mse_loss(self.teacher(self.net(noisy))",
        fixed=("--steps=200", "--teacher=frozen"),
        note="gradients pass through it to the network that learns",
    ),
    fault(
        "logits-of-all-positions",
        "CMP025",
        blanks(),
        line="return cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)",
        fixed=("--logits=blanks", "--steps=400"),
    ),
    fault(
        "logits-of-all-positions-of-a-wide-model",
        "CMP025",
        blanks("--words=1500", "--width=160", "--layers=3", "--batch=24", "--steps=150"),
        line="return cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)",
        fixed=("--steps=200", "--logits=blanks"),
        strength="just above",
    ),
    fault(
        "logits-of-few-words",
        "CMP025",
        blanks("--words=80", "--width=160", "--layers=3", "--steps=200"),
        strength="just above",
        fixed="--logits=blanks",
    ),
    fault("few-ignored-targets", "CMP025", blanks("--blanks=0.92"), strength="just below"),
    fault(
        "hardest-positions-chosen-by-their-loss",
        "CMP025",
        blanks("--hardest=150", "--blanks=1.0"),
        strength="just below",
        note="which they are is known once all logits are computed",
    ),
    fault(
        "logits-selected-afterwards",
        "CMP033",
        blanks("--logits=afterwards"),
        line="logits, labels = logits[labels != IGNORED], labels[labels != IGNORED]",
        fixed=("--logits=blanks", "--steps=400"),
    ),
    fault(
        "logits-of-a-wide-model-selected-afterwards",
        "CMP033",
        blanks("--words=1500", "--width=160", "--layers=3", "--batch=24", "--steps=150", "--logits=afterwards"),
        line="logits, labels = logits[labels != IGNORED], labels[labels != IGNORED]",
        fixed=("--steps=200", "--logits=blanks"),
        strength="just above",
    ),
    fault("few-logits-left-out", "CMP033", blanks("--blanks=0.92", "--logits=afterwards"), strength="just below"),
    fault(
        "generated-pictures-not-detached",
        "CMP023",
        adversarial(),
        line="loss.backward(retain_graph=True)",
        says="detach()",
        fixed=("--detached", "--frozen"),
    ),
    fault(
        "generated-pictures-of-perceptrons-not-detached",
        "CMP023",
        adversarial(*COMPETING),
        line="loss.backward(retain_graph=True)",
        fixed=("--detached", "--frozen"),
    ),
    fault(
        "second-loss-before-zero-grad",
        "CMP023",
        adversarial("--second-loss=too-early", "--width=512", "--batch=64", "--steps=700"),
        line="second.backward(retain_graph=True)",
        says="none of its gradients is used",
        fixed="--second-loss=unused",
    ),
    fault(
        "discriminator-not-frozen",
        "CMP023",
        adversarial(*EXACTING),
        line="deceived.backward()",
        says="freeze the network",
        strength="just above",
        fixed="--frozen",
    ),
    fault("discriminator-hardly-not-frozen", "CMP023", adversarial(*LENIENT), strength="just below"),
    healthy("healthy-generator-and-discriminator", adversarial("--detached", "--frozen")),
    fault(
        "backward-for-each-of-two-losses",
        "CMP032",
        adversarial(*TWO_LOSSES),
        line="second.backward(retain_graph=True)",
        says="add up the losses",
        fixed="--second-loss=added",
    ),
    fault(
        "backward-for-each-of-two-losses-that-share-little",
        "CMP032",
        adversarial(*TWO_LOSSES, "--hidden=1", "--between=2"),
        line="second.backward(retain_graph=True)",
        fixed="--second-loss=added",
        strength="just above",
    ),
    fault(
        "backward-for-each-of-two-losses-that-share-hardly-anything",
        "CMP032",
        adversarial(*TWO_LOSSES, "--hidden=1", "--between=12", "--steps=300"),
        strength="just below",
    ),
    sound_twin(
        "backward-for-each-of-two-losses-of-two-views",
        "CMP032",
        adversarial(*TWO_LOSSES, "--second-loss=of-another-view"),
        note="gradients accumulate over two graphs, of which one is kept for nothing",
    ),
    fault(
        "parameter-group-for-each-tensor",
        "CMP027",
        perceptron(*MANY, "--groups=each"),
        fixed=perceptron(*MANY),
        says="groups, one for each setting",
    ),
    fault(
        "parameter-group-for-each-of-few-tensors",
        "CMP027",
        perceptron(*DEEP, "--optimizer=AdamW", "--fused", "--groups=each"),
        strength="just below",
    ),
    seeded(
        "activations-twice",
        "CMP016",
        perceptron(*DEEP, "--checkpointed=12"),
        fixed=perceptron(*DEEP),
        line="rows = checkpoint(",
    ),
    seeded(
        "activations-twice-in-half-of-the-layers",
        "CMP016",
        perceptron(*DEEP, "--checkpointed=6"),
        fixed=perceptron(*DEEP),
        strength="just above",
        line="rows = checkpoint(",
    ),
    seeded("activations-twice-in-two-layers", "CMP016", perceptron(*DEEP, "--checkpointed=2"), strength="just below"),
)
