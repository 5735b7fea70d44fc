"""JSON objects into pydantic models, right behind the API's edge.

An object that is not of its schema is left out with a warning, and its problem is kept for whoever
wants to tell it: one member's bad object must not stop the others. A field that is not known is
left out alone: a hub and its members are upgraded one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from spes_operator.errors import NotFoundError
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.names import ObjectKey

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], obj: JsonObject) -> Model | None:
    """The object as a model, or None if it is not one."""
    read = _read(model, obj)
    return None if isinstance(read, str) else read


def _read(model: type[Model], obj: JsonObject) -> Model | str:
    """The object as a model, or why it is none."""
    try:
        return model.model_validate(obj, extra="ignore")
    except ValidationError as error:
        problem = first_problem(error)
        name = obj.get("metadata", {}).get("name")
        logger.warning("object left out kind=%s name=%s problem=%s", model.__name__, name, problem)
        return problem


def first_problem(error: ValidationError) -> str:
    """Where and what is wrong first, without the value: it may be large or secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


class Models(Generic[Model]):
    """All objects of a model's kind; an object is parsed once for each version of it.

    Models do not change: whoever asks twice may get the same ones.
    """

    def __init__(self, model: type[Model]) -> None:
        """Nothing is read yet."""
        self._model = model
        self._parsed: dict[tuple[str, str], Model | str] = {}
        self.problems: Mapping[ObjectKey, str] = {}
        """Of the objects that were left out of the last reading."""

    async def read(self, api: KubeApi) -> list[Model]:
        """Every object, in order of namespace and name."""
        listed = (await api.list(self._model.__name__)).items
        before, self._parsed = self._parsed, {}
        for obj in listed:
            version = _version_of(obj)
            is_known = version in before
            self._parsed[version] = before[version] if is_known else _read(self._model, obj)
        keys = {_version_of(obj): key_of_json(obj) for obj in listed}
        self.problems = {
            keys[version]: item for version, item in self._parsed.items() if isinstance(item, str)
        }
        return [item for item in self._parsed.values() if not isinstance(item, str)]


def _version_of(obj: JsonObject) -> tuple[str, str]:
    return obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]


def key_of_json(obj: JsonObject) -> ObjectKey:
    """Where an object is."""
    return ObjectKey(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


async def find_object(api: KubeApi, kind: str, namespace: str, name: str) -> JsonObject | None:
    """The object, or None if it does not exist."""
    try:
        return await api.get(kind, namespace, name)
    except NotFoundError:
        return None


async def get_model(api: KubeApi, model: type[Model], namespace: str, name: str) -> Model | None:
    """The object, or None if it does not exist or is not of its schema."""
    found = await find_object(api, model.__name__, namespace, name)
    return None if found is None else parse(model, found)


async def list_models(
    api: KubeApi,
    model: type[Model],
    namespace: str = "",
    labels: Mapping[str, str | None] | None = None,
) -> list[Model]:
    """Every object of the model's kind, in order of namespace and name."""
    return (await read_models(api, model, namespace, labels))[0]


async def read_models(
    api: KubeApi,
    model: type[Model],
    namespace: str = "",
    labels: Mapping[str, str | None] | None = None,
) -> tuple[list[Model], dict[ObjectKey, str]]:
    """As `list_models`, with the problems of those that are left out."""
    listing = await api.list(model.__name__, namespace, labels)
    read = [(key_of_json(obj), _read(model, obj)) for obj in listing.items]
    problems = {key: item for key, item in read if isinstance(item, str)}
    return [item for _, item in read if not isinstance(item, str)], problems
