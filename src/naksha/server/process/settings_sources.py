"""Read settings from flags, environment and file, in this order of precedence.

Errors name a setting as its source spells it: `--port`, `NAKSHA_PORT` or `port`.
"""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from naksha.model.errors import InvalidArgument
from naksha.server.process.settings import ServerSettings, check

PREFIX: Final = "NAKSHA_"
OF_CLIENTS: Final = frozenset({f"{PREFIX}HUB", f"{PREFIX}STORAGE", f"{PREFIX}TOKEN"})
"""Variables of commands that use a hub or a storage; they are not settings of a server."""
CONFIG: Final = "config"
"""The setting that locates the file; it cannot be set in the file itself."""


class Setting(NamedTuple):
    """A setting with its type, default and help text."""

    name: str
    type: Any
    default: Any
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


class SettingValue(NamedTuple):
    """A value with its source, for error messages."""

    value: Any
    where: str


def settings_known() -> list[Setting]:
    """Return all settings in the order of `--help`."""
    return [
        Setting(field.name, field.type, _default(field), _help(field.type))
        for field in msgspec.structs.fields(ServerSettings)
    ]


def read_settings(
    arguments: Sequence[str], environment: Mapping[str, str], *, program: str
) -> ServerSettings:
    """Read the settings of a server.

    Raises:
        InvalidArgument: A value or a name is invalid; the message names its source. An unknown
            flag and --help end the program, as argparse does.
    """
    flags = vars(parser(program).parse_args(arguments))
    values = {name: value for name, value in flags.items() if value is not None}
    return settings_from(values, environment)


def settings_from(flags: Mapping[str, Any], environment: Mapping[str, str]) -> ServerSettings:
    """Read the settings from flags that are already parsed, by name."""
    known = {setting.name: setting for setting in settings_known()}
    file = flags.get(CONFIG) or environment.get(PREFIX + CONFIG.upper())
    found: dict[str, SettingValue] = {}
    if file:
        found |= _from_file(Path(file), known)
    found |= _from_environment(environment, known)
    found |= {
        name: SettingValue(value, f"flag {known[name].flag}")
        for name, value in flags.items()
        if name != CONFIG
    }
    return check(ServerSettings(**{name: _value(known[name], one) for name, one in found.items()}))


def parser(program: str) -> argparse.ArgumentParser:
    """Build the parser of the flags."""
    made = argparse.ArgumentParser(
        prog=program,
        description="Start the hub server. Every flag is also an environment variable "
        "(NAKSHA_PORT for --port) and a key of the configuration file (port); flags take "
        "precedence over variables, and variables over the file.",
        allow_abbrev=False,
    )
    made.add_argument(f"--{CONFIG}", metavar="FILE", help="Configuration file, in TOML.")
    for setting in settings_known():
        _add_flag(made, setting)
    return made


def _add_flag(made: argparse.ArgumentParser, setting: Setting) -> None:
    """Add the flag of a setting; its value is validated later, together with other sources."""
    help_text = setting.help.replace("%", "%%")
    default = shown(setting.default)
    if default:
        help_text += f" [{default}]"
    if isinstance(setting.default, bool):
        made.add_argument(
            setting.flag,
            action=argparse.BooleanOptionalAction,
            default=None,
            help=help_text,
            dest=setting.name,
        )
    elif isinstance(setting.default, tuple):
        made.add_argument(
            setting.flag,
            action="append",
            metavar=setting.name.upper(),
            dest=setting.name,
            help=help_text,
        )
    else:
        made.add_argument(
            setting.flag, metavar=setting.name.upper(), dest=setting.name, help=help_text
        )


def shown(default: Any) -> str:
    """Format a default for `--help`; empty values yield an empty string."""
    if default in ("", (), {}):
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _from_environment(
    environment: Mapping[str, str], known: Mapping[str, Setting]
) -> dict[str, SettingValue]:
    found = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable == PREFIX + CONFIG.upper():
            continue
        if variable in OF_CLIENTS:
            continue
        name = variable.removeprefix(PREFIX).lower()
        where = f"environment variable {variable}"
        if name not in known:
            raise _unknown(variable, where, (setting.variable for setting in known.values()))
        found[name] = SettingValue(value, where)
    return found


def _from_file(path: Path, known: Mapping[str, Setting]) -> dict[str, SettingValue]:
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidArgument(
            f"Configuration file {str(path)!r} cannot be read: {error.strerror}", field=CONFIG
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"Configuration file {str(path)!r} is not valid TOML: {error}", field=CONFIG
        ) from error
    for name in content:
        if name not in known:
            raise _unknown(name, f"file {str(path)!r}", known)
    return {
        name: SettingValue(value, f"{name} in file {str(path)!r}")
        for name, value in content.items()
    }


def _value(setting: Setting, source: SettingValue) -> Any:
    """Convert a value to the setting's type.

    Strings, the only type of flags and environment variables, are parsed.
    """
    value = source.value
    if isinstance(value, str) and isinstance(setting.default, tuple):
        value = [value]
    if isinstance(value, list) and isinstance(setting.default, tuple):
        value = [one for text in value for one in _pieces(text)]
    try:
        if isinstance(value, str) and isinstance(setting.default, dict):
            return msgspec.json.decode(value, type=setting.type)
        if isinstance(value, str) and isinstance(setting.default, bool):
            value = _TRUTHS.get(value.strip().lower(), value)
        return msgspec.convert(value, setting.type, strict=not isinstance(value, str))
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"Invalid value in {source.where}: {error}", field=setting.name
        ) from None


_TRUTHS: Final = {"yes": True, "no": False, "on": True, "off": False}
"""In addition to the JSON literals."""


def _pieces(text: object) -> list[object]:
    return [piece.strip() for piece in text.split(",")] if isinstance(text, str) else [text]


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _help(type_: Any) -> str:
    help_text = (meta.description for meta in type_.__metadata__ if isinstance(meta, msgspec.Meta))
    return next(text for text in help_text if text)


def _unknown(name: str, where: str, known: Iterable[str]) -> InvalidArgument:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]}?" if near else "--help lists all settings"
    return InvalidArgument(f"{name} ({where}) is not a setting; {hint}", field=name)
