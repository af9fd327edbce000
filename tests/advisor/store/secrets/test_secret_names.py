"""How secret a value is by its name, and which values can be no secret of such a name."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.store.secrets.secret_names import Secrecy, is_plain, secrecy


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("password PGPASSWORD db_password dbPassword MYSQL_PWD client_secret apikey JWT cookie", Secrecy.CERTAIN),
        ("AWS_SECRET_ACCESS_KEY credentials_json authorization_header", Secrecy.CERTAIN),
        ("hf_token HF_TOKEN accessToken api_key API_KEY ssh_key aws_access_key_id authtoken SESSIONID", Secrecy.LIKELY),
        ("token2 token_prod API_KEY_DEV api_key_value", Secrecy.LIKELY),
        ("key auth session tokens sig pin sort_key cache_key pad_token eos_token primary_key", Secrecy.WEAK),
        (
            "token_ids max_tokens_per_second key_padding_mask token_type num_heads token_file key_length password_file secret_name",
            Secrecy.NONE,
        ),
        ("lr epochs batch_size monkey turkey hotkey", Secrecy.NONE),
        ("_ 123 - .", Secrecy.NONE),
    ],
)
def test_the_last_word_of_a_name_says_how_secret_its_value_is(names: str, expected: Secrecy) -> None:
    assert {name: secrecy(name) for name in names.split()} == dict.fromkeys(names.split(), expected)


def test_a_name_without_words_is_no_secret() -> None:
    assert secrecy("") is Secrecy.NONE


@pytest.mark.parametrize(
    ("value", "plain_for"),
    [
        ("", "WLC"),
        ("None", "WLC"),
        ("true", "WLC"),
        ("***", "WLC"),
        ("$HF_TOKEN", "WLC"),
        ("${HF_TOKEN}", "WLC"),
        ("${HF_TOKEN:-hunter2}", ""),
        ("{{ secrets.TOKEN }}", "WLC"),
        ("%(token)s", "WLC"),
        ("<your token>", "WLC"),
        ("os.environ['HF_TOKEN']", "WLC"),
        ("getpass.getpass()", "WLC"),
        ("128", "WL"),
        ("0.9, 0.999", "WL"),
        ("1e-3", "WL"),
        ("123456789012", ""),  # so many digits may be one
        ("name", "W"),
        ("self.sort_key", "WLC"),
        ("numpy.float32", "W"),
        ("lambda x: x[0]", "W"),
        ("hunter2", ""),
        ("a8f5f167f44f4964e6c998dee827110c", ""),
        ("correct horse battery", ""),
        ("x" * 201, ""),
    ],
)
def test_a_value_is_left_only_where_it_is_of_another_kind(value: str, plain_for: str) -> None:
    found = {"W": Secrecy.WEAK, "L": Secrecy.LIKELY, "C": Secrecy.CERTAIN}
    assert "".join(letter for letter, how in found.items() if is_plain(value, how)) == plain_for
