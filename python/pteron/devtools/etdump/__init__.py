"""ETDump files, ExecuTorch's records of runs: read, written, and made of runs of this runtime."""

from pteron.devtools.etdump.flatbuffer import EtdumpError, read_etdump, write_etdump
from pteron.devtools.etdump.recorder import EtdumpRecorder, record_etdump
from pteron.devtools.etdump.schema import ETDump

__all__ = ["ETDump", "EtdumpError", "EtdumpRecorder", "read_etdump", "record_etdump", "write_etdump"]
