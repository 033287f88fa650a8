"""How many threads a call uses where its caller does not say, and how many processors there are for calls.

The native module reads both, since its pool keeps to them: the processors of the affinity mask within the
quota of the control group; `PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`, as the environment has them now. The
pool has read them when it was made, so that a later number can lower what a call uses, not raise it.
"""

from __future__ import annotations

from pteron._native import available_processors as processors
from pteron._native import threads_of_environment

__all__ = ["processors", "threads_of_environment"]
