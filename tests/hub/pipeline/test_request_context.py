"""Actors, and the deadline of a request."""

import time

from naksha.hub.auth import resources
from naksha.hub.auth.rights import NO_RIGHTS, Right
from naksha.hub.pipeline.request_context import Actor, RequestContext, anonymous


def test_things_belong_to_the_author_or_else_to_the_application() -> None:
    assert Actor(app_id="editor", author="ann", rights=NO_RIGHTS).owner == "ann"
    assert Actor(app_id="editor", rights=NO_RIGHTS).owner == "editor"


def test_an_anonymous_actor_has_a_name_and_all_rights_in_the_realm() -> None:
    actor = anonymous("maps")
    assert actor.is_anonymous
    assert (actor.app_id, actor.author, actor.realm) == ("anonymous", None, "maps")
    assert actor.rights.allows(Right.MANAGE_ROLES, resources.role("editor"))


def test_time_runs_out() -> None:
    context = RequestContext.within(anonymous(), "stream", 100)
    assert context.seconds_left is not None
    assert 99 < context.seconds_left <= 100
    late = RequestContext(actor=anonymous(), stream_id="stream", deadline=time.monotonic() - 1)
    assert late.seconds_left == 0
    assert RequestContext(actor=anonymous(), stream_id="stream").seconds_left is None
