"""Runs at the start of every Python process of the job: the user's own `sitecustomize`, then a hook that waits for torch and sees imports
that take cores from the process. Nothing else.

It must stay valid and silent in every Python 3, cost almost nothing in a process without torch, and never raise an exception of its own.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOLDER = os.environ.get("RN50_ADVISOR_DIR", "")


def _note(error):
    """Writes the error to the ring folder, since the job's output must not be touched."""
    only = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(_FOLDER, os.O_RDONLY | os.O_DIRECTORY | only)
        try:
            if _is_private(os.fstat(folder)):
                name = "error-%d.txt" % os.getpid()
                file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | only, 0o600, dir_fd=folder)
                with open(file, "a") as text:
                    text.write("%s: %s\n" % (type(error).__name__, error))
        finally:
            os.close(folder)
    except Exception:
        pass  # there is nowhere to report it


class _Affinity(object):
    """The number of cores that the main thread may use, and the import that took some of them.

    Each import of a module that is not loaded yet is a check. A loss belongs to the code between two checks: to the import under way, or to
    one that ended and what came after it. Places are (code, index of the instruction, line), innermost in the user's code.
    """

    def __init__(self):
        from _thread import get_ident

        self._thread_id = get_ident
        self._main = get_ident()
        self._others_folders = "<", os.path.dirname(os.__file__), os.path.dirname(_HERE)
        self._is_users = {}  # by file name
        self._under_way = []  # imports, outermost first: (module, place)
        self._name = ""  # of the last check: several of our finders are asked for the same module
        self.at_start = self._cores = len(os.sched_getaffinity(0))
        self.loss = None  # (cores before, cores after, module, place of its import, under way?, place of the check)

    def check(self, name=""):
        """`name`: the module that is about to be imported, if any. Raises nothing but what a signal handler of the job has raised."""
        try:
            if (name and name == self._name) or self._thread_id() != self._main:
                return
            self._name = name
            ended = self._leave_ended()
            inner = self._under_way[-1] if self._under_way else ("", None)
            place = self._place(sys._getframe(1), inner[1])
            cores = len(os.sched_getaffinity(0))
            if cores != self._cores:
                self._changed(cores, ended or inner, place)
            if name:
                self._under_way.append((name, place))
        except Exception as error:
            trace = error.__traceback__
            while trace.tb_next is not None:
                trace = trace.tb_next
            if trace.tb_frame.f_globals is not globals():
                raise

    def _leave_ended(self):
        """Removes imports that have ended since the last check. Returns the outermost that succeeded, which contains the others."""
        ended = None
        while self._under_way:
            entry = self._under_way.pop()  # first, in case that the rest fails
            module = sys.modules.get(entry[0])
            # not an attribute of the module, which might run the job's code
            spec = None if module is None else object.__getattribute__(module, "__dict__").get("__spec__")
            if _is_being_found(entry[0]) if module is None else getattr(spec, "_initializing", False):
                self._under_way.append(entry)
                break
            if module is not None:
                ended = entry
        return ended

    def _place(self, frame, outer):
        """The innermost place in the user's code; `outer`, that of the import under way, if a library's module is being executed."""
        while frame is not None:
            code = frame.f_code
            users = self._is_users.get(code.co_filename)
            if users is None:
                installed = "site-packages" in code.co_filename or "dist-packages" in code.co_filename
                users = not installed and not code.co_filename.startswith(self._others_folders)
                self._is_users[code.co_filename] = users
            if users:
                return code, frame.f_lasti, frame.f_lineno
            if code.co_name == "<module>" and outer is not None:
                return outer
            frame = frame.f_back
        return None

    def _changed(self, cores, suspect, place):
        lost, self._cores = self._cores - cores, cores
        if self.loss is not None and cores >= self.loss[0]:
            self.loss = None  # they were given back
        if lost > 0 and (self.loss is None or lost > self.loss[0] - self.loss[1]):
            # the module that the user's statement imports: which of those that this one imports took them is not known
            same = [entry for entry in self._under_way if entry[1] == suspect[1]]
            module, began = same[0] if same else suspect
            self.loss = cores + lost, cores, module, began, bool(same), place


