"""The store: where engines, models and their Python tools are kept.

Everything in it can be made again from scripts/pins.json, so it is a cache.
This module knows how a thing gets there: downloaded through pip or apt, checked
against its pinned hash, made in a temporary folder of the store and renamed
into place together with a stamp that says what it was made from. It uses the
standard library alone, because it runs before any environment exists.

Whatever is missing is told in one line, and the exit status is 1; or 3 where
the disk is full, so that whoever has more to make can end, too.
"""

import argparse
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
MIB = 1 << 20
APT_HELPER = Path("/usr/lib/apt/apt-helper")


FULL = 3    # exit status: the disk is full, and nothing else can be made either
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
EXCHANGE, HERE = 2, -100    # RENAME_EXCHANGE and AT_FDCWD of Linux


class Failed(Exception):
    """What went wrong and what to do about it, in one line."""
    status = 1


class Full(Failed):
    """A disk has no room for what is to be made."""
    status = FULL


def mib(size):
    return f"{size / MIB:.0f} MiB" if size >= 10 * MIB else f"{size / MIB:.1f} MiB"


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(4 * MIB):
            digest.update(chunk)
    return digest.hexdigest()


def pins():
    return json.loads((SCRIPTS / "pins.json").read_text())


def machine():
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def default_home():
    if os.environ.get("WEIR_HOME"):
        return Path(os.environ["WEIR_HOME"]).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.join(user_folder(), ".cache")).absolute() / "weir"


def user_folder():
    """HOME, else that of the user database, as the library has it."""
    home = os.environ.get("HOME")
    if not home:
        with contextlib.suppress(KeyError):
            home = pwd.getpwuid(os.getuid()).pw_dir
    if not home:
        raise Failed(f"there is no place for the store: HOME is not set, and user {os.getuid()} has no folder; "
                     "set WEIR_HOME to a folder that can be written")
    return home


