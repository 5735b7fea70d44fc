"""`spes-sync`: serve a job, check a volume, export its model.

Exit codes: 0 done; 2 the user can fix it, said in one line; 1 anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from spes_api.exit_codes import UNUSABLE
from spes_api.terminal import Parser, complain, interrupted

from spes_sync.disk import Disk
from spes_sync.errors import SyncError
from spes_sync.export import ExportSettings, export_model
from spes_sync.export.tokenizer import TOKENIZER
from spes_sync.server import heap
from spes_sync.server.server import Edges, SyncServer, Where
from spes_sync.server.settings import Settings
from spes_sync.server.tls import TlsFiles
from spes_sync.versions import MODEL
from spes_sync.volume import Volume

# Names the durable write after which the process kills itself; for crash tests.
_CRASH_VARIABLE = "SPES_SYNC_CRASH_AFTER"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = build_parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    act: Callable[[argparse.Namespace], int] = options.act
    command = f"spes-sync {options.command}"
    try:
        return act(options)
    except SyncError as error:
        complain(command, error)
        return UNUSABLE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(command, f"{where}{error.strerror or error}")
        return UNUSABLE
    except KeyboardInterrupt:
        return interrupted("spes-sync")


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options; `docs/reference/cli.md` is made from it."""
    parser = Parser(prog="spes-sync", description=__doc__.split("\n")[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="log every detail")
    parser.add_argument("--version", action="version", version=importlib.metadata.version("spes"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve the job of a volume until SIGTERM")
    serve.add_argument("--dir", type=Path, required=True, help="the volume; made if missing")
    serve.add_argument("--address", default="127.0.0.1", help="to listen on (default %(default)s)")
    for name in ("port", "control-port", "metrics-port"):
        serve.add_argument(f"--{name}", type=int, default=0, help="0 (default): a free one")
    serve.add_argument("--tls", type=Path, help="tls.crt, tls.key, client-ca.crt (default DIR/tls)")
    serve.set_defaults(act=_serve)

    check = commands.add_parser("check", help="verify every byte of a volume, say what is there")
    check.add_argument("dir", type=Path, metavar="DIR", help="of a server; RUN/sync of a local run")
    check.set_defaults(act=_check)

    export = commands.add_parser("export", help="write the model as a Hugging Face folder")
    export.add_argument(
        "dir", type=Path, metavar="DIR", help="of a server; RUN/sync of a local run"
    )
    export.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="made if missing")
    export.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="the job's tokenizer.json (default: the one in the volume, if there is one)",
    )
    export.set_defaults(act=_export)
    return parser


def _serve(options: argparse.Namespace) -> int:
    where = Where(
        directory=options.dir,
        tls=TlsFiles.inside(options.tls or options.dir / "tls"),
        address=options.address,
        port=options.port,
        control_port=options.control_port,
        metrics_port=options.metrics_port,
    )
    heap.keep_freed()
    disk = Disk(reached=_killer(os.environ.get(_CRASH_VARIABLE, "")))
    asyncio.run(_until_told(SyncServer(where, Edges(disk=disk))))
    return 0


async def _until_told(server: SyncServer) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    try:
        await server.start()
        await _first_of(told.wait(), server.failed())
    finally:
        await server.close()


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them ends; if it ended by an error, raise that."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()


def _killer(wanted: str) -> Callable[[str], None]:
    """A crash hook: "POINT" or "POINT:N" kills the process the first or N-th time it is there."""
    point, _, times = wanted.partition(":")
    left = int(times or 1)

    def reached(here: str) -> None:
        nonlocal left
        if here == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


def _check(options: argparse.Namespace) -> int:
    volume = _existing(options.dir)
    job = volume.load_job()
    if job is None:
        print(f"{options.dir}: no job yet")
        return 0
    versions, head = volume.versions, volume.versions.head()
    print(f"job {job.uid}, incarnation {job.incarnation}, epoch {job.newest.epoch}")
    kept = Settings.parse(volume.load_settings()).retention.snapshots(head)
    faults = older = 0
    for path in sorted((options.dir / "versions").glob("[0-9]*")):
        version = int(path.name)
        pruned = version < head and version not in kept
        fault = versions.fault(version, pruned=pruned)
        faults += bool(fault)
        if pruned and not fault:
            older += 1
            continue
        files = ", ".join(sorted(file.name for file in path.iterdir()))
        mark = " (HEAD)" if version == head else ""
        print(f"version {version}{mark}: {fault or 'ok'}; {files}")
    if older:
        print(f"{older} older versions: ok, without their models")
    opened = volume.spools.load_round(head + 1)
    if opened is not None:
        print(f"round {head + 1} is open; expected: {', '.join(opened['expected'])}")
    return 1 if faults else 0


def _export(options: argparse.Namespace) -> int:
    volume = _existing(options.dir)
    head, settings_json = volume.versions.head(), volume.load_settings()
    if head < 0 or not settings_json:
        raise SyncError(f"{options.dir} holds no committed model; check the path")
    if fault := volume.versions.fault(head):
        raise SyncError(f"{fault}; start the server once to fall back on the version before")
    spec = Settings.parse(settings_json).spec
    result = export_model(
        volume.versions.path(head) / MODEL,
        ExportSettings(
            config=spec.model.resolve(),
            tokenizer=spec.data.tokenizer,
            tokenizer_file=options.tokenizer or options.dir / TOKENIZER,
            sequence_tokens=spec.data.sequence_tokens,
        ),
        options.to,
    )
    print(f"version {head} exported to {result.folder} ({result.num_parameters:,} parameters)")
    return 0


def _existing(directory: Path) -> Volume:
    if not directory.is_dir():
        raise SyncError(f"{directory} is no directory; give the server's --dir")
    return Volume(directory, Disk())


if __name__ == "__main__":
    sys.exit(main())
