"""Short follow-ups as people type them: a word or three, with what is new.

The long lists of `follow` and `asked.txt` hold the variety; without these, which outweigh them,
`and {f}` would be one way among hundreds. Each list is by the kind of its question in `talks`;
a way that could mean two kinds after the same answer stands in none.
"""

from __future__ import annotations

from . import phrasings, unseen
from .asked import asked, often
from .composed import combine
from .composed import ways as _ways

KEY = _ways(
    "and {k}|and the {k}|what about {k}|{k}|{k} too|and its {k}|what's the {k}|and what's {k}|"
    "and {k} there|how about the {k}|ok and {k}|what's {k} there|does it have {k}|what is the {k}|"
    "what {k} does it use|is there {k} in it|{k} in that file|also the {k}|and what about the {k}|"
    "same file, {k}|what's {k} in there|does it set {k}"
)
FILE = _ways(
    "and {f}|and in {f}|what about {f}|same for {f}|and for {f}|same in {f}|{f}|how about {f}|"
    "and {f} then|the same for {f}|no, {f}|sorry, {f}|I meant {f}|ok and {f}|now {f}|and of {f}|"
    "same question, {f}|do {f} too|{f} as well|no sorry {f}|oh I meant {f}|in {f} instead|"
    "and what about {f}|same thing for {f}|then {f}|how about in {f}|what about in {f}|"
    "no no, {f}|not that one, {f}|same again for {f}|does {f} have that too|and {f}, same thing|"
    "repeat that for {f}|try {f}|ok now {f}|oops, {f}|thanks, and {f}"
)
LINE = _ways(
    "and line {n}|line {n}|and {n}|what about line {n}|and line {n} of that file|line {n} there|"
    "line {n} of it|now line {n}|and on line {n}|how about line {n}|ok line {n}|line {n} too"
)
AFTER = _ways(
    "and the next line|the next line|next line|and the line after|and after that|the one after|"
    "and the one below|what comes after it|the line below|what happened next|and what came next|"
    "what happened after that|the line after that one|what was logged next|the next one|next|"
    "and the next one|next one|the next"
)
ERROR = _ways(
    "any errors in it|any errors there|any errors|did anything fail|what went wrong there|"
    "any error in that file|what failed|is it clean|and the error|errors there|"
    "does it show an error|anything wrong there|any trouble in it|anything failing in that one"
)
WHICH_LINE = _ways(
    "which line|on which line|what line|which line is that|which line was that|line number|"
    "and which line|and on which line|which line was it on|where exactly|on what line|"
    "what's the line number|whereabouts in it|where in it exactly|what line is it on"
)
WHOLE = _ways(
    "when|when was that|and when|when did that happen|at what time|what time|the full line|"
    "the whole line|show me the line|the line please|timestamp|quote the line|what's the timestamp|"
    "which host|and the time|when was this|at what time did this happen|when exactly|"
    "what time did this happen|on which day was this|when did this occur|the complete line|"
    "the entire line please|can I have the complete line|when was this logged|the line itself"
)
MORE = [
    *_ways(
        "what else|anything else|any others|any more|more|and the next one|the next error|"
        "next error|and the next error|the next one|any other errors|and then another|another one|"
        "any more errors|what's the next one|what other errors|anything more|is that all|"
        "is that the only one|are there others|what else is wrong|what else failed|others|"
        "next one in there|and what else|any other error there|what's the next error there|"
        "and the other ones|show me the next error"
    ),
    *combine("_ the second _", "and|what's|show me|give me|what about|ok,", "one|error"),
]
THIRD = [
    *_ways("and the third|the third one|and a third|third error|and number three|the third|3rd"),
    *combine("_ the third _", "and|what's|show me|give me|what about|ok,", "one|error"),
    *combine("is there a third _", "one|error|failure"),
]
THIRD = often(asked("THIRD"), THIRD, ())
"""After the second error, or where that was the last."""
WORD = _ways(
    "and {w}|what about {w}|same for {w}|and for {w}|how about {w}|ok and {w}|now {w}|{w} too|"
    "and {w} then|the same for {w}|also {w}|same with {w}|what about {w} then|{w}"
)
BEYOND = _ways(
    "why|why is that|how come|why though|but why|how do I fix it|how do I fix that|explain|"
    "what does that mean|should I change it|is that bad|is that ok|is that too high|what now|"
    "explain it|why did that happen|what should I do|can you fix it|is that normal|how many|"
    "how many in all|summarize it|change it to {n}|why {n}|what caused it|is it serious|"
    "and why is that|can you change that|set that to {n}|who did that|is {n} better|what's it for"
)
FOLDER = _ways("and {d}|and in {d}|what about {d}|and {d}/|what's in {d}|{d}|how about {d}|now {d}")

