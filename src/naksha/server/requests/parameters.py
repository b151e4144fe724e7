"""The query parameters of the endpoints about features, declared once and shared.

A model holds what can be said of each parameter alone; it is what the OpenAPI document shows. Lists
whose commas mean something (`tags`, `id`, `selection`, the property query) are read from the raw
query string by `naksha.hub.query_language`, and declared here for those who read the document.
Unknown
parameters are ignored: every client adds some of its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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
"""True also without a value: `?dryRun`."""
Limit = Annotated[
    int,
    Field(ge=1, le=limits.PAGE_MAX, description="How many features are answered at most."),
]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Radius = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, description="Metres by which the geometry is grown."),
]


class Layer(StrEnum):
    """Which part of a composite space."""

    DEFAULT = "default"
    EXTENSION = "extension"
    SUPER = "super"


class Parameters(BaseModel):
    """What all of them have in common."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, frozen=True)


class RefParameters(Parameters):
    """A version reference under either of its names."""

    version_ref: str = Field(
        "",
        alias="versionRef",
        description="A version: `HEAD`, a number, a tag, a time (ISO 8601), a transaction or "
        "`branch:version`. Default is the present state of `main`.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )
    version: str = Field(
        "",
        description="The older name of `versionRef`.",
        max_length=limits.VERSION_REF_LENGTH_MAX,
    )

    @property
    def ref(self) -> str:
        """The version reference; empty for the present."""
        if self.version and self.version_ref and self.version != self.version_ref:
            raise InvalidArgument("It differs from versionRef; give one of them", field="version")
        return self.version_ref or self.version


class PlaceParameters(RefParameters):
    """Where to read."""

    context: Annotated[Layer, AnyCase] = Field(
        Layer.DEFAULT,
        description="Of a space that extends another one: both (`default`), only what it adds "
        "(`extension`) or only what is below (`super`).",
    )
    skip_cache: bool = Field(False, alias="skipCache", description="Ignored: nothing is stale.")


class ShapeParameters(PlaceParameters):
    """What is given of each feature."""

    selection: list[str] = Field(
        [],
        description="Properties to be given, such as `p.name,p.address.street`; `*` for all, "
        "`!geometry` for no geometry. Commas separate.",
    )
    force_2d: bool = Field(False, alias="force2D", description="Leave out the altitudes.")


class AuthorParameters(ShapeParameters):
    """Whose features."""

    author: list[str] = Field([], description="Only what was last changed by these authors.")


class FilterParameters(AuthorParameters):
    """Which features, and how many."""

    tags: list[str] = Field(
        [], description="`a,b+c` means a, or b and c; given several times, one of them."
    )
    limit: Limit = limits.PAGE_DEFAULT


class IdParameters(AuthorParameters):
    """Features by id."""

    id: list[str] = Field([], description="Ids; repeated, or with commas between them.")


class CountParameters(PlaceParameters):
    """What is counted."""

    tags: list[str] = Field([], description="As in a search.")
    author: list[str] = Field([], description="As in a search.")


class StatisticsParameters(PlaceParameters):
    """How exact."""

    fast_mode: bool = Field(
        False, alias="fastMode", description="Estimates will do where exact figures take long."
    )


# ---- Areas ---------------------------------------------------------------------------------------

Degree = Literal["low", "lowmed", "med", "medhigh", "high"]


class AreaParameters(FilterParameters):
    """What is made of the features of an area."""

    clip: bool | None = Field(
        None, description="Cut geometries at the edge of the area. Vector tiles are, by default."
    )
    clustering: Annotated[Literal["hexbin", "quadbin"] | None, AnyCase] = Field(
        None, description="Answer cells with figures instead of features."
    )
    resolution: int | None = Field(
        None,
        alias="clustering.resolution",
        ge=0,
        le=15,
        description="The older name: of hexagons the absolute, of quads the relative resolution.",
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
        description="A number that is summed up in each hexagon, such as `p.population`.",
    )
    point_mode: bool = Field(
        False, alias="clustering.pointmode", description="Hexagons as their centres."
    )
    single_coordinate: bool = Field(
        False,
        alias="clustering.singlecoord",
        description="Count a feature in the hexagon of its first position only.",
    )
    clustering_sampling: Annotated[Degree | Literal["off"], AnyCase] = Field(
        "off", alias="clustering.sampling", description="Count only some of the features."
    )
    no_buffer: bool = Field(
        False, alias="clustering.noBuffer", description="Quads without a gap between them."
    )
    count_mode: Annotated[Literal["real", "estimated", "mixed", "bool"], AnyCase] = Field(
        "mixed", alias="clustering.countmode", description="All are exact; `bool`: 1 if any."
    )
    tweaks: Annotated[Literal["sampling", "simplification", "ensure"] | None, AnyCase] = Field(
        None, description="Make the answer smaller for display."
    )
    tweaks_strength: Annotated[Annotated[int, Field(ge=1, le=100)] | Degree | None, AnyCase] = (
        Field(None, alias="tweaks.strength")
    )
    tweaks_algorithm: str | None = Field(
        None,
        alias="tweaks.algorithm",
        max_length=64,
        description="sampling: distribution, distribution2, geometrysize; simplification: grid, "
        "gridbytilelevel, simplified, simplifiedkeeptopology, merge (what lies in one small "
        "place becomes one feature), linemerge (lines that go on in each other do).",
    )
    tweaks_threshold: int | None = Field(
        None,
        alias="tweaks.samplingthreshold",
        ge=10,
        le=100,
        description="ensure: how many thousand features at most.",
    )


class EdgeParameters(Parameters):
    """A box that may be given. North and south may be swapped."""

    west: Longitude | None = None
    south: Latitude | None = None
    east: Longitude | None = None
    north: Latitude | None = None

    def box(self) -> Bbox | None:
        """The area, if one is given."""
        edges = {name: getattr(self, name) for name in ("west", "south", "east", "north")}
        missing = [name for name, edge in edges.items() if edge is None]
        if len(missing) == 4:
            return None
        if missing:
            raise InvalidArgument("A box has all four edges", field=missing[0])
        south, north = sorted((edges["south"], edges["north"]))
        return Bbox(edges["west"], south, edges["east"], north)


class ChangeFilterParameters(EdgeParameters):
    """Which changes: of features that match before or after the change, by whom, and when."""

    id: list[str] = Field([], description="Ids; repeated, or with commas between them.")
    tags: list[str] = Field([], description="As in a search, before or after the change.")
    author: list[str] = Field([], description="Only changes by these authors.")
    start_time: int | None = Field(
        None,
        alias="startTime",
        ge=0,
        le=limits.INT8_MAX - 1,
        description="Only changes after this time: their `updatedAt` is later (epoch "
        "milliseconds).",
    )
    end_time: int | None = Field(
        None,
        alias="endTime",
        ge=0,
        le=limits.INT8_MAX - 1,
        description="Only changes until this time: their `updatedAt` is not later.",
    )

    def query(self, request: Request, **more: Any) -> Query:
        """The filter on changes, with what the raw query string says."""
        start, end, box = self.start_time, self.end_time, self.box()
        if start is not None and end is not None and start > end:
            raise InvalidArgument(f"{end} is before startTime, {start}", field="endTime")
        return query_of(
            request,
            ids=id_list(raw_query(request)),
            spatial=None if box is None else features_in(box),
            updated_from=None if start is None else start + 1,
            updated_to=None if end is None else end + 1,
            **more,
        )


class BboxParameters(AreaParameters):
    """Features of a box; with west > east it crosses the date line. North and south may be
    swapped."""

    west: Longitude
    south: Latitude
    east: Longitude
    north: Latitude

    def box(self) -> Bbox:
        """The box."""
        south, north = sorted((self.south, self.north))
        return Bbox(self.west, south, self.east, north)


class TileParameters(AreaParameters):
    """Features of a tile."""

    margin: int = Field(
        0, ge=0, le=limits.TILE_MARGIN_PIXELS_MAX, description="Pixels of 256 around the tile."
    )
    mode: Annotated[Literal["raw", "viz"], AnyCase] = Field(
        "raw", description="`viz`: made smaller for display."
    )
    viz_sampling: Annotated[Literal["low", "med", "high", "off"], AnyCase] = Field(
        "med", alias="vizSampling", description="How much smaller."
    )


# ---- Places --------------------------------------------------------------------------------------


class AroundParameters(FilterParameters):
    """Features around a geometry."""

    radius: Radius = 0.0
    clip: bool = Field(
        False,
        description="Cut geometries at the edge of the area. Ignored with a radius above "
        f"{limits.RADIUS_METRES_MAX // 1000} km.",
    )

    @property
    def clips(self) -> bool:
        """Whether geometries are cut."""
        return self.clip and self.radius <= limits.RADIUS_METRES_MAX


class SpatialParameters(AroundParameters):
    """Features around a point, a feature or a hexagon."""

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
        description="The `handle` of the page before; 0 or nothing for the first page.",
    )
    sort: str | None = Field(
        None,
        max_length=limits.PROPERTY_PATH_LENGTH_MAX,
        description="An order other than that of the ids, such as `p.name:asc,p.height:desc`. "
        "For each page the database looks at all features, and gives out those of the page.",
    )
    part: str | None = Field(
        None,
        pattern="^[0-9]{1,4},[0-9]{1,4}$",
        description="`n,total`: the n-th (from 1) of so many parts, each feature being in one of "
        "them, to be read at the same time.",
    )


