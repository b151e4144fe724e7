"""Base classes of throw-away servers: a short directory, a process and a watchdog.

A server lives in a temporary directory with its Unix socket, listens on no network unless asked,
works for root too, and is removed when the block ends or when the owning process dies in any way
(`naksha.testing.servers._watchdog`). Processes are never looked up by name.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from naksha.testing.servers import _watchdog

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
START_TRIES_MAX = 5
LOG_TAIL_CHARACTERS = 4000
# A socket path has at most 107 bytes, and root's temporary directory may be closed to others.
SOCKET_DIRECTORY_CHARACTERS_MAX = 80
DIRECTORY_OF_LAST_RESORT = "/tmp"
SYSTEM_DIRECTORIES = "/usr/sbin:/usr/local/sbin"
"""Directories with server programs that the PATH of an ordinary user does not contain."""


class ServerNotFoundError(RuntimeError):
    """The program of the server is not installed on this machine."""


class ServerError(RuntimeError):
    """The server failed to start, stop or run a command; the message holds its output."""


class PrivateServer(ABC):
    """A server process with its own directory.

    Attributes:
        directory: All files of this server, including its socket and log.
    """

    kind: ClassVar[str]
    """Short name of the server, used in the name of its directory."""
    users: ClassVar[tuple[str, ...]]
    """Users to run the server as when the caller is root: the first that exists is taken."""
    failure: ClassVar[type[ServerError]] = ServerError
    """Exception class for failures of this server."""

    def __init__(self, *, tcp: bool = False) -> None:
        self.directory = Path()
        self.port: int | None = None
        self._tcp = tcp
        self._user = _server_user(self.users)
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- hooks of a kind of server ---------------------------------------------------------------

    @abstractmethod
    def _make_data(self) -> None:
        """Fill the empty data directory, unless the server does so itself."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command line that runs the server in the foreground."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Return whether the server accepts commands."""

    def _environment(self) -> dict[str, str]:
        """Return the environment variables of the server's programs."""
        return os.environ | {"LC_ALL": "C.UTF-8"}

    # ---- lifecycle -------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the server process is alive, which a paused one is."""
        return self._is_alive()

    def start(self) -> None:
        """Start the server and wait until it accepts commands; create its data the first time."""
        if self._is_alive():
            return
        is_new = self._watchdog is None
        if is_new:
            self._create()
        said = ""
        for _ in range(START_TRIES_MAX):
            if is_new and self._tcp:
                self.port = free_port()  # kept afterwards, so that a location outlives a restart
            self._launch()
            if _watchdog.wait_until(self._has_answered, START_SECONDS_MAX) and self._is_alive():
                return
            said = self.log()
            self.kill()
            # Another process may have taken the free port; any other failure is permanent.
            if "Address already in use" not in said:
                break
            self._log_path.unlink()
        if is_new:
            self.close()
        raise self.failure(f"the test server did not start; its log ends with:\n{said}")

    def stop(self) -> None:
        """Stop the server in an orderly way and wait for its end; the data stay."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would; the next start recovers."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start the server."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the process: it keeps its connections but does not respond."""
        if self._server is not None:
            self._server.send_signal(signal.SIGSTOP)
            # A thread on another core keeps running for a moment and might still respond.
            while not _is_stopped(self._server.pid):
                time.sleep(0.001)

    def resume(self) -> None:
        """Resume a paused process."""
        if self._server is not None:
            self._server.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove all its files."""
        try:
            self.kill()
        finally:
            watchdog, self._watchdog = self._watchdog, None
            if watchdog is not None and watchdog.stdin is not None:
                watchdog.stdin.close()
                watchdog.wait()

    def log(self) -> str:
        """Return the end of the server's log."""
        with contextlib.suppress(FileNotFoundError):
            return self._log_path.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
        return ""

    # ---- inside ----------------------------------------------------------------------------------

    def _is_alive(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log_path(self) -> Path:
        return self.directory / "server.log"

    def _end(self, number: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(number)
        server.send_signal(signal.SIGCONT)  # a paused process would not handle SIGTERM
        try:
            server.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            raise self.failure(
                f"the test server did not stop ({number.name}); its log ends with:\n{self.log()}"
            ) from None

    def _create(self) -> None:
        """Create the directory, its watchdog, and the data directory in it."""
        self.directory = short_directory(self.kind)
        self._watchdog = _watchdog.watch(self.directory)
        self._data.mkdir(mode=0o700)  # PostgreSQL does not start in a directory open to others
        if self._user is not None:
            for path in (self.directory, self._data):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        try:
            self._make_data()
        except BaseException:
            self.close()
            raise

    def _launch(self) -> None:
        self._server = self._spawn(self._command())
        (self._data / _watchdog.PID_FILE).write_text(f"{self._server.pid}\n")

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Run a program of the server: never as root, out of reach of the terminal's Ctrl-C."""
        owner = self._user
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._data,
                env=self._environment(),
                user=None if owner is None else owner.pw_uid,
                group=None if owner is None else owner.pw_gid,
                extra_groups=None if owner is None else [],
                start_new_session=True,
            )

    def _has_answered(self) -> bool:
        """Return whether the server is ready or has already ended."""
        return not self._is_alive() or self._is_ready()


class GreetingServer(PrivateServer):
    """A server whose readiness is checked over its Unix socket."""

    @abstractmethod
    def _greets(self, connection: socket.socket) -> bool:
        """Return whether the server at the other end accepts commands."""

    @property
    def socket_path(self) -> Path:
        """The server's Unix socket."""
        return self.directory / "socket"

    def _launch(self) -> None:
        self.socket_path.unlink(missing_ok=True)
        super()._launch()

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(START_SECONDS_MAX)
            connection.connect(str(self.socket_path))
            return self._greets(connection)
        return False


def find_program(name: str, package: str) -> str:
    """Return the path of a server's program.

    Raises:
        ServerNotFoundError: With the package to install.
    """
    path = os.environ.get("PATH", os.defpath) + os.pathsep + SYSTEM_DIRECTORIES
    if found := shutil.which(name, path=path):
        return found
    raise ServerNotFoundError(f"{name} is not installed; on Debian, run: apt-get install {package}")


def _server_user(names: Sequence[str]) -> pwd.struct_passwd | None:
    """Return the user to run a server as: None for the current user, another one for root."""
    if os.geteuid() != 0:
        return None
    for name in names:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerNotFoundError(
        "the test server must not run as root, and none of its users exists;"
        " run the tests as an ordinary user, or install the package of the server"
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def short_directory(kind: str) -> Path:
    """A new directory that the server's user can reach and whose path fits a socket's name."""
    parent = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(path.stat().st_mode & 0o001 for path in (parent, *parent.parents))
    if len(str(parent)) > SOCKET_DIRECTORY_CHARACTERS_MAX or not open_to_all:
        parent = Path(DIRECTORY_OF_LAST_RESORT)
    return Path(tempfile.mkdtemp(prefix=f"naksha-{kind}-", dir=parent))


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)
