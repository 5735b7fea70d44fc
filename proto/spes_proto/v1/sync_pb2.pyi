from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    NOT_EXPECTED: _ClassVar[Reason]
    WRONG_JOB: _ClassVar[Reason]
    WRONG_SHAPE: _ClassVar[Reason]
    NOT_FINITE: _ClassVar[Reason]
    TRUNCATED: _ClassVar[Reason]
    BAD_CHECKSUM: _ClassVar[Reason]
    OLD_EPOCH: _ClassVar[Reason]
    OLD_BASE: _ClassVar[Reason]
    TOO_LARGE: _ClassVar[Reason]
    BAD_TOKEN: _ClassVar[Reason]
    TOKEN_USED: _ClassVar[Reason]
    TOKEN_EXPIRED: _ClassVar[Reason]
    PROTOCOL: _ClassVar[Reason]
    DATA_DIFFERS: _ClassVar[Reason]
    DISK_FULL: _ClassVar[Reason]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    SEED: _ClassVar[Kind]
    DELTA: _ClassVar[Kind]
    FINAL: _ClassVar[Kind]

class Part(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PART_UNSPECIFIED: _ClassVar[Part]
    ALL: _ClassVar[Part]
    EXPERTS: _ClassVar[Part]
    SHARED: _ClassVar[Part]
    MOMENTS: _ClassVar[Part]

class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODEC_UNSPECIFIED: _ClassVar[Codec]
    FP32: _ClassVar[Codec]
    BF16: _ClassVar[Codec]
    INT8: _ClassVar[Codec]
    UINT8: _ClassVar[Codec]
    INT16: _ClassVar[Codec]
    UINT8_PAPER: _ClassVar[Codec]
    INT16_PAPER: _ClassVar[Codec]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERIFIED: _ClassVar[Verdict]
    PARTLY: _ClassVar[Verdict]
    ALREADY_HAVE: _ClassVar[Verdict]
    REBASE: _ClassVar[Verdict]
    REFUSED: _ClassVar[Verdict]
REASON_UNSPECIFIED: Reason
NOT_EXPECTED: Reason
WRONG_JOB: Reason
WRONG_SHAPE: Reason
NOT_FINITE: Reason
TRUNCATED: Reason
BAD_CHECKSUM: Reason
OLD_EPOCH: Reason
OLD_BASE: Reason
TOO_LARGE: Reason
BAD_TOKEN: Reason
TOKEN_USED: Reason
TOKEN_EXPIRED: Reason
PROTOCOL: Reason
DATA_DIFFERS: Reason
DISK_FULL: Reason
KIND_UNSPECIFIED: Kind
SEED: Kind
DELTA: Kind
FINAL: Kind
PART_UNSPECIFIED: Part
ALL: Part
EXPERTS: Part
SHARED: Part
MOMENTS: Part
CODEC_UNSPECIFIED: Codec
FP32: Codec
BF16: Codec
INT8: Codec
UINT8: Codec
INT16: Codec
UINT8_PAPER: Codec
INT16_PAPER: Codec
VERDICT_UNSPECIFIED: Verdict
VERIFIED: Verdict
PARTLY: Verdict
ALREADY_HAVE: Verdict
REBASE: Verdict
REFUSED: Verdict

class Tensor(_message.Message):
    __slots__ = ("name", "shape", "expert")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    EXPERT_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    expert: int
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., expert: _Optional[int] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("tensors", "sha256")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    sha256: str
    def __init__(self, tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., sha256: _Optional[str] = ...) -> None: ...

class Owner(_message.Message):
    __slots__ = ("expert", "peer", "granted_epoch")
    EXPERT_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    GRANTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    expert: int
    peer: str
    granted_epoch: int
    def __init__(self, expert: _Optional[int] = ..., peer: _Optional[str] = ..., granted_epoch: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("epoch", "replicated", "owners", "parked", "peers")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICATED_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    replicated: bool
    owners: _containers.RepeatedCompositeFieldContainer[Owner]
    parked: _containers.RepeatedScalarFieldContainer[int]
    peers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., replicated: bool = ..., owners: _Optional[_Iterable[_Union[Owner, _Mapping]]] = ..., parked: _Optional[_Iterable[int]] = ..., peers: _Optional[_Iterable[str]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("job_uid", "peer", "token", "protocol", "processes", "data_fingerprint", "num_sequences")
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    DATA_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    job_uid: str
    peer: str
    token: str
    protocol: int
    processes: int
    data_fingerprint: str
    num_sequences: int
    def __init__(self, job_uid: _Optional[str] = ..., peer: _Optional[str] = ..., token: _Optional[str] = ..., protocol: _Optional[int] = ..., processes: _Optional[int] = ..., data_fingerprint: _Optional[str] = ..., num_sequences: _Optional[int] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("session_key", "next_token", "settings_json", "settings_sha256", "version", "plan", "manifest", "incarnation", "job_uid")
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_SHA256_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    session_key: str
    next_token: str
    settings_json: str
    settings_sha256: str
    version: int
    plan: Plan
    manifest: Manifest
    incarnation: int
    job_uid: str
    def __init__(self, session_key: _Optional[str] = ..., next_token: _Optional[str] = ..., settings_json: _Optional[str] = ..., settings_sha256: _Optional[str] = ..., version: _Optional[int] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., manifest: _Optional[_Union[Manifest, _Mapping]] = ..., incarnation: _Optional[int] = ..., job_uid: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("version", "steps", "tokens", "tokens_per_second", "loss", "peak_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: int
    steps: int
    tokens: int
    tokens_per_second: float
    loss: float
    peak_bytes: int
    def __init__(self, version: _Optional[int] = ..., steps: _Optional[int] = ..., tokens: _Optional[int] = ..., tokens_per_second: _Optional[float] = ..., loss: _Optional[float] = ..., peak_bytes: _Optional[int] = ...) -> None: ...

class CaughtUp(_message.Message):
    __slots__ = ("version", "data_fingerprint", "num_sequences")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DATA_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    version: int
    data_fingerprint: str
    num_sequences: int
    def __init__(self, version: _Optional[int] = ..., data_fingerprint: _Optional[str] = ..., num_sequences: _Optional[int] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("version", "loss", "tokens")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    version: int
    loss: float
    tokens: int
    def __init__(self, version: _Optional[int] = ..., loss: _Optional[float] = ..., tokens: _Optional[int] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class PeerEvent(_message.Message):
    __slots__ = ("heartbeat", "caught_up", "evaluation", "leaving")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    heartbeat: Heartbeat
    caught_up: CaughtUp
    evaluation: Evaluation
    leaving: Leaving
    def __init__(self, heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., caught_up: _Optional[_Union[CaughtUp, _Mapping]] = ..., evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class SeedWanted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Lease(_message.Message):
    __slots__ = ("first", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class RoundOpen(_message.Message):
    __slots__ = ("round", "base_version", "epoch", "deadline_seconds", "lease", "global_tokens", "num_expected", "evaluate")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_FIELD_NUMBER: _ClassVar[int]
    round: int
    base_version: int
    epoch: int
    deadline_seconds: float
    lease: _containers.RepeatedCompositeFieldContainer[Lease]
    global_tokens: int
    num_expected: int
    evaluate: bool
    def __init__(self, round: _Optional[int] = ..., base_version: _Optional[int] = ..., epoch: _Optional[int] = ..., deadline_seconds: _Optional[float] = ..., lease: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., global_tokens: _Optional[int] = ..., num_expected: _Optional[int] = ..., evaluate: bool = ...) -> None: ...

class Included(_message.Message):
    __slots__ = ("peer", "sha256")
    PEER_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    peer: str
    sha256: str
    def __init__(self, peer: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class TensorHash(_message.Message):
    __slots__ = ("name", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("version", "round", "included", "tensor_hashes", "global_tokens")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    TENSOR_HASHES_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    version: int
    round: int
    included: _containers.RepeatedCompositeFieldContainer[Included]
    tensor_hashes: _containers.RepeatedCompositeFieldContainer[TensorHash]
    global_tokens: int
    def __init__(self, version: _Optional[int] = ..., round: _Optional[int] = ..., included: _Optional[_Iterable[_Union[Included, _Mapping]]] = ..., tensor_hashes: _Optional[_Iterable[_Union[TensorHash, _Mapping]]] = ..., global_tokens: _Optional[int] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ("grace_seconds",)
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    grace_seconds: float
    def __init__(self, grace_seconds: _Optional[float] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("reason", "detail", "evaluate_seconds")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    detail: str
    evaluate_seconds: float
    def __init__(self, reason: _Optional[str] = ..., detail: _Optional[str] = ..., evaluate_seconds: _Optional[float] = ...) -> None: ...

class ServerEvent(_message.Message):
    __slots__ = ("seed_wanted", "round_open", "committed", "plan", "drain", "stop")
    SEED_WANTED_FIELD_NUMBER: _ClassVar[int]
    ROUND_OPEN_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    seed_wanted: SeedWanted
    round_open: RoundOpen
    committed: Committed
    plan: Plan
    drain: Drain
    stop: Stop
    def __init__(self, seed_wanted: _Optional[_Union[SeedWanted, _Mapping]] = ..., round_open: _Optional[_Union[RoundOpen, _Mapping]] = ..., committed: _Optional[_Union[Committed, _Mapping]] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ...) -> None: ...

class PushKey(_message.Message):
    __slots__ = ("job_uid", "incarnation", "peer", "round", "base_version", "epoch", "part", "expert")
    JOB_UID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    EXPERT_FIELD_NUMBER: _ClassVar[int]
    job_uid: str
    incarnation: int
    peer: str
    round: int
    base_version: int
    epoch: int
    part: Part
    expert: int
    def __init__(self, job_uid: _Optional[str] = ..., incarnation: _Optional[int] = ..., peer: _Optional[str] = ..., round: _Optional[int] = ..., base_version: _Optional[int] = ..., epoch: _Optional[int] = ..., part: _Optional[_Union[Part, str]] = ..., expert: _Optional[int] = ...) -> None: ...

class PushHeader(_message.Message):
    __slots__ = ("key", "kind", "codec", "total_bytes", "steps", "tokens", "loss", "routed_tokens", "tensors", "codec_error", "samples", "staleness")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ROUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    CODEC_ERROR_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    key: PushKey
    kind: Kind
    codec: Codec
    total_bytes: int
    steps: int
    tokens: int
    loss: float
    routed_tokens: _containers.RepeatedScalarFieldContainer[int]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    codec_error: float
    samples: int
    staleness: int
    def __init__(self, key: _Optional[_Union[PushKey, _Mapping]] = ..., kind: _Optional[_Union[Kind, str]] = ..., codec: _Optional[_Union[Codec, str]] = ..., total_bytes: _Optional[int] = ..., steps: _Optional[int] = ..., tokens: _Optional[int] = ..., loss: _Optional[float] = ..., routed_tokens: _Optional[_Iterable[int]] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., codec_error: _Optional[float] = ..., samples: _Optional[int] = ..., staleness: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "data", "crc32", "expands_to")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    EXPANDS_TO_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    crc32: int
    expands_to: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32: _Optional[int] = ..., expands_to: _Optional[int] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    def __init__(self, sha256: _Optional[str] = ...) -> None: ...

class PushPart(_message.Message):
    __slots__ = ("header", "chunk", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: PushHeader
    chunk: Chunk
    end: End
    def __init__(self, header: _Optional[_Union[PushHeader, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("verdict", "reason", "detail", "dropped_experts")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DROPPED_EXPERTS_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    reason: Reason
    detail: str
    dropped_experts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., reason: _Optional[_Union[Reason, str]] = ..., detail: _Optional[str] = ..., dropped_experts: _Optional[_Iterable[int]] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("have_version", "want_version", "offset", "moments_of")
    HAVE_VERSION_FIELD_NUMBER: _ClassVar[int]
    WANT_VERSION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_OF_FIELD_NUMBER: _ClassVar[int]
    have_version: int
    want_version: int
    offset: int
    moments_of: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, have_version: _Optional[int] = ..., want_version: _Optional[int] = ..., offset: _Optional[int] = ..., moments_of: _Optional[_Iterable[int]] = ...) -> None: ...

class PullHeader(_message.Message):
    __slots__ = ("version", "base_version", "codec", "total_bytes", "tensors", "codecs")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    CODECS_FIELD_NUMBER: _ClassVar[int]
    version: int
    base_version: int
    codec: Codec
    total_bytes: int
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    codecs: _containers.RepeatedScalarFieldContainer[Codec]
    def __init__(self, version: _Optional[int] = ..., base_version: _Optional[int] = ..., codec: _Optional[_Union[Codec, str]] = ..., total_bytes: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., codecs: _Optional[_Iterable[_Union[Codec, str]]] = ...) -> None: ...

class PullPart(_message.Message):
    __slots__ = ("header", "chunk", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: PullHeader
    chunk: Chunk
    end: End
    def __init__(self, header: _Optional[_Union[PullHeader, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ...) -> None: ...