class Screen:
    """Progress on standard error: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, stream=None):
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.drawn = False
        self.last = (None, -1)

    def say(self, text):
        self.clear()
        print(text, file=self.stream, flush=True)

    def clear(self):
        if self.drawn:
            print("\r\x1b[K", end="", file=self.stream, flush=True)
            self.drawn = False

    def progress(self, text, done, total, show):
        """show(n) writes n for people; without a terminal every fifth is a line."""
        share = min(1.0, done / total) if total else 1.0
        if not self.terminal:
            fifth = int(share * 5)
            if (text, fifth) != self.last and fifth > 0:
                self.say(f"{text}: {show(done)} of {show(total)}")
            self.last = (text, fifth)
            return
        columns = shutil.get_terminal_size().columns
        tail = f" {show(done)} of {show(total)}"
        width = max(10, min(40, columns - len(text) - len(tail) - 5))
        bar = "#" * int(share * width)
        line = f"{text} [{bar:<{width}}]{tail}"[: columns - 1]
        print(f"\r\x1b[K{line}", end="", file=self.stream, flush=True)
        self.drawn = True


def interrupt_on_signals():
    """Being told to end is Ctrl-C: what was begun is cleaned up."""
    def handler(_number, _frame):
        raise KeyboardInterrupt
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, handler)


def run(command, log, on_line=None, on_tick=None, env=None, cwd=None):
    """Run a command with its output in the open file log; answer its status.

    The command gets a session of its own, and all of it ends when this process
    is interrupted: a compiler left behind would go on writing into the store.
    """
    log.write("$ " + " ".join(map(str, command)) + "\n")
    log.flush()
    process = subprocess.Popen(
        [str(word) for word in command], cwd=cwd, env=env, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if on_line else log,
        stderr=subprocess.STDOUT, start_new_session=True)
    try:
        if on_line:
            for line in process.stdout:
                log.write(line)
                on_line(line)
            log.flush()
        while process.poll() is None:
            if on_tick:
                on_tick()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        return process.returncode
    finally:
        if process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(3)
                    break
        if process.stdout:
            process.stdout.close()


class Store:
    def __init__(self, home=None, screen=None):
        self.home = Path(home) if home else default_home()
        self.screen = screen or Screen()
        self.held = 0
        self.lock_file = None

    def path(self, *parts):
        return self.home.joinpath(*parts)

    # ---- one maker at a time -------------------------------------------------

    @contextlib.contextmanager
    def lock(self):
        """Whoever makes something holds the store's lock; readers need none."""
        if self.held:
            self.held += 1
            try:
                yield
            finally:
                self.held -= 1
            return
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            file = open(self.path(".lock"), "a+b", buffering=0)
        except OSError as error:
            kind = Full if error.errno in NO_ROOM else Failed
            raise kind(f"the store {self.home} cannot be written ({error.strerror}); "
                       "set WEIR_HOME to a folder that can") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().decode(errors="replace").strip() or "another process"
                self.screen.say(f"waiting for {holder}, which is working in {self.home}")
                fcntl.flock(file, fcntl.LOCK_EX)
            with contextlib.suppress(OSError):      # on a full disk the holder has no name
                file.truncate(0)
                file.write(f"process {os.getpid()} ({os.path.basename(sys.argv[0])})\n".encode())
            self.held = 1
            try:
                # The lock is ours, so what lies here was left by a killed process.
                shutil.rmtree(self.path("tmp"), ignore_errors=True)
                yield
            finally:
                self.held = 0
                with contextlib.suppress(OSError):
                    file.truncate(0)

    @contextlib.contextmanager
    def scratch(self, name):
        """A temporary folder on the store's own file system, so that rename works."""
        folder = self.path("tmp", f"{name}.{os.getpid()}.{time.monotonic_ns()}")
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.path("tmp").rmdir()

    @contextlib.contextmanager
    def log(self, name):
        path = self.path("logs", f"{name}.log")
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)    # a killed process may have left somebody who still writes into the old one
        with open(path, "w", encoding="utf-8") as file:
            yield file

    def room(self, what, size):
        free = shutil.disk_usage(self.home).free
        if free < size:
            raise Full(f"{what}: needs about {mib(size)} free in {self.home}, there are {mib(free)}; "
                       "free some, or set WEIR_HOME to a folder on a larger disk")

    # ---- downloads -----------------------------------------------------------

    def fetch(self, name, pin=None):
        """The pinned file of that name, from downloads/, or through pip, or from Debian's pool through apt. pin: of another list."""
        pin = pin or pins()[name]
        arch = machine()
        file = pin["files"].get("any") or pin["files"].get(arch)
        if file is None:
            raise Failed(f"{name}: {pin['project']} {pin['version']} is not published for {arch} "
                         f"(pinned: {', '.join(sorted(pin['files']))})")
        target = self.path("downloads", file["name"])
        with self.lock():
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_file():
                found = sha256_of(target)
                if found == file["sha256"]:
                    return target
                target.unlink()
                self.screen.say(f"{name}: {target} has sha256 {found[:12]}…, not the pinned "
                                f"{file['sha256'][:12]}…; removed")
            self.room(name, 4 * file["size"])
            with self.scratch("download") as folder, self.log(f"download-{name}") as log:
                got = (self._apt_download if "pool" in pin else self._pip_download)(name, pin, file, folder, log)
                if target.is_dir() and not target.is_symlink():
                    os.rename(target, folder / "instead")
                os.replace(got, target)
        return target

    def not_downloaded(self, name, file, status, log):
        """From what the tool has said, why that file is not here."""
        text = Path(log.name).read_text(errors="replace")
        if no_room(text):
            return Full(f"{name}: the disk became full while downloading {file['name']} into {self.home}; free some room, "
                        f"or set WEIR_HOME to a folder on a larger disk (log: {log.name})")
        advice = f"put that file into {self.path('downloads')} yourself and call again"
        if status == 0 or re.search("DO NOT MATCH THE HASHES|Hash Sum mismatch", text):
            return Failed(f"{name}: {file['name']} came cut off, or with another hash than the pinned one, and was "
                          f"thrown away; call again, or {advice} (log: {log.name})")
        return Failed(f"{name}: {file['name']} could not be downloaded; is there a network? Otherwise {advice} (log: {log.name})")

    def _apt_download(self, name, pin, file, folder, log):
        """From the mirror that this system has its packages from; the pin's hash says whether it is the right file."""
        mirror = debian_mirror()
        if not mirror:
            raise Failed(f"{name}: apt knows no mirror of Debian's here; put {file['name']} into {self.path('downloads')} yourself "
                         "and call again")
        got = folder / file["name"]
        self.screen.say(f"{name}: downloading {file['name']} ({mib(file['size'])})")
        status = run([APT_HELPER, "-o", "APT::Sandbox::User=", "download-file", f"{mirror}{pin['pool']}/{file['name']}", got,
                      f"SHA256:{file['sha256']}"], log)
        if status == 0 and got.is_file() and sha256_of(got) == file["sha256"]:
            return got
        raise self.not_downloaded(name, file, status, log)

    def _pip_download(self, name, pin, file, folder, log):
        wanted = folder / "requirement.txt"
        wanted.write_text(f"{pin['project']}=={pin['version']} --hash=sha256:{file['sha256']}\n")
        out, unpacked = folder / "out", folder / "unpacked"
        unpacked.mkdir()
        command = [*self.pip(folder, log), "download", "--no-deps", "--no-cache-dir", "--retries", "2",
                   "--disable-pip-version-check", "--require-hashes", "-r", wanted, "-d", out,
                   *download_words(file["name"])]
        # pip unpacks below TMPDIR, where its progress can be seen and is cleaned up.
        env = dict(os.environ, TMPDIR=str(unpacked), PIP_NO_INPUT="1")
        if not file["name"].endswith(".whl"):
            # pip asks a source package for its metadata. An answering backend of our
            # own keeps it from fetching unpinned build tools and running foreign code.
            env["PYTHONPATH"] = str(write_metadata_backend(folder / "backend", pin))

        most = 0

        def tick():
            nonlocal most
            for root, _, names in os.walk(unpacked):
                for each in names:
                    with contextlib.suppress(OSError):
                        most = max(most, os.stat(os.path.join(root, each)).st_size)
            self.screen.progress(f"{name}: downloading", most, file["size"], mib)

        self.screen.say(f"{name}: downloading {file['name']} ({mib(file['size'])})")
        status = run(command, log, on_tick=tick, env=env)
        self.screen.clear()
        got = out / file["name"]
        if status == 0 and got.exists() and sha256_of(got) == file["sha256"]:
            return got
        raise self.not_downloaded(name, file, status, log)

    def pip(self, folder, log):
        """A command that is pip: this Python's, or that of a passing environment."""
        if importlib.util.find_spec("pip"):
            return [sys.executable, "-m", "pip"]
        need_venv("downloads")
        if run([sys.executable, "-m", "venv", folder / "pip"], log):
            raise Failed(f"no Python environment could be made (log: {log.name}); {apt('python3-venv')}")
        return [folder / "pip" / "bin" / "python", "-m", "pip"]

    # ---- the Python environment ----------------------------------------------

    def venv(self):
        """The interpreter with the pinned packages; made when it is missing."""
        item = venv_item(self)
        item.ensure()
        return item.place / "bin" / "python"


