"""Computing that the job slows down itself: unfused optimizers, doubles, activations made twice, tiny operations, indexing, denormals."""

from __future__ import annotations

from typing import Any

from samples.faults.scenario import Job, Scenario, Truth, Untouched, fault


def perceptron(*arguments: str) -> Job:
    return Job("faults/jobs/compute/perceptron.py", arguments, ranks=0, start="one by one")


def tiny(net: str, *arguments: str) -> Job:
    return Job("faults/jobs/compute/tiny_operations.py", (net, *arguments), ranks=0, start="one by one")


def shrinking(*arguments: str) -> Job:
    return Job("faults/jobs/compute/shrinking.py", arguments, ranks=0, start="one by one")


def indexing(*arguments: str) -> Job:
    return Job("faults/jobs/compute/indexing.py", arguments, ranks=0, start="one by one")


def blanks(*arguments: str) -> Job:
    return Job("faults/jobs/compute/blanks.py", arguments, ranks=0, start="one by one")


def decoding(*arguments: str) -> Job:
    return Job("faults/jobs/compute/decoding.py", arguments, ranks=0, start="one by one")


def iterating(of: str, *arguments: str) -> Job:
    return Job("faults/jobs/compute/iterating.py", (f"--of={of}", *arguments), ranks=0, start="one by one")


def stepwise(form: str, *arguments: str) -> Job:
    """A small decoder of known words."""
    return Job("faults/jobs/compute/stepwise.py", (form, *arguments), ranks=0, start="one by one")


def composed(of: str, *arguments: str) -> Job:
    return Job("faults/jobs/compute/composed.py", (f"--of={of}", *arguments), ranks=0, start="one by one")


def teachers(*arguments: str) -> Job:
    return Job("faults/jobs/compute/teachers.py", arguments, ranks=0, start="one by one")


def attention(kind: str, *arguments: str) -> Job:
    return Job("faults/jobs/compute/attention.py", (f"--attention={kind}", *arguments), ranks=0, start="one by one")


def adversarial(*arguments: str) -> Job:
    return Job("faults/jobs/compute/adversarial.py", arguments, ranks=0, start="one by one")


def pictures(*arguments: str) -> Job:
    return Job("faults/jobs/compute/cifar.py", arguments)


def seeded(name: str, rule: str, *arguments: str, fixed: tuple[str, ...] = (), **more: Any) -> Scenario:
    """`fixed`: arguments of the job with the fix."""
    alike: tuple[Untouched, ...] = {"CMP014": ("forward", "backward"), "CMP016": ("forward",)}.get(rule, ())
    with_fix = perceptron(*fixed) if fixed else None
    return fault(name, rule, perceptron(*arguments), fixed=with_fix, untouched=alike, **more)


def written_out(name: str, of: str, *arguments: str, steps: tuple[int, int], **more: Any) -> Scenario:
    """`steps`: of the job, and of the one with torch's own operation."""
    slow, fast = (f"--steps={n}" for n in steps)
    whole = composed(of, fast, *arguments, "--whole")
    return fault(name, "CMP026", composed(of, slow, *arguments), fixed=whole, **more)


