"""Paths of kinds, and what an API server's refusals become."""

import json

import pytest
from spes_operator.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from spes_operator.k8s.refusals import refusal, refusal_of
from spes_operator.k8s.resources import path_of


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (("ConfigMap", "a", "b"), "/api/v1/namespaces/a/configmaps/b"),
        (("Lease",), "/apis/coordination.k8s.io/v1/leases"),
        (("Job", "a"), "/apis/batch/v1/namespaces/a/jobs"),
        (("MemberCluster", "", "uni-a"), "/apis/spes.dev/v1alpha1/memberclusters/uni-a"),
        (("MemberCluster", "a", "uni-a"), "/apis/spes.dev/v1alpha1/memberclusters/uni-a"),
        (
            ("SpesJob", "a", "b", "status"),
            "/apis/spes.dev/v1alpha1/namespaces/a/spesjobs/b/status",
        ),
        (("Secret", "../a", "b/c"), "/api/v1/namespaces/..%2Fa/secrets/b%2Fc"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_kind_has_its_path(given, path):
    assert path_of(*given) == path


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", UnauthorizedError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (410, "Expired", GoneError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", UnavailableError),
        (500, "InternalError", UnavailableError),
        (503, "ServiceUnavailable", UnavailableError),
    ],
)
def test_a_code_is_an_error_in_the_servers_words(code, reason, error):
    body = json.dumps({"kind": "Status", "message": "so it is", "reason": reason}).encode()
    refused = refusal(code, body, "GET /x")
    assert type(refused) is error
    assert str(refused) == f"GET /x: so it is (HTTP {code})"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null"])
def test_a_proxys_page_is_no_explanation(body):
    refused = refusal(502, body, "GET /x")
    assert type(refused) is UnavailableError
    assert "no explanation" in str(refused)


def test_an_error_on_a_watch_carries_its_own_code():
    assert type(refusal_of({"code": 410, "message": "too old"}, "GET /x")) is GoneError
    assert type(refusal_of({}, "GET /x")) is UnavailableError


def test_a_long_explanation_keeps_its_ends():
    text = str(refusal_of({"code": 422, "message": f"begin {'x' * 9000} cause"}, "PUT /x"))
    assert "begin" in text
    assert text.endswith("cause (HTTP 422)")
    assert len(text) < 1100
