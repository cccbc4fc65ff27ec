"""Phrasings that training never sees, the only ones in evaluation.

Written as people type, by other patterns than `phrasings` and `composed`; where a composed one
happens to be the same, training leaves it out.
"""

from __future__ import annotations

from .composed import ways as _ways

ERROR = _ways(
    "can you spot the error in {f}|what is {f} complaining about|what blew up in {f}|"
    "pull the error out of {f}|the nightly job died, what does {f} say about it|"
    "I think something failed, could you check {f}|which exception ended up in {f}|"
    "what's the root cause in {f}|were there errors in {f}|what went south in {f}|"
    "help me understand the failure in {f}|my deploy just crashed, the log is {f}|"
    "what made it crash according to {f}|debug {f} for me|does {f} show any failure|"
    "what is the first thing that fails in {f}|what's up with {f}|"
    "our users see failures, is it in {f}"
)
KEY = _ways(
    "what did we set {k} to in {f}|what's {k} currently in {f}|how much is {k} in {f}|"
    "is {k} set in {f}|what am I using for {k} in {f}|do you know the {k} from {f}|"
    "could you pull {k} out of {f}|what {k} is configured in {f}|remind me what {k} is in {f}|"
    "what would {k} be, going by {f}|grab {k} from {f}|which {k} did they pick in {f}|"
    "please check what {k} says in {f}|what's in {f} for {k}|{k} from {f}, what is it"
)
LINE = _ways(
    "line {n}, file {f}, what is there|let me see what line {n} of {f} says|"
    "could you quote line {n} from {f}|line {n} in {f}, what does it say|"
    "what have we got on line {n} of {f}|I'm at line {n} of {f}, what's there|"
    "please print line {n} out of {f}|what's that on line {n} of {f}|"
    "can you pull up line {n} of {f}|which words are on line {n} of {f}|"
    "the compiler points at line {n} of {f}, what is there"
)
LIST_HERE = _ways(
    "what's around here|what have we got here|what am I looking at in this folder|run ls|"
    "could I get a listing|what do I have to work with here|which files did you find|"
    "give me an overview of this folder|what files exist|what all is in here|show me around"
)
LIST = _ways(
    "what's sitting in {d}|is there anything in {d}|what all is in {d}|"
    "I'd like a listing of {d}|what did they put in {d}|run ls on {d}|contents of {d} please|"
    "which files did you find in {d}|tell me what {d} has in it|browse {d}|what's under {d}"
)
SEARCH = _ways(
    "where did I write about {w}|who uses {w}|any trace of {w}|has anyone written {w} anywhere|"
    "where would I find {w}|is {w} referenced by any file|which of them talk about {w}|"
    "I'm looking for {w}, which file is it in|any mention of {w}|point me to {w}|hunt down {w}|"
    "what references {w}|can you track down {w}|in which documents does {w} come up|"
    "which places mention {w}|where's the file that brings up {w}|what do we have on {w}|"
    "show every file mentioning {w}"
)
PLURAL = _ways("any open {w}s|where did I leave {w}s|are {w}s left anywhere|which {w}s are open")
SEARCH_IN = _ways(
    "look through {d} for {w}|is {w} anywhere in {d}|what in {d} mentions {w}|"
    "any mention of {w} in {d}|does {w} come up in {d}|where does {w} show up under {d}"
)
BOTH = _ways(
    "find {w}, then give me the error from that file|"
    "the file with {w} in it has an error, which one|who mentions {w} and what broke there|"
    "hunt down {w} and report the error of that file|"
    "what broke in whichever file mentions {w}|"
    "somewhere {w} is mentioned, what's the error in that file|"
    "which log brings up {w}, and why did it fail|"
    "I remember {w} in some log, what was the error there|"
    "track down the log with {w} and read me its error|"
    "there is a log about {w}, what went wrong in it"
)
ANY_KEY = _ways(
    "which {k} are we using|what did we set the {k} to|what {k} is the server on|"
    "what's our {k} these days|what value did we give {k}|which {k} applies|"
    "what's the configured {k}|do you know what {k} is set to"
)
ANY_ERROR = _ways(
    "why won't it start|how come the {x} failed|what is going on with the {x}|"
    "anything wrong here|did the {x} have errors|what killed the {x}|"
    "something broke, what was it|why did the tests fail|what's causing this|help, it crashed"
)
GREETING = _ways("hello, nice to see you|hey, good to see you|hi once more|a very good morning")
THANKS = _ways("thanks, you're great|that did it, thanks|ok, got it, thank you|much appreciated")
ABILITY = _ways("what are you for|tell me what you can do|how may you help me|what could I ask")
WHO = _ways("what's this model called|so who am I talking to|what do they call you")
BYE = _ways("have a good one|ok, goodbye|bye, see you|time to go, bye")
OTHER = _ways(
    "what's the population of {w}|write a song about {w}|who is the king of {w}|"
    "what is {n} minus {n}|how do I learn {w}|recommend me a {w} for my {w}"
)
BEYOND = OTHER + _ways(
    "can you tell how many {x}s {f} has|what's the total number of lines in {f}|"
    "tally the errors of {l}|"
    "what separates {f} from {f}|is {f} any different from {f}|put {f} in your own words|"
    "what's the story of {f}|boil {f} down for me|walk me through {f}|"
    "teach me what {k} is good for|"
    "what {x} is listed for {w} in {t}|which {w} earns most in {t}|add up the {x}s of {t}|"
    "get rid of {f}|please correct {f}|put {w} into {f}|what's the biggest log|"
    "who was {w} the great|"
    "how do planes fly|what's on tv|how would I repair the failure in {l}|is it wise to change {k}"
)
WHERE = _ways(
    "what line does {w} sit on in {f}|point me to {w} inside {f}|any sign of {w} in {f}|"
    "in {f}, who mentions {w}|could you find the spot in {f} where {w} comes up|"
    "I need the line of {f} that brings up {w}|whereabouts in {f} does {w} come up|"
    "does {w} show up in {f}|pull the lines with {w} out of {f}"
)
LAST = _ways(
    "what's the very last line of {f}|which line closes {f}|what stands at the bottom of {f}|"
    "what was written last in {f}|show the tail of {f}"
)
AND_KEY = _ways(
    "and what would {k} be|also tell me {k}|could I have {k} too|what about its {k}|"
    "and {k}, please|plus the {k}|what does it have for {k}|and what's {k} set to there|"
    "good. {k} too, please|and which {k} does it use"
)
AND_FILE = _ways(
    "and what of {f}|could you do {f} as well|sorry, {f} is what I meant|what's it in {f}|"
    "and over in {f}|same thing, {f}|now do {f}|I was thinking of {f}|next up: {f}|"
    "how does {f} look"
)
AND_LINE = _ways(
    "and how about line {n}|could I see line {n} too|what would line {n} be|line {n} as well|"
    "ok and what's on {n}|then what about line {n}|what's there on line {n}|now show line {n}"
)
AND_AFTER = _ways("and the line below it|what stands after that|keep going|the line right after")
AND_BEFORE = _ways(
    "and the line above it|what stands before that|go back one|the line right before"
)
ITS_ERROR = _ways(
    "does it contain an error|and what broke there|what's it complaining about|"
    "was there a failure in it|so what's the error in there|did that one fail|"
    "and what does its error say"
)
WHICH_LINE = _ways(
    "what line is it on|can you give me the line number|where does that stand|and the line number|"
    "whereabouts|which line says so"
)
WHOLE = _ways(
    "what was the exact time|can you quote the line|at what time did it happen|"
    "let me see that line|"
    "what's the full text of the line|which machine was it|what time is on it"
)
MORE = _ways(
    "are there any further ones|did anything else fail|what other failures are there|"
    "is there more|and besides that|were there others"
)
AND_WORD = _ways(
    "and who talks about {w}|what files have {w}|could you search {w} as well|next: {w}|"
    "and is {w} anywhere|then look for {w}"
)
SETS = _ways("in which of them is it set|which file gives it a value|where does it get its value")
TO_WHAT = _ways("what did they set it to|and its value|so what is it|which value does it get")
AND_FOLDER = _ways(
    "could you list {d} too|what have we got in {d}|and what about inside {d}|then {d}"
)
GO_BEYOND = _ways(
    "why would that be|any idea why|what can be done about it|can you repair it|is it dangerous|"
    "how many in total|give me a summary|put it in simple words|what do you make of it"
)
OPEN = _ways(
    "what have we got in {f}|let's look at {f}|pull up {f}|what would I see in {f}|peek at {f}|"
    "how does {f} open"
)
TWO_KEYS = _ways(
    "could I get {k} and {j} out of {f}|{k}, {j}: what are they in {f}|"
    "what does {f} have for {k} and {j}|which values have {k} and {j} in {f}"
)
TWO_ERRORS = _ways(
    "what broke in {f} and in {g}|do {f} and {g} show errors|what are {f} and {g} complaining about"
)
