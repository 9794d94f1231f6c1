"""When the state is looked through for what has expired."""

from __future__ import annotations

from sqlstream.operators.operator import Clock
from sqlstream.operators.process.tables import StateTables
from sqlstream.storage.bucket import Bucket
from sqlstream.storage.manifests import SWEPT_AT
from sqlstream.units import MILLISECOND

# So often within the shortest time to live.
SWEEPS = 4


def is_sweep_due(state: Bucket, tables: StateTables, clock: Clock, name: str = "") -> bool:
    """Tell whether some tables of a bucket, which `name` tells apart, are looked through in this batch; note that they are."""
    counter = f"{SWEPT_AT}_{name}" if name else SWEPT_AT
    ttls = [one.ttl for one in tables.states if one.ttl]
    if not ttls:
        return False
    swept = state.counters.setdefault(counter, clock.time)
    if clock.time - swept < max(min(ttls) // SWEEPS, MILLISECOND):
        return False
    state.counters[counter] = clock.time
    return True
