"""Query parameters of the feature endpoints, declared once and shared.

The models validate each parameter by itself and are the source of the OpenAPI document. Lists with
significant commas (`tags`, `id`, `selection`, the property query) are parsed from the raw query
string by `naksha.hub.query_language`; they are declared here for the OpenAPI document only. Unknown
parameters are ignored: every client adds some of its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request

from naksha.hub.pipeline.requests import IfExists, IfNotExists, OnConflict
from naksha.hub.query_language.properties import property_query
from naksha.hub.query_language.query_string import decoded, raw_values
from naksha.hub.query_language.tags import id_list, tag_query
from naksha.hub.render.areas import features_in
from naksha.model import limits
from naksha.model.errors import InvalidArgument
from naksha.model.query import Bbox, Query


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


AnyCase = BeforeValidator(_lower)
DryRunSwitch = Annotated[bool, BeforeValidator(lambda value: True if value == "" else value)]
"""A switch that is also on without a value: `?dryRun`."""
Limit = Annotated[
    int,
    Field(ge=1, le=limits.PAGE_MAX, description="Maximum number of features to return."),
]
Time = Annotated[int, Field(ge=0, le=limits.INT8_MAX)]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Radius = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="Buffer around the geometry, in metres."),
]


class CompositeLayer(StrEnum):
    """Layer of a composite space."""

    DEFAULT = "default"
    EXTENSION = "extension"
    SUPER = "super"


class Parameters(BaseModel):
    """Base of all parameter models."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, frozen=True)


