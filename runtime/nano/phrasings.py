"""The ways in which people ask, by family; the held-out ones are never trained on.

Slots: {f} a file, {k} a key, {n} a line number, {d} a folder, {w} what is searched for.
"""

from __future__ import annotations

import random

from . import composed
from .composed import mixed
from .composed import ways as _ways

ERROR = _ways(
    "what's the error in {f}|what is the error in {f}|what error is in {f}|"
    "which error is in {f}|what errors are in {f}|what's wrong in {f}|what is wrong in {f}|"
    "what went wrong in {f}|find the error in {f}|show me the error in {f}|"
    "show the error in {f}|give me the error in {f}|tell me the error in {f}|"
    "tell me what went wrong in {f}|what does the error in {f} say|"
    "what's the error message in {f}|what is the error message in {f}|"
    "which error does {f} show|which error does {f} contain|what error does {f} report|"
    "is there an error in {f}|are there any errors in {f}|any errors in {f}|"
    "did anything go wrong in {f}|what failed in {f}|what failed according to {f}|"
    "why did it fail, see {f}|look for the error in {f}|look at {f} and tell me the error|"
    "open {f} and find the error|read {f} and tell me what went wrong|"
    "check {f} for errors|check {f} for an error|{f}: what is the error|"
    "what's the problem in {f}|what is the problem in {f}|what's the first error in {f}|"
    "error in {f}|the error in {f}|{f} error|what crashed in {f}|"
    "what is the error that {f} logs|what does {f} say went wrong|what error is logged in {f}|"
    "which error was logged in {f}|what's the failure in {f}|explain the error in {f}|"
    "in {f}, what is the error|what is the reason for the failure in {f}|"
    "why did it fail? See {f}|why did the build fail? Look at {f}|what broke in {f}|"
    "what is the cause of the failure in {f}|what's broken in {f}|"
    "I need the error from {f}|get the error from {f}|report the error in {f}"
)
ERROR_HELD_OUT = _ways(
    "which error can you see in {f}|what's the error inside {f}|what happened in {f}, any error|"
    "find out what went wrong in {f}|what error do you find in {f}|"
    "look into {f}: what's the error|does {f} contain an error|what error did {f} log"
)
KEY = _ways(
    "what is {k} in {f}|what's {k} in {f}|what is the {k} in {f}|what's the {k} in {f}|"
    "what is the value of {k} in {f}|what's the value of {k} in {f}|value of {k} in {f}|"
    "which value does {k} have in {f}|what value does {k} have in {f}|what is {k} set to in {f}|"
    "what's {k} set to in {f}|which {k} is set in {f}|which {k} does {f} set|"
    "which {k} does {f} use|what {k} does {f} use|what does {f} set {k} to|"
    "how is {k} set in {f}|find {k} in {f}|find the value of {k} in {f}|look up {k} in {f}|"
    "tell me {k} from {f}|tell me the value of {k} in {f}|tell me the {k} in {f}|"
    "show me {k} in {f}|show me the value of {k} in {f}|give me {k} from {f}|"
    "give me the {k} in {f}|get {k} from {f}|read {k} from {f}|in {f}, what is {k}|"
    "in {f}, what is the value of {k}|{f}: what is {k}|{k} in {f}|the {k} in {f}|"
    "what is the setting {k} in {f}|what is the {k} setting in {f}|"
    "what's the {k} value in {f}|according to {f}, what is {k}|check {k} in {f}|"
    "open {f} and tell me {k}|read {f} and tell me the value of {k}|"
    "what does {f} say about {k}|what has {f} for {k}|I need the {k} from {f}"
)
KEY_HELD_OUT = _ways(
    "which value is set for {k} in {f}|what's the current value of {k} in {f}|"
    "what value is {k} given in {f}|look in {f} for the value of {k}|"
    "could {f} tell us what {k} is|what is {k} according to {f}|find out {k} from {f}"
)
LINE = _ways(
    "what is on line {n} of {f}|what's on line {n} of {f}|what is in line {n} of {f}|"
    "what's in line {n} of {f}|what does line {n} of {f} say|what does line {n} in {f} say|"
    "what stands on line {n} of {f}|show me line {n} of {f}|show line {n} of {f}|"
    "read line {n} of {f}|read me line {n} of {f}|give me line {n} of {f}|"
    "give me line {n} from {f}|tell me line {n} of {f}|tell me what line {n} of {f} says|"
    "print line {n} of {f}|line {n} of {f}|line {n} in {f}|{f} line {n}|{f}, line {n}|"
    "what is line {n} of {f}|what's line {n} of {f}|what is line {n} in {f}|"
    "what does {f} say on line {n}|what does {f} say in line {n}|what is in {f} on line {n}|"
    "which text is on line {n} of {f}|what text is on line {n} of {f}|get line {n} of {f}|"
    "look at line {n} of {f}|open {f} at line {n}|in {f}, what is on line {n}|"
    "what is written on line {n} of {f}|what's at line {n} of {f}|what is at line {n} in {f}|"
    "I want to see line {n} of {f}|what does line number {n} of {f} say|"
    "what is on line number {n} of {f}|what is the content of line {n} of {f}"
)
LINE_HELD_OUT = _ways(
    "what can be read on line {n} of {f}|let me see line {n} of {f}|"
    "what do we have on line {n} of {f}|what's written in line {n} of {f}|"
    "find line {n} of {f}|what's the text of line {n} in {f}|what does {f} have on line {n}"
)
LIST_HERE = _ways(
    "which files are here|what files are here|what files are there|which files are there|"
    "list the files|list all files|show me the files|show the files|what is in this folder|"
    "what's in this folder|what's here|what is here|which files are in this folder|"
    "what files are in this folder|which files does this folder hold|list this folder|"
    "list the files in this folder|what does this folder contain|what's in the folder|"
    "what is in the current folder|which files are in the current directory|ls|dir|"
    "list files|what files do you see|which files can you see|what files do I have here|"
    "give me the list of files|tell me which files are here|what's in this directory|"
    "show me what is in this folder|which files can you read|list everything here"
)
LIST_HERE_HELD_OUT = _ways(
    "what files does this folder hold|can you list what's here|"
    "which files are in this directory|what do you see in this folder|name the files here"
)
LIST = _ways(
    "which files are in {d}|what files are in {d}|what is in {d}|what's in {d}|"
    "what is in the {d} folder|what's in the {d} folder|which files are in the {d} folder|"
    "which files are in the folder {d}|what files are in the folder {d}|list {d}|list {d}/|"
    "list the files in {d}|list the folder {d}|list the {d} folder|show me the files in {d}|"
    "show me what is in {d}|show {d}|what does {d} contain|what does {d} hold|"
    "what does the folder {d} contain|which files does {d} hold|which files does {d} contain|"
    "what files does the {d} folder have|what is in {d}/|what's inside {d}|ls {d}|"
    "what is inside the {d} folder|tell me which files are in {d}|what is there in {d}|"
    "which files are there in {d}|what files are under {d}|what's in the directory {d}|"
    "which files are in the {d} directory|list the directory {d}|list all files in {d}"
)
LIST_HELD_OUT = _ways(
    "name the files in {d}|which files can be found in {d}|what do we have in {d}|"
    "what's in the {d} directory|give me the files in {d}|what files does {d} contain"
)
SEARCH = _ways(
    "which file mentions {w}|which files mention {w}|what file mentions {w}|"
    "what files mention {w}|which file contains {w}|which files contain {w}|"
    "what file contains {w}|which file has {w}|which file has {w} in it|where is {w} mentioned|"
    "where is {w}|where does {w} appear|where does {w} occur|where do I find {w}|"
    "where can I find {w}|in which file is {w}|in which file does {w} occur|"
    "in which files does {w} appear|which file talks about {w}|which file says {w}|"
    "find the file that mentions {w}|find the file with {w}|find {w}|search for {w}|"
    "search {w}|search the files for {w}|look for {w}|find files that contain {w}|"
    "does any file mention {w}|is there a file that mentions {w}|does any file contain {w}|"
    "do any files mention {w}|which of the files mentions {w}|which of the files contains {w}|"
    "tell me which file mentions {w}|show me the file that mentions {w}|grep {w}|"
    "grep for {w}|who mentions {w}|is {w} mentioned anywhere|does {w} occur anywhere"
)
SEARCH_HELD_OUT = _ways(
    "which file speaks of {w}|in what file can I find {w}|in which file is {w} mentioned|"
    "find the file containing {w}|which files have {w} in them|where in the files is {w}|"
    "is there any file with {w}"
)
SEARCH_IN = _ways(
    "which file in {d} mentions {w}|which files in {d} mention {w}|search {d} for {w}|"
    "where in {d} is {w}|find {w} in the {d} folder|which file in {d} contains {w}|"
    "which file in the folder {d} mentions {w}|look for {w} in the folder {d}|"
    "does any file in {d} mention {w}|what file under {d} contains {w}"
)
SEARCH_IN_HELD_OUT = _ways(
    "which file under {d} mentions {w}|what files in {d} contain {w}|search the {d} folder for {w}"
)
BOTH = _ways(
    "which file mentions {w}, and what is its error|which file mentions {w} and what is its error|"
    "which file mentions {w}, and what's its error|which file contains {w} and what is its error|"
    "which file mentions {w}, and what is the error in it|which log mentions {w}, and what failed|"
    "what is the error in the file that mentions {w}|what's the error in the file with {w}|"
    "find the file that mentions {w} and tell me its error|"
    "what went wrong in the log that contains {w}|which log has {w}, and what is its error"
)
BOTH_HELD_OUT = _ways(
    "which file speaks of {w}, and what is its error|"
    "what's the error inside the log that speaks of {w}|"
    "find the file containing {w} and tell me what went wrong in it|"
    "which log holds {w}, and what's the error inside|"
    "where does {w} occur, and what is the error in that file|"
    "what error do you find in the log which contains {w}"
)
# Half of all questions are asked as people ask most, half in one of a few thousand other ways.
ERROR = mixed(ERROR, composed.ERROR, ERROR_HELD_OUT)
KEY = mixed(KEY, composed.KEY, KEY_HELD_OUT)
LINE = mixed(LINE, composed.LINE, LINE_HELD_OUT)
LIST = mixed(LIST, composed.LIST, LIST_HELD_OUT)
LIST_HERE = mixed(LIST_HERE, composed.LIST_HERE, LIST_HERE_HELD_OUT)
SEARCH = mixed(SEARCH, composed.SEARCH, SEARCH_HELD_OUT)
BOTH = mixed(BOTH, composed.BOTH, BOTH_HELD_OUT)

