"""JSONPath (RFC 9535), as far as it can be asked about features of strangers: without the functions
that take patterns, which can be written so that they never end."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathQuery

from naksha.model import limits
from naksha.model.errors import InvalidArgument

_UNBOUNDED: Final = ("match", "search")


class _Environment(JSONPathEnvironment):
    max_recursion_depth = limits.JSON_DEPTH_MAX

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        for name in _UNBOUNDED:
            self.function_extensions.pop(name)


_environment: Final = _Environment()


class JsonPath(NamedTuple):
    """A path that was understood."""

    query: JSONPathQuery

    @classmethod
    def parse(cls, text: str, *, field: str) -> JsonPath:
        """Raises InvalidArgument for what is no path, or one that may take for ever."""
        if len(text) > limits.JSON_PATH_LENGTH_MAX or text.count("..") > 1:
            raise InvalidArgument(
                f"A path has at most {limits.JSON_PATH_LENGTH_MAX} characters, and `..` once",
                field=field,
            )
        try:
            return cls(_environment.compile(text))
        except JSONPathError as error:
            raise InvalidArgument(f"It is no JSONPath (RFC 9535): {error}", field=field) from None

    def finds(self, feature: dict[str, Any]) -> bool:
        """Whether there is something at the path."""
        try:
            return any(True for _ in self.query.finditer(feature))
        except JSONPathError:
            return False