def download_words(name):
    """What pip has to be told to take the file of that name, whatever Python and machine this is."""
    if not name.endswith(".whl"):
        return ["--no-binary", ":all:", "--no-build-isolation"]
    python, abi, platforms = name[: -len(".whl")].split("-")[-3:]
    words = ["--only-binary", ":all:"]
    if platforms == "any":
        return words
    # "py3" is for every Python 3, so that this one will do: a version is told where the wheel is for one alone.
    major, minor = python[2:3], python[3:]
    words += ["--python-version", f"{major}.{minor}"] if minor else []
    words += ["--implementation", python[:2], "--abi", abi]
    for tag in platforms.split("."):
        words += ["--platform", tag]
    return words


def debian_mirror():
    """The address below which Debian's pool/ lies, of the sources that apt has here; None: there is none."""
    if not (APT_HELPER.exists() and shutil.which("apt-get")):
        return None
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI) $(RELEASE)"], text=True,
                          capture_output=True, check=False).stdout.splitlines()
    every = [words for words in map(str.split, told) if len(words) == 4 and words[:2] == ["Debian", "main"]]
    return next((uri for _, _, uri, release in every if "security" not in release), None)


def write_metadata_backend(folder, pin):
    package = folder / "scikit_build_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    name = pin["project"].replace("-", "_") + "-" + pin["version"] + ".dist-info"
    text = f"Metadata-Version: 2.1\nName: {pin['project']}\nVersion: {pin['version']}\n"
    (package / "build.py").write_text(
        "import os\n"
        "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
        f"    os.mkdir(os.path.join(folder, {name!r}))\n"
        f"    with open(os.path.join(folder, {name!r}, 'METADATA'), 'w') as file:\n"
        f"        file.write({text!r})\n"
        f"    return {name!r}\n")
    return folder


