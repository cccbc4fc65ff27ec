"""The harness: small policies around the loop, which make a small model a reliable agent.

A policy is asked at four places of the loop (`policy.Policy`) and returns a `Decision`. `Harness`
(`merged.py`) asks them all and merges what they decide; `defaults.py` lists the shipped ones, with
the reason of each, and when it is on.
"""
