"""Kills of all that is done with the state of a job: savepoints, ways back, forks, parallelism, upgrades, migrations."""
