"""Runs at the start of every Python process of the job: the user's own `sitecustomize`, then a hook that waits for torch. Nothing else.

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


class _After(object):
    """A finder that delegates to the others and calls back once the named module has been executed."""

    def __init__(self, name, callback):
        self._name = name
        self._callback = callback

    def find_spec(self, name, path=None, target=None):
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
        importlib.import_module(name + ".install").install(_FOLDER, _After)


def _is_private(status):
    return status.st_mode & 0o170777 == 0o040700 and status.st_uid == os.geteuid()


def _arm():
    """Hooks the import of torch if the folder named by the variable is private: its advisor may be gone and the name reused."""
    try:
        private = sys.version_info >= (3, 9) and os.path.isabs(_FOLDER) and _is_private(os.lstat(_FOLDER))
    except (OSError, ValueError):
        private = False
    if private:
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
