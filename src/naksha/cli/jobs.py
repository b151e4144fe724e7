"""The command `job`, with a sub-command per installed job and an option per field of its spec."""

from __future__ import annotations

import inspect
import secrets
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec
import typer
from msgspec import inspect as types
from typer.core import TyperGroup

from naksha.cli.failures import readable_errors
from naksha.cli.field_docs import field_docs
from naksha.model.errors import InvalidArgument
from naksha.model.feature_problems import invalid_struct

APP_ID: Final = "naksha"
"""Default app id of jobs."""
_COMMON: Final = {
    "storage": Annotated[
        str,
        typer.Option(envvar="NAKSHA_STORAGE", help="File or URL, such as postgresql:///maps."),
    ],
    "schema": Annotated[str | None, typer.Option(help="PostgreSQL schema.")],
    "master": Annotated[
        str, typer.Option(help="Spark master: local[*], or for example spark://host:7077.")
    ],
    "spark": Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Spark property; repeatable.")
    ],
    "as_json": Annotated[
        bool, typer.Option("--json", help="Print JSON lines; the last one has the report.")
    ],
}
"""Options of all jobs."""
_DEFAULTS: Final = {
    "storage": inspect.Parameter.empty,
    "schema": None,
    "master": "local[*]",
    "spark": None,
    "as_json": False,
}
_SCALARS: Final[dict[type[types.Type], type]] = {
    types.StrType: str,
    types.IntType: int,
    types.FloatType: float,
    types.BoolType: bool,
}


class JobGroup(TyperGroup):
    """The group of job commands, loaded on demand because importing Spark is slow."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List all installed jobs, including those that cannot be imported."""
        with readable_errors():
            names: list[str] = _registry().job_names()
        return names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a job; None if it does not exist or cannot be imported."""
        known = self.commands.get(cmd_name)
        if known is None:
            with readable_errors():
                known = self._made(cmd_name)
        return known

    def _made(self, name: str) -> Any:
        registry = _registry()
        if name not in registry.job_names():
            return None
        try:
            job = registry.find_job(name)
        except InvalidArgument:
            return None
        made = typer.Typer(add_completion=False)
        made.command(name, help=job.about)(_function(job))
        self.commands[name] = typer.main.get_command(made)
        return self.commands[name]


def _registry() -> Any:
    from naksha.spark.jobs import registry

    return registry


# ---- From a specification to options -------------------------------------------------------------


def _function(job: Any) -> Any:
    """Build a function whose signature typer turns into a command."""
    fields = _fields(job.spec)
    docs = field_docs(job.spec)

    def run(**options: Any) -> None:
        _run(job, fields, options)

    options = {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if _is_needed(field) else None,
            annotation=_option(field, docs.get(field.name, "")),
        )
        for field in fields
    }
    common = {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=annotation
        )
        for name, annotation in _COMMON.items()
    }
    parameters = {**common, **options}
    run.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return run


def _fields(spec: type) -> list[types.Field]:
    found = types.type_info(spec)
    assert isinstance(found, types.StructType)
    return [field for field in found.fields if field.name != "place"]


def _is_needed(field: types.Field) -> bool:
    return field.required and field.name != "app_id"


def _option(field: types.Field, doc: str) -> Any:
    """Build the option of a field. Options that are not passed are left to the job's defaults."""
    kind, metavar = _python_type(field.type)
    default: Any = False
    if not field.required and field.default not in (msgspec.NODEFAULT, None, (), ""):
        default = str(field.default)
    if field.name == "app_id":
        default = APP_ID
    flag = f"--{field.name.replace('_', '-')}"
    flags = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    option = typer.Option(*flags, help=" ".join(doc.split()), show_default=default, metavar=metavar)
    return Annotated[kind if _is_needed(field) else kind | None, option]


def _python_type(kind: types.Type) -> tuple[Any, str | None]:
    """Return the Python type for typer, and a metavar if the notation is not obvious."""
    kind = _plain(kind)
    if isinstance(kind, types.EnumType):
        return kind.cls, None
    if isinstance(kind, types.LiteralType):
        return str, "|".join(map(str, kind.values))
    if isinstance(kind, types.VarTupleType | types.ListType):
        inner, metavar = _python_type(kind.item_type)
        return GenericAlias(list, (inner,)), metavar
    if isinstance(kind, types.DictType):
        return list[str], "NAME=VALUE"
    return _SCALARS.get(type(kind), str), None if type(kind) in _SCALARS else "JSON"


def _plain(kind: types.Type) -> types.Type:
    """Strip metadata and None from a type."""
    if isinstance(kind, types.Metadata):
        return _plain(kind.type)
    if isinstance(kind, types.UnionType):
        others = [one for one in kind.types if not isinstance(one, types.NoneType)]
        return _plain(others[0]) if len(others) == 1 else kind
    return kind


# ---- From options to a specification -------------------------------------------------------------


def _run(job: Any, fields: list[types.Field], options: dict[str, Any]) -> None:
    as_json = options["as_json"]
    with readable_errors(as_json=as_json):
        from naksha.cli.job_process import print_report, run_job
        from naksha.spark.source.options import storage_ref_of

        named = {"storage": options["storage"], "schema": options["schema"]}
        place = storage_ref_of({name: value for name, value in named.items() if value is not None})
        spec: dict[str, Any] = {"job": job.name, "place": msgspec.to_builtins(place)}
        for field in fields:
            value = options[field.name]
            if value is not None and value != []:
                spec[field.name] = _value(field, value)
        names = {field.name for field in fields}
        if "app_id" in names:
            spec.setdefault("app_id", APP_ID)
        if "job_id" in names:
            spec.setdefault("job_id", secrets.token_hex(16))
        try:
            msgspec.convert(spec, job.spec)
        except msgspec.ValidationError as error:
            raise invalid_struct("job", error) from None
        settings = dict(_pair(text, "spark") for text in options["spark"] or ())
        done = run_job(spec, master=options["master"], settings=settings, as_json=as_json)
        if not as_json:
            print_report(done.report)
        if done.exit_code:
            raise typer.Exit(done.exit_code)


def _value(field: types.Field, value: Any) -> Any:
    kind = _plain(field.type)
    if isinstance(kind, types.VarTupleType | types.ListType):
        inner = msgspec.structs.replace(field, type=kind.item_type)
        return [_value(inner, one) for one in value]
    if isinstance(kind, types.DictType):
        return dict(_pair(text, field.name) for text in value)
    if _is_file(field.type) and "://" not in value:
        return str(Path(value).absolute())  # executors may have another working directory
    if type(kind) in _SCALARS or isinstance(kind, types.EnumType | types.LiteralType):
        return msgspec.to_builtins(value)
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value  # for a union that includes strings


def _is_file(kind: types.Type) -> bool:
    from naksha.spark.jobs.frame import FILE

    if isinstance(kind, types.UnionType):
        return any(map(_is_file, kind.types))
    return isinstance(kind, types.Metadata) and FILE in (kind.extra_json_schema or {})


def _pair(text: str, field: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InvalidArgument(f"--{field} {text!r:.80} is not of the form NAME=VALUE", field=field)
    return name, value
