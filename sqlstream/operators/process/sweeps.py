"""When the state is looked through for what has expired."""

from __future__ import annotations

from sqlstream.operators.operator import Clock
from sqlstream.operators.process.tables import StateTables
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.manifests import SWEPT_AT
from sqlstream.units import MILLISECOND

# So often within the shortest time to live.
SWEEPS = 4


def is_sweep_due(state: Bucket, tables: StateTables, clock: Clock) -> bool:
    """Tell whether a bucket is looked through in this batch, and note that it is."""
    ttls = [one.ttl for one in tables.states if one.ttl]
    if not ttls:
        return False
    swept = state.counters.setdefault(SWEPT_AT, clock.time)
    if clock.time - swept < max(min(ttls) // SWEEPS, MILLISECOND):
        return False
    state.counters[SWEPT_AT] = clock.time
    return True
