"""Rank tables: the JSON file that tells HCCL which NPUs a job runs on, at which addresses, with which rank.

Standard library only, so that it runs on a server before anything is installed. `msllm ranktable --help` is the way in.
"""