class DeletedParameters(FilterParameters):
    """Deleted features, page by page."""

    handle: str = Field(
        "0",
        pattern="^[0-9]*$",
        max_length=limits.HANDLE_LENGTH_MAX,
        description="The `handle` of the page before; 0 or nothing for the first page.",
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
    """The branch and the part of a composite space to write to."""

    context: Annotated[Layer, AnyCase] = Layer.DEFAULT


class TaggingParameters(TargetParameters):
    """What every write of features takes."""

    add_tags: list[str] = Field([], alias="addTags", description="Tags that all features get.")
    remove_tags: list[str] = Field([], alias="removeTags", description="Tags that they lose.")
    conflict_detection: bool = Field(
        False,
        alias="conflictDetection",
        description="The version that a feature comes with must be the present one (else 409).",
    )


class ReplaceOneParameters(TaggingParameters):
    """One feature by its whole content."""

    prefix_id: str = Field(
        "",
        alias="prefixId",
        max_length=limits.FEATURE_ID_BYTES_MAX,
        description="Put before every id.",
    )


class ReplaceParameters(ReplaceOneParameters):
    """Features by their whole content."""

    transactional: bool = Field(
        True, description="False: what is right is written although something else is wrong."
    )


class WriteParameters(ReplaceParameters):
    """Features with a rule for those that exist and for those that do not."""

    e: Annotated[IfExists, AnyCase] = Field(IfExists.PATCH, description="If it exists.")
    ne: Annotated[IfNotExists, AnyCase] = Field(
        IfNotExists.CREATE, description="If it does not exist."
    )
    cr: Annotated[OnConflict, AnyCase] = Field(
        OnConflict.ERROR, description="If both sides of a merge changed the same."
    )


class DeleteParameters(TargetParameters):
    """Which features are deleted."""

    id: list[str] = Field([], description="Ids; repeated, or with commas. `*` means all.")
    tags: list[str] = Field([], description="As in a search. `*` means all features.")
    erase_content: bool = Field(
        False,
        alias="eraseContent",
        description="Delete all features; not together with `id` or `tags`.",
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
            "(`=cs=`: contains) and `^=` (`=bw=`: begins with). Commas separate values of which "
            "one must hold; conditions must all hold. `.null` stands for null, quotes make a text.",
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    ]
}
"""For OpenAPI: parameters whose names are in the hands of the users."""


def raw_query(request: Request) -> bytes:
    """The query string as it was sent."""
    raw: bytes = request.scope["query_string"]
    return raw


def once(request: Request, *names: str) -> None:
    """Parameters that make no sense twice."""
    for name in names:
        if len(raw_values(raw_query(request), name)) > 1:
            raise InvalidArgument("It must be given once", field=name)


def list_of(request: Request, name: str) -> tuple[str, ...]:
    """Values separated by commas, or repeated."""
    texts = [decoded(value, name) for value in raw_values(raw_query(request), name)]
    return tuple(filter(None, (piece for text in texts for piece in text.split(","))))


def query_of(request: Request, **more: Any) -> Query:
    """What the query string asks for, whatever the endpoint: properties, tags, authors."""
    raw = raw_query(request)
    return Query(
        where=property_query(raw),
        tags=tag_query(raw),
        authors=list_of(request, "author") or None,
        **more,
    )