GREETING = _ways(
    "hi|hello|hey|hello there|hi there|good morning|good evening|good afternoon|hey there|"
    "hallo|hi, how are you|how are you|greetings|good day|hiya|yo|howdy|are you there|"
    "hello again|hey you|good afternoon to you|morning|evening|hi friend|hello nano|hey nano|"
    "nice to meet you|how is it going|what's up|how do you do|a good morning to you|"
    "hi there, how are you"
)
GREETING_HELD_OUT = _ways("hello, how are you|hey, good morning|hi again|good evening to you")
THANKS = _ways(
    "thanks|thank you|thanks a lot|thank you very much|many thanks|great, thanks|ok, thanks|"
    "thanks for your help|thx|cheers|perfect, thank you|nice, thanks|that helps, thanks|"
    "thank you so much|good, thank you|awesome|great|nice|well done|ok|okay|cool|"
    "thanks again|thanks a million|ok thank you|great, thank you|perfect|very good|excellent|"
    "that was helpful|that's what I needed|super, thanks|thank you for your help|"
    "thanks, that's all|"
    "I appreciate it|good job|alright, thanks|thanks a bunch|good work|lovely, thanks"
)
THANKS_HELD_OUT = _ways("thanks so much|thank you for the help|cool, thanks|ok, thank you")
ABILITY = _ways(
    "what can you do|what do you do|help|how can you help me|what are you able to do|"
    "what can I ask you|what can I ask|can you help me|how do you work|what is this|"
    "what are your tools|which tools do you have|what questions can you answer|"
    "what can I use you for|how can I use you|what are you good for|what can you tell me|"
    "which questions can I ask|what should I ask|give me some help|I need help|how does this work|"
    "what is possible here|what are your abilities|what do you know|show me what you can do|"
    "how do I use you|what kind of questions can you answer|help me"
)
ABILITY_HELD_OUT = _ways("what can you help me with|how can you help|what should I ask you")
WHO = _ways(
    "who are you|what are you|what's your name|what is your name|who is this|are you a bot|"
    "are you an AI|which model are you|what model are you|tell me who you are|who am I talking to|"
    "introduce yourself|are you human|"
    "what is this model|what are you exactly|and who are you|do you have a name|are you a person|"
    "what kind of model are you|which model is this|are you ChatGPT|what should I call you|"
    "how are you called|your name|tell me your name|tell me about yourself"
)
WHO_HELD_OUT = _ways("what model is this|so who are you|what are you called")
BYE = _ways(
    "bye|goodbye|see you|bye bye|see you later|good night|that's all|farewell|ciao|see you soon|"
    "bye for now|talk to you later|see you next week|have a nice day|until next time|good bye|"
    "I have to go|ok bye|see you around|bye then|goodbye for now|until tomorrow|cya"
)
BYE_HELD_OUT = _ways("bye now|goodbye then|see you tomorrow")
OTHER = _ways(
    "what is the capital of {w}|who is {w} {w}|tell me a joke|tell me a story about {w}|"
    "write a poem about {w}|how old is {w}|what is the weather in {w}|what time is it|"
    "who won the {w} {w}|what is {n} plus {n}|translate {w} to {w}|how do I cook {w}|"
    "what do you think about {w}|why is the {w} {w}|what is the meaning of {w}|"
    "sing a song|when was {w} born|what does {w} mean in {w}|can you {w} my {w}|"
    "how many {w} are in a {w}|explain {w} to me|write an email to {w}|is {w} better than {w}|"
    "what day is today|how far is {w} from {w}|who invented the {w}|do you like {w}"
)
OTHER_HELD_OUT = _ways(
    "what is the weather like in {w}|write a story about {w}|who was {w} {w}|"
    "what is {n} times {n}|tell me about the history of {w}"
)

