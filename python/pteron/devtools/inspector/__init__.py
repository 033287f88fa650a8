"""`Inspector` over ETDump files, by ExecuTorch's names: what a run did, in terms of the model's operators.

Spans and values of a run come from an ETDump; operators, modules and source lines from an ETRecord, or from
the program file itself.
"""

from pteron.devtools.inspector.compare_results import compare_results
from pteron.devtools.inspector.event import Event, PerfData
from pteron.devtools.inspector.event_block import EventBlock
from pteron.devtools.inspector.inspector import Inspector
from pteron.devtools.inspector.time_scale import TimeScale

__all__ = ["Event", "EventBlock", "Inspector", "PerfData", "TimeScale", "compare_results"]
