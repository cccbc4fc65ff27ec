"""The agents' requests to a server: generated conversations, the same for every server.

Every agent has the same system prompt and a question of its own. Each of its turns is one reply of
the server, then come a pause as long as a tool takes and that tool's result. Words are common ones,
which large vocabularies have as one token each; usage tells what they were in the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...errors import SettingError

QUESTION = 40  # words of an agent's first question

_WORDS = """
the of and to in is that for it was on are as with be at this have from or by not but what all were
when we there can an your which their said if do will each about how up out them then she many some
so these would other into has more her two like him see time could no make than first been its who
now people my made over did down only way find use may water long little very after words called
just where most know get through back much go good new write our me man too any day same right look
think also around another came come work three must because does part even place well such here take
why help put different away again off went old number great tell men say small every found still
between name should home big give air line set own under read last never us left end along while
might next sound below saw something thought both few those always looked show large often together
asked house world going want school important until form food keep children feet land side without
boy once animal life enough took four head above kind began almost live page got earth need far hand
high year mother light country father let night picture being study second soon story since white
ever paper hard near sentence better best across during today however sure knew try told young sun
thing whole hear example heard several change answer room sea against top turned learn point city
"""


@dataclass(frozen=True, slots=True)
class Work:
    """The amount of work of each agent; deterministic by seed."""

    agents: int
    """Number of concurrent agents."""
    turns: int = 6
    """Number of replies that each agent requests."""
    system: int = 3000
    """Words of the system prompt, which all agents share."""
    least: int = 200
    most: int = 5000
    """Minimum and maximum words of a tool's result; half as many results are twice as long."""
    reply: int = 64
    """Maximum tokens of each reply; a server that ends one earlier does less work."""
    seed: int = 1
    """Seed of the texts, and of the server's sampling."""
    pauses: tuple[float, ...] = (0.001,)
    """Seconds of tool calls; one value is drawn for each."""

    def __post_init__(self) -> None:
        for name in ("agents", "turns", "system", "least", "reply"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.most < self.least:
            raise SettingError(f"results of {self.least} to {self.most} words: least is above most")

    @property
    def prompt(self) -> str:
        """The system prompt."""
        return _text(random.Random(f"{self.seed} system"), self.system)

    def script(self, agent: int) -> Iterator[tuple[float, str]]:
        """Yield an agent's messages, each with the pause before it: a question, tool results."""
        chance = random.Random(f"{self.seed} agent {agent}")
        yield 0.0, _text(chance, QUESTION)
        for _ in range(self.turns - 1):
            # Density 1 / x²: most results are short, some are long.
            share = chance.random() * (1 - self.least / self.most)
            words = round(self.least / (1 - share))
            yield chance.choice(self.pauses), _text(chance, words)

    def check_room(self, context: int, count: Callable[[str], int]) -> None:
        """Refuse a context that the mean conversation does not fit; count: tokens of a text.

        One that is longer than most may still fail, which is counted.

        Raises:
            SettingError: it does not fit.
        """
        system = count(self.prompt)
        texts = " ".join(text for agent in range(self.agents) for _, text in self.script(agent))
        mean = system + count(texts) // self.agents + self.turns * self.reply
        if mean > context:
            raise SettingError(
                f"a conversation of about {mean:,} tokens, {system:,} of them the system prompt, "
                f"does not fit the model's context of {context:,}; choose another model with -m or "
                "--url, or smaller --system, --results, --turns or --reply"
            )


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS.split(), k=words))
