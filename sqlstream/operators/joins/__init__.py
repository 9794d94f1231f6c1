"""Operators with several inputs."""