class RefParameters(Parameters):
    """A version reference, by either of its parameter names."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="Version: `HEAD`, a number, a tag, a time (ISO 8601), a transaction or "
        "`branch:version`. Default: the current state of `main`.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )
    version: str = Field(
        "",
        description="Deprecated name of `versionRef`.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )

    @property
    def ref(self) -> str:
        """The version reference; empty for the current state."""
        if self.version and self.version_ref and self.version != self.version_ref:
            raise InvalidArgument(
                'Parameters "version" and "versionRef" differ; pass only one of them',
                field="version",
            )
        return self.version_ref or self.version


class ReadParameters(RefParameters):
    """Version and layer to read."""

    context: Annotated[CompositeLayer, AnyCase] = Field(
        CompositeLayer.DEFAULT,
        description="Layer of a space that extends another one: both (`default`), only its own "
        "features (`extension`) or only those of the extended space (`super`).",
    )
    skip_cache: bool = Field(
        False, alias="skipCache", description="Ignored: responses are never stale."
    )


class SelectionParameters(ReadParameters):
    """Members of each returned feature."""

    selection: list[str] = Field(
        [],
        description="Properties to return, separated by commas, such as "
        "`p.name,p.address.street`; `*` for all, `!geometry` to omit the geometry.",
    )
    force_2d: bool = Field(False, alias="force2D", description="Omit altitudes.")


class AuthorParameters(SelectionParameters):
    """Filter by author."""

    author: list[str] = Field([], description="Only features last changed by these authors.")


class NamespaceParameters(Parameters):
    """Filters of every search; each has the name of its field in `Query`."""

    created_from: Time | None = Field(
        None,
        alias="createdFrom",
        description="Only features created at this time (epoch milliseconds) or later.",
    )
    created_to: Time | None = Field(
        None, alias="createdTo", description="Only features created before this time."
    )


class FilterParameters(AuthorParameters, NamespaceParameters):
    """Filter and page size."""

    tags: list[str] = Field(
        [], description="`a,b+c` matches a, or both b and c; repeated parameters combine with OR."
    )
    limit: Limit = limits.PAGE_DEFAULT


class IdParameters(AuthorParameters):
    """Feature ids."""

    id: list[str] = Field([], description="Feature ids, separated by commas or repeated.")


class CountParameters(ReadParameters, NamespaceParameters):
    """Filter of a count."""

    tags: list[str] = Field([], description="As in a search.")
    author: list[str] = Field([], description="As in a search.")


class StatisticsParameters(ReadParameters):
    """Precision of statistics."""

    fast_mode: bool = Field(
        False, alias="fastMode", description="Allow estimates where exact figures are slow."
    )


# ---- Areas ---------------------------------------------------------------------------------------

Degree = Literal["low", "lowmed", "med", "medhigh", "high"]


class AreaParameters(FilterParameters):
    """Rendering of the features of an area."""

    clip: bool | None = Field(
        None, description="Clip geometries to the area. Default for vector tiles."
    )
    clustering: Annotated[Literal["hexbin", "quadbin"] | None, AnyCase] = Field(
        None, description="Return aggregated cells instead of features."
    )
    resolution: int | None = Field(
        None,
        alias="clustering.resolution",
        ge=0,
        le=15,
        description="Deprecated: absolute resolution of hexagons, relative resolution of quads.",
    )
    absolute_resolution: int | None = Field(
        None,
        alias="clustering.absoluteResolution",
        ge=0,
        le=30,
        description="Hexagons: 0 to 15, quads: 0 to 30.",
    )
    relative_resolution: int | None = Field(
        None,
        alias="clustering.relativeResolution",
        ge=-2,
        le=4,
        description="Hexagons: -2 to 2, quads: 0 to 4.",
    )
    clustering_property: str | None = Field(
        None,
        alias="clustering.property",
        max_length=limits.PROPERTY_PATH_LENGTH_MAX,
        description="A numeric property to sum up per hexagon, such as `p.population`.",
    )
    point_mode: bool = Field(
        False, alias="clustering.pointmode", description="Return hexagons as their centres."
    )
    single_coordinate: bool = Field(
        False,
        alias="clustering.singlecoord",
        description="Count a feature only in the hexagon of its first position.",
    )
    clustering_sampling: Annotated[Degree | Literal["off"], AnyCase] = Field(
        "off", alias="clustering.sampling", description="Count only a sample of the features."
    )
    no_buffer: bool = Field(
        False, alias="clustering.noBuffer", description="Return quads without a gap between them."
    )
    count_mode: Annotated[Literal["real", "estimated", "mixed", "bool"], AnyCase] = Field(
        "mixed", alias="clustering.countmode", description="Counts are exact; `bool`: 1 if any."
    )
    tweaks: Annotated[Literal["sampling", "simplification", "ensure"] | None, AnyCase] = Field(
        None, description="Reduce the response for display."
    )
    tweaks_strength: Annotated[Annotated[int, Field(ge=1, le=100)] | Degree | None, AnyCase] = (
        Field(None, alias="tweaks.strength")
    )
    tweaks_algorithm: str | None = Field(
        None,
        alias="tweaks.algorithm",
        max_length=64,
        description="sampling: distribution, distribution2, geometrysize; simplification: grid, "
        "gridbytilelevel, simplified, simplifiedkeeptopology, merge (merges features within a "
        "small cell), linemerge (joins lines that continue each other).",
    )
    tweaks_threshold: int | None = Field(
        None,
        alias="tweaks.samplingthreshold",
        ge=10,
        le=100,
        description="ensure: maximum number of features, in thousands.",
    )


class EdgeParameters(Parameters):
    """An optional bounding box; north and south may be swapped."""

    west: Longitude | None = None
    south: Latitude | None = None
    east: Longitude | None = None
    north: Latitude | None = None

    def box(self) -> Bbox | None:
        """Return the bounding box, if one is given."""
        edges = {name: getattr(self, name) for name in ("west", "south", "east", "north")}
        missing = [name for name, edge in edges.items() if edge is None]
        if len(missing) == 4:
            return None
        if missing:
            raise InvalidArgument(
                "Incomplete bounding box: west, south, east and north are all required",
                field=missing[0],
            )
        south, north = sorted((edges["south"], edges["north"]))
        return Bbox(edges["west"], south, edges["east"], north)


class ChangeFilterParameters(EdgeParameters, NamespaceParameters):
    """Filter on changes: by the feature before or after the change, by author, and by time."""

    id: list[str] = Field([], description="Feature ids, separated by commas or repeated.")
    tags: list[str] = Field([], description="As in a search, on the state before or after.")
    author: list[str] = Field([], description="Only changes by these authors.")
    start_time: int | None = Field(
        None,
        alias="startTime",
        ge=0,
        le=limits.INT8_MAX - 1,
        description="Only changes after this time: with a later `updatedAt` (epoch milliseconds).",
    )
    end_time: int | None = Field(
        None,
        alias="endTime",
        ge=0,
        le=limits.INT8_MAX - 1,
        description="Only changes up to this time: with no later `updatedAt`.",
    )

    def query(self, request: Request, **more: Any) -> Query:
        """Build the filter on changes, including conditions of the raw query string."""
        start, end, box = self.start_time, self.end_time, self.box()
        if start is not None and end is not None and start > end:
            raise InvalidArgument(f"endTime {end} is before startTime {start}", field="endTime")
        return query_of(
            request,
            self,
            ids=id_list(raw_query(request)),
            spatial=None if box is None else features_in(box),
            updated_from=None if start is None else start + 1,
            updated_to=None if end is None else end + 1,
            **more,
        )


class BboxParameters(AreaParameters):
    """Features of a bounding box; west > east crosses the antimeridian.

    North and south may be swapped.
    """

    west: Longitude
    south: Latitude
    east: Longitude
    north: Latitude

    def box(self) -> Bbox:
        """Return the bounding box."""
        south, north = sorted((self.south, self.north))
        return Bbox(self.west, south, self.east, north)


class TileParameters(AreaParameters):
    """Features of a map tile."""

    margin: int = Field(
        0, ge=0, le=limits.TILE_MARGIN_PIXELS_MAX, description="Margin in pixels (tile: 256)."
    )
    mode: Annotated[Literal["raw", "viz"], AnyCase] = Field(
        "raw", description="`viz` reduces the tile for display."
    )
    viz_sampling: Annotated[Literal["low", "med", "high", "off"], AnyCase] = Field(
        "med", alias="vizSampling", description="Degree of the reduction."
    )


# ---- Places --------------------------------------------------------------------------------------


class AroundParameters(FilterParameters):
    """Features around a geometry."""

    radius: Radius = 0.0
    clip: bool = Field(
        False,
        description="Clip geometries to the area. Ignored with a radius above "
        f"{limits.RADIUS_METRES_MAX // 1000} km.",
    )

    @property
    def clips(self) -> bool:
        """Whether geometries are clipped."""
        return self.clip and self.radius <= limits.RADIUS_METRES_MAX


class SpatialParameters(AroundParameters):
    """Features around a point, a feature or an H3 cell."""

    lat: Latitude | None = None
    lon: Longitude | None = None
    ref_space_id: str | None = Field(None, alias="refSpaceId")
    ref_feature_id: str | None = Field(None, alias="refFeatureId")
    h3_index: str | None = Field(None, alias="h3Index", max_length=32)


class IterateParameters(FilterParameters):
    """All features, page by page."""

    handle: str = Field(
        "0",
        pattern="^[0-9]*$",
        max_length=limits.HANDLE_LENGTH_MAX,
        description="The `handle` of the previous page; 0 or empty for the first page.",
    )
    sort: str | None = Field(
        None,
        max_length=limits.PROPERTY_PATH_LENGTH_MAX,
        description="Sort order instead of by id, such as `p.name:asc,p.height:desc`. Each page "
        "makes the database sort all features.",
    )
    part: str | None = Field(
        None,
        pattern="^[0-9]{1,4},[0-9]{1,4}$",
        description="`n,total`: the n-th (from 1) of `total` disjoint parts, for parallel reads.",
    )


class DeletedParameters(FilterParameters):
    """Deleted features, page by page."""

    handle: str = Field(
        "0",
        pattern="^[0-9]*$",
        max_length=limits.HANDLE_LENGTH_MAX,
        description="The `handle` of the previous page; 0 or empty for the first page.",
    )


# ---- Writing -------------------------------------------------------------------------------------


class BranchParameters(RefParameters):
    """The branch to write to."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        max_length=limits.VERSION_REF_LENGTH_MAX,
        description="The branch to write to.",
    )


