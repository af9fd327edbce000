"""First thing a Python process of the job runs: the user's own `sitecustomize`, then a hook that waits for torch. Nothing else.

Must stay valid and silent in every Python 3, cost a process without torch next to nothing, and never raise on its own account.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOLDER = os.environ.get("RN50_ADVISOR_DIR", "")


def _note(error):
    """Leave the reason in the ring folder: the job's own output is not ours to write to."""
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
        pass  # nobody is left to tell


class _After(object):
    """A finder that finds nothing itself: it lets the others find one module and calls back when that has been executed."""

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

        known = weakref.ref(loader)  # what lies on the loader and holds it would keep it alive

        def exec_module(module):
            try:
                # the loader is this import's own object: it is left exactly as it was found
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

        code = exec_module.__code__  # a warning's `stacklevel` passes over files of such names: see hidden_frames.py
        exec_module.__code__ = code.replace(co_filename=code.co_filename + " (importlib._bootstrap)")
        loader.exec_module = exec_module


def _hide_frame(error):
    """As `hidden_frames` does. From Python 3.11 on without it: the job may have become a user who can read no modules."""
    if sys.version_info >= (3, 11):
        error.__traceback__ = error.__traceback__.tb_next
        return
    # the module alone, under no name: whether the recorder is started remains to be seen
    import importlib.util

    spec = importlib.util.spec_from_file_location("frames", os.path.join(os.path.dirname(_HERE), "hidden_frames.py"))
    frames = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(frames)
    frames.hide_frame(error)


def _start_recorder():
    import importlib
    import importlib.util

    name = "_rn50_advisor_rank"  # private: the job may have a package `probes` of its own
    if name in sys.modules:
        return
    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    # asked now and not when Python starts: it takes a lock, and most processes never get here
    if importlib.import_module(name + ".rank_ring_folder").arm(_FOLDER):
        importlib.import_module(name + ".install").install(_FOLDER, _After)


def _is_private(status):
    return status.st_mode & 0o170777 == 0o040700 and status.st_uid == os.geteuid()


def _arm():
    """The variable may lead anywhere: an advisor may be long gone, and a name that is free is anybody's."""
    try:
        private = sys.version_info >= (3, 9) and os.path.isabs(_FOLDER) and _is_private(os.lstat(_FOLDER))
    except (OSError, ValueError):
        private = False
    if private:
        sys.meta_path.insert(0, _After("torch", _start_recorder))


def _same(entry, folder):
    """Whether an entry of a path leads to this folder, however it is spelled."""
    try:
        return os.path.samefile(entry, folder)
    except Exception:
        return False  # no folder: an archive, the name of a hook, or whatever else somebody has put there


def _restore_path():
    """Make sys.path what it would be without us, entry by entry; grandchildren find us through the environment.

    The launcher has put one of two folders into PYTHONPATH. `inject` stands in front of what was there, and is simply taken out.
    `inject_unset` stands for a variable that was unset or empty. A job that appends to that (`$PYTHONPATH:/src`) makes an empty
    entry, which is the working directory. One that asks first (`${PYTHONPATH:+$PYTHONPATH:}/src`) would make none, but the text is
    the same here: it gets the working directory too, because a job that lacks it dies.
    """
    front, unset = (os.path.join(os.path.dirname(_HERE), name) for name in ("inject", "inject_unset"))
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    alone = len([entry for entry in entries if not _same(entry, front)]) == 1
    try:
        current = os.path.abspath("")
    except OSError:
        current = ""  # it was deleted, and this is what `site` makes of it
    path, replaced = [], False
    for entry in sys.path:
        if not _same(entry, front) and not _same(entry, unset):
            path.append(entry)
            continue
        sys.path_importer_cache.pop(entry, None)
        if not alone and _same(entry, unset):
            path.append(current)
            replaced = True
    if replaced:  # of two that are the same `site` keeps the first
        first = path.index(current)
        path = [entry for at, entry in enumerate(path) if entry != current or at == first]
    sys.path[:] = path


try:
    _restore_path()
except Exception as _error:
    _note(_error)
# The user's own `sitecustomize`, with its own errors. Where there is none, that ImportError tells `site` so, and no module stays behind.
sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # noqa: F401
finally:
    try:
        _arm()
    except Exception as _error:
        _note(_error)
