"""Handlers as a third party would write them; the tests run each in both ways."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from naksha.hub.pipeline.pipeline import Event, Handler, Setup
from naksha.hub.pipeline.requests import CountFeatures, DeleteFeatures, ReadFeatures, WriteFeatures
from naksha.hub.pipeline.responses import Count, Features, Written
from naksha.model.errors import Forbidden, InvalidArgument, NakshaError
from naksha.model.query import Query
from naksha.model.state import State


def stamped(feature: dict[str, Any], text: str) -> dict[str, Any]:
    return {**feature, "properties": {**feature.get("properties", {}), "stamp": text}}


class Stamp:
    """Puts a stamp on whatever is written, and another one on whatever is read."""

    def __init__(self, setup: Setup) -> None:
        self._text = str(setup.connector.properties["text"])
        self._space_id = setup.space.id

    async def process(self, event: Event) -> Any:
        request = event.request
        if isinstance(request, WriteFeatures):
            modifications = tuple(
                msgspec.structs.replace(
                    one, features=tuple(stamped(each, self._text) for each in one.features)
                )
                for one in request.modifications
            )
            return await event.send_upstream(
                msgspec.structs.replace(request, modifications=modifications)
            )
        answer = await event.send_upstream()
        if not isinstance(answer, Features):
            return answer
        by = f"{event.context.actor.app_id}/{event.context.actor.author}"
        read = f"{self._space_id} {by} {event.context.stream_id}"
        states = [
            State(state.id, msgspec.json.encode({**state.feature, "read": read}))
            for state in await answer.all()
        ]
        return Features.of(states, answer.cursor)


class Pure:
    """Stores nothing: gives features back with a stamp."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        if not isinstance(event.request, WriteFeatures):
            return await event.send_upstream()
        features = [
            stamped(each, "pure") for one in event.request.modifications for each in one.features
        ]
        states = tuple(State(str(each["id"]), msgspec.json.encode(each)) for each in features)
        return Written(inserted=tuple(state.id for state in states), states=states)


class Narrow:
    """Lets only some features be seen."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        request: Any = event.request
        if isinstance(request, ReadFeatures | CountFeatures):
            query = msgspec.structs.replace(request.query, tags=(("open",),))
            request = msgspec.structs.replace(request, query=query)
        return await event.send_upstream(request)


class Overreaching:
    """Handler that deletes all features on every read."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        if isinstance(event.request, CountFeatures):
            await event.send_upstream(DeleteFeatures())
        return await event.send_upstream()


class Refusing:
    """Wants nothing to do with it."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        raise InvalidArgument("It has no name", field="properties.name", feature_id="a")


class Failing:
    """Has an error in it."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        raise RuntimeError("a secret of the handler")


class Sleeping:
    """Takes its time."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        await asyncio.sleep(30)


class Catching:
    """Handler that replaces errors by a response."""

    def __init__(self, setup: Setup) -> None:
        pass

    async def process(self, event: Event) -> Any:
        try:
            return await event.send_upstream()
        except NakshaError as error:
            if not isinstance(event.request, CountFeatures):
                raise Forbidden(f"caught: {error.code}", field=error.field) from error
            return Count(-1)


class Comparing:
    """Asks several times: upstream, and another space, also at once."""

    def __init__(self, setup: Setup) -> None:
        self._other = setup.connector.properties["spaceId"]

    async def process(self, event: Event) -> Any:
        if not isinstance(event.request, CountFeatures):
            return await event.send_upstream()
        own, other = await asyncio.gather(
            event.send_upstream(), event.send_to(self._other, CountFeatures())
        )
        found = await event.send_upstream(ReadFeatures(query=Query(tags=(("open",),))))
        return Count(own.count * 100 + other.count * 10 + len(await found.all()))


class Noting:
    """Takes deliveries of a subscription, and notes them in a file. It does not import what they
    are: the host knows them by itself."""

    def __init__(self, setup: Setup) -> None:
        self._path = Path(setup.connector.properties["file"])

    async def process(self, event: Event) -> Any:
        request: Any = event.request
        if type(request).__name__ != "DeliverChanges":
            return await event.send_upstream()
        with self._path.open("ab") as file:
            file.write(bytes(request.body) + b"\n")
        return None


CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Stamp, Pure, Narrow, Overreaching),
        *(Refusing, Failing, Sleeping, Catching, Comparing, Noting),
    )
}


def choose(setup: Setup) -> Handler:
    """The handler that the properties of a connector name, so that one process hosts all."""
    handler: Handler = CLASSES[setup.connector.properties["handler"]](setup)
    return handler
