"""The kernel of `shapes::clip_rows`, compiled from C: importing the package registers it."""

import pteron
from pteron_clip._clip import kernel

pteron.register_kernel("shapes::clip_rows", kernel)
