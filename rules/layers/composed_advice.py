"""What to call instead of an operation composed of elementary ones, and what that saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import ComposedForm


@dataclass(frozen=True, slots=True)
class Form:
    """`saved`: of the lines and of their nodes in the backward pass, at best and at worst. Ten GPT-2 of two and four layers became 1.04 to
    1.14 times as fast with the other activation, steps of both in turns; for two of these 1.11 was told where 1.14 came, and 1.16, 1.13.
    `backward`: these take at most so many times the
    lines. Measured on a CPU with torch 2.14, two threads, three or four shapes of each, both ways in turns in one process. The best of the
    multivariate normal alone is by a pair of runs (2.27 times as fast): what the distribution is given is computed on lines that do not
    count.
    """

    title: str
    change: str
    saved: tuple[float, float]
    backward: float
    elementwise: bool = True  # its nodes are among those that were timed


_NORM = "the standard deviation by std() divides by n - 1, torch's operation by n"
_SIMILARITIES = Form(
    "a product of normalised rows instead of F.cosine_similarity of all pairs",
    "F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).transpose(-1, -2), of the same values",
    (1.0, 0.6),
    8.4,
)
FORMS: Mapping[ComposedForm, Form] = {
    "gelu by tanh": Form(
        "F.gelu instead of its formula", 'F.gelu(x, approximate="tanh"), of the same values', (1.0, 0.75), 0.8
    ),
    "gelu_new": Form(
        "gelu_pytorch_tanh instead of gelu_new",
        'activation_function="gelu_pytorch_tanh" (hidden_act in some models) in the config or in from_pretrained(...), of the same values',
        (1.0, 0.75),
        0.8,
    ),
    "gelu": Form("F.gelu instead of its formula", "F.gelu(x), of the same values", (1.0, 0.65), 1.5),
    "silu": Form("F.silu instead of its formula", "F.silu(x), of the same values", (0.95, 0.35), 0.9),
    "layer norm": Form(
        "F.layer_norm instead of its formula",
        f"F.layer_norm(x, x.shape[-1:], weight, bias, eps), over as many of the last dimensions; {_NORM}",
        (1.0, 0.8),
        3.5,
    ),
    "layer norm of channels": Form(
        "F.layer_norm instead of its formula",
        "F.layer_norm(x.permute(0, 2, 3, 1), (channels,), weight, bias, eps).permute(0, 3, 1, 2)",
        (1.0, 0.8),
        3.5,
    ),
    "batch norm": Form(
        "F.batch_norm instead of its formula",
        "F.batch_norm(x, running_mean, running_var, weight, bias, training=True)",
        (1.05, 0.65),
        3.6,
    ),
    "instance norm": Form(
        "F.instance_norm instead of its formula",
        "F.instance_norm(x, weight=weight, bias=bias, eps=eps)",
        (1.05, 0.7),
        2.0,
    ),
    "softmax": Form(
        "torch.softmax instead of its formula", "torch.softmax(x, -1), which does not overflow either", (1.2, 0.4), 4.0
    ),
    "distances": Form(
        "torch.cdist instead of the differences of all pairs",
        "torch.cdist(a, b); squares by torch.addmm(a.pow(2).sum(1, keepdim=True) + b.pow(2).sum(1), a, b.T, alpha=-2), which is less "
        "exact for close points",
        (1.15, 0.85),
        5.0,
    ),
    "absolute distances": Form(
        "torch.cdist instead of the differences of all pairs", "torch.cdist(a, b, p=1)", (0.95, 0.2), 3.5
    ),
    "cosine similarities": _SIMILARITIES,
    "layer of cosine similarities": _SIMILARITIES,
    "sums of products": Form(
        "a matrix product instead of the products of all pairs",
        "a @ b.transpose(-1, -2), or torch.einsum of both without the dimensions put in",
        (1.0, 0.5),
        6.8,
    ),
    "convolution by columns": Form(
        "F.conv2d instead of a product with the columns of unfold",
        "F.conv2d(x, weight.view(channels_out, channels_in, k, k), padding=...), of the same values",
        (0.95, 0.6),
        2.0,
        elementwise=False,
    ),
    "product with a diagonal matrix": Form(
        "a product by elements instead of one with a diagonal matrix",
        "v.unsqueeze(-1) * x for diag(v) @ x, x * v for x @ diag(v)",
        (1.0, 0.75),
        2.1,
        elementwise=False,
    ),
    "sums by one-hot rows": Form(
        "index_add instead of a product with one-hot rows",
        "torch.zeros(groups, width).index_add(0, indices, x); for means divide by torch.bincount(indices, minlength=groups)",
        (1.0, 0.6),
        0.7,
        elementwise=False,
    ),
    "relu by a mask": Form(
        "F.relu instead of a product with a mask", "F.relu(x), of the same values", (0.7, 0.55), 0.5
    ),
    "relu by a maximum": Form(
        "F.relu or F.leaky_relu instead of a maximum",
        "F.relu(x), or F.leaky_relu(x, slope): the backward pass of torch.max of two tensors is slow",
        (0.95, 0.85),
        15.0,
    ),
    "leaky relu": Form(
        "F.leaky_relu instead of torch.where", "F.leaky_relu(x, slope), of the same values", (0.95, 0.9), 1.9
    ),
    "elu": Form("F.elu instead of torch.where", "F.elu(x, alpha), of the same values", (0.9, 0.8), 1.7),
    "hardswish": Form("F.hardswish instead of its formula", "F.hardswish(x), of the same values", (0.9, 0.65), 3.2),
    "smooth L1 loss": Form(
        "F.smooth_l1_loss instead of torch.where",
        "F.smooth_l1_loss(x, y, beta=...), or F.huber_loss(x, y, delta=...)",
        (0.95, 0.85),
        1.65,
    ),
    "squared error": Form(
        "F.mse_loss instead of its formula", "F.mse_loss(x, y), of the same values", (0.55, 0.4), 2.1
    ),
    "binary cross entropy": Form(
        "F.binary_cross_entropy_with_logits instead of its formula",
        "F.binary_cross_entropy_with_logits(logits, y), without the sigmoid, which overflows for no input",
        (0.65, 0.5),
        1.0,
    ),
    "logarithm of softmax": Form(
        "F.log_softmax instead of the logarithm of softmax",
        "F.log_softmax(x, -1), or F.cross_entropy(x, classes) for the whole loss; exact for small probabilities, too",
        (0.6, 0.35),
        1.35,
        elementwise=False,
    ),
    "cross entropy of one-hot targets": Form(
        "F.cross_entropy instead of one-hot targets",
        "F.cross_entropy(logits, classes, label_smoothing=...)",
        (0.9, 0.4),
        0.4,
    ),
    "product with one-hot rows": Form(
        "F.embedding instead of a product with one-hot rows",
        "F.embedding(indices, weight)",
        (1.0, 0.7),
        0.6,
        elementwise=False,
    ),
    "layer on one-hot rows": Form(
        "nn.Embedding instead of a linear layer on one-hot rows",
        "nn.Embedding(classes, width), called with the indices; its weight is the layer's, transposed, and a bias is added apart",
        (1.0, 0.7),
        0.6,
        elementwise=False,
    ),
    "sorted prefix": Form(
        "topk instead of a whole sort",
        "x.topk(k, largest=...) for k much smaller than the dimension; x.kthvalue(k) for one of them",
        (1.0, 0.4),
        0.1,
    ),
    "repeated index": Form(
        "expand instead of repeat for the index",
        "index.unsqueeze(-1).expand(-1, width), or index_add_ and index_select, which take one index a row",
        (1.4, 0.8),
        1.0,
    ),
    "smoothed targets": Form(
        "F.cross_entropy instead of dense targets",
        "F.cross_entropy(logits, classes, label_smoothing=..., ignore_index=...) on logits; the loss differs by about a constant",
        (0.95, 0.55),
        0.2,
    ),
    "norm limited in each lookup": Form(
        "one renorm_ per step instead of max_norm in each lookup",
        "nn.Embedding without max_norm, and after optimizer.step(): with torch.no_grad(): weight.renorm_(2, 0, max_norm); "
        "for a table of many more rows than a step looks up, in every tenth step",
        (1.2, 0.85),
        0.0,
    ),
    "multivariate normal": Form(
        "Independent(Normal(mean, std), 1) instead of a multivariate normal",
        "the same distribution for a diagonal covariance",
        (1.2, 0.5),
        1.1,
    ),
}