class TargetParameters(BranchParameters):
    """The branch, and the layer of a composite space, to write to."""

    context: Annotated[CompositeLayer, AnyCase] = CompositeLayer.DEFAULT


class TaggingParameters(TargetParameters):
    """Options of all feature writes."""

    add_tags: list[str] = Field([], alias="addTags", description="Tags to add to all features.")
    remove_tags: list[str] = Field(
        [], alias="removeTags", description="Tags to remove from all features."
    )
    conflict_detection: bool = Field(
        False,
        alias="conflictDetection",
        description="Reject a feature (409) whose version is not the current one.",
    )


class ReplaceOneParameters(TaggingParameters):
    """Options of replacing one feature."""

    prefix_id: str = Field(
        "",
        alias="prefixId",
        max_length=limits.FEATURE_ID_BYTES_MAX,
        description="Prefix for every feature id.",
    )


class ReplaceParameters(ReplaceOneParameters):
    """Options of replacing features."""

    transactional: bool = Field(
        True, description="False: write the valid features even if others fail."
    )


class WriteParameters(ReplaceParameters):
    """Options of writing features: rules for existing ones and for missing ones."""

    e: Annotated[IfExists, AnyCase] = Field(
        IfExists.PATCH, description="Action for a feature that exists."
    )
    ne: Annotated[IfNotExists, AnyCase] = Field(
        IfNotExists.CREATE, description="Action for a feature that does not exist."
    )
    cr: Annotated[OnConflict, AnyCase] = Field(
        OnConflict.ERROR, description="Action for a property that both sides of a merge changed."
    )


