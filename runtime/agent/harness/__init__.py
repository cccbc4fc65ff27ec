"""The harness: small policies around the agent loop, which make small models reliable.

A policy is called at four points of the loop (`policy.Policy`) and returns a `Decision`. `Harness`
(`merged.py`) calls them all and merges what they decide; `defaults.py` lists the shipped ones, with
the reason of each, and when it is on.
"""
