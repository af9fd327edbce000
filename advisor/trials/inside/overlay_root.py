"""A root in which every file system that can be written to lies under an overlay: the job sees all files, and what it writes is apart.

In a user namespace of its own a process may not put an overlay over a folder with mounts below it, since that would show what the mounts
hide. Such a folder is divided: its subfolders get overlays, it is read-only itself, or made anew where the user may write to it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.trials.inside import namespaces, system_calls
from rn50_advisor.advisor.trials.inside.found_paths import all_below, entries, pipes, sockets, way_to
from rn50_advisor.advisor.trials.inside.mount_view import (
    AS_THEY_ARE,
    MOUNTINFO,
    PSEUDO,
    MountLine,
    is_below,
    is_within,
    parse,
    visible,
)
from rn50_advisor.advisor.trials.inside.system_calls import MS_BIND, MS_RDONLY, MS_REC, MS_REMOUNT

NAME = "rn50-advisor"  # the source of our mounts, as `mount` shows it
JOB_FOLDER = "job"  # in the private folder: all that the job sees of that
_SHARED_MEMORY = "/dev/shm"
_COPY_BYTES_MAX = 16 << 20  # a single file that is a mount, or lies in a folder made anew; larger ones are read-only
_MOUNTS_MAX = 4000  # the kernel allows 100,000 in a namespace; each takes a millisecond
_FOREIGN_FOLDERS_MAX = 200


class NotCovered(Exception):
    """A file system would stay writable, or the new root would lack what the job needs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`private`: our own folder, which the job does not see; `place`: an empty folder in it for what is written.

    `keep`: paths that the job writes to for real. `memory_bytes`: what is written goes to memory, at most so much; None: to `place`.
    `wanted`: folders that the job is likely to write to.
    """

    private: str
    place: str
    cwd: str
    keep: tuple[str, ...] = ()
    memory_bytes: int | None = None
    wanted: tuple[str, ...] = ()

    @staticmethod
    def of(spec: Mapping[str, Any], place: str, cwd: str) -> Plan:
        private = os.path.realpath(spec["private"])
        keep = tuple(os.path.realpath(path) for path in spec.get("keep", ()))
        wanted = (cwd, *(os.path.realpath(path) for path in spec.get("wanted", ())))
        return Plan(private, os.path.realpath(place), cwd, keep, spec.get("memory_bytes"), wanted)


class OverlayRoot:
    """Built beside the old root, and then entered. `read_only`: what could be written to, and cannot be in the new root."""

    def __init__(self, plan: Plan, mapping: namespaces.IdMapping, mountinfo: Path = MOUNTINFO) -> None:
        self.read_only: list[str] = []
        self.overlays = 0
        self._plan = plan
        self._mapping = mapping
        self._all = parse(mountinfo.read_text(errors="surrogateescape"))
        self._visible = visible(self._all)
        self._points = {mount.point for mount in self._visible}
        self._root = f"{plan.place}/root"
        self._layers = f"{plan.place}/layers"
        self._ours: set[str] = set()  # places in the new root where writes are held back
        self._kept: set[str] = set(plan.keep)

    def build(self) -> None:
        """Raises OSError or NotCovered."""
        self._make_places()
        root = next((mount for mount in self._visible if mount.point == "/"), None)
        self._cover("/", root, or_read_only=False)
        for mount in self._visible:
            if mount.point != "/" and not self._is_left(mount.point):
                self._cover_mount(mount)
        for path in AS_THEY_ARE:
            if Path(path).is_dir():
                self._bind(path)
        self._renew_shared_memory()
        self._cover_folders_of_others()
        self._hide_private()
        for path in (*sockets(), *pipes(os.environ)):
            if not self._is_left(path) and os.path.lexists(self._root + path):
                with contextlib.suppress(OSError):  # removed meanwhile
                    self._bind(path)
                    self._kept.add(path)
        for path in self._plan.keep:
            self._keep(path)

    def become_root(self) -> None:
        """Raises OSError."""
        old = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.chdir(self._root)
            try:
                system_calls.pivot_root(".", ".")
            except OSError:  # the root is the first file system of all, which cannot be moved
                os.chroot(".")
                return
            os.fchdir(old)
            system_calls.unmount(".")
        finally:
            os.close(old)
            os.chdir("/")

    def verify(self, mountinfo: Path = MOUNTINFO) -> None:
        """Raises NotCovered if any path still leads to a file system that can be written to."""
        for mount in visible(parse(mountinfo.read_text(errors="surrogateescape"))):
            kept = any(is_within(mount.point, path) for path in self._kept)
            left = self._is_left(mount.point) and mount.point != os.path.realpath(_SHARED_MEMORY)
            held = mount.read_only or mount.point in self._ours or not _can_be_entered(mount.point)
            if not (held or mount.fs_type in PSEUDO or kept or left):
                raise NotCovered(f"{mount.point} ({mount.fs_type}) would stay writable")

    def _is_left(self, path: str) -> bool:
        return any(is_within(path, place) for place in AS_THEY_ARE) or is_within(path, self._plan.private)

    def _make_places(self) -> None:
        for folder in (self._root, self._layers):
            Path(folder).mkdir(mode=0o700, exist_ok=True)
        if self._plan.memory_bytes is not None:
            data = f"size={self._plan.memory_bytes},mode=700"
            system_calls.mount(NAME, self._layers, "tmpfs", data=data)

    def _layer(self, kind: str) -> str:
        """A new folder of ours; on the way all are under `layers`, whose name has no character that mount options need escaped."""
        self.overlays += 1
        if self.overlays > _MOUNTS_MAX:
            raise NotCovered(f"more than {_MOUNTS_MAX} folders would need an overlay of their own")
        place = f"{self._layers}/{self.overlays}"
        Path(place).mkdir(mode=0o700)
        Path(place, kind).mkdir(mode=0o700)
        return place

    def _cover_mount(self, mount: MountLine) -> None:
        if not _can_be_entered(mount.point) or not os.path.lexists(self._root + mount.point):
            return
        if not os.path.isdir(mount.point):  # noqa: PTH112 - the text of a path
            self._cover_file(mount)
        elif mount.fs_type in PSEUDO or mount.read_only:
            with contextlib.suppress(OSError):  # a file system of another user, whom alone it answers
                self._bind(mount.point)
        else:
            self._cover(mount.point, mount)

    def _cover(self, path: str, mount: MountLine | None, *, or_read_only: bool = True) -> None:
        """Holds back what is written in this folder, but for mounts below it. Raises OSError unless it may be read-only."""
        if self._mapping.user and any(is_below(other.point, path) for other in self._all):
            self._divide(path, mount)
            return
        try:
            self._overlay(path, mount)
        except OSError:
            if not or_read_only:
                raise
            self._bind_read_only(path, mount)
            self.read_only.append(path)

    def _overlay(self, path: str, mount: MountLine | None) -> None:
        layer = self._layer("upper")
        Path(layer, "work").mkdir(mode=0o700)
        self._like(path, f"{layer}/upper")
        here = os.path.relpath(layer, self._plan.place)
        layers = f"lowerdir={_escaped(path)},upperdir={here}/upper,workdir={here}/work"
        # Redirects let the job rename folders that it found; a user namespace may not have them, and mv copies there.
        attempts = ["userxattr,"] if self._mapping.user else ["redirect_dir=on,", ""]
        flags = system_calls.flags_of(mount.options) & ~MS_RDONLY if mount else 0
        os.chdir(self._plan.place)
        for number, options in enumerate(attempts, 1):
            try:
                system_calls.mount(NAME, self._root + path, "overlay", flags=flags, data=options + layers)
                break
            except OSError:
                if number == len(attempts):
                    raise
        self._ours.add(path)

    def _like(self, path: str, made: str) -> None:
        """Gives a folder of ours the rights of the one that it stands for."""
        about = os.stat(path)  # noqa: PTH116
        mode = stat.S_IMODE(about.st_mode)
        try:
            os.chown(made, about.st_uid, about.st_gid)
        except OSError:  # it is ours, and so its owner's rights are to be what we may do there
            own = sum(bit << 6 for bit in (os.R_OK, os.W_OK, os.X_OK) if os.access(path, bit))
            mode = (mode & ~0o700) | own
        os.chmod(made, mode)  # noqa: PTH101

    def _divide(self, path: str, mount: MountLine | None) -> None:
        """Covers each folder in this one by itself, and makes this one read-only or anew."""
        made = None
        if os.access(path, os.W_OK):
            made = f"{self._layer('made')}/made"
            system_calls.mount(made, self._root + path, flags=MS_BIND)
            self._ours.add(path)
        else:
            self._bind_read_only(path, mount)
        for entry in entries(path):
            try:
                self._cover_entry(entry, mount, anew=made is not None)
            except OSError:
                if os.path.lexists(entry.path):  # else somebody has removed it meanwhile
                    raise
        if made:
            self._like(path, made)

    def _cover_entry(self, entry: os.DirEntry[str], mount: MountLine | None, *, anew: bool) -> None:
        """Of a folder that is divided, and made `anew`, which then lacks the entry."""
        if entry.is_dir(follow_symlinks=False):
            if anew:
                Path(self._root + entry.path).mkdir()
            if entry.path not in self._points and not self._is_left(entry.path):
                self._cover(entry.path, mount)
        elif anew:
            self._take_over(entry, mount)

    def _take_over(self, entry: os.DirEntry[str], mount: MountLine | None) -> None:
        """Puts a copy of a small file, or the file itself read-only, into a folder made anew."""
        inner = self._root + entry.path
        if entry.is_symlink():
            Path(inner).symlink_to(os.readlink(entry.path))  # noqa: PTH115 - as it is written there
            return
        about = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(about.st_mode) and about.st_size <= _COPY_BYTES_MAX and os.access(entry.path, os.R_OK):
            shutil.copy2(entry.path, inner)
            return
        Path(inner).touch(mode=0o600)
        self._bind_read_only(entry.path, mount)

    def _cover_file(self, mount: MountLine) -> None:
        """A mount of a single file, such as a container's /etc/hosts."""
        about = os.stat(mount.point)  # noqa: PTH116
        if stat.S_ISREG(about.st_mode) and not mount.read_only and about.st_size <= _COPY_BYTES_MAX:
            with contextlib.suppress(OSError):
                copied = f"{self._layer('copied')}/copied/file"
                shutil.copy2(mount.point, copied)
                with contextlib.suppress(OSError):
                    os.chown(copied, about.st_uid, about.st_gid)
                system_calls.mount(copied, self._root + mount.point, flags=MS_BIND)
                self._ours.add(mount.point)
                return
        self._bind_read_only(mount.point, mount)

    def _bind(self, path: str) -> None:
        system_calls.mount(path, self._root + path, flags=MS_BIND | MS_REC)

    def _bind_read_only(self, path: str, mount: MountLine | None) -> None:
        self._bind(path)
        kept = system_calls.flags_of(mount.options) if mount else 0  # a user namespace may not drop them
        system_calls.mount("none", self._root + path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept)

    def _renew_shared_memory(self) -> None:
        """Memory of the job's own, as large as before. Data that somebody laid there can be read."""
        path = os.path.realpath(_SHARED_MEMORY)
        if not Path(path).is_dir():
            return
        about = os.statvfs(path)
        data = f"size={about.f_blocks * about.f_frsize},mode=1777"
        if entries(path):
            layer = self._layer("memory")
            memory = f"{layer}/memory"
            system_calls.mount(NAME, memory, "tmpfs", data=data)
            for name in ("upper", "work"):
                Path(memory, name).mkdir()
            os.chmod(f"{memory}/upper", 0o1777)  # noqa: PTH101
            options = "userxattr," if self._mapping.user else ""
            layers = f"{options}lowerdir={path},upperdir=upper,workdir=work"
            with contextlib.suppress(OSError):
                os.chdir(memory)
                system_calls.mount(NAME, self._root + path, "overlay", data=layers)
                self._ours.add(path)
                return
        system_calls.mount(NAME, self._root + path, "tmpfs", data=data)
        self._ours.add(path)

    def _cover_folders_of_others(self) -> None:
        """Gives folders of other users and groups their own overlays where these ids do not exist: an overlay could not copy them."""
        if self._mapping.alone is None:
            return
        for wanted in self._plan.wanted:
            for path in way_to(wanted):
                self._cover_folder_of_others(path)
        below = (entry.path for entry in all_below(self._plan.cwd) if entry.is_dir(follow_symlinks=False))
        for count, path in enumerate(below):
            if count < _FOREIGN_FOLDERS_MAX:
                self._cover_folder_of_others(path)

    def _cover_folder_of_others(self, path: str) -> None:
        if path in self._ours or path in self.read_only or self._is_left(path):
            return
        if not any(is_below(path, ours) for ours in self._ours) or any(is_below(o.point, path) for o in self._all):
            return
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not self._mapping.knows(os.stat(path)):  # noqa: PTH112, PTH116
                self._overlay(path, self._mount_of(path))

    def _mount_of(self, path: str) -> MountLine | None:
        return max((m for m in self._visible if is_within(path, m.point)), key=lambda m: len(m.point), default=None)

    def _hide_private(self) -> None:
        """Of our own folder the job sees an empty one, with a folder in it that it may use."""
        shown = f"{self._layer('shown')}/shown"
        Path(shown, JOB_FOLDER).mkdir(mode=0o700)
        system_calls.mount(shown, self._root + self._plan.private, flags=MS_BIND)
        self._ours.add(self._plan.private)

    def _keep(self, path: str) -> None:
        target = Path(self._root + path)
        if not Path(path).exists():
            return
        if Path(path).is_dir():
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not target.exists():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.touch()
        self._bind(path)


def _can_be_entered(path: str) -> bool:
    """False for what another user has mounted for itself alone with FUSE, which not even root may look at, and so no job."""
    try:
        os.stat(path)  # noqa: PTH116
    except PermissionError:
        return False
    return True


def _escaped(path: str) -> str:
    """As a value among mount options, where colons separate layers."""
    return "".join(f"\\{char}" if char in "\\,:" else char for char in path)