def _is_being_found(module):
    """True if a finder or loader of this module, which is not loaded yet, runs now; False if its import has failed."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name == "_find_and_load"
            and code.co_filename.startswith("<frozen")
            and frame.f_locals["name"] == module
        ):
            return True
        frame = frame.f_back
    return False


class _After(object):
    """A finder that delegates to the others and calls back once the named module has been executed."""

    affinity = None

    def __init__(self, name, callback):
        self._name = name
        self._callback = callback

    def find_spec(self, name, path=None, target=None):
        if self.affinity is not None:
            self.affinity.check(name)
        if name != self._name:
            return None
        spec = None
        for finder in list(sys.meta_path):
            find = None if isinstance(finder, _After) else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                break
        try:
            if spec is not None and spec.loader is not None:
                self._wrap(spec.loader)
        except Exception as error:
            _note(error)
        return spec

    def _wrap(self, loader):
        import weakref

        known = weakref.ref(loader)  # an attribute of the loader that refers to it would keep it alive

        def exec_module(module):
            try:
                # restore the loader, the import's own object, exactly
                loader = known()
                loader.__dict__.pop("exec_module", None)
                loader.exec_module(module)
            except BaseException as error:
                try:
                    _hide_frame(error)
                except Exception as failure:
                    _note(failure)
                raise
            try:
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                self._callback()
            except Exception as error:
                _note(error)

        code = exec_module.__code__  # a warning's `stacklevel` skips files with such names: see hidden_frames.py
        exec_module.__code__ = code.replace(co_filename=code.co_filename + " (importlib._bootstrap)")
        loader.exec_module = exec_module


def _hide_frame(error):
    """Like `hidden_frames`, which is imported only before Python 3.11: the job may have switched to a user who can't read our modules."""
    if sys.version_info >= (3, 11):
        error.__traceback__ = error.__traceback__.tb_next
        return
    # loads this module only, without a name; the recorder may not be started
    import importlib.util

    spec = importlib.util.spec_from_file_location("frames", os.path.join(os.path.dirname(_HERE), "hidden_frames.py"))
    frames = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(frames)
    frames.hide_frame(error)


def _start_recorder():
    if _After.affinity is not None:
        _After.affinity.check()
    import importlib
    import importlib.util

    name = "_rn50_advisor_rank"  # a private name: the job may have its own package `probes`
    if name in sys.modules:
        return
    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    # checked here, not at Python's start: it takes a lock, and most processes never get here
    if importlib.import_module(name + ".rank_ring_folder").arm(_FOLDER):
        importlib.import_module(name + ".install").install(_FOLDER, _After, _After.affinity)


def _is_private(status):
    return status.st_mode & 0o170777 == 0o040700 and status.st_uid == os.geteuid()


def _arm():
    """Hooks the import of torch if the folder named by the variable is private: its advisor may be gone and the name reused."""
    try:
        private = sys.version_info >= (3, 9) and os.path.isabs(_FOLDER) and _is_private(os.lstat(_FOLDER))
    except (OSError, ValueError):
        private = False
    if private:
        if hasattr(os, "sched_getaffinity"):
            _After.affinity = _Affinity()
        sys.meta_path.insert(0, _After("torch", _start_recorder))


def _same(entry, folder):
    """True if a path entry resolves to this folder."""
    try:
        return os.path.samefile(entry, folder)
    except Exception:
        return False  # not a folder: an archive, the name of a path hook, or something else


def _restore_path():
    """Restores sys.path to its value without us. Grandchildren find us through the environment.

    The launcher has put one of two folders into PYTHONPATH. `inject` was prepended to the existing value and is simply removed.
    `inject_unset` replaces an unset or empty variable. Without us, a job that appends to it (`$PYTHONPATH:/src`) would create an empty
    entry, which is the working directory. A job that tests first (`${PYTHONPATH:+$PYTHONPATH:}/src`) would create none. Here both look the
    same and get the working directory, because a job that needs it would fail without it.
    """
    front, unset = (os.path.join(os.path.dirname(_HERE), name) for name in ("inject", "inject_unset"))
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    alone = len([entry for entry in entries if not _same(entry, front)]) == 1
    try:
        current = os.path.abspath("")
    except OSError:
        current = ""  # the working directory was deleted; `site` does the same
    path, replaced = [], False
    for entry in sys.path:
        if not _same(entry, front) and not _same(entry, unset):
            path.append(entry)
            continue
        sys.path_importer_cache.pop(entry, None)
        if not alone and _same(entry, unset):
            path.append(current)
            replaced = True
    if replaced:  # of duplicates `site` keeps the first
        first = path.index(current)
        path = [entry for at, entry in enumerate(path) if entry != current or at == first]
    sys.path[:] = path


try:
    _restore_path()
except Exception as _error:
    _note(_error)
# The user's own `sitecustomize`, with its own errors. If there is none, `site` handles the ImportError, and no module remains.
sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # noqa: F401
finally:
    try:
        _arm()
    except Exception as _error:
        _note(_error)
