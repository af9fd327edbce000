"""Source code that is kept holds no secrets, and is still the code it was, line by line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rn50_advisor.advisor.store.secrets.source_secrets import redact_source

RANDOM = "9b1f0c4d7e2a8356c0f4e1d2b3a49586d7c8e9f0"
SECRETS = (
    f'wandb.login(key="{RANDOM}")',
    f'wandb.login("{RANDOM}")',
    'os.environ["WANDB_API_KEY"] = "abc"',
    'os.environ.setdefault("HF_TOKEN", "abc")',
    'password: str = "abc"',
    "password = ('abc')".replace("('abc')", "'abc'"),
    'config = {"db": {"password": "abc", "user": "me"}}',
    'connect("postgres://me:abc@host/db")',
    'headers = {"Authorization": "Bearer abcdefgh1234"}',
    'p.add_argument("--api-key", default="abc")',
    'token = """abc\n"""',
    'token = "a\\\nabc"',
    'if password == "abc":\n    pass',
    'password = f"abc{number}"',
    f"# the key is {RANDOM}",
    'neptune.init("3f2b8c1d-9e4a-4b5c-8d6e-7f8091a2b3c4")',
    'aws = "AKIAABCDEFGHIJKLMNOP"',
    'key = """-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"""',
)
HARMLESS = (
    "for name in sorted(names, key=len):\n    print(name, sep='=')\n",
    'tokenizer = Tokenizer.from_pretrained("bert-base-uncased", max_tokens=512)\n',
    'root = "/data/imagenet2012/train128/images"\n',
    'model = timm.create_model("vit_base_patch16_224_augreg_in21k", pretrained=True)\n',
    "x = key\ntoken = next(tokens)\npassword = os.environ['DB_PASSWORD']\n",
    "loader = DataLoader(data, num_workers=2, pin_memory=True)  # --workers 2\r\n",
    'text = f"{{{value!r:>{width}}}} of {total}"\n',
    "\ufeffimport torch\n",
    '"""A docstring.\n\nUsage: train.py --lr 0.1 --epochs 90\n"""\n',
)


@pytest.mark.parametrize("line", SECRETS)
def test_a_secret_is_masked_and_the_code_stays_code(line):
    text = f"import os\n{line}\nlast = 1\n"
    masked = redact_source(text)
    assert masked is not None
    assert "abc" not in masked.replace("abcdefgh", "abc") and RANDOM not in masked and "AKIA" not in masked
    assert "3f2b8c1d" not in masked and "***" in masked
    ast.parse(masked)
    assert masked.count("\n") == text.count("\n") and masked.endswith("\nlast = 1\n")


@pytest.mark.parametrize("text", HARMLESS)
def test_code_without_secrets_stays_as_it_is(text):
    assert redact_source(text) == text


@pytest.mark.parametrize("text", ["def f(:\n    'x'\n    '", 'x = """never closed', "a = 1\rpassword = 'x'\n"])
def test_what_is_no_python_is_not_kept(text):
    assert redact_source(text) is None


def test_the_advisors_own_code_comes_through():
    for path in sorted(Path("advisor").rglob("*.py")):
        text = path.read_text()
        masked = redact_source(text)
        assert masked is not None and masked.count("\n") == text.count("\n"), path
