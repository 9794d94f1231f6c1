"""What lets a process be forked after it has imported libraries: none of them may have started a thread.

A fork has only the thread that forks. A lock that another thread held at that moment is never released in the new process.
"""

from __future__ import annotations

# Arrow's jemalloc starts a thread that gives memory back when Arrow is imported; nothing else here does.
ENVIRONMENT = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