class DeleteParameters(TargetParameters):
    """Selection of the features to delete."""

    id: list[str] = Field([], description="Ids, separated by commas or repeated. `*`: all.")
    tags: list[str] = Field([], description="As in a search. `*`: all features.")
    erase_content: bool = Field(
        False,
        alias="eraseContent",
        description="Delete all features; cannot be combined with `id` or `tags`.",
    )


# ---- The query -----------------------------------------------------------------------------------

PROPERTY_QUERY: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "propertyQuery",
            "in": "query",
            "style": "form",
            "explode": True,
            "description": "Conditions on properties: `p.name=value`, `f.id=value`, with the "
            "operators `=`, `!=`, `>=` (`=gte=`), `<=` (`=lte=`), `>` (`=gt=`), `<` (`=lt=`), `@>` "
            "(`=cs=`: contains) and `^=` (`=bw=`: begins with). Values separated by commas combine "
            "with OR, conditions with AND. `.null` means null, quotes force a string.",
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    ]
}
"""OpenAPI declaration of the property query, whose parameter names are user-defined."""


def raw_query(request: Request) -> bytes:
    """Return the raw query string."""
    raw: bytes = request.scope["query_string"]
    return raw


def once(request: Request, *names: str) -> None:
    """Reject parameters that are given more than once."""
    for name in names:
        if len(raw_values(raw_query(request), name)) > 1:
            raise InvalidArgument(
                f'Parameter "{name}" is given more than once; pass it once', field=name
            )


def list_of(request: Request, name: str) -> tuple[str, ...]:
    """Return the values of a parameter, separated by commas or repeated."""
    texts = [decoded(value, name) for value in raw_values(raw_query(request), name)]
    return tuple(filter(None, (piece for text in texts for piece in text.split(","))))


def query_of(request: Request, parameters: NamespaceParameters, **more: Any) -> Query:
    """Build the query common to all endpoints: properties, tags, authors and the namespace."""
    raw = raw_query(request)
    return Query(
        where=property_query(raw),
        tags=tag_query(raw),
        authors=list_of(request, "author") or None,
        **{name: getattr(parameters, name) for name in NamespaceParameters.model_fields},
        **more,
    )
