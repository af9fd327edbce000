"""Which functions compute attention in parts, and in which of their lines."""

from __future__ import annotations

import textwrap

import pytest

from rn50_advisor.advisor.analysis.stacks.source.attention_source import AttentionInParts, attention_in_parts
from rn50_advisor.advisor.model.recording import Source

FILE = "/job/model.py"


def found(body: str, line: int = 2) -> AttentionInParts | None:
    text = "def forward(self, x, q, k, v, mask):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return attention_in_parts((Source(FILE, "", text),), FILE, line)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        pytest.param(
            """\
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = (q @ k.transpose(-2, -1)) * self.scale
            scores = scores.masked_fill(mask == 0, -1e9)
            weights = self.drop(F.softmax(scores, dim=-1))
            y = weights @ v
            return self.proj(y)
            """,
            (3, 6),
            id="operators, with a mask and dropout",
        ),
        pytest.param("return torch.bmm(torch.softmax(torch.bmm(q, k.mT), -1), v)\n", (2, 2), id="one expression"),
        pytest.param(
            """\
            att = torch.einsum("bhid,bhjd->bhij", q, k)
            att += self.bias
            att.masked_fill_(mask, -1e4)
            att = att.float().softmax(-1).to(v.dtype)
            return torch.einsum(
                "bhij,bhjd->bhid", att, v
            )
            """,
            (2, 8),
            id="einsum, in place, over several lines",
        ),
        pytest.param(
            """\
            dots = torch.matmul(q, k.transpose(-1, -2))
            if mask is not None:
                dots = dots + mask
            attn = self.attend(dots)
            out = torch.matmul(attn, v)
            return rearrange(out, "b h n d -> b n (h d)")
            """,
            (2, 6),
            id="a module that is called otherwise, and a branch",
        ),
        pytest.param("w: Tensor = nn.Softmax(dim=-1)(q.matmul(k))\nreturn w.matmul(v)\n", (2, 3), id="a new module"),
    ],
)
def test_from_one_product_to_the_other(body: str, lines: tuple[int, int]) -> None:
    assert found(body) == AttentionInParts(*lines, keeps_weights=False)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("return F.scaled_dot_product_attention(q, k, v)\n", id="fused"),
        pytest.param("p = F.softmax(self.head(x), -1)\nreturn p @ v\n", id="a softmax of no product"),
        pytest.param("s = q @ k\nreturn F.softmax(s, -1)\n", id="no second product"),
        pytest.param("s = q @ k\np = torch.sigmoid(s)\nreturn p @ v\n", id="no softmax"),
        pytest.param(
            "s = q @ k\ns = self.scores(x)\np = s.softmax(-1)\nreturn p @ v\n", id="another value by that name"
        ),
        pytest.param("h = q @ k\nloss = F.log_softmax(x, -1)\nreturn h @ v\n", id="a softmax of something else"),
    ],
)
def test_what_is_no_attention_in_parts(body: str) -> None:
    assert found(body) is None


@pytest.mark.parametrize(
    ("end", "keeps"),
    [("return p @ v, p", True), ("self.last = p\n    return p @ v", True), ("return p @ v, None", False)],
)
def test_weights_that_are_kept(end: str, keeps: bool) -> None:
    text = f"def forward(self, q, k, v):\n    p = (q @ k).softmax(-1)\n    {end}\n"
    attention = attention_in_parts((Source(FILE, "", text),), FILE, 2)
    assert attention is not None and attention.keeps_weights == keeps


def test_only_the_function_around_the_line_counts() -> None:
    text = "def one(q, k, v):\n    return (q @ k).softmax(-1) @ v\n\n\ndef two(q, k):\n    return q @ k\n"
    sources = (Source(FILE, "", text),)
    assert attention_in_parts(sources, FILE, 2) is not None
    assert attention_in_parts(sources, FILE, 6) is None
    assert attention_in_parts((Source(FILE, "", text, edited=True),), FILE, 2) is None
    assert attention_in_parts((), FILE, 2) is None
