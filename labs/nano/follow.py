"""Follow-up phrasings, where the file, the key or the question was named before.

Slots as in `phrasings`. The lists in `unseen` are never trained on.
"""

from __future__ import annotations

from .composed import combine
from .composed import ways as _ways

KEY = _ways(
    "and {k}|and the {k}|and {k} there|what about {k}|and what is {k}|what about the {k}|{k} too|"
    "how about {k}|also {k}|and the value of {k}|what is {k} in that file|what's {k} in the same "
    "file|and {k} in it|and its {k}|same for {k}|now {k}|{k}|and which {k}|plus {k}|next, {k}|"
    "ok, and {k}|thanks, and {k}|then what's {k}|what is {k} there|and what does it say about {k}|"
    "what is its {k}|what's its {k}|which {k} does it set|and what's the {k}|what's the {k} there|"
    "and for {k}|good, and the {k}|I also need {k}|tell me {k} as well|{k} as well|"
    "and how about {k}"
)
FILE = _ways(
    "and in {f}|and {f}|what about {f}|how about {f}|the same for {f}|same question for {f}|"
    "now {f}|and what about {f}|and in {f} then|no, in {f}|no, I meant {f}|sorry, I meant {f}|"
    "I meant {f}|in {f} I mean|check {f} too|also {f}|and {f} too|and now {f}|what does {f} say|"
    "then {f}|ok and {f}|{f}|try {f}|do it for {f}|not that one, {f}|wrong file, I meant {f}|"
    "and the same in {f}|what is it in {f}|and how is it in {f}|and what does {f} say|"
    "now the same for {f}|{f} too|I mean the one in {f}|and for {f}|could you check {f} as well|"
    "thanks, and {f}|ok, now {f}|what about in {f}|look in {f} instead|in {f}"
)
LINE = _ways(
    "and line {n}|and {n}|line {n}|what about line {n}|and on line {n}|line {n} too|"
    "and what is on line {n}|now line {n}|and line {n} of it|and line {n} of that file|"
    "what's on line {n} of that file|what does line {n} say|how about line {n}|show me line {n}|"
    "and line {n} there|also line {n}|what is on line {n} of the same file|then line {n}|"
    "read line {n} too|what is on line {n}|thanks, and line {n}|and what does line {n} say|"
    "and in line {n}|give me line {n} as well|what's on line {n}|and at line {n}|"
    "what is on line {n} there|line {n} of that file|line {n} of it|its line {n}|go to line {n}|"
    "what does it say on line {n}|what does that file say on line {n}|let me see line {n} too"
)
AFTER = _ways(
    "and the next line|the next one|and the one after|what comes next|next|the next line|"
    "and the line after that|what's on the next line|the following line|and below that|next line|"
    "and after that|what follows|and what comes after it|what is on the line after it|"
    "what is below|show me the next line|and the following one|one further|what's right after that"
)
BEFORE = _ways(
    "and the line before|the one before|what comes before|the previous line|and above that|"
    "what's on the line before that|previous|and before that|the line above|what precedes it|"
    "what is on the line before it|previous line|and the previous one|what came before that|"
    "what is above it|show me the line before|what happened before that|what was right before it"
)
ERROR = _ways(
    "what's the error in it|what is the error in that file|any errors in it|and its error|"
    "what went wrong in it|did anything fail there|what error is in that file|and the error|"
    "is there an error in that file|what failed there|does it show errors|and any errors there|"
    "what went wrong there|what's wrong in that file|check it for errors|errors|what broke in it|"
    "does that file have errors|and what is its error|are there errors in it|what is its error|"
    "what went wrong in that file|is there an error in it|and did something fail in it|"
    "what's the error there|any problems in it|find the error in it|and what failed in it|"
    "of that file, what's the error|the error of that file|what is wrong with it|what's the error"
)
WHICH_LINE = _ways(
    "on which line|which line|what line is that|which line is that on|where is that|where exactly|"
    "on what line|line number|what's the line number|where in the file|which line was it|"
    "at which line|and where|and on which line is that|which line is it on|on what line is it|"
    "where does it say that|what is the line number|which line number|where was that|"
    "and which line|where in that file|in which line|where did you find it|where is it"
)
WHOLE = _ways(
    "when was that|when|when did that happen|show me the line|show me the whole line|"
    "the full line|what does the line say|quote it|what time was that|at what time|"
    "who logged that|which component|what host was that|which process|can I see the line|"
    "what exactly does it say|give me the full line|and when was it|which {x} was it|"
    "and when|and which host|and the timestamp|what's the timestamp|"
    "when was it logged|show it to me|what does it say exactly|what does it say there|"
    "which {x} was that|the exact line please|on what day|the whole line|quote the line"
)
MORE = _ways(
    "what else|anything else|any other errors|any more|are there more errors|other errors|"
    "what other errors are there|and the next error|what's the next error|what else failed|more|"
    "is that all|any others|what else went wrong|was that the only error|are there others|"
    "is there another error|any further errors|and what else|what about the other errors|"
    "the next error|another one|does it have more errors|and other errors|anything else wrong"
)
BEYOND = _ways(
    "why|why is that|why did that happen|how come|how do I fix it|how can I fix that|"
    "what does that mean|what should I do|is that bad|explain|explain it|can you fix it|"
    "summarize it|how many|how many are there|how often|who did that|is that serious|"
    "what's the reason|and why|but why|why so|what can I do about it|how do I solve this|"
    "is that normal|what would you do|which is better|is that a good value|should I change it|"
    "what does it do|what is that for|please fix it|change it to {n}|set it to {n}|delete it|"
    "count them|how many of them|summarize that file|what is the file about|compare them|"
    "which one is newer|which one is bigger|why not|can you explain that|what does this error mean|"
    "how long did it take|how many lines does it have|is it more than {n}|what happens if I {x} it|"
    "how many errors are there|how many errors does it have|why did it fail like that|why {n}"
)
WORD = _ways(
    "and {w}|what about {w}|how about {w}|and which mention {w}|and where is {w}|now {w}|"
    "the same for {w}|and who mentions {w}|and {w}, where is that|also {w}|{w}|and for {w}|"
    "and does any file mention {w}|then {w}|and which files mention {w}|thanks, and {w}|"
    "now search for {w}|and find {w}|look for {w} too|ok, and {w}|and {w} too|where is {w} then"
)
SETS = _ways(
    "which file sets it|where is it set|which one sets it|who sets it|which of them sets it|"
    "which of those files sets it|where is it configured|which one defines it|where's it set|"
    "which file defines it|in which one is it set|which of them configures it|and where is it set"
)
TO_WHAT = _ways(
    "and to what|to what|and what is it|what is it set to|which value|what's its value|"
    "and the value|to which value|what value|and what value|what is its value|what is it there|"
    "set to what|what is the value|and what's it set to|and to which value"
)
FOLDER = _ways(
    "and {d}|and in {d}|what about {d}|and what's in {d}|now {d}|how about {d}|{d}|open {d}|"
    "and the {d} folder|what's inside {d}|and {d}/|look into {d}|what is in {d}|and inside {d}|"
    "what does {d} hold|now list {d}|and which files are in {d}|show me {d} too|in {d}"
)
WHERE = [
    *_ways(
    "on which line of {f} is {w}|which line of {f} mentions {w}|where in {f} is {w}|"
    "find {w} in {f}|does {f} mention {w}|is {w} in {f}|where does {f} mention {w}|"
    "on which lines of {f} is {w}|which lines of {f} mention {w}|search {f} for {w}|"
    "what does {f} say of {w}|does {w} occur in {f}|where does {w} occur in {f}|"
    "look for {w} in {f}|does {f} contain {w}|is {w} mentioned in {f}|grep {w} {f}|"
    "grep for {w} in {f}|which line in {f} has {w}|in which line of {f} is {w}|"
    "show me the line with {w} in {f}|show me the lines of {f} that mention {w}|"
    "where is {w} in {f}|in {f}, where is {w}|in {f}, on which line is {w}|search for {w} in {f}|"
    "does {f} have {w} in it|is there a {w} in {f}|is there anything about {w} in {f}|"
    "what line of {f} has {w}|what line is {w} on in {f}|which lines have {w} in {f}|"
    "does {f} say anything about {w}|in which lines does {f} say {w}|has {f} a line with {w}|"
    "at which line does {w} appear in {f}|where can I find {w} in {f}|{w} in {f}, which line"
),

    *combine("_ line _ {f} _ {w}", "which|what|show me the|find the|give me the|on which",
             "of|in|from", "mentions|has|contains|says|talks about|names|with|is about"),
    *combine("_ {w} _ {f}", "locate|where is|where's|find|spot|check for|look up the line with",
        "in|within|inside"),
]  # fmt: skip
LAST = _ways(
    "what is the last line of {f}|what's the last line of {f}|the last line of {f}|"
    "what does the last line of {f} say|show me the last line of {f}|last line of {f}|"
    "how does {f} end|what is at the end of {f}|what's at the end of {f}|read the last line of {f}|"
    "what does {f} end with|what is on the last line of {f}|give me the last line in {f}|"
    "print the last line of {f}|how did {f} end|what's the final line of {f}|tail {f}"
)
OPEN = [
    *_ways("what is in {f}|what's in {f}|show me {f}|show {f}|cat {f}|open {f}|read {f}|"
        "print {f}|head {f}|"
           "what does {f} say|what does {f} contain|what's inside {f}|display {f}|"
           "what is the content of {f}|"
           "how does {f} begin|how does {f} start|what's at the top of {f}|read me {f}|give me {f}|"
           "show me the beginning of {f}|is {f} empty|what is written in {f}|the first line of {f}|"
           "what's the first line of {f}|show me the contents of {f}|what can you read in {f}|"
           "see {f}|"
           "let me see {f}|can you open {f}|can you read {f}|is there anything in {f}|"
           "look inside {f}|"
           "what stands in {f}|view {f}|more {f}|less {f}|does {f} contain anything|can I see {f}"),
    *combine("_ _ {f}", "show me|print|get|read|display|give me|what is", "the top of|"
        "the start of|the beginning of|"
             "the head of|the first line of|the contents of|the text of"),
]  # fmt: skip
TWO_KEYS = [
    *_ways("what are {k} and {j} in {f}|what is {k} and what is {j} in {f}|{k} and {j} in {f}|"
           "give me {k} and {j} from {f}|tell me {k} and {j} in {f}|what's {k} and {j} in {f}|"
           "what are the {k} and the {j} in {f}|in {f}, what are {k} and {j}|"
           "show me {k} and {j} of {f}|"
           "what is the {k} in {f}, and the {j}|what's {k} in {f} and what's {j}|"
           "which {k} and {j} does {f} set|"
           "what is {k} in {f}, and what is {j}|I need {k} and {j} from {f}|"
           "what's the {k} in {f} and the {j}|"
           "look up {k} and {j} in {f}|{f}: {k} and {j}|both {k} and {j} from {f}|"
           "find {k} and {j} in {f}"),
    *combine("_ {k} _ {j} _ {f}", "what are|what're|tell me|show me|get|find|read|"
        "give me the values of|list",
             "and|and also|as well as", "in|from|of"),
]  # fmt: skip
TWO_ERRORS = [
    *_ways("what are the errors in {f} and {g}|what's the error in {f} and in {g}|"
        "errors in {f} and {g}|"
           "what is the error in {f}, and in {g}|check {f} and {g} for errors|"
           "what went wrong in {f} and {g}|"
           "what failed in {f} and what failed in {g}|are there errors in {f} and {g}|"
           "look at {f} and {g} for errors|"
           "what's wrong in {f} and in {g}|tell me the errors in {f} and {g}|"
           "find the errors in {f} and {g}|"
           "any errors in {f} or {g}|did anything fail in {f} or {g}|why did {f} and {g} fail"),
    *combine("_ the _ in {f} _ {g}", "what is|what's|show me|give me|find|report", "error|"
        "errors|failure|problem", "and|and in|and also in"),
]  # fmt: skip
COUNTS = [
    *combine("how many _ _ in {f}", "errors|warnings|lines|words|failures|tests|"
             "times does {w} occur|comments|exceptions|{w} lines", "are|are there|do you see|are"),
    # In a file of settings, how many there are of something may well be one of them.
    *combine("how many _ _ in _", "{x}s|requests|entries|rows|users|timeouts",
             "are|are there|do you see", "{l}|{t}"),
    *combine("_ the _ in _", "count|add up|total|what's the number of|number of|sum up|"
        "tell me the number of",
             "errors|lines|{x}s|warnings|requests|rows|failures", "{f}|{l}|{t}"),
    *_ways("how many lines does {f} have|how many files are here|how many files are in {d}|"
        "how long is {l}|"
           "how often does {w} occur in {f}|how often did it fail|"
           "how many words has {f}|"
           "count the files in {d}|count the files here|how many times does {w} appear in {f}|"
           "how large is {l}|"
           "how many lines are in {f}|how many {x}s failed|what is the most common {x} in {f}|"
           "which error is the most frequent in {l}|how many different {x}s are in {f}|"
           "how many errors are there"),
]  # fmt: skip
COMPARES = [
    *combine("_ {f} _ {f}", "compare|diff|what's the difference between|what differs between|"
        "difference between|"
             "what changed between|is there a difference between|how do I merge", "and|with"),
    *_ways("which file is the largest|which file is bigger, {f} or {f}|which is newer, {f} or {f}|"
           "what is the biggest file here|which file changed last|when was {f} changed|"
           "how big is {l}|"
           "are {f} and {f} the same|is {f} longer than {f}|which file is the newest|who wrote {f}|"
           "which log is worse, {l} or {l}|do {f} and {f} agree|which of {f} and {f} is right|"
           "what's new in {f} since yesterday|sort {f} by {x}|which file has the most {x}s"),
]  # fmt: skip
EXPLAINS = [
    *combine("_ {f}", "summarize|summarise|sum up|give me a summary of|describe|explain|"
        "what is the purpose of|"
             "tl;dr of|what's the gist of|translate|rewrite|review|improve|rate|proofread|"
             "outline|paraphrase|"
             "tell me what to think of|give me an overview of|in short, what is in"),
    *_ways("what is {f} about|what does {f} do|what's {f} about|what is {f} for|how does {f} work|"
           "explain what {f} does|what does {k} mean in {f}|what does {k} do|why is {k} set in {f}|"
           "how do I fix the error in {l}|how can I fix {l}|"
           "what should I do about the error in {l}|"
           "is {f} well written|is {f} secure|what do you think of {f}|"
           "what language is {f} written in|"
           "why do we need {k}|what happens when I change {k}|should I raise {k}|is {k} too low|"
           "explain {k} to me|explain this folder|what is this project about|"
           "what does this project do|"
           "what can I learn from {f}|which settings in {f} are wrong|how can I make {x} faster|"
           "what are the main points of {f}|give me three key points of {f}|"
           "what's the conclusion of {f}|"
           "can you make sense of {l}|why was {k} chosen|what's the best value for {k}|"
           "how would I test {f}"),
]  # fmt: skip
TABLES = [
    *combine("what_ the {x} of {w} in {t}", " is|'s|was"),
    *combine("_ {x} _ in {t}", "what's the highest|what's the lowest|what is the average|which|"
        "what is the sum of|"
             "what's the total|who has the highest|what is the maximum|what's the mean|"
             "which row has the most",
             "|column|value|of {w}|per {x}"),
    *_ways("which {x} has the highest {x} in {t}|sum the {x} column of {t}|"
        "what is in row {n} of {t}|"
           "in {t}, what is the {x} of {w}|what's the {x} for {w} in {t}|average of {x} in {t}|"
           "what is in column {n} of {t}|plot {t}|which columns does {t} have|"
           "how much did {w} cost in {t}|"
           "what {x} does {w} have in {t}|which {x} belongs to {w} in {t}|sort {t} by {x}|"
           "look up {w} in {t} and give me its {x}|who has {n} {x}s in {t}|"
           "what is the {x} on {n} in {t}"),
]  # fmt: skip
CHANGES = _ways(
    "delete {f}|rename {f} to {f}|fix the typo in {f}|fix {f}|change {k} to {n} in {f}|edit {f}|"
    "set {k} to {w} in {f}|write a new {f}|create a file {f}|run {f}|execute {f}|move {f} to {d}|"
    "copy {f}|append {w} to {f}|replace {w} by {w} in {f}|fix the bug in {f}|install {w}|"
    "restart the {x}|commit my changes|push it|download {w}|open a browser|send {f} to {w}|"
    "write a test for {f}|refactor {f}|add a comment to {f}|make {f} shorter|start the {x}|"
    "remove line {n} of {f}|update {k} in {f}|undo that|sort the lines of {f}|format {f}|"
    "create a folder {d}|clean up {d}|empty {f}|translate {f} into German|convert {t} to json"
)
WORLD = _ways(
    "what is the capital of France|who is the president of {w}|what year is it|what day is it|"
    "how tall is mount {w}|who wrote {w}|what is the speed of light|what is {n} + {n}|"
    "what's {n} * {n}|"
    "what is the square root of {n}|what is python|how do I install {w}|what is a {w}|"
    "what are {w}s|"
    "who discovered {w}|how does a {w} work|what's the latest version of {w}|what is docker|"
    "how do I exit vim|write a python function that {x}s|write me a regex for {w}|"
    "what is kubernetes|"
    "give me a recipe for {w}|what's the news|will it rain tomorrow|which is better, {w} or {w}|"
    "how many people live in {w}|what does http {n} mean|convert {n} km to miles|define {w}|"
    "how far is the moon|spell {w}|what rhymes with {w}|is {n} prime|who won the world cup in {n}|"
    "what's your favorite {w}|recommend a book about {w}|when did {w} end|when was {w} founded|"
    "can you write code|do you know {w}|what is the best {w}|what is love|sing me a song|"
    "are you sure"
)
BEYOND_ALONE = (COUNTS, COMPARES, EXPLAINS, TABLES, CHANGES, WORLD)
