"""Settings: flags override the environment, which overrides the file; errors name the setting."""

import re
from pathlib import Path

import pytest

from naksha.model.errors import InvalidArgument
from naksha.server.process.settings import ServerSettings, is_loopback
from naksha.server.process.settings_sources import parser, read_settings, settings_known, shown
from tests.docs.blocks import ROOT

ROW = re.compile(
    r"^\| `(--[a-z-]+)` \| `(NAKSHA_[A-Z_]+)` \| `([a-z_]+)` \| ([^|]*) \|", re.MULTILINE
)


def read(*flags: str, **environment: str) -> ServerSettings:
    return read_settings(flags, environment, program="test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "naksha.toml"
    path.write_text('port = 1\nhost = "localhost"\nparallel = 7\nkeys = ["secret:a", "pem:b"]\n')
    return path


def test_flags_beat_the_environment_which_beats_the_file(file: Path) -> None:
    found = read("--port", "3", NAKSHA_CONFIG=str(file), NAKSHA_PORT="2", NAKSHA_PARALLEL="8")
    assert (found.port, found.parallel, found.host) == (3, 8, "localhost")
    found = read("--config", str(file), NAKSHA_CONFIG="/nowhere")
    assert (found.port, found.parallel, found.keys) == (1, 7, ("secret:a", "pem:b"))
    assert read() == ServerSettings()


def test_variables_of_other_commands_are_ignored() -> None:
    clients = {"NAKSHA_STORAGE": "file:x", "NAKSHA_HUB": "http://[::1]:1", "NAKSHA_TOKEN": "x"}
    assert read(**clients) == ServerSettings()


def test_every_kind_of_value_can_be_given_as_text() -> None:
    found = read(
        *("--keys", "secret:a,pem:b", "--keys", "jwks:c", "--anonymous", "--no-token-expiry"),
        *("--request-seconds", "1.5", "--realm-storage-options", '{"schema": "x_{realm}"}'),
    )
    assert found.keys == ("secret:a", "pem:b", "jwks:c")
    assert (found.anonymous, found.token_expiry) == (True, False)
    assert found.request_seconds == 1.5
    assert found.realm_storage_options == {"schema": "x_{realm}"}
    found = read(NAKSHA_ANONYMOUS="yes", NAKSHA_KEYS="secret:a, pem:b", NAKSHA_TOKEN_EXPIRY="false")
    assert (found.anonymous, found.token_expiry) == (True, False)
    assert found.keys == ("secret:a", "pem:b")


@pytest.mark.parametrize(
    ("flags", "environment", "words"),
    [
        (["--port", "x"], {}, ["flag --port", "int"]),
        (["--port", "70000"], {}, ["flag --port", "65535"]),
        ([], {"NAKSHA_PORT": "x"}, ["NAKSHA_PORT"]),
        ([], {"NAKSHA_PROT": "1"}, ["NAKSHA_PROT", "did you mean NAKSHA_PORT?"]),
        ([], {"NAKSHA_ANONYMOUS": "perhaps"}, ["NAKSHA_ANONYMOUS"]),
        (["--realm-storage-options", "{"], {}, ["--realm-storage-options"]),
        (["--log-format", "xml"], {}, ["--log-format", "xml"]),
        (["--config", "/nowhere.toml"], {}, ["/nowhere.toml", "cannot be read"]),
    ],
)
def test_errors_name_the_source_of_a_value(
    flags: list[str], environment: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(*flags, **environment)
    assert all(word in caught.value.message for word in words), caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", ["prot", "did you mean port?"]),
        ('port = "x"', ["port in file"]),
        ("port = yes", ["is not valid TOML"]),
        ("[server]\nport = 1", ["server"]),
    ],
)
def test_errors_in_a_file_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "naksha.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        read("--config", str(path))
    assert all(word in caught.value.message for word in [*words, str(path)])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com"])
def test_without_keys_only_loopback_is_allowed(host: str) -> None:
    with pytest.raises(InvalidArgument, match="--keys"):
        read("--host", host)
    assert read("--host", host, "--keys", "secret:x").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_has_many_names(host: str) -> None:
    assert is_loopback(host)
    assert read("--host", host).host == host


@pytest.mark.parametrize("host", ["", "127.0.0.1.example.com", "localhost.example.com", "1.1.1.1"])
def test_others_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_one_process_serves_a_file() -> None:
    with pytest.raises(InvalidArgument, match="catalog is in a file"):
        read("--workers", "2")
    with pytest.raises(InvalidArgument, match="storage is in a file"):
        read("--workers", "2", "--catalog", "postgresql:///maps")
    with pytest.raises(InvalidArgument, match="catalog is in a file"):
        read("--workers", "2", "--realm-storage", "postgresql:///m", "--catalog", "memory:")
    assert read("--workers", "2", "--realm-storage", "postgresql:///maps").workers == 2


def test_the_catalog_is_in_the_storage_database_by_default() -> None:
    assert read("--realm-storage", "postgresql:///maps").catalog_location == "postgresql:///maps"
    several = read("--realm-storage", "postgresql:///maps_{realm}", "--data", "/d")
    assert several.catalog_location == "file:/d/hub.catalog"
    assert read("--data", "/d").catalog_location == "file:/d/hub.catalog"


def test_no_two_realms_share_their_features() -> None:
    def schema(realm: str, *flags: str) -> object:
        settings = read("--realm-storage", "postgresql:///maps", *flags)
        return settings.default_storage.for_realm(realm).properties.get("schema")

    assert schema("default") is None
    assert schema("a") == "naksha_a"
    assert schema("a", "--realm-storage-options", '{"schema": "x_{realm}"}') == "x_a"
    assert schema("default", "--realm-storage-options", '{"schema": "x_{realm}"}') == "x_default"
    with pytest.raises(InvalidArgument, match="share"):
        schema("a", "--realm-storage-options", '{"schema": "x"}')


def test_the_guide_documents_every_setting() -> None:
    told = ROW.findall((ROOT / "docs" / "operations.md").read_text())
    known = [
        (setting.flag, setting.variable, setting.name, shown(setting.default))
        for setting in settings_known()
    ]
    assert [(*names, default.strip().strip("`")) for *names, default in told] == known


def test_help_documents_every_setting() -> None:
    text = parser("naksha serve").format_help()
    assert all(setting.flag in text for setting in settings_known())