def apt(*packages):
    return "install it with: sudo apt install " + " ".join(packages)


def need_venv(what):
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise Failed(f"{what}: this Python cannot make an environment; {apt('python3-venv')}")


# ---- things in the store -----------------------------------------------------

def stamp_files(folder, names):
    files = {}
    for name in names:
        path = folder / name
        if path.is_symlink():
            files[name] = {"link": os.readlink(path)}
        else:
            info = path.stat()
            files[name] = {"size": info.st_size, "mtime": info.st_mtime_ns, "sha256": sha256_of(path)}
    return files


def put_in_place(product, place, aside):
    """The folder `product` becomes `place`; what was there is lost only when that has happened."""
    if not os.path.lexists(place):
        os.rename(product, place)
        return
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange and exchange(HERE, os.fsencode(product), HERE, os.fsencode(place), EXCHANGE) == 0:
        return
    os.rename(place, aside)     # a file system that cannot exchange two names
    try:
        os.rename(product, place)
    except OSError:
        os.rename(aside, place)
        raise


def changed_file(folder, files):
    """Which of the stamped files is not as it was made, in words; "" if all are."""
    return next(filter(None, (Item.check(folder / name, known) for name, known in files.items())), "")


def intact(folder):
    """Whether the folder holds something that was made here, of whatever recipe, and all of it."""
    try:
        return not changed_file(folder, json.loads((folder / ".stamp").read_text())["files"])
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return False


