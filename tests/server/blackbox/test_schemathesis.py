"""Requests that nobody thought of, made from the OpenAPI document: the server does not break, and
answers nothing that the document does not tell of."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.openapi.checks import (
    JsonSchemaError,
    MissingContentType,
    UndefinedContentType,
    UndefinedStatusCode,
)

from naksha.testing.hub_server import HubServer
