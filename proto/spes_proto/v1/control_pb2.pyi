from spes_proto.v1 import sync_pb2 as _sync_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    SEEDING: _ClassVar[Phase]
    WAITING: _ClassVar[Phase]
    OPEN: _ClassVar[Phase]
    HELD: _ClassVar[Phase]
    CLOSING: _ClassVar[Phase]
    COMPLETE: _ClassVar[Phase]
PHASE_UNSPECIFIED: Phase
SEEDING: Phase
WAITING: Phase
OPEN: Phase
HELD: Phase
CLOSING: Phase
COMPLETE: Phase

class TokenHash(_message.Message):
    __slots__ = ("id", "peer", "sha256", "expires_in_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    peer: str
    sha256: str
    expires_in_seconds: int
    def __init__(self, id: _Optional[str] = ..., peer: _Optional[str] = ..., sha256: _Optional[str] = ..., expires_in_seconds: _Optional[int] = ...) -> None: ...

class SyncPlan(_message.Message):
    __slots__ = ("job_uid", "incarnation", "settings_json", "plan", "seed_peer", "add_tokens")
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SEED_PEER_FIELD_NUMBER: _ClassVar[int]
    ADD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    job_uid: str
    incarnation: int
    settings_json: str
    plan: _sync_pb2.Plan
    seed_peer: str
    add_tokens: _containers.RepeatedCompositeFieldContainer[TokenHash]
    def __init__(self, job_uid: _Optional[str] = ..., incarnation: _Optional[int] = ..., settings_json: _Optional[str] = ..., plan: _Optional[_Union[_sync_pb2.Plan, _Mapping]] = ..., seed_peer: _Optional[str] = ..., add_tokens: _Optional[_Iterable[_Union[TokenHash, _Mapping]]] = ...) -> None: ...

class ApplyReply(_message.Message):
    __slots__ = ("active_epoch", "pending_epoch")
    ACTIVE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PENDING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    active_epoch: int
    pending_epoch: int
    def __init__(self, active_epoch: _Optional[int] = ..., pending_epoch: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeerState(_message.Message):
    __slots__ = ("peer", "connected", "caught_up", "left", "silent_seconds", "version", "steps", "tokens", "tokens_per_second", "loss", "bytes_up", "bytes_down", "wait_seconds", "refusals", "peak_bytes", "contribution", "contribution_so_far")
    PEER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    BYTES_UP_FIELD_NUMBER: _ClassVar[int]
    BYTES_DOWN_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTION_SO_FAR_FIELD_NUMBER: _ClassVar[int]
    peer: str
    connected: bool
    caught_up: bool
    left: str
    silent_seconds: float
    version: int
    steps: int
    tokens: int
    tokens_per_second: float
    loss: float
    bytes_up: int
    bytes_down: int
    wait_seconds: float
    refusals: int
    peak_bytes: int
    contribution: float
    contribution_so_far: float
    def __init__(self, peer: _Optional[str] = ..., connected: bool = ..., caught_up: bool = ..., left: _Optional[str] = ..., silent_seconds: _Optional[float] = ..., version: _Optional[int] = ..., steps: _Optional[int] = ..., tokens: _Optional[int] = ..., tokens_per_second: _Optional[float] = ..., loss: _Optional[float] = ..., bytes_up: _Optional[int] = ..., bytes_down: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., refusals: _Optional[int] = ..., peak_bytes: _Optional[int] = ..., contribution: _Optional[float] = ..., contribution_so_far: _Optional[float] = ...) -> None: ...

class SyncState(_message.Message):
    __slots__ = ("job_uid", "incarnation", "active_epoch", "pending_epoch", "phase", "round", "version", "needed", "expected", "pushed", "seconds_left", "global_tokens", "held_out_loss", "problem", "used_token_ids", "peers", "routed_tokens")
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PENDING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_LOSS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    USED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    ROUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    job_uid: str
    incarnation: int
    active_epoch: int
    pending_epoch: int
    phase: Phase
    round: int
    version: int
    needed: int
    expected: _containers.RepeatedScalarFieldContainer[str]
    pushed: _containers.RepeatedScalarFieldContainer[str]
    seconds_left: float
    global_tokens: int
    held_out_loss: float
    problem: str
    used_token_ids: _containers.RepeatedScalarFieldContainer[str]
    peers: _containers.RepeatedCompositeFieldContainer[PeerState]
    routed_tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_uid: _Optional[str] = ..., incarnation: _Optional[int] = ..., active_epoch: _Optional[int] = ..., pending_epoch: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ..., round: _Optional[int] = ..., version: _Optional[int] = ..., needed: _Optional[int] = ..., expected: _Optional[_Iterable[str]] = ..., pushed: _Optional[_Iterable[str]] = ..., seconds_left: _Optional[float] = ..., global_tokens: _Optional[int] = ..., held_out_loss: _Optional[float] = ..., problem: _Optional[str] = ..., used_token_ids: _Optional[_Iterable[str]] = ..., peers: _Optional[_Iterable[_Union[PeerState, _Mapping]]] = ..., routed_tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("peers", "grace_seconds", "stop", "reason")
    PEERS_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedScalarFieldContainer[str]
    grace_seconds: float
    stop: bool
    reason: str
    def __init__(self, peers: _Optional[_Iterable[str]] = ..., grace_seconds: _Optional[float] = ..., stop: bool = ..., reason: _Optional[str] = ...) -> None: ...

class DrainReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
