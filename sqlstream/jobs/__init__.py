"""Planned jobs: how they are started, continued, ended and deleted, and the handle that a session gives out."""
