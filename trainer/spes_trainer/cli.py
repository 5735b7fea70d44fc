"""`spes-trainer`: train alone or as a peer, look at data, sample text, upcycle.

Alone reads the environment.

torch is imported after the arguments are parsed, so that help and mistakes answer at once.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from spes_api.exit_codes import DONE, FAILED, TO_BE_CONTINUED, UNUSABLE
from spes_api.terminal import Parser, complain, interrupted

if TYPE_CHECKING:
    from spes_sync.disk import Disk

_PROGRAM = "spes-trainer"
DEFAULT_DATA_ROOT = Path("/data")
# The same bound as a members file has.
MAX_SLOWDOWN = 1000
PROFILE_STEPS = 5
# A trace is held in memory until it is written, megabytes for each step.
MAX_PROFILE_STEPS = 100
# "NAME" or "NAME:COUNT": kills the process the COUNT-th time it passes that point of a save.
CRASH_VARIABLE = "SPES_TRAINER_CRASH_AT"


def main() -> None:
    """Parse, run, exit: 0 done, 2 unusable input, 75 told to stop and saved, 1 failed."""
    parser = build_parser()
    arguments = parser.parse_args()
    if getattr(arguments, "peer", None) is not None:
        _require_peer_options(parser, arguments)
    logging.basicConfig(
        level=logging.DEBUG if arguments.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    # Without it CUDA's matrix products may differ from run to run; read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # The processes of a peer are on one machine and talk over nothing else.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    # Of the profiler's library, which else tells of every start, and of GPUs that a CPU has not.
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    run: Callable[[argparse.Namespace], int] = arguments.run
    sys.exit(_guarded(run, arguments))


def _guarded(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Say each expected error in one line; let the unexpected show its traceback."""
    try:
        return _translated(run, arguments)
    except KeyboardInterrupt:
        return interrupted(_PROGRAM)


def _translated(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    from spes_sync.errors import CertificateError, ExportError, ProtocolError, StaleSessionError

    from spes_trainer.errors import ConfigError, DiskFullError, SyncError, VolumeError

    try:
        return run(arguments)
    except DiskFullError as error:
        code, text = FAILED, str(error)
    except (ConfigError, ExportError, VolumeError, ProtocolError, CertificateError) as error:
        code, text = UNUSABLE, str(error)
    except StaleSessionError as error:
        code, text = TO_BE_CONTINUED, str(error)
    except SyncError as error:
        code, text = FAILED, str(error)
    complain(f"{_PROGRAM} {arguments.command}", text)
    return code


def _train(arguments: argparse.Namespace) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if arguments.alone is not None:
        return _train_alone(arguments, stop)
    return _train_as_peer(arguments, stop)


def _train_alone(arguments: argparse.Namespace, stop: threading.Event) -> int:
    from spes_api.loading import load_job
    from spes_sync.client.directory import held

    from spes_trainer.progress import display
    from spes_trainer.train import AloneOptions, train_alone

    spec = load_job(arguments.alone).spec
    disk = _disk()
    options = AloneOptions(
        directory=arguments.dir,
        data_root=arguments.data_root,
        slowdown=arguments.slowdown,
        profile_steps=arguments.profile,
        disk=disk,
    )
    with held(arguments.dir), display(spec.training.max_tokens) as shown:
        result = train_alone(spec, options, display=shown, stop=stop)
        disk.write_json(arguments.dir / "summary.json", result.to_json(), "summary written")
        if not result.finished:
            shown.say(_stopped(result.steps, arguments.dir))
    return DONE if result.finished else TO_BE_CONTINUED


def _stopped(num_steps: int, directory: Path) -> str:
    if not num_steps:
        return "stopped before the first step: nothing is saved; the same command starts again"
    return (
        f"stopped after step {num_steps:,}, all of them saved in {directory}; "
        "the same command goes on from there"
    )


def _train_as_peer(arguments: argparse.Namespace, stop: threading.Event) -> int:
    from spes_trainer.peer import PeerArguments, train_as_peer

    peer = PeerArguments(
        peer=arguments.peer,
        server=arguments.sync,
        directory=arguments.dir,
        ca_file=arguments.ca,
        token_file=arguments.token_file,
        data_root=arguments.data_root,
        slowdown=arguments.slowdown,
        profile_steps=arguments.profile,
        disk=_disk(),
    )
    outcome = train_as_peer(peer, stop=stop)
    return TO_BE_CONTINUED if outcome.interrupted else DONE


def _loopback() -> str:
    """Name of the loopback interface."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def _disk() -> Disk:
    from spes_sync.disk import Disk

    return Disk(reached=_crash_point(os.environ.get(CRASH_VARIABLE, "")))


def _look(arguments: argparse.Namespace) -> int:
    from spes_api.loading import load_job

    from spes_trainer.data.reading import look_at

    spec = load_job(arguments.file).spec
    print(json.dumps(look_at(spec, data_root=arguments.data_root), indent=1))
    return DONE


def _ready(arguments: argparse.Namespace) -> int:
    from spes_trainer.readiness import is_ready

    return DONE if is_ready(arguments.dir) else FAILED


def _generate(arguments: argparse.Namespace) -> int:
    from spes_trainer.generate import Request, generate, load_author

    request = Request(prompt=arguments.prompt, num_tokens=arguments.tokens, seed=arguments.seed)
    print(generate(load_author(arguments.directory), request))
    return DONE


def _upcycle(arguments: argparse.Namespace) -> int:
    from spes_trainer.upcycle import UpcycleOptions, upcycle

    options = UpcycleOptions(
        num_experts=arguments.experts,
        num_experts_per_token=arguments.experts_per_token,
        noise_std=arguments.noise_std,
        noise_share=arguments.noise_share,
        seed=arguments.seed,
    )
    result, model = upcycle(arguments.folder, arguments.to, options)
    print(
        f"# {result.num_parameters:,} parameters in {result.folder}; for a SpesJob:\n{model}",
        end="",
    )
    return DONE


def _crash_point(setting: str) -> Callable[[str], None]:
    """What a save calls at each named moment: nothing, or a kill that leaves no time to tidy up."""
    name, _, count = setting.partition(":")
    left = int(count or 1)

    def pass_point(passed: str) -> None:
        nonlocal left
        left -= passed == name
        if passed == name and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return pass_point


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options; `docs/reference/cli.md` is made from it."""
    parser = Parser(
        prog=_PROGRAM,
        description="Train a mixture-of-experts language model, alone or as a peer of a job.",
    )
    parser.add_argument("--version", action="version", version=importlib.metadata.version("spes"))
    parser.add_argument("-v", "--verbose", action="store_true", help="log details")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_train(commands.add_parser("train", help="train alone, or as a peer of a job"))
    _add_look(commands.add_parser("look", help="say what a job's data are, and what is wrong"))
    _add_upcycle(commands.add_parser("upcycle", help="make a mixture of experts of a dense model"))
    _add_generate(commands.add_parser("generate", help="sample text from a trained model"))
    _add_ready(commands.add_parser("ready", help="exit 0 if the trainer's Session is live, else 1"))
    return parser


def _add_train(train: argparse.ArgumentParser) -> None:
    train.set_defaults(run=_train)
    train.add_argument("--dir", type=Path, required=True, help="checkpoints; made if missing")
    how = train.add_mutually_exclusive_group(required=True)
    how.add_argument("--alone", type=Path, metavar="FILE", help="train this SpesJob by yourself")
    how.add_argument("--peer", metavar="ID", help="take part in a job, for example as uni-a.0")
    peer = train.add_argument_group("with --peer")
    peer.add_argument("--sync", type=_address, metavar="HOST:PORT", help="the job's sync server")
    peer.add_argument("--ca", type=Path, metavar="FILE", help="certificate that signs the server's")
    peer.add_argument("--token-file", type=Path, metavar="FILE", help="one-time token")
    _add_data_root(train)
    train.add_argument(
        "--slowdown",
        type=_slowdown,
        default=1.0,
        metavar="X",
        help="multiply the time of every step, to play a slower machine",
    )
    train.add_argument(
        "--profile",
        type=_steps,
        nargs="?",
        const=PROFILE_STEPS,
        default=0,
        metavar="STEPS",
        help="trace so many steps, after the first few, into DIR/profile (default: %(const)s)",
    )


def _add_data_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-root",
        type=Path,
        default=DEFAULT_DATA_ROOT,
        help="folder that holds each dataset by name (default: %(default)s)",
    )


