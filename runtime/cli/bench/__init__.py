"""``triplepoint bench``: how fast models, batches, agents and servers are here."""

from ..arguments import commands_of

COMMANDS = {
    "speed": "measure prefill and decode speed, like llama-bench",
    "batch": "measure speed with B sequences in each pass, like llama-batched-bench",
    "types": "quantize a model to each of several types: bits, size, error, speed",
    "agents": "run N recorded agents at once, and one after another: jobs/hour, latencies",
    "serve": "run N agents at once on a server: jobs/hour, latencies, failures",
    "trace": "time the work of a recorded run",
}

add_options = commands_of("bench", COMMANDS, default="speed")