PART = [
    *combine("_ {p}", "and in|and for|in|and on|same in|what about in|what is it in|and over on"),
    *combine("_ {p} _", "and the|the|what about the|and in the|same for the|how about the|"
             "in the|ok, the|no, the|I meant the|now the", "one|file"),
    *_ways("n {p}|nah {p}|nah the {p} one|the {p}'s|{p}'s|no, {p}'s|and {p}'s|on {p} too|{p} too|"
           "what about on {p}|over in {p}|k and {p}|the same in {p} please|not here, in {p}|"
           "the one for {p}|and the one for {p}|I wanted {p}|{p} instead|as for {p}"),
]  # fmt: skip
PART = often(asked("PART"), PART, ())
"""The same of a file that is named by a part of its name."""
PART_LOG = [
    *combine("_ {p}", "and|what about|same for|how about|and for|ok and|and the|what about the"),
    *combine("_ {p} _", "and the|the|what about the|same for the|how about the|and in the|now the|"
             "check the|no, the", "log|one|logs"),
]  # fmt: skip
PART_LOG = often(asked("PART_LOG"), PART_LOG, ())
TWIN = [
    *combine("_ the one _ {d}", "and|no,|what about|I meant|sorry, I meant|how about|now|same for|"
             "and in|I actually meant|not that one,|ok and|also|check|nah,", "in|from|under"),
    *combine("_ the {d} _", "and|no,|what about|I meant|same for|how about|now", "one|copy"),
    *_ways("the one in {d}|the copy in {d}|and the copy in {d}|in the {d} folder I mean|"
           "I was asking about the one in the {d} folder|the one in the {d} folder, please|"
           "and its twin in {d}|what does the copy in {d} say|there is one in {d} too, and there|"
           "now the file of the same name in {d}|and the same file in {d}|the {d} one's"),
]  # fmt: skip
TWIN = often(asked("TWIN"), TWIN, ())
"""The same of the file of that name in another folder."""
SAYS_PART = [
    *PART,
    *combine("_ the {p} _ _", "what does|and what does|now what does", "one|file",
             "say|say about it|have on it|say of that"),
    *_ways("the {p} one, what's it say|the {p} one, which line|where in the {p} one|"
           "on which line of the {p} file|and where in the {p} one|the {p} one, where"),
]  # fmt: skip
"""What one of the files says that mention a word."""
A_PART = _ways("the {p} one|the {p} file|the {p} one|the {p} file|{p}'s file")
A_PART_LOG = _ways("the {p} log|the {p} log|the {p} one|the {p} log file|{p}'s log")
"""How a file is called by a part of its name inside a question."""
OTHER_LOG = combine(
    "_ the other _",
    "and|what about|and in|same for|now|ok,|how about|check|and what does|",
    "log|log file",
)
OTHER_LOG = [way.strip() + " say" * ("what does" in way) for way in OTHER_LOG]
OTHER_LOG = often(asked("OTHER_LOG"), OTHER_LOG, ())
"""After the error of one of two logs."""
WORD_IN_IT = [
    *_ways(
        "does it mention {w}|is {w} mentioned in it|is {w} mentioned there|does {w} occur in it|"
        "any mention of {w} there|does it say anything about {w}|where does it mention {w}|"
        "on which line is {w}|which line has {w}|which lines mention {w}|find {w} in it|"
        "search it for {w}|grep it for {w}|look for {w} in it|is there a line with {w}|"
        "does that file mention {w}|is {w} in that file|where is {w} in it|"
        "search that file for {w}|"
        "does the word {w} appear in it|any line with {w}|and does it mention {w}|"
        "in that file, where is {w}|see if it mentions {w}|can you find {w} in there"
    ),
    *combine("_ it _ {w}", "does|and does|so does", "mention|contain|say|talk about"),
]
WORD_IN_IT = often(asked("WORD_IN_IT"), WORD_IN_IT, ())
"""A word in the file that was spoken of."""
ANYWHERE = _ways(
    "is it in any other file|which other files have it|does any other file have it|anywhere else|"
    "is that anywhere else|where else is it|which files mention it|in which other files is it|"
    "does another file mention it|any other file with it|is it used anywhere else|"
    "where else does it appear|search everywhere for it|look for it in all files|"
    "which other file mentions it|does it occur in other files|and in all the files|"
    "is it somewhere else too|what other files have that|find it everywhere|in other files too"
)
ANYWHERE = often(asked("ANYWHERE"), ANYWHERE, ())
"""What was spoken of, in all files."""
BACK = _ways(
    "back to {f}|back in {f}|going back to {f}|in {f} again|{f} again|once more {f}|"
    "ok back to {f}|again in {f}|now back to {f}|returning to {f}|and back to {f}|for {f} again"
)
BACK = often(asked("BACK"), BACK, ())
BACK_KEY = _ways("what's {k}|what is the {k}|which {k} does it set|and {k}|the {k}|what was {k}")
BACK_KEY = often(asked("BACK_KEY"), BACK_KEY, ())
BACK_ERROR = _ways(
    "what was the error|what's the error|which error was it|what failed there|what went wrong"
)
BACK_ERROR = often(asked("BACK_ERROR"), BACK_ERROR, ())
BACK_LINE = _ways("line {n}|what's on line {n}|show me line {n}|read line {n}")
BACK_LINE = often(asked("BACK_LINE"), BACK_LINE, ())