LARGE = ("--batch=16", "--width=1024", "--layers=4", "--steps=300")
SMALL = ("--batch=16", "--width=128", "--layers=24", "--steps=1200")
MODERATE = ("--batch=256", "--width=768", "--layers=4", "--steps=300")
TUNED = ("--batch=256", "--width=768", "--steps=400")
LAST_LAYER = ("--model=resnet18", "--steps=150", "--head-only")
MANY = ("--batch=16", "--width=64", "--layers=150", "--steps=1500", "--optimizer=AdamW", "--fused")
DEEP = ("--batch=256", "--layers=12", "--steps=300")
COMPETING = ("--perceptrons", "--width=512", "--judge=512", "--steps=400")
EXACTING = ("--judge=48", "--width=16", "--detached")
LENIENT = ("--judge=12", "--width=32", "--detached", "--steps=250")
LONG = ("--length=1024", "--batch=1", "--heads=8")
SHRUNK = 790  # first step with many denormal numbers: from here on steps were longer
SCENARIOS = (
    seeded(
        "optimizer-not-fused", "CMP014", *LARGE, "--optimizer=AdamW", fixed=(*LARGE, "--optimizer=AdamW", "--fused")
    ),
    seeded(
        "optimizer-of-many-tensors-not-fused",
        "CMP014",
        *SMALL,
        "--optimizer=Adam",
        fixed=(*SMALL, "--optimizer=Adam", "--fused"),
    ),
    seeded(
        "optimizer-not-fused-a-little",
        "CMP014",
        *MODERATE,
        "--optimizer=AdamW",
        fixed=(*MODERATE, "--optimizer=AdamW", "--fused"),
        strength="just above",
    ),
    seeded(
        "optimizer-not-fused-hardly",
        "CMP014",
        "--batch=1536",
        "--width=256",
        "--steps=200",
        "--optimizer=AdamW",
        strength="just below",
    ),
    seeded("double-precision", "CMP015", "--width=768", "--double", fixed=("--width=768",)),
    seeded(
        "double-precision-of-a-small-model",
        "CMP015",
        "--width=128",
        "--batch=32",
        "--steps=1500",
        "--double",
        fixed=("--width=128", "--batch=32", "--steps=1500"),
        strength="just above",
    ),
    fault(
        "last-layer-alone-in-the-optimizer",
        "CMP020",
        pictures(*LAST_LAYER),
        line="optimizer = torch.optim.SGD(",
        fixed=pictures(*LAST_LAYER, "--frozen"),
        note="the other layers get gradients, too",
    ),
    seeded(
        "last-layers-alone-in-the-optimizer",
        "CMP020",
        *TUNED,
        "--updated=3",
        fixed=(*TUNED, "--updated=3", "--frozen"),
        line="optimizer = make(",
    ),
    seeded(
        "biases-alone-in-the-optimizer",
        "CMP020",
        *TUNED,
        "--updated=biases",
        fixed=(*TUNED, "--updated=biases", "--frozen"),
        line="optimizer = make(",
        note="no layer can be left out of the backward pass",
    ),
    seeded("first-layer-not-in-the-optimizer", "CMP020", *TUNED, "--layers=16", "--updated=15", strength="just below"),
    fault(
        "teacher-with-gradients",
        "CMP020",
        teachers("--steps=250"),
        line="found = self.teacher(x)",
        fixed=teachers("--steps=400", "--teacher=no_grad"),
        note="its outputs enter the loss; nothing that learns lies behind it",
    ),
    fault(
        "small-teacher-with-gradients",
        "CMP020",
        teachers("--width=96", "--layers=1", "--steps=400"),
        line="found = self.teacher(x)",
        fixed=teachers("--width=96", "--layers=1", "--steps=500", "--teacher=no_grad"),
        strength="just above",
    ),
    fault(
        "tiny-teacher-with-gradients",
        "CMP020",
        teachers("--width=8", "--layers=1", "--steps=400"),
        strength="just above",
        fixed=teachers("--width=8", "--layers=1", "--steps=500", "--teacher=frozen"),
    ),
    fault(
        "judge-of-pictures-with-gradients",
        "CMP020",
        teachers("--of=pictures", "--width=32", "--steps=150"),
        line="return mse_loss(self.teacher(self.net(noisy))",
        fixed=teachers("--of=pictures", "--width=32", "--steps=200", "--teacher=frozen"),
        note="gradients pass through it to the network that learns",
    ),
    fault(
        "logits-of-all-positions",
        "CMP025",
        blanks(),
        line="return cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)",
        fixed=blanks("--logits=blanks", "--steps=400"),
    ),
    fault(
        "logits-of-all-positions-of-a-wide-model",
        "CMP025",
        blanks("--words=1500", "--width=160", "--layers=3", "--batch=24", "--steps=150"),
        line="return cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)",
        fixed=blanks("--words=1500", "--width=160", "--layers=3", "--batch=24", "--steps=200", "--logits=blanks"),
        strength="just above",
    ),
    fault(
        "logits-of-few-words",
        "CMP025",
        blanks("--words=80", "--width=160", "--layers=3", "--steps=200"),
        strength="just above",
        fixed=blanks("--words=80", "--width=160", "--layers=3", "--steps=200", "--logits=blanks"),
    ),
    fault(
        "keys-computed-for-each-word",
        "CMP028",
        decoding("--width=160", "--source=60", "--steps=250"),
        line="keys = self.key(memory)",
        fixed=decoding("--width=160", "--source=60", "--steps=350", "--keys=once"),
        also=("CMP017",),
    ),
    fault(
        "keys-of-a-short-text-computed-for-each-word",
        "CMP028",
        decoding("--source=16", "--steps=400"),
        line="keys = self.key(memory)",
        fixed=decoding("--source=16", "--steps=500", "--keys=once"),
        strength="just above",
        also=("CMP017",),
    ),
    fault(
        "weight-norm-computed-for-each-word",
        "CMP028",
        decoding("--keys=once", "--norm", "--width=256", "--batch=8", "--source=12", "--steps=400"),
        line="self.carry(state)",
        says="parametrized",
        fixed=decoding("--keys=once", "--norm", "--width=256", "--batch=8", "--source=12", "--steps=500", "--cached"),
        strength="just above",
        also=("CMP017",),
    ),
    fault(
        "keys-computed-once",
        "CMP028",
        decoding("--width=160", "--source=60", "--steps=350", "--keys=once"),
        strength="just below",
    ),
    fault(
        "loss-of-each-column",
        "CMP029",
        iterating("columns", "--outputs=100", "--steps=500"),
        line="for column in range(targets.size(1)):",
        fixed=iterating("columns", "--outputs=100", "--steps=800", "--at-once"),
        also=("CMP017", "CMP024"),
    ),
    fault(
        "loss-of-each-sample",
        "CMP029",
        iterating("samples", "--steps=800"),
        line="for scores, labels in zip(",
        fixed=iterating("samples", "--steps=1000", "--at-once"),
        also=("CMP017",),
    ),
    fault(
        "loss-of-each-class",
        ("CMP029", "CMP024"),
        iterating("classes", "--steps=300"),
        line=("sum(overlap(", "scores[:, k]"),
        fixed=iterating("classes", "--steps=500", "--at-once"),
        also=("CMP017", "CMP024"),
        note="the gradients of the classes that are taken one by one are most of it",
    ),
    fault(
        "head-for-each-label",
        "CMP029",
        iterating("heads", "--outputs=80", "--steps=600"),
        line="for head in self.heads",
        fixed=iterating("heads", "--outputs=80", "--steps=900", "--at-once"),
        also=("CMP017",),
    ),
    fault(
        "decoder-called-for-each-word",
        "CMP029",
        stepwise("prefixes", "--steps=150"),
        line="for t in range(1, length + 1):",
        says="causal mask",
        fixed=stepwise("whole", "--steps=1500"),
        also=("CMP017",),
    ),
    fault(
        "decoder-of-long-texts-called-for-each-word",
        "CMP029",
        stepwise("prefixes", "--length=48", "--width=96", "--steps=40"),
        line="for t in range(1, length + 1):",
        says="causal mask",
        fixed=stepwise("whole", "--length=48", "--width=96", "--steps=800"),
        also=("CMP017",),
    ),
    Scenario(
        name="decoder-called-once",
        job=stepwise("whole", "--steps=800"),
        truth=Truth(never=("CMP029",), silent=("CMP029",)),
        strength="just below",
    ),
    fault(
        "state-read-for-each-word",
        "CMP017",
        stepwise("steps", "--net=recurrent", "--steps=400"),
        line="for t in range(inputs.shape[1]):",
        fixed=stepwise("whole", "--net=recurrent", "--steps=1000"),
    ),
    fault("scales-in-a-loop", "CMP029", iterating("scales", "--steps=300"), strength="just below"),
    fault("loss-of-few-columns", "CMP029", iterating("columns", "--outputs=7", "--steps=800"), strength="just below"),
    fault("few-ignored-targets", "CMP025", blanks("--blanks=0.92"), strength="just below"),
    fault(
        "hardest-positions-chosen-by-their-loss",
        "CMP025",
        blanks("--hardest=150", "--blanks=1.0"),
        strength="just below",
        note="which they are is known once all logits are computed",
    ),
    fault(
        "attention-in-parts",
        "CMP021",
        attention("parts", "--heads=8"),
        line="scores = q @ k",
        fixed=attention("fused", "--heads=8"),
        says="Unfused attention",
    ),
    fault(
        "attention-in-parts-over-long-texts",
        "CMP021",
        attention("parts", *LONG),
        line="scores = q @ k",
        fixed=attention("fused", *LONG),
    ),
    fault(
        "attention-that-returns-its-weights",
        "CMP021",
        attention("multihead-weights", *LONG),
        line="found: Tensor = self.attention(",
        says="disable the attention weights",
        fixed=attention("multihead", *LONG),
    ),
    fault(
        "attention-in-parts-a-little",
        "CMP021",
        attention("parts"),
        strength="just above",
        fixed=attention("fused"),
    ),
    fault(
        "attention-in-parts-hardly",
        "CMP021",
        attention("parts", "--length=64", "--batch=32", "--width=256"),
        strength="just below",
    ),
    fault(
        "generated-pictures-not-detached",
        "CMP023",
        adversarial(),
        line="loss.backward(retain_graph=True)",
        says="detach()",
        fixed=adversarial("--detached", "--frozen"),
    ),
    fault(
        "generated-pictures-of-perceptrons-not-detached",
        "CMP023",
        adversarial(*COMPETING),
        line="loss.backward(retain_graph=True)",
        fixed=adversarial(*COMPETING, "--detached", "--frozen"),
    ),
    fault(
        "second-loss-before-zero-grad",
        "CMP023",
        adversarial("--second-loss=too-early", "--width=512", "--batch=64", "--steps=700"),
        line="second.backward(retain_graph=True)",
        says="none of its gradients is used",
        fixed=adversarial("--second-loss=unused", "--width=512", "--batch=64", "--steps=700"),
    ),
    fault(
        "discriminator-not-frozen",
        "CMP023",
        adversarial(*EXACTING),
        line="deceived.backward()",
        says="freeze the network",
        strength="just above",
        fixed=adversarial(*EXACTING, "--frozen"),
    ),
    fault("discriminator-hardly-not-frozen", "CMP023", adversarial(*LENIENT), strength="just below"),
    Scenario(
        name="healthy-generator-and-discriminator",
        job=adversarial("--detached", "--frozen"),
        truth=Truth(),
        strength="none",
    ),
    seeded(
        "parameter-group-for-each-tensor",
        "CMP027",
        *MANY,
        "--groups=each",
        fixed=MANY,
        says="groups, one for each setting",
    ),
    seeded(
        "parameter-group-for-each-of-few-tensors",
        "CMP027",
        *DEEP,
        "--optimizer=AdamW",
        "--fused",
        "--groups=each",
        strength="just below",
    ),
    seeded("activations-twice", "CMP016", *DEEP, "--checkpointed=12", fixed=DEEP, line="rows = checkpoint("),
    seeded(
        "activations-twice-in-half-of-the-layers",
        "CMP016",
        *DEEP,
        "--checkpointed=6",
        fixed=DEEP,
        strength="just above",
        line="rows = checkpoint(",
    ),
    seeded("activations-twice-in-two-layers", "CMP016", *DEEP, "--checkpointed=2", strength="just below"),
    fault(
        "time-steps-taken-and-set-one-by-one",
        "CMP024",
        indexing("--steps=120"),
        line="state = self.cell(seen[:, t]",
        also=("CMP017",),
        says="unbind",
        fixed=indexing("--steps=250", "--take=once", "--set=once"),
    ),
    fault(
        "time-steps-taken-one-by-one",
        "CMP024",
        indexing("--steps=150", "--set=once", "--batch=48"),
        also=("CMP017",),
        strength="just above",
        fixed=indexing("--steps=150", "--set=once", "--batch=48", "--take=once"),
    ),
    fault(
        "few-time-steps-taken-one-by-one",
        "CMP024",
        indexing("--steps=400", "--set=once", "--length=20", "--width=128"),
        also=("CMP017",),
        strength="just below",
    ),
    fault(
        "nodes-taken-by-a-tensor-of-indices",
        "CMP024",
        indexing("--of=graph", "--steps=500"),
        line="sent = nodes[self.source]",
        says="index_select",
        late="the line of the forward pass is short: only later profiles have enough samples of it",
        fixed=indexing("--of=graph", "--steps=800", "--take=once"),
    ),
    written_out("gelu-written-out", "words", steps=(500, 600), line="0.5 * x * (1.0 + torch.tanh(", says="F.gelu"),
    written_out(
        "layer-norm-written-out",
        "words",
        "--norms",
        "--batch=512",
        steps=(500, 600),
        strength="just above",
        line="mean = x.mean(-1",
        says="F.layer_norm",
    ),
    written_out(
        "layer-norm-of-channels-written-out",
        "pictures",
        "--batch=64",
        steps=(300, 400),
        line="u = x.mean(1",
        says="F.layer_norm",
    ),
    written_out(
        "distances-by-broadcasting",
        "codes",
        "--codes=1024",
        "--width=256",
        steps=(400, 1500),
        line="difference = z.unsqueeze(1)",
        says="torch.cdist",
    ),
    written_out(
        "covariance-of-a-diagonal",
        "actions",
        "--batch=2048",
        steps=(2000, 3000),
        line="MultivariateNormal(",
        says="Independent(Normal",
    ),
    written_out(
        "norm-limited-in-each-lookup",
        "entities",
        "--codes=4000",
        steps=(1500, 3000),
        line="self.table(ids)",
        says="renorm_",
    ),
    fault(
        "few-distances-by-broadcasting",
        "CMP026",
        composed("codes", "--steps=2500", "--codes=4", "--width=256"),
        strength="just below",
    ),
    fault(
        "cell-called-step-by-step",
        "CMP017",
        tiny("cell", "--steps=400"),
        line="state = self.cell(",
        fixed=tiny("lstm", "--steps=2000"),
    ),
    fault(
        "cell-of-a-wide-state-called-step-by-step",
        "CMP017",
        tiny("cell", "--width=160", "--batch=32", "--steps=250"),
        strength="just above",
        line="state = self.cell(",
        fixed=tiny("lstm", "--width=160", "--batch=32", "--steps=500"),
    ),
    fault(
        "cell-that-computes",
        "CMP017",
        tiny("cell", "--width=224", "--batch=64", "--length=40", "--steps=200"),
        strength="just below",
    ),
    fault(
        "gru-called-for-each-time-step",
        "CMP017",
        tiny("gru-steps", "--steps=400"),
        line="out, state = self.layer(x_t.unsqueeze(1), state)",
        fixed=tiny("gru", "--steps=600"),
    ),
    fault(
        "lstm-called-for-each-time-step",
        "CMP017",
        tiny("lstm-steps", "--steps=400", "--width=64"),
        line="out, state = self.layer(x_t.unsqueeze(1), state)",
        fixed=tiny("lstm", "--steps=2000", "--width=64"),
    ),
    fault(
        "own-cell-called-step-by-step",
        "CMP017",
        tiny("own-cell", "--steps=400"),
        line="state = self.cell(",
        fixed=tiny("lstm", "--steps=2000"),
        suite="all",
    ),
    fault(
        "samples-one-by-one",
        ("CMP029", "CMP017"),
        tiny("rows", "--batch=32", "--one-by-one", "--width=64", "--steps=700"),
        line="losses = [",
        note="no sample needs another one; without the order of autograd's nodes it is a loop of tiny operations",
        fixed=tiny("rows", "--batch=32", "--width=64", "--steps=8000"),
    ),
    fault(
        "micro-batches-of-one",
        "CMP017",
        tiny("rows", "--batch=1", "--accumulate=16", "--width=64", "--steps=1000"),
        says="micro-batches of 16",
        fixed=tiny("rows", "--batch=16", "--width=64", "--steps=8000"),
    ),
    fault(
        "momentum-becomes-denormal",
        "CMP018",
        shrinking(),
        line="torch.set_flush_denormal(",
        says="since step",
        fixed=shrinking("--flush"),
        untouched=("forward", "backward"),
        onset_step=SHRUNK,
    ),
    fault(
        "momentum-becomes-denormal-of-a-few-inputs",
        "CMP018",
        shrinking("--silent=0.06"),
        strength="just above",
        says="since step",
        fixed=shrinking("--silent=0.06", "--flush"),
        untouched=("forward", "backward"),
        onset_step=SHRUNK,
    ),
    fault(
        "momentum-becomes-denormal-of-hardly-any-input",
        "CMP018",
        shrinking("--silent=0.01"),
        strength="just below",
    ),
    fault(
        "momentum-is-denormal-from-the-start",
        "CMP018",
        shrinking("--begin-with=1e-39", "--silent-from=0"),
        says="cost is unknown",
        fixed=shrinking("--begin-with=1e-39", "--silent-from=0", "--flush"),
        untouched=("forward", "backward"),
    ),
)
