"""Questions that nano cannot answer, composed from parts, by kind.

Written lists alone taught it those lists: it took an unknown verb for "show", a sum for a word to
search for, and a question about what is in a table for one about a setting.

Slots as in `phrasings`, and those of `PICKS`; {l} is a log, {t} a table.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .composed import combine
from .composed import ways as _ways

PEOPLE = _ways(
    "Anna|Ben|Marta|Tom|Lena|Paul|Sofia|Jonas|Priya|Omar|Chen|Kate|Luis|Nora|Ivan|Mia|Felix|"
    "Amina|Greta|Hugo|Yuki|Sam|Rosa|Karl|the customer|my boss|our client|the new guy|everyone"
)
THINGS = _ways(
    "the rent|the invoice|the ticket|my bike|a pizza|the flight|the meeting|the report|the bill|"
    "coffee|lunch|the heating|the lights|my phone|the door|the car|a taxi|the order|the parcel|"
    "the printer|the coffee machine|my calendar|the newsletter|the alarm|the tv|my homework|"
    "the garden|the router|the server room|my subscription|the website|the slides|the contract"
)
TOPICS = _ways(
    "reverse proxy|mutex|deadlock|checksum|snapshot|hash|container|firewall|cron job|symlink|"
    "certificate|load balancer|virtual machine|database index|foreign key|race condition|socket|"
    "semaphore|memory leak|stack trace|public key|webhook|daemon|kernel|compiler|linter|monad|"
    "black hole|prime number|volcano|mortgage|tax return|sonnet|haiku|comet|glacier|vaccine|quota"
)
UNITS = _ways(
    "orders|invoices|customers|hours|dollars|euros|tickets|emails|points|students|patients|items|"
    "pages|requests|logins|users|people|days|miles|kilos|bytes|deliveries|calls|visits|goals|"
    "votes|houses|books|birds|liters|complaints|refunds|sales|minutes|seconds|payments|boxes"
)
MEASURES = _ways(
    "km|miles|kg|pounds|hours|minutes|seconds|days|weeks|MB|GB|bytes|euros|dollars|yen|meters|"
    "feet|inches|liters|gallons|degrees|percent|MiB|kB|ms|knots|acres"
)
MONTHS = _ways(
    "January|February|March|April|May|June|July|August|September|October|November|December"
)
HOLIDAYS = _ways(
    "Christmas|Easter|New Year's Eve|Thanksgiving|Father's Day|Halloween|the weekend|summer|"
    "Ramadan|Diwali|my birthday|the next full moon|the solstice|the next leap year|payday"
)
LANGUAGES = _ways(
    "English|German|French|Spanish|Italian|Polish|Dutch|Turkish|Japanese|Chinese|Russian|Arabic|"
    "Korean|Portuguese|Latin|Swedish|Greek|Hindi|plain English|simple words"
)


def _sum(rng: random.Random) -> str:
    """Return an arithmetic term."""
    a, b, c = (rng.randrange(10 ** rng.randint(1, 4)) for _ in "abc")
    shape = rng.choice((
        "{a}+{b}", "{a} + {b}", "{a}*{b}", "{a} * {b}", "{a}x{b}", "{a} x {b}", "{a}/{b}",
        "{a} / {b}", "{a}-{b}", "{a} - {b}", "{a}^2", "2^{a}", "sqrt({a})", "({a}+{b})*{c}",
        "{a} plus {b}", "{a} times {b}", "{a} minus {b}", "{a} divided by {b}", "{a}% of {b}",
        "{a} percent of {b}", "{a} mod {b}", "{a}.{c} * {b}", "{a}+{b}+{c}", "half of {a}",
        "{a},{c} plus {b}%", "{a} plus {b} percent", "the square root of {a}", "{a} squared",
    ))  # fmt: skip
    return shape.format(a=a, b=b, c=c)


def _day(rng: random.Random) -> str:
    """Return a date, or an annual event."""
    month, day = rng.choice(MONTHS), rng.randint(1, 28)
    number, year = rng.randint(1, 12), rng.randint(1990, 2035)
    return rng.choice((
        f"{month} {day}", f"{day} {month}", f"{month} {day}, {year}", f"{year}-{number:02d}-{day}",
        f"{day}.{number}.", f"{day}.{number:02d}.{year}", f"the {day}th of {month}", month,
        rng.choice(HOLIDAYS), f"{number}/{day}/{year}", str(year),
    ))  # fmt: skip


PICKS: dict[str, Callable[[random.Random], str]] = {
    "{p}": lambda rng: rng.choice(PEOPLE),
    "{m}": lambda rng: rng.choice(THINGS),
    "{c}": lambda rng: rng.choice(TOPICS),
    "{u}": lambda rng: rng.choice(UNITS),
    "{q}": lambda rng: rng.choice(MEASURES),
    "{g}": lambda rng: rng.choice(LANGUAGES),
    "{a}": _sum,
    "{y}": _day,
}
"""What only these questions speak of."""

_FILES = (
    "{f}|{f}|the folder {d}|the {d} folder|{d}/|line {n} of {f}|everything in {d}|all the logs|"
    "{k} in {f}|the old files|these files|this folder|the first line of {f}|all files in {d}"
)
_ACTS = (
    "wipe|erase|purge|nuke|destroy|drop|trash|throw away|encrypt|decrypt|lock|unlock|hide|share|"
    "publish|post|upload|sync|duplicate|clone|overwrite|restore|recover|recreate|migrate|import|"
    "swap|reorder|renumber|reverse|shuffle|trim|tidy up|clean|patch|tune|polish|simplify|extend|"
    "annotate|tag|label|mark|sign|encode|compress|pack|unpack|protect|chmod|link|mount|"
    "back up|save|store|empty|clear|reset|undo|alter|modify|adjust|correct|rework|redo"
)
ACTS = [
    *combine("_ _ _", "|please|can you|could you|pls|I want you to|go ahead and|now|would you",
             _ACTS, _FILES),
    *combine("_ _", "turn on|turn off|switch off|pause|resume|pay|book|cancel|order|call|buy|sell|"
             "move|fix|repair|clean|reschedule|check in on|approve|mute|charge|unsubscribe from|"
             "tell {p} about|remind me of|send {p}|email {p} about|get me", "{m}|{m} please|"
             "{m} for me|{m} tomorrow|{m} right now"),
    *combine("_ {s} _", "pause|resume|reload|scale up|scale down|throttle|block|kick|ban|upgrade|"
             "downgrade|shut down|wake up|redeploy|reinstall|uninstall|migrate|monitor|harden",
             "|please|for me|now|tonight|to the new host|by {n} percent"),
    *combine("make _ _", "{s}|{f}|{k}|it|the tests|the query|this folder|the config",
             "faster|smaller|bigger|prettier|safer|green again|work|pass|readable|private|shorter"),
]  # fmt: skip
CODE = combine(
    "_ a _ _",
    "write|write me|give me|make|make me|generate|can you write|could you write me|I need|build me|"
    "please write|show me how to write|code me",
    "little bash script|python function|regex|sql query|cron line|dockerfile|unit test|class|loop|"
    "one-liner|web page|excel formula|shell script|systemd unit|parser|program|macro|test case",
    "that {x}s {w}|for {f}|that parses {l}|that rotates {l}|to {x} {w}|that does what {f} does|"
    "that counts the lines of {f}|which prints {w}|that deletes old logs|for {s}|that reads {t}",
)
MATHS = [
    *combine("_ _", "what is|what's|whats|how much is|calculate|compute|solve|work out||"
             "what do you get for|quick, what's|can you do|tell me|what would be|i need", "{a}"),
    *combine("{a} _", "=|equals|is what|makes what|please|, what's that"),
    *_ways(
        "how many {q} are {n} {q}|how many {q} are in {n} {q}|what is {n} {q} in {q}|"
        "{n} {q} in {q}|convert {n} {q} to {q}|how much is {n} {q} in {q}|"
        "how long would {n} {u} take at {n} per day|how much is {n} {q} plus tax|"
        "is {n} divisible by {n}|is {n} more than {n}|which is bigger, {n} or {n}|"
        "what's {n}% off {n}|round {n}.{n} for me|what is {n} in binary|{n} in hex|"
        "how many zeros does a million have|what comes after {n}, {n}, {n}|"
        "if I have {n} {u} and lose {n}, how many are left|split {n} {q} between {n} people|"
        "how much do {n} {u} cost at {n} each|what's the average of {n} and {n}"
    ),
]  # fmt: skip
DATES = [
    *combine("_ {y}", "how many days until|how many days are left until|how long is it until|"
             "how many weeks until|what weekday is|what day of the week was|which weekday is|"
             "when is|when was|how long ago was|is it still long until|what happened in|"
             "days until|what's the weather on|how many days since"),
    *_ways(
        "what's the date today|what day is tomorrow|how late is it|what year do we have|"
        "is {y} a holiday|is {y} a leap year|does {y} fall on a Monday|when is {y} this year|"
        "when does {y} start|how many days does {y} have|how old is {p}|when was {p} born|"
        "how many hours are between {y} and {y}|how many days lie between {y} and {y}|"
        "which is earlier, {y} or {y}|what comes first, {y} or {y}|when do the shops close|"
        "what time is it for {p}|is today {y}|how much time passed since {y}|"
        "how many minutes passed between the two|how long did that last"
    ),
]  # fmt: skip
_DID = "drive|sell|order|make|book|send|buy|read|miss|return|spend|earn|win|lose|pay for|get|lend"
AGGREGATES = [
    *combine("how many {u} _ {p} _ _", "did|does|will", _DID,
             "|altogether|in total|last week|in May|in {t}|in all|so far"),
    *combine("how many {u} _", "were there|in total|altogether|did we get|did we lose|came in|"
             "are left|passed|failed|were skipped|happened in {l}|are in {t}|are listed in {t}|"
             "do we have in {t}|did we have last year|were late|are missing|got through|"
             "came before {y}|did it take|arrived on {y}"),
    *combine("_ {u} _", "the total number of|total|average number of|sum of all|"
             "mean|median|what's the total of all|what's the average of the|count the|add up the|"
             "tally the|count all|can you count the|the percentage of late|how many more",
             "in {t}|in {l}|for {p}|in all of {t}|altogether|last month"),
    *combine("_ {u}", "who has the most|who had the fewest|who sold the most|"
             "which day had the most|"
             "which month has the highest number of|who made more|who is responsible for most|"
             "which {x} has the fewest|how much more {u} than|what's the ratio of {u} to"),
    *combine("who _ _, {p} or {p}", "drove|sold|spent|earned|worked|read|won|came|paid|scored|lost",
             "more|less|further|first|longer|the most|faster"),
    *combine("did {p} _ _ than {p}", _DID, "more|less|earlier|longer|more often"),
    *combine("_ per _", "the average number of {u}|what's the average {x}", "{x}|day|hour|week"),
    *combine("how long _", "did {s} take between the two|was {s} down altogether|between the first "
             "and the last line|did it run in all|did {x} take on average|did {s} stay up|"
             "passed between {w} and {w}|is it from {w} to {w}"),
    *combine("how many _ between _ and _", "minutes|hours|seconds|days|lines|entries",
             "{w}|start|the start|the first error|{w} down", "{w}|end|the end|the last|{w} up"),
]  # fmt: skip
CELLS = [
    *combine("_ did {p} _", "when|on what date|at what time|how much|where|why|with whom|"
             "on which day",
             "drive|pay|leave|start|order|arrive|buy it|work|sign|call|travel|move in|get hired"),
    *combine("_ {p} _ {t}", "what {x} does|which {x} has|what's the {x} that|how much {x} has|"
             "what {x} did", "have in|get in|according to|, see"),
    *combine("_ of {p} _", "what's the {x}|the {x}|what is the {x}|look up the {x}|give me the {x}",
             "in {t}|from {t}|, it's in {t}"),
    *_ways(
        "what did {p} buy in {t}|{p}'s {x} in {t}|in {t}, how much did {p} pay|"
        "in which row of {t} is {p} and what {x}|what is the price of {w} in {t}|"
        "which {x} is {p} in, {t}|how old is {p} according to {t}|what city is {p} from in {t}|"
        "how much does {w} cost in {t}|who has the {x} {n} in {t}|what {x} comes with {w} in {t}|"
        "the {x} column of {t}|show column {n} of {t}|only the {x} column from {t}|"
        "which rows of {t} have {x} over {n}|list everyone in {t}|give me all {x}s from {t}|"
        "{t} as a table|the second column of {t}|cell {n} of {t}|what's in cell B{n} of {t}"
    ),
]  # fmt: skip
JUDGES = [
    *combine("is {n} {q} _", "a lot|enough|too much|too little|normal|ok|good|bad|fast|expensive|"
             "more than {n} {q}|long|reasonable for {k}|what others use"),
    *combine("is _ _", "{k}|our {k}|the {k}|the {k} in {f}|{s}|our password|the backup|{f}|"
             "our setup|my config|the wifi", "safe enough|high enough|too strict|reasonable|"
             "good practice|strong enough|fast enough|secure|overkill|a mistake|outdated|legal|"
             "worth it|good enough|risky|standard|the best we can do|better than before"),
    *combine("_ _", "do you like|do you prefer|do you trust|what's your opinion on|would you buy|"
             "what do you think about|are you a fan of|do you think we need|is it ok to use|"
             "what's so bad about|how good is|would you recommend|should we keep|do we really need",
             "{f}|{m}|{s}|{w}|this {x}|a {c}|{k}"),
    *combine("which of _ is _", "{f} and {f}|the two|the two files|the two logs|these|those|"
             "the files in {d}|the {x} files|{s} and {s}|them", "longer|older|bigger|newer|better|"
             "cleaner|the oldest|the newest|the longest|right|more recent|safer|more important|"
             "the worst|shorter|the real one|out of date"),
    *combine("_ {f} _ {f}", "is|was|isn't", "longer than|older than|newer than|a copy of|"
             "better than|the same thing as|shorter than|based on|more recent than|bigger than"),
]  # fmt: skip
WORLD = [
    *combine("_ a {c} _", "what is|what's|explain what|what exactly is|in simple terms, what is|"
             "in simple words, what's|briefly, what is|remind me what|who invented|why do I need|"
             "how would you describe|when do I use|do you know what|teach me what|how do you make",
             "|really|in one sentence|for beginners|again"),
    *combine("_ {c} _", "how does a|why is a|what makes a|how do I set up a|how do I explain a|"
             "how big is a|where does the word", "work|useful|different from a {c}|to a child|"
             "in python|come from|in practice"),
    *combine("what is the difference between _ and _", "a {c}|{s}|a {w}", "a {c}|{s}|a {w}"),
    *combine("_ in {g}", "what is {w}|how do you say {w}|what does {w} mean|say hello|write {f}|"
             "I'd like {f}|can I have {f}|put {f}|give me {l}|what's the word for {w}|"
             "answer me|please translate {f} and say it|put the error in {l}|render {f}"),
    *combine("translate _ _ {g}", "{f}|the first line of {f}|{w}|this|the error in {l}|line {n}",
             "to|into"),
]  # fmt: skip
_TROUBLE = (
    "the {w}|the {w} error|the error in {l}|the warning in {l}|{s}|the failed {x}|the crash|"
    "the timeout|the {x} problem|the outage|that|this|the {w} in {l}|a full disk|the slow {x}"
)
ADVICE = combine(
    "_ _",
    "what should I do about|what can we do about|what would you do about|how do I get rid of|"
    "how can I avoid|how do we prevent|any tips for|what's the fix for|how to fix|how to solve|"
    "how would you fix|whom should I call about|do I have to worry about|how serious is|"
    "how do I debug|what's the best way around|how can I work around|is there a cure for|"
    "what's the usual reason for|why do people get|what does it mean that we have|"
    "who can help me with|how likely is|when will somebody fix|what is behind|how do others handle",
    _TROUBLE,
)
SENSES = [
    *combine("_ {f}", "give me the short version of|in one sentence, what's|what's the story with|"
             "what am I supposed to learn from|in short,|the key points of|your thoughts on|"
             "make sense of|bullet points for|an abstract of|shorten|what is the bottom line of|"
             "interpret|evaluate|assess|critique|what's the message of|what is the topic of|"
             "what does the script|what kind of person wrote|condense|recap|a headline for|"
             "read between the lines of|find the mistake in my reasoning in|what's missing in"),
    *combine("_ _", "why does {f} need|why is there|why do we have|what's the use of|"
             "why would I want|"
             "what's the reason for|what is the role of|how does {f} use|why did you pick|"
             "what's the thinking behind|what depends on|what would break without",
             "{w} in {f}|{k} in {f}|a {w}|{k}|the line with {w}|{k} = {n}|line {n} of {f}"),
    *combine("what does _ _", "the {f} file|{f}|the code in {f}|the script {f}|the rule for {w}|"
             "{k} in {f}|line {n} of {f}", "do|achieve|really do|change|mean for us|actually mean|"
             "do for {s}|protect us from|imply"),
]  # fmt: skip
FOREIGN = _ways(
    "was heißt {w} auf Deutsch|was bedeutet {k}|was ist {w}|wie viele Zeilen hat {f}|"
    "wie spät ist es|wie geht es dir|wo steht {w}|wo ist {p}|wer hat {f} geschrieben|wer ist {p}|"
    "warum läuft {s} nicht|kannst du {f} löschen|kannst du mir helfen|bitte öffne {f}|"
    "zeig mir {f}|welche Dateien gibt es hier|welcher Port ist in {f} eingestellt|"
    "in welcher Datei steht {w}|in welchem Ordner liegt {f}|in welcher Zeile steht {w}|"
    "auf welchem Stand ist {f}|sprichst du Deutsch|guten Tag, was steht in {f}|"
    "danke, und was ist mit {f}|qué hay en {f}|qué significa {w}|qué hora es|"
    "cuántas líneas tiene {f}|dónde está {w}|puedes abrir {f}|por qué no funciona {s}|"
    "hablas español|quién es {p}|qu'est-ce que {w}|que veut dire {w}|qu'y a-t-il dans {f}|"
    "combien de lignes dans {f}|où est {w}|quelle heure est-il|peux-tu ouvrir {f}|"
    "pourquoi {s} ne marche pas|parlez-vous français|che cosa c'è in {f}|che ora è|"
    "cosa significa {w}|dove si trova {w}|wat staat er in {f}|hoe laat is het|wat betekent {w}|"
    "waar staat {w}|co jest w {f}|która godzina|o que há em {f}|que horas são|これは何ですか|"
    "{f} には何がありますか|{w} とはどういう意味ですか|{f} 里有什么|现在几点|"
    "{w} 是什么意思|что в {f}|который час"
)
"""It reads English only."""
BEYOND_MADE = (
    ACTS, CODE, MATHS, DATES, AGGREGATES, CELLS, JUDGES, WORLD, ADVICE, SENSES, FOREIGN,
)  # fmt: skip