def _add_look(look: argparse.ArgumentParser) -> None:
    look.set_defaults(run=_look)
    look.add_argument("file", type=Path, metavar="FILE", help="the SpesJob")
    _add_data_root(look)


def _require_peer_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    needed = {"--sync": arguments.sync, "--ca": arguments.ca, "--token-file": arguments.token_file}
    missing = [option for option, value in needed.items() if value is None]
    if missing:
        parser.error(f"--peer needs {', '.join(missing)}")


def _add_ready(ready: argparse.ArgumentParser) -> None:
    ready.set_defaults(run=_ready)
    ready.add_argument("--dir", type=Path, required=True, help="the trainer's own --dir")


def _add_generate(generate: argparse.ArgumentParser) -> None:
    generate.set_defaults(run=_generate)
    generate.add_argument("directory", type=Path, metavar="DIR", help="of a trainer or sync server")
    generate.add_argument("--prompt", default="", help="text to continue")
    generate.add_argument("--tokens", type=int, default=200, help="how many (default: 200)")
    generate.add_argument("--seed", type=int, default=0)


def _add_upcycle(upcycle: argparse.ArgumentParser) -> None:
    upcycle.set_defaults(run=_upcycle)
    upcycle.add_argument(
        "folder", type=Path, metavar="HF_DIR", help="a dense Hugging Face model: Llama or Qwen3"
    )
    upcycle.add_argument("--experts", type=int, required=True, metavar="M", help="per layer")
    upcycle.add_argument("--to", type=Path, required=True, metavar="D", help="folder to write")
    upcycle.add_argument("--experts-per-token", type=int, metavar="K", help="default: 2")
    upcycle.add_argument("--noise-std", type=_at_least_0, default=0.02, metavar="STD")
    upcycle.add_argument(
        "--noise-share",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="of each expert's matrix that gets noise (default: %(default)s)",
    )
    upcycle.add_argument("--seed", type=int, default=0)


def _at_least_0(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be at least 0 (got {text})")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1 (got {text})")
    return value


def _steps(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PROFILE_STEPS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_PROFILE_STEPS} (got {text!r})")
    return int(text)


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"must be HOST:PORT (got {text!r})")
    return text


def _slowdown(text: str) -> float:
    value = float(text)
    if not 1 <= value <= MAX_SLOWDOWN:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_SLOWDOWN} (got {text})")
    return value