BEFORE = _ways(
    "please |can you tell me |could you tell me |hey, |hi, |hello, |so |ok, |now |and |tell me, |"
    "I want to know: |quick question: |I wonder, |do you know "
)
AFTER = _ways("| please|, please| thanks|, thanks| for me| now")


def ask(rng: random.Random, patterns: list[str], slots: dict[str, str]) -> str:
    """One question: a phrasing, now and then made polite, with or without capital and mark."""
    text = rng.choice(patterns)
    if rng.random() < 0.12:
        text = rng.choice(BEFORE) + text
    if rng.random() < 0.1 and not text.endswith("}"):
        text += rng.choice(AFTER)
    if rng.random() < 0.7 and not text.startswith("{"):
        text = text[0].upper() + text[1:]
    elif rng.random() < 0.05:
        text = text.replace("what", "WHAT").replace("error", "ERROR").replace("file", "FILE")
    opener = text.lower().split()[0] if text.split() else ""
    asks = opener.startswith(("what", "which", "where", "who", "is", "are", "in", "did", "any"))
    asks = asks or opener.startswith(("how", "does", "do", "can", "could", "why", "when"))
    if asks:
        text += "?" if rng.random() < 0.85 else ""
    else:
        text += rng.choice(("", "", "", ".", "?", "!"))
    for slot, value in slots.items():
        text = text.replace("{" + slot + "}", value)
    return text


def quoted(rng: random.Random, name: str, *, often: float = 0.12) -> str:
    """The name as people write it in a sentence: mostly bare, else in some quotes."""
    if " " in name or rng.random() < often:
        return rng.choice(('"{}"', "`{}`", '"{}"', "'{}'")).format(name)
    return name
