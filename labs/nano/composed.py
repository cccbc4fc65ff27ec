"""Questions composed from parts: a few dozen words make a few thousand phrasings.

Hand-written phrasings alone taught the model phrasings; it took an unknown verb for a file name.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product


def ways(text: str) -> list[str]:
    """Split `text` into its alternatives at `|`."""
    return text.split("|")


def combine(pattern: str, *parts: str) -> list[str]:
    """Fill the `_`s of `pattern` with every combination of the parts' alternatives."""
    pieces = pattern.split("_")
    out: list[str] = []
    for choice in product(*(ways(part) for part in parts)):
        text = pieces[0] + "".join(c + p for c, p in zip(choice, pieces[1:], strict=True))
        out.append(" ".join(text.split()).replace(" 's", "'s").replace(" ,", ","))
    return out


def mixed(written: list[str], composed: Iterable[str], held_out: Iterable[str]) -> list[str]:
    """Mix both, the written ones repeated to equal weight, without held-out ones."""
    kept = list(dict.fromkeys(composed).keys() - set(held_out))
    return written * max(1, len(kept) // len(written)) + sorted(kept)


IS = " is|'s"
SHOW = (
    "find|show|show me|give me|tell me|get|get me|report|read me|print|quote|locate|extract|fetch|"
    "look up|I need|I want|I want to know|I would like to see|let me know|display|please send me"
)
LOOK = "look at|look in|open|read|check|go through|inspect|scan|have a look at|go to|take|examine"
TELL = "tell me|show me|find|say|report|give me|let me know"
FAULT = "error|error message|problem|failure|issue|exception|crash|fault|bug|trouble"
FILE_IN = "in|from|of|within|reported in|logged in|recorded in|mentioned in|shown in"

ERROR = [
    *combine("what_ the _ _ {f}", IS, FAULT, FILE_IN),
    *combine("_ the _ _ {f}", SHOW, FAULT, "in|from|of|inside of"),
    *combine("_ _ _ {f} _", "what|which", "error|problem|failure|exception", "does|did",
             "show|contain|report|have|record|list|give|mention|print|hit|run into|end with"),
    *combine("_ {f} and _ _", LOOK, TELL,
             "the error|what went wrong|what failed|what the error is|what the problem is|"
             "the exception|the failure|what broke"),
    *combine("_ {f} for _", "check|scan|search through|look through|inspect",
             "errors|an error|problems|failures|the error|exceptions|crashes"),
    *combine("what _ in {f}", "failed|broke|crashed|happened|went wrong|caused the failure|"
             "is broken|goes wrong|was the error|was the problem|did not work"),
    *combine("did _ _ in {f}", "anything|something", "fail|break|crash|go wrong|stop working"),
    *combine("_ any _ in {f}", "are there|do you see|is there|can you find",
             "errors|error|problems|exceptions|failures"),
    *combine("why did _ fail? _ {f}", "it|the job|the run|the build|the service|the test",
             "See|Look at|Check|Read|It is in"),
    *combine("{f}: _", "what is the error|what went wrong|any errors|what failed|which error|"
             "error"),
    *combine("in {f}, _", "what is the error|what went wrong|which error is there|what failed"),
    *combine("_ _, _ {f}", "the {x}|my {x}|our {x}|the build|the service|the job|it|the server",
             "failed|crashed|is down|stopped|does not start|died|hangs|is broken|keeps failing",
             "see|the log is in|here is the log:|this is the log:|look at|the output is in|"
             "what does it say in|details are in"),
    *combine("_ {f} _", "analyse|investigate|troubleshoot|triage|examine|inspect",
             "|for errors|for the error|and explain what failed|to see why it failed|please"),
    *combine("what _ _ in {f}", "is|was", "breaking|failing|crashing|causing the failure|the cause|"
             "causing the error|the matter|the reason|the bug|the reason for the crash"),
    *combine("_ _ in {f}", "was there|were there|did you see|do we have|have we got|is there",
             "a failure|failures|an exception|anything wrong|something wrong|a problem|a crash"),
    *combine("{x} {f} _", "for me|please|for problems|and tell me the error|to find the error"),
    *combine("the {x} _, the _ is {f}", "failed|crashed|died|broke|stopped", "file|report|output"),
]  # fmt: skip
KEY = [
    *combine("what_ _ {k} _ {f}", IS, "|the|the value of|the setting|the value for|the setting of",
             "in|from|inside of|within"),
    *combine("what_ the {k} _ in {f}", IS, "setting|value|option|entry|parameter"),
    *combine("_ _ {k} _ {f}", SHOW, "|the|the value of|the setting|the value for", "in|from|of"),
    *combine("_ {f} and _ _ {k}", LOOK, TELL, "|the|the value of|the setting"),
    *combine("_ _ does {k} have in {f}", "what|which", "value|setting|content"),
    *combine("what does {k} _ in {f}", "equal|say|hold|have|contain|stand for|look like"),
    *combine("what does {f} _ {k}", "say about|have for|give for|set for|contain for|list for|"
             "use for|use as|use as the|define as|hold for"),
    *combine("_ {k} does {f} _", "what|which", "set|use|have|define|give|contain|name|want"),
    *combine("_ is {k} _ in {f}", "what|how|which way|how high|how big|how long",
             "set|set to|defined|configured|given|"),
    *combine("in {f}, _ {k}", "what is|what's|what is the|what's the|give me|how is|find|show me"),
    *combine("{f}: _ {k}", "what is|what's|give me|find|show|the value of|"),
    *combine("_ _ {k} _ {f}", "can you|could you|would you please|please", "tell me|show me|find|"
             "get|read|look up|check|give me|extract|print", "in|from|of"),
    *combine("{k} _ {f}, _", "in|of|inside", "please|what's that|tell me|how much|which one"),
    *combine("what {k} _ in {f}", "is set|is given|do I have|did you find|are we running with|"
             "was chosen|will be used|is active|do you see|is there|applies"),
    *combine("how _ is {k} in {f}", "high|large|long|big|many|low|short|often|far|wide"),
    *combine("is {k} _ in {f}", "defined|given|present|configured|enabled|on|there|listed"),
    *combine("what _ for {k} in {f}", "did I use|do I have|should I use|did we choose|did they set|"
             "has been set|do you find|is there|is written|stands"),
    *combine("_ {f}, what is {k}", "judging by|according to|as per|based on|looking at|given"),
    *combine("what is {k} _ {f}", "judging by|as per|based on|as stated in|as given in|going from"),
    *combine("_ {x} {k} _ {f}", "could you|can you|please|", "from|in|of|out of"),
    *combine("{k} _ {f}, _", "of|in", "what's the value|what is the value|what does it say"),
]  # fmt: skip
LINE_OF = "of|in|from"
LINE = [
    *combine("what _ _ line _ _ {f}", "is|stands|is written|can I find|appears|do I find|comes|"
             "is there|do you see|is said|can be found", "on|in|at", "{n}|number {n}|no. {n}",
             "of|in"),
    *combine("what does line {n} _ {f} _", LINE_OF, "say|contain|hold|read|look like|have|show"),
    *combine("_ _line {n} _ {f}", SHOW, "|the text of |the content of |what is on |what stands on ",
             LINE_OF),
    *combine("_ {f} and _ line {n}", LOOK, TELL + "|read me|quote|print"),
    *combine("_ line {n} _ {f}", "read|see|go to|jump to|look at|what about|open|repeat|check",
             LINE_OF),
    *combine("_ _ line {n} _ {f}", "can you|could you|would you please|please", "show me|read|get|"
             "tell me|print|give me|find|open|display", LINE_OF),
    *combine("line {n} _ {f}, _", LINE_OF, "please|show it|what is it|read it to me|what's there"),
    *combine("I am _ line {n} of {f}, _", "on|looking at|stuck at|interested in",
             "what is it|what does it say|show it to me|read it"),
]  # fmt: skip
FOLDER = "{d}|the folder {d}|the {d} folder|{d}/|the directory {d}|folder {d}"
HERE = "here|in here|in this folder|in this directory|in the folder|in the current folder|there"
LIE = (
    "is|'s|do I have|lies|is stored|can I find|exists|is kept|do you find|do you see|is there|"
    "can I see|is saved|can I read"
)
ARE = (
    "are|are there|exist|do you see|can I find|lie|are stored|do I have|do you find|are kept|live|"
    "can I read|can you see|are saved|belong"
)
LIST = [
    *combine("what _ in _", LIE, FOLDER),
    *combine("_ _ _ in _", "what|which", "files|documents|file names|entries", ARE, FOLDER),
    *combine("_ _ _ _", SHOW + "|list|list me|enumerate", "the files|the contents|all files|"
             "what is|what there is|the file names|everything|the entries", "in|inside of", FOLDER),
    *combine("_ _ _", "list|ls|dir|show|show me|open|look in|look into|what about", "|"
             "the content of",
             FOLDER),
    *combine("_ _ does _ _", "what|which", "|files|documents|entries", FOLDER,
             "have|hold|contain|include|store|keep|list"),
    *combine("what_ _ in _", IS, "hiding|lying|living|kept|left|waiting|contained|lying around|"
             "to be found|new|there", FOLDER),
    *combine("what did _ _ in _", "you|we|I|he|someone|the {x}", "find|store|save|leave|keep|write|"
             "drop|see", FOLDER),
    *combine("_ _ in _", "is there|are there|do you see|do we have", "something|any file|any files|"
             "files|stuff|anything interesting", FOLDER),
    *combine("_ what _ _", "tell me|show me|say|see", FOLDER, "holds|contains|includes|stores"),
    *combine("_ _", "give me a list of|I want a list of|a list of|make a list of|explore|tree|"
             "go into|walk through|go to|an index of|print the files of|what's new in", FOLDER),
    *combine("_ _", FOLDER, "contents|listing|files|content"),
    *combine("_ _", "view|examine|inspect|look through|peek into|see|display|check|scan", FOLDER),
    *combine("I _ _ of _", "want|need|would love", "a list|the list|an overview|a table", FOLDER),
]  # fmt: skip
LIST_HERE = [
    *combine("what _ _", LIE, HERE),
    *combine("_ _ _ _", "what|which", "files|documents|file names|entries", ARE, HERE),
    *combine("_ _ _", SHOW + "|list|list me|enumerate", "the files|the contents|all files|"
             "what is|what there is|the file names|everything|the entries", HERE),
    *combine("_ _ does this folder _", "what|which", "|files|documents|entries",
             "have|contain|include|store|keep|list"),
    *combine("_ _", "explore|tree|walk through|give me a list of|I want a list of|an index of|"
             "make a list of|print the files of|a listing of|the contents of|the files of",
             "this folder|this directory|the current folder|the folder"),
    *combine("what_ _ _", IS, "stored|kept|lying|hiding|new|left|waiting|to be found|lying around",
             HERE),
    *combine("what did _ _ _", "you|we|I|someone|the {x}", "find|store|save|leave|keep|write|see",
             HERE),
    *combine("_ _ _", "is there|are there|do you see|do we have", "something|any file|any files|"
             "files|stuff|anything interesting", HERE),
]  # fmt: skip
ANY_FILE = "file|one|of the files|document|of these files"
NAMING = (
    "mentions|contains|has|includes|holds|says|talks about|uses|refers to|names|lists|shows|"
    "is about|references|has the word|mentions the word|contains the word|contains the text|"
    "says something about|has a line with|writes about|knows|reports|tells about|deals with|"
    "{x}s|{x}s|{x}s about|{x}s of|{x}s with|speaks of"
)
NAME = (
    "mention|contain|have|include|hold|say|talk about|use|refer to|name|list|show|are about|"
    "reference|have the word|contain the word|have a line with|know|report|tell about|{x}|{x} of|"
    "{x} about"
)
AT_END = "||anywhere|somewhere|inside|inside them|in their text|in it|in the text"
SEARCH = [
    *combine("_ _ _ {w}", "which|what|tell me which|find out which", ANY_FILE, NAMING),
    *combine("_ {w}", "|".join(combine("_ _", "find the file that|is there a file that|"
             "show me the file that|find a file that", NAMING))),
    *combine("_ files _ {w} _", "which|what|do any|do some|tell me which|list all", NAME, AT_END),
    *combine("_ {w} _", "where is|where's|where do I find|where can I see|who has|where do you see|"
             "is|do you see|can you find|where was|where did you see", "|mentioned|used|written|"
             "named"),
    *combine("_ {w} _", "find|search for|look for|search|grep|grep for|locate|look up|seek",
             "|in the files|in all files|in this folder|everywhere|here"),
    *combine("_ {w} _ _", "where does|does|where did", "appear|occur|show up|stand|come up|turn up",
             "|anywhere|here"),
    *combine("in _ _ {w}", "which file|which files|what file|which of the files",
             "is|do I find|can I find|do you see|appears|occurs|stands"),
    *combine("_ {w} _", "spot|discover|detect|look out for|dig up|trace|check for|query|find me|"
             "list mentions of|show mentions of|find mentions of|mentions of|occurrences of|"
             "references to|uses of|all mentions of|every use of|try to find|find out about",
             "|in the files|here"),
    *combine("_ _ {w} _", "can you|could you|would you please|please|try to", "find|locate|spot|"
             "see|search for|look for|{x}|search|grep for", "|anywhere|in the files|for me"),
    *combine("_ _ {w} _", "is anyone|are we|is some file|is a file", "using|mentioning|naming|"
             "referencing|reading|calling|{x}ing", "|anywhere|here"),
    *combine("_ {w}, _", "I need|I want|I miss|I remember|I saw|there was|I wrote|someone wrote",
             "where is it|which file is that|in which file|where was it|where can I see it"),
    *combine("_ _ {w}", "what|who", "says|talks about|names|knows about|deals with|wrote about|"
             "contains|is about|has|refers to|speaks of|tells about|{x}s"),
    *combine("{x} _ {w}", "for|up|down|to|out|me"),
    *combine("_ {x} _ {w}", "any|some|the|a", "of|for|to|about|with"),
    *combine("_ {x} {w} _", "can you|could you|please", "down|up|for me|out"),
]  # fmt: skip
IN_FOLDER = "{d}|the folder {d}|the {d} folder|the directory {d}|{d}/"
SEARCH_IN = [
    *combine("_ _ in _ _ {w}", "which|what", "file|files", IN_FOLDER,
             "mentions|mention|contains|contain|has|have|uses|use|says|holds|{x}s|{x}s about"),
    *combine("_ {w} _ _", "find|search for|look for|grep for|where is|locate|do you see|is",
             "in|under|inside|within", IN_FOLDER),
    *combine("_ _ for {w}", "search|scan|check|grep|go through|search through|{x}", IN_FOLDER),
    *combine("where _ _ _ {w} _", "in|under|inside", IN_FOLDER, "is|do we use|do I find|does",
             "|mentioned|used|appear|occur|stand"),
    *combine("does _ _ _ {w}", "anything in|any file in|some file in|a file under", IN_FOLDER,
             "mention|contain|have|use|{x}"),
]  # fmt: skip
FIND_ONE = [
    *combine("which _ _ {w}", "file|log|log file", NAMING),
    *combine("_ the _ that _ {w}", "find|look for|search for", "file|log", NAMING),
    *combine("_ {w}", "find|search for|look for|where is|grep for|locate|look up"),
    *combine(
        "_ {w} _",
        "where is|where's|where does|in which file is|in which log does",
        "mentioned|appear|occur|show up|used",
    ),
    *combine("{x} _ {w}", "for|up|down|out|the file with|the log with"),
    *combine("{x} _ _ that _ {w}", "the", "file|log", NAMING),
]
ITS = (
    "its error|the error in it|the error there|the error in that file|that file's error|"
    "the error of that file|its problem|the failure in it|the problem in it"
)
THEN = [
    *combine("_ what_ _", ", and| and|, and then| -", IS, ITS),
    *combine("_ _ _", ", and| and|, then| and then", TELL, ITS),
    *combine("_ what _", ", and| and", "went wrong there|went wrong in it|failed there|"
             "failed in it|"
             "does its error say|error does it have|error is in it|error does it show"),
    *combine("_ _ what went wrong _", ", and| and|, then", TELL, "|there|in it|in that file"),
]  # fmt: skip
THEN = [then if then.startswith(",") else " " + then for then in THEN]
THE_FILE = [
    *combine("the _ that _ {w}", "file|log|log file", NAMING),
    *combine("the _ _ {w}", "file|log|log file|document", "with|which mentions|which has|"
             "containing|"
             "mentioning|about"),
    *combine("the _ where {w} _", "file|log", "is mentioned|appears|occurs|stands|shows up"),
    *combine("_ _ that _ {w}", "a|that|whatever|some|any|the one", "file|log", NAMING),
    *combine("_ _ with {w} _", "the|whatever|that|some|any", "file|log|text", "|in it|inside"),
]  # fmt: skip
_OF_ONE = [way for way in ERROR if "{f} " not in way and not way.startswith(("{f}", "why", "in "))]
BOTH = [
    *(find + then for find in FIND_ONE for then in THEN),
    *(way.replace("{f}", which) for way in _OF_ONE for which in THE_FILE),
][::31]
"""One of 31: a quarter of a million would say nothing more."""

THING = "the {x}|it|my {x}|our {x}|the server|the build|the test run|the last job|the program"
ANY_ERROR = [
    *combine("what _ _", "is|was|has been", "causing it|causing the crash|breaking|failing|"
             "going wrong|the failure|the cause|the reason|broken|the issue|crashing|the bug"),
    *combine("why _ _ _", "did|does", THING, "fail|crash|stop|break|not work|not start|exit|die"),
    *combine("why is _ _", THING, "down|failing|broken|not starting|stuck|not working|crashing"),
    *combine("what _ _", "broke|stopped|crashed|happened to|is wrong with|went wrong with|"
             "is the problem with|is the matter with|failed in|made an error in", THING),
    *combine("_ _, _", THING, "failed|crashed|is down|stopped|does not start|died|hangs|is broken|"
             "keeps failing|does not work", "why|what happened|what is it|what was it|help"),
    *combine("_ the _", SHOW + "|search for|look for|search", "error|errors|problem|failure"),
    *combine("_ _ _", "is there|are there|do you see|do we have|did we have|was there",
             "an error|errors|a problem|problems|failures|anything wrong|something wrong",
             "|somewhere|in the files|in the logs|in this folder"),
    *combine("why _ _ _", "won't|can't|doesn't|didn't", THING, "work|run|respond|answer|compile|"
             "boot|come up|connect|load|finish"),
    *combine("what _ _", "hurt|hit|took down|brought down|ruined|knocked out|blocks", THING),
]  # fmt: skip
ANY_KEY = [
    *combine("what_ _ {k} _", IS, "|the|our|my|the current|the actual|the default|the value of|"
             "the setting of", "|right now|at the moment|set to|on this machine|in production"),
    *combine("_ {k} _", "what|which", "do we have|is active|is in use|do I use|was chosen|"
             "is set right now|will be used|does the config have|does the configuration give|"
             "does {x} use|does our {x} have|did they set|is it"),
    *combine("how _ is the {k}", "high|large|long|big|low|short|often"),
    *combine("_ the _ {k}", "find|look up|tell me|show me|get|check", "|value of|setting|current"),
    *combine("what _ {k}", "did we choose for|do we have for|is configured for|is set for|"
             "stands for|is the config value of|is the current value of"),
]  # fmt: skip
OTHER = [
    *combine("what_ the _ of {w}", IS, "capital|president|history|population|"
             "best {x}|father|author|inventor|purpose|future|national dish|flag|queen|meaning"),
    *combine("what_ {n} _ {n}", IS, "plus|times|divided by|+|*|-|/|to the power of|modulo|less"),
    *combine("how _ I _", "do|can|should", "cook {w}|learn to {x}|get to {w}|make {w}|win at {w}|"
             "write a {w}|fix my {w}|build a {w}|lose weight|sleep better|speak {w}"),
    *combine("_ _ about {w}", "write|tell me|sing|make up|give me|invent", "a story|a poem|a joke|"
             "an essay|a song|some facts|a letter"),
    *combine("who _ the _ of {w}", "is|was|will be", "president|inventor|author|best {x}|queen|"
             "first {x}|founder"),
    *combine("_ {w}", "should I buy|do you know how to|do you believe in|have you ever seen|"
             "can you speak|let's talk about|teach me|translate|explain|what do you like about"),
    *combine("_ a _ for my {w}", "find me|write|suggest|buy me", "name|present|title|hotel|plan"),
]  # fmt: skip
GREETING = combine("_ _", "hi|hello|hey|good morning|good evening|greetings", "again|nano|there|"
                   "my friend|everyone|dear model|buddy|from {x}|, it's me|, nice to meet you|"
                   ", long time no see|, I'm back")  # fmt: skip
THANKS = combine("_ _", "thanks|thank you|great|perfect|nice|super|wonderful|ok", ", that helped|"
                 ", that's it|, that was it|, you're the best|, exactly what I wanted|, works|"
                 ", very helpful|, good to know|, I see|, all clear")  # fmt: skip
BYE = combine("_ _", "bye|goodbye|ok, bye|see you|good night", ", have fun|, until later|"
              ", thanks for everything|, I'm off|, take care|, all the best|soon")  # fmt: skip

# A trouble told as people tell it, in words that no list of errors has; where it stands is said
# before or behind it.
_STATE = (
    "has stopped|gave up|is stuck|vanished|disappeared|went away|was put off|was skipped|"
    "got dropped|got killed|was restarted|turned red|is red|went red|choked|blew up|fell over|"
    "fell down|tipped over|quit|quit early|bailed out|bombed|died|is dead|won't finish|never ran|"
    "never came back|didn't run|didn't finish|didn't go through|doesn't go through|"
    "doesn't answer|doesn't respond|doesn't load|doesn't print|doesn't save|couldn't save|"
    "couldn't write|can't connect|can't log in|won't build|won't start|won't install|won't link|"
    "loses data|lost data|is slow|is flaky|acts up|is acting up|"
    "misbehaves|did something bad|did something weird|ran into trouble|threw something|"
    "is unhappy|complains|keeps complaining|moans|stopped moving|stopped sending|stopped working|"
    "returns 500|gives 502s|answers with 503|is offline|is out|exits with 1|exited with 137"
)
_OF = "{s}|the {x}|the {x} {x}|our {x} {x}|my {x}|a {x}"
_TIME = (
    "tonight|last night|this morning|at noon|at 3:20|at 14:05|around 2am|around 11 pm|on monday|"
    "on friday|yesterday|just now|again|since 9:30|an hour ago|after lunch|overnight|at half past 6"
)
_SEE = (
    ", see|. see|. have a look at|, have a look in|. please check|, check|; the log:|, log is|"
    ". what's in|, what's in|. what does it say in|, what do you find in| -|:|, it's in|. look in|"
    ", take a look at|. anything in|, any hint in|? see|. read"
)
_LOOK = "please check|check|look at|have a look at|can you look into|see|go through"
_WHY = (
    "why|any idea why|what happened|how come|what's the error|what went wrong|do the logs say why"
)
_TROUBLE = [
    *combine("_ __ {f}", _OF, _STATE, _SEE)[::11],
    *combine("_ _ __ {f}", _OF, _STATE, _TIME, _SEE)[::211],
    *combine("_ {f}, _ _", _LOOK, _OF, _STATE)[::7],
    *combine("_ {f}, _ _ _", _LOOK, _OF, _STATE, _TIME)[::131],
    *combine("{f}_ _ _", " -|,|:|, it seems", _OF, _STATE)[::7],
    *combine("why _ _ _? {f}", "did|was", _OF, "stop|stopped|put off|skipped|dropped|killed|quit|"
             "vanish|disappear|die|end|restart|restarted|rejected|delayed|give up|not run|late|"
             "not finish|go offline|turn red|bail out|lose data|hang")[::3],
    *combine("what _ _ _ {f}", "made|had|got", _OF, "quit, see|stop? see|die in|quit in|stuck in|"
             "vanish in|stop in|hang in|bail out in|give up, according to|fall over in|killed in"),
    *combine("what _ in {f}", "blew up|bombed|died|got killed|was killed|fell over|turned red|"
             "threw|is red|went bang|choked|gave up|quit|stopped|went down|misbehaved|got stuck|"
             "the compiler moans about|the tests trip over|the linker says|is making trouble|"
             "are the tests complaining about|is the build complaining about|got rejected"),
]  # fmt: skip
ERROR += sorted(set(_TROUBLE))
ANY_ERROR += [
    *combine("_ _, _", _OF, _STATE, _WHY)[::11],
    *combine("_ _ _, _", _OF, _STATE, _TIME, _WHY)[::211],
]