AND_KEY = often(phrasings.AND_KEY, KEY, unseen.AND_KEY)
# `what does {f} say` opens a file, whatever was asked before.
AND_FILE = often(phrasings.AND_FILE, FILE, unseen.AND_FILE)
AND_FILE = [way for way in AND_FILE if way not in phrasings.OPEN and "next one" not in way]
AND_WHERE = [way for way in phrasings.AND_WHERE if way not in phrasings.OPEN]
AND_LINE = often(phrasings.AND_LINE, LINE, unseen.AND_LINE)
AND_AFTER = often(phrasings.AND_AFTER, AFTER, unseen.AND_AFTER)
ITS_ERROR = often(phrasings.ITS_ERROR, ERROR, unseen.ITS_ERROR)
AND_LINE_OF = often(phrasings.WHICH_LINE, WHICH_LINE, unseen.WHICH_LINE)
AND_WHOLE = often(phrasings.WHOLE, WHOLE, unseen.WHOLE)
AND_MORE = often(phrasings.MORE, MORE, unseen.MORE)
AND_WORD = often(phrasings.AND_WORD, WORD, unseen.AND_WORD)
GO_BEYOND = often(phrasings.GO_BEYOND, BEYOND, unseen.GO_BEYOND)
_NAMES = set(PART)
KEY_OR_PART = [way for way in AND_KEY if way.replace("{k}", "{p}") in _NAMES]
"""Said of a setting by one word, or of a file by a part of its name: a call says which."""
A_KEY = [way for way in AND_KEY if way.replace("{k}", "{p}") not in _NAMES]
_ASKS = {way.replace("{k}", "{p}") for way in AND_KEY}
PART_NOT_KEY = [way for way in PART if way not in _ASKS]
_WORDS = {way.replace("{w}", "{p}") for way in AND_WORD}
PART_NOT_WORD = [way for way in PART if way not in _WORDS]
AND_FOLDER = often(phrasings.AND_FOLDER, FOLDER, unseen.AND_FOLDER)
