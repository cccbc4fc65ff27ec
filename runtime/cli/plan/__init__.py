"""``triplepoint plan``: what machines can do and what questions cost, simulated."""

from ..arguments import commands_of

COMMANDS = {
    "simulate": "simulate agents on one or many machines: latency, cost, bottlenecks",
    "cost": "compare the cost of a CPU, a rented GPU and an API; find the break-even",
}

add_options = commands_of("plan", COMMANDS, default="simulate", is_open=True)
