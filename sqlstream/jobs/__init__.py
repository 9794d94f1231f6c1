"""Planned jobs: how they are started, saved, continued, upgraded, verified and ended, and the handle that a session gives out."""