class Item:
    """One thing in the store: a folder of its own, or files in a shared folder.

    make(folder) fills an empty folder. With whole=True that folder becomes
    `place`; otherwise its files are moved into `place`, one rename each, and the
    stamp comes last. `recipe` is whatever, when it changes, makes the thing stale.
    """

    def __init__(self, store, name, version, place, recipe, make, whole=True, current=None, shown=None):
        self.store, self.name, self.version = store, name, version
        self.place, self.make, self.whole, self.current = place, make, whole, current
        self.shown = shown or place
        self.recipe = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
        self.stamp = place / ".stamp" if whole else place / f".{name}.stamp"

    def state(self):
        """("ready" | "missing" | "stale" | "damaged", why)."""
        try:
            if not os.path.lexists(self.stamp):
                if os.path.lexists(self.shown):
                    return "damaged", f"{self.shown} has no stamp: it was not made here"
                return "missing", "not made yet"
            stamp = json.loads(self.stamp.read_text())
            files = stamp["files"]
            if stamp["recipe"] != self.recipe:
                return "stale", "made from an older recipe"
            why = changed_file(self.place, files)
            if why:
                return "damaged", why
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            return "damaged", f"{self.stamp} cannot be read"
        if self.current and (not self.current.is_symlink() or os.readlink(self.current) != self.place.name):
            return "damaged", f"{self.current} does not point at {self.place.name}"
        return "ready", ""

    @staticmethod
    def check(path, known):
        """A file of the stamped size and time is believed; any other one is read."""
        try:
            if "link" in known:
                same = path.is_symlink() and os.readlink(path) == known["link"] and path.exists()
                return "" if same else f"{path} points elsewhere"
            info = os.stat(path)
        except OSError:
            return f"{path} is gone"
        if info.st_size == known["size"]:
            if info.st_mtime_ns == known["mtime"] or sha256_of(path) == known["sha256"]:
                return ""
        return f"{path} was changed after it was made"

    def ensure(self, force=False):
        """Make it unless it is there; answers whether anything was made."""
        if not force and self.state()[0] == "ready":
            return False
        with self.store.lock():
            state, why = self.state()     # another process may have made it meanwhile
            if state == "ready" and not force:
                return False
            if state in ("damaged", "stale"):
                self.store.screen.say(f"{self.name}: {why}; making it again")
            with self.store.scratch(self.name) as folder:
                product = folder / "product"
                product.mkdir()
                self.make(product)
                self._install(product, folder)
        return True

    def _install(self, product, folder):
        names = sorted(str(path.relative_to(product)) for path in product.rglob("*")
                       if path.is_symlink() or path.is_file())
        self._stamp(product / self.stamp.name, stamp_files(product, names))
        if self.whole:
            self.place.parent.mkdir(parents=True, exist_ok=True)
            put_in_place(product, self.place, folder / "old")
        else:
            self.place.mkdir(parents=True, exist_ok=True)
            self.stamp.unlink(missing_ok=True)
            for name in [*names, self.stamp.name]:
                if (self.place / name).is_dir():
                    os.rename(self.place / name, folder / f"old-{name}")
                os.replace(product / name, self.place / name)
        if self.current:
            link = folder / "current"
            link.symlink_to(self.place.name)
            if self.current.is_dir() and not self.current.is_symlink():
                os.rename(self.current, folder / "old-current")
            os.replace(link, self.current)

    def _stamp(self, path, files):
        stamp = {"name": self.name, "version": self.version, "recipe": self.recipe, "files": files}
        path.write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n")


def not_installed(name, store, requirements, log):
    """From what pip has said, why the environment is not here."""
    text = Path(log.name).read_text(errors="replace")
    if no_room(text):
        return Full(f"{name}: the disk became full while installing into {store.home}; free some room, or set WEIR_HOME to a folder "
                    f"on a larger disk (log: {log.name})")
    if "DO NOT MATCH THE HASHES" in text:
        return Failed(f"{name}: a package came cut off, or with another hash than the pinned one, and was thrown away; "
                      f"call again (log: {log.name})")
    lacks = re.search(r"No matching distribution found for (\S+)", text)
    return Failed(f"{name}: {lacks[1] if lacks else f'the packages of {requirements.name}'} could not be downloaded; is there a network? "
                  f"Otherwise put the wheel into {store.path('downloads')} yourself and call again (log: {log.name})")


def venv_item(store, name="venv", requirements="requirements.txt"):
    requirements = SCRIPTS / requirements

    def make(product):
        need_venv(name)
        if sys.version_info < (3, 10):
            raise Failed(f"{name}: the pinned packages need Python 3.10 or newer, this is "
                         f"{platform.python_version()} ({sys.executable})")
        store.room(name, 400 * MIB)
        with store.log(name) as log:
            store.screen.say(f"{name}: installing the pinned Python packages")
            if run([sys.executable, "-m", "venv", product], log):
                if no_room(Path(log.name).read_text(errors="replace")):
                    raise not_installed(name, store, requirements, log)
                raise Failed(f"{name}: no Python environment could be made (log: {log.name}); "
                             f"{apt('python3-venv')}")
            # pip unpacks beside what it installs, where it is cleaned up.
            unpacked = product.parent / "unpacked"
            unpacked.mkdir()
            command = [product / "bin" / "python", "-m", "pip", "install", "--no-deps", "--no-cache-dir",
                       "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:",
                       "--retries", "2", "--find-links", store.path("downloads"),
                       "--require-hashes", "-r", requirements]
            if run(command, log, env=dict(os.environ, TMPDIR=str(unpacked), PIP_NO_INPUT="1")):
                raise not_installed(name, store, requirements, log)
        # Some files name the folder they were made in: give them their final one.
        here, there = os.fsencode(product), os.fsencode(store.path(name))
        for path in [*(product / "bin").iterdir(), product / "pyvenv.cfg"]:
            if path.is_file() and not path.is_symlink() and here in path.read_bytes():
                path.write_bytes(path.read_bytes().replace(here, there))

    return Item(store, name, "%d.%d" % sys.version_info[:2], store.path(name),
                {"requirements": sha256_of(requirements) if requirements.exists() else "",
                 "python": os.path.realpath(sys.executable)}, make)


