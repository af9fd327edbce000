"""Nothing that looks like a credential is stored, and nothing useful is lost to that."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harm.secret_corpus import GENERIC, HARMLESS, provider_tokens, values

from rn50_advisor.advisor.model.recording import Event, Process
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.secrets.masking import (
    MASK,
    TEXT_CHARACTERS_MAX,
    redact_argv,
    redact_environment,
    redact_text,
)

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"


@pytest.mark.parametrize(
    "name",
    [
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "NCCL_DEBUG", "GLOO_SOCKET_IFNAME", "LD_PRELOAD"),
        *("TORCH_NCCL_BLOCKING_WAIT", "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_ALLOC_CONF", "CUDA_VISIBLE_DEVICES"),
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID"),
        *("TOKENIZERS_PARALLELISM", "ACCELERATE_MIXED_PRECISION", "HF_HOME"),
    ],
)
def test_variables_that_explain_speed_are_kept(name: str) -> None:
    assert redact_environment({name: "1"}) == {name: "1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "x"),
        ("HF_API_KEY", "x"),
        ("SLURM_JWT", "x"),
        ("SLURM_DB_PASSWORD", "x"),
        ("TORCH_SECRET", "x"),
        ("NCCL_AUTH", "x"),
        ("ACCELERATE_SESSION_ID", "x"),
        ("CUDA_PRIVATE_REPO", "x"),
        ("TORCH_DSN", "x"),
        ("HF_COOKIE", "x"),
        ("MASTER_CREDENTIALS", "x"),
        ("HF_ENDPOINT", "https://me:hunter2@mirror.example"),
        ("TORCH_HOME", f"/cache/{JWT}"),
        ("WANDB_API_KEY", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("HOME", "/home/somebody"),
        ("PATH", "/bin"),
    ],
)
def test_secret_and_unrelated_variables_are_left_out(name: str, value: str) -> None:
    assert redact_environment({name: value, "RANK": "0"}) == {"RANK": "0"}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--api-key=abc", "x"], [f"--api-key={MASK}", "x"]),
        (["--token", "abc", "x"], ["--token", MASK, "x"]),
        (["--hf_token", "abc"], ["--hf_token", MASK]),
        (["--apiKey", "abc"], ["--apiKey", MASK]),
        (["--token", "--lr", "1"], ["--token", "--lr", "1"]),
        (["wandb.api_key=abc"], [f"wandb.api_key={MASK}"]),
        (["postgres://me:abc@db/x"], [f"postgres://{MASK}@db/x"]),
        (["me:abc@host"], [f"{MASK}@host"]),
        (["https://0123456789abcdef0123@host/x"], [f"https://{MASK}@host/x"]),
        (
            ["bash", "-c", "A_TOKEN=abc python t.py --password 'a b' --lr 1"],
            ["bash", "-c", f"A_TOKEN={MASK} python t.py --password '{MASK}' --lr 1"],
        ),
        (["-H", "Authorization: Bearer abcdefgh"], ["-H", f"Authorization: {MASK}"]),
        # no secrets
        (["--tokenizer", "gpt2"], ["--tokenizer", "gpt2"]),
        (["--max-tokens", "4096", "--keypoints=17"], ["--max-tokens", "4096", "--keypoints=17"]),
        (["--data", "s3://bucket/a@b"], ["--data", "s3://bucket/a@b"]),
        (["--nproc_per_node=2", "train.py", "--lr", "0.1"], ["--nproc_per_node=2", "train.py", "--lr", "0.1"]),
    ],
)
def test_command_lines_are_masked_where_they_hold_a_secret(argv: list[str], expected: list[str]) -> None:
    assert redact_argv(argv) == expected


@pytest.mark.parametrize(
    "secret", ["hf_abcdefghijklmnopqrstuv", "ghp_0123456789abcdefghijABCDEFGHIJ", "AKIAABCDEFGHIJKLMNOP", JWT]
)
def test_tokens_of_known_shape_are_masked_wherever_they_stand(secret: str) -> None:
    assert secret not in redact_text(f"cloning with {secret}, please wait")


def test_training_output_stays_as_it_is() -> None:
    text = "Epoch: [3][10/500] Time 0.12 (0.13) loss=1.25 acc: 71.2 2024-01-01 12:30:45 tokens: 4096 bypass 12:30 a@b.c"
    assert redact_text(text) == text


def test_a_huge_string_is_cut_off() -> None:
    text = "word " * 100_000
    assert len(redact_text(text)) < TEXT_CHARACTERS_MAX + 100


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact_text(text) == text
    assert redact_argv(text.split(" ")) == text.split(" ")


@pytest.mark.parametrize("kind", ["short", "hex", "uuid", "base64"])
def test_every_shape_is_masked_as_text_and_as_arguments(kind: str) -> None:
    left = []
    for number, template in enumerate(GENERIC):
        secret = values(number)[kind]
        text = template.replace("@S@", secret)
        masked = redact_text(text)
        half = len(secret) // 2 + 1
        if secret[:half] in masked or secret[-half:] in masked or secret in " ".join(redact_argv(text.split(" "))):
            left.append(text)
        assert redact_text(masked) == masked
    assert left == []


@pytest.mark.parametrize("name", sorted(provider_tokens()))
def test_a_providers_token_is_masked_wherever_it_stands(name: str) -> None:
    token = provider_tokens()[name]
    for text in (
        token,
        f"cloning with {token}, please",
        f"x={token}&y",
        f'"{token}"',
        f"https://h/{token}/x",
        f"{token}\n",
    ):
        assert token[-12:] not in redact_text(text)


def test_no_way_into_the_run_file_lets_a_secret_through(tmp_path: Path) -> None:
    writer = RunWriter.create(
        tmp_path / "run",
        meta={
            "argv": ["t.py", "--token", "hunter2"],
            "environment": {"variables": {"HF_TOKEN": "hunter2", "RANK": "0"}},
        },
    )
    writer.put_meta(cwd="https://me:hunter2@host/x")
    writer.put_process(Process(1, "rank", 0, 0, None, 0, "python t.py --api-key hunter2", 5))
    writer.put_facts(1, {"argv": ["--password", "hunter2"], "passes": 3, "key": "k"})
    writer.put_event(Event(5, "death", 1, 0, {"output": "PASSWORD=hunter2, trying again"}))
    writer.close()

    recording = read_recording(tmp_path / "run")
    assert b"hunter2" not in (tmp_path / "run" / "run.sqlite").read_bytes()
    assert recording.meta.argv == ("t.py", "--token", MASK)
    assert recording.meta.environment == {"variables": {"RANK": "0"}}
    assert recording.facts == {1: {"argv": ["--password", MASK], "passes": 3, "key": "k"}}
    assert recording.events[0].data == {"output": f"PASSWORD={MASK}, trying again"}
