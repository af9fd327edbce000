"""Shared by the rules on compute threads: the call that set their number, and the fix at its place."""

from __future__ import annotations

import posixpath

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Fix, Where
from rn50_advisor.advisor.model.job_changes import Invocation, Setup
from rn50_advisor.probes.documents.rank_documents import ThreadSetting


def thread_setting(a: Analysis, threads: float) -> ThreadSetting | None:
    """The last call in a rank that set so many threads as are in use; None if none did."""
    settings = (facts.get("threads_set") for facts in a.rank_facts.values())
    return next((s for s in settings if s is not None and s["threads"] == threads), None)


def thread_fix(number: int, setting: ThreadSetting | None, title: str) -> Fix:
    """Sets this number of threads: after the import of a library that has set another, or in place of the job's own call.

    `title`: of the fix where no call has set one.
    """
    change = Setup((Invocation("torch.set_num_threads", (number,)),))
    if setting is None:
        return Fix.of(title, change, None, "one line")
    where, through = Where(setting["file"], setting["line"]), setting.get("through")
    if through is None:
        title = f"torch.set_num_threads({number}) instead of {setting['threads']}"
    else:
        package = posixpath.basename(posixpath.dirname(through["file"]))
        place = f"{package}/{posixpath.basename(through['file'])}:{through['line']}"
        title = f"torch.set_num_threads({number}) after this line, which sets {setting['threads']} through {place}"
    return Fix.of(title, change, where, "one line")