# ---- the command line --------------------------------------------------------

def no_room(text):
    """Whether a tool's words tell of a full disk."""
    return re.search("No space left on device|Disk quota exceeded|enough free space", text) is not None


def explain(error, remedy="set WEIR_HOME to a folder", where=None):
    """An error of the system in one line, with what is to be done; where: the place, when the error names none."""
    where = error.filename or where
    if error.errno in NO_ROOM:
        return f"the disk{f' of {where}' if where else ''} is full; free some room, or {remedy} on a larger disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where or 'a file'} is closed to this user ({error.strerror}); open it, or {remedy} that can be written"
    return f"{error.strerror or error}: {where}" if where else str(error)


def told(prog, work, remedy="set WEIR_HOME to a folder"):
    """The exit status of work(); what it cannot do for want of something is one line on standard error."""
    try:
        return work()
    except Failed as error:
        text, status = str(error), error.status
    except KeyboardInterrupt:
        text, status = "interrupted", 130
    except BrokenPipeError:
        text, status = "nobody reads what is printed", 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        text, status = explain(error, remedy), FULL if error.errno in NO_ROOM else 1
    print(f"{prog}: {text}", file=sys.stderr)
    return status


def parser(prog, text, names):
    it = argparse.ArgumentParser(prog=prog, description=text)
    it.add_argument("names", nargs="*", metavar="NAME", help=f"what to make: {', '.join(names)}; default: all")
    it.add_argument("--list", action="store_true", help="say what is in the store; make nothing")
    it.add_argument("--force", action="store_true", help="make again what is there already")
    it.add_argument("--json", action="store_true", help="answer with one JSON object on standard output")
    return it


def command(it, args, items):
    """Run the parsed command line over items: a dict of name to Item."""
    for name in args.names:
        if name not in items:
            it.error(f"there is no {name}; choose from {', '.join(items)}")
    chosen = {name: items[name] for name in items if name in args.names or not args.names}
    failed, made, status = [], [], 0
    if not args.list:
        interrupt_on_signals()
        for name, item in chosen.items():
            try:
                if item.ensure(args.force):
                    made.append(name)
                continue
            except Failed as error:
                failed.append((name, str(error)))
                status = max(status, error.status)
            except KeyboardInterrupt:
                failed.append((name, f"{name}: interrupted; nothing of it was installed"))
                status = 1
            except OSError as error:
                failed.append((name, f"{name}: {explain(error, where=item.store.home)}"))
                status = max(status, FULL if error.errno in NO_ROOM else 1)
            item.store.screen.clear()
            print(f"{it.prog}: {failed[-1][1]}", file=sys.stderr)
            if status == FULL or "interrupted" in failed[-1][1]:
                break
    rows = []
    for name, item in chosen.items():
        state, why = item.state()
        rows.append({"name": name, "version": item.version, "state": state, "why": why,
                     "path": str(item.shown), "made": name in made})
    if args.json:
        home = str(next(iter(items.values())).store.home)
        print(json.dumps({"store": home, "items": rows,
                          "failures": [{"name": name, "why": why} for name, why in failed]}))
    else:
        for row in rows:
            if args.list or row["state"] == "ready":
                why = f"  ({row['why']})" if row["state"] in ("damaged", "stale") else ""
                print(f"{row['name']:<22} {row['version']:<14} {row['state']:<8} {row['path']}{why}")
    return status
