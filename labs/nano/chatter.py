"""Sentences around a question that do not change it: events, the author, feelings.

They are put together from some thousand plain words, so that an English word that stands beside a
question is no longer taken for the name of a file or of a setting.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .composed import ways as _ways

WHO = _ways(
    "I|I|I|we|we|she|he|they|you|my boss|the boss|my colleague|a colleague|the customer|"
    "a customer|our team|the night shift|nobody|everyone|somebody|the admin|my manager|"
    "the intern|the client|some users|people|the vendor|the developers|the new colleague|support|"
    "the auditor|my neighbor|the landlord|the teacher|a friend|my brother|my sister|the driver|"
    "the technician|the doctor|the others|someone upstairs|the director|our lawyer|the engineer|"
    "a student|the chief|Maria|the guy from sales|the lady at the desk|the operator|both of them|"
    "all of us|half the office"
)
OTHERS = WHO[9:-3]
"""Of the third person and one."""
WHOM = ["me", "us", "them", "him", "her", *OTHERS]
DID = _ways(
    "called|complained|left|waited|slept|laughed|agreed|asked|forgot|knew|wrote|answered|"
    "insisted|promised|returned|arrived|panicked|apologized|hesitated|noticed|smiled|shouted|"
    "cried|stayed|worried|quit|disagreed|tried|failed|gave up|went home|came back|"
    "fell asleep|moved on|took over|got angry|got nervous|was away|was ill|was sure|was wrong|"
    "was right|was surprised|were busy|had doubts|had lunch|had no time|had an idea|"
    "made a mistake|lost track|lost hope|spoke of it|told me so|told me nothing|said so|"
    "said nothing|heard about it|read about it|thought so|meant well|saw it|looked twice|"
    "checked already|looked everywhere|tried everything|changed something|touched nothing|"
    "pressed a button|pulled the plug|did not believe it|did not listen|did not know|"
    "could not help|could not sleep|could not find it|did not expect it"
)
DO = _ways(
    "write a report|make a call|leave|catch a train|explain this|show this to {whom}|finish this|"
    "hand this over|prepare the meeting|go to bed|start again|answer {whom}|tell {whom}|"
    "be careful|know more|be certain|understand it|decide soon|fix it|close the ticket|"
    "order a new one|wait|compare notes|fill in a form|sign something|clean up|repair the {noun}|"
    "replace the {noun}|move the {noun}|buy a {noun}|return the {noun}|describe the {noun}|"
    "pay for the {noun}|take notes|copy it|write it down|learn it|change it later|get this right|"
    "keep it short|remember it|double-check|be on the safe side|see for myself|convince {whom}|"
    "warn {whom}"
)
NOUN = _ways(
    "coffee|printer|door|window|car|bus|train|phone|screen|keyboard|chair|desk|lamp|cable|fan|"
    "box|bag|book|letter|contract|invoice|order|parcel|meeting|lunch|dinner|weather|rain|holiday|"
    "bill|office|building|kitchen|garage|elevator|hall|street|garden|lawn|plant|machine|engine|"
    "pump|battery|heater|camera|radio|clock|calendar|map|ticket|plan|story|question|answer|"
    "problem|idea|project|deadline|release|customer|boss|budget|price|report|list|page|form|"
    "label|key|lock|note|speaker|tool|hammer|ladder|roof|floor|wall|carpet|pipe|valve|sensor|"
    "switch|button|light|disk|drawer|table|team|company|school|hospital|shop|market|bank|airport|"
    "station|harbor|bridge|river"
)
LIKE = _ways(
    "quick|good|nice|kind|clear|strange|odd|easy|hard|late|early|enough|fine|perfect|useful|new|"
    "helpful|funny|annoying|urgent|important|wrong|right|true|possible|impossible|unfortunate|"
    "sad|surprising|interesting|expected|unexpected|weird|great|lovely|short|long|slow|fast|cold|"
    "warm|broken|gone|ready|open|closed|missing|empty|full|loud|quiet|heavy|expensive|cheap|"
    "dirty|clean|too much|not much|a pity|a relief|a shame|a good start|good to know|good news|"
    "bad news|a lot|more than enough|what I needed|what I feared|what I thought|news to me|"
    "not what I hoped"
)
FEEL = _ways(
    "in a hurry|confused|tired|lost|new here|new to this|about to leave|on the phone|"
    "on the train|not sure|quite sure|grateful|sorry|curious|worried|happy|stuck|almost done|"
    "nearly finished|at home|in a meeting|back again|back from lunch|on call|impatient|"
    "getting nervous|all ears|no expert|not a programmer|only the messenger|a bit slow today|"
    "still learning|responsible"
)
WHEN = _ways(
    "|||| today| yesterday| this morning| last night| last week| on Monday| a minute ago| again|"
    " in the afternoon| before lunch| after the weekend| early| once more| for hours| all day|"
    " at noon| at last| in the end| right away| as usual| out of nowhere| by mistake| on purpose|"
    " in a hurry| since Friday| two days ago| twice| for no reason| as always| this time"
)
PUT = _ways("|||very |quite |really |rather |so |pretty |a bit |somewhat |not so |not very ")
SENTENCE = _ways(
    "{who} {did}{when}|{who} {did}{when}|{who} {did}{when}|{who} {did} and {who} {did}|"
    "that was {put}{like}|that is {put}{like}|it sounds {put}{like}|this looks {put}{like}|"
    "the {noun} is {put}{like}|the {noun} was {put}{like}{when}|our {noun} seems {put}{like}|"
    "I am {feel}|I'm {feel}|we are {feel}|maybe I am {feel}|I have to {do}{when}|I want to {do}|"
    "I need to {do}{when}|{who} wanted to {do}|we should {do}|{who} asked me to {do}{when}|"
    "it is {put}{like}, I know|{like}, thank you|{like}, thanks|oh, {like}|ah, {like}|"
    "I see, {like}|well, {like}|hm, {put}{like}|so {like}|both are {like} now|all {like} so far|"
    "then it is {like}|{who} left the {noun} open{when}|{who} moved the {noun}{when}|"
    "{who} told me about the {noun}|the {noun} broke{when}|the {noun} came{when}|"
    "there was a {noun} in the {noun}{when}|I leave this subject now|let us change the subject|"
    "let us go on|enough of that|that settles it|so much for that|back to work|"
    "now something else|on to the next|one more thing|I see|I knew it|I was afraid of that|"
    "as I thought|no wonder|who would have thought|thanks a lot|thank you kindly|"
    "you are {put}{like}|you are a great help|that helps|that helped {whom}|understood|noted|"
    "agreed|I hope {who} {did}|I think {who} {did}{when}|I was told that {who} {did}|"
    "{other} says it is {like}"
)
BEFORE = _ways(
    "before I {do}, |before {who} {did}, |while {who} {did}, |since it is {put}{like}, |"
    "now that it is {like}, |if it is not {put}{like}, |as {who} {did}, |because {who} {did}, |"
    "in order to {do}, |to {do}, |so that I can {do}, |when you have a minute, |if I may ask, |"
    "if I may trouble you once more, |just out of curiosity, |for the sake of the {noun}, |"
    "speaking of the {noun}, |apart from the {noun}, |as for me, |to be honest, |in any case, |"
    "finally, |lastly, |first of all, |secondly, |after that, |meanwhile, |by the way, |again, |"
    "still, |otherwise, |besides, |anyhow, |in short, |frankly, |kindly, |of course, |"
    "I would be {like} to know: |my question is: |what I need to know: |here is my question: |"
    "what {other} wants to know: |let me ask this: |I have to ask: |the {noun} apart, "
)
AFTER = _ways(
    ", if it is not {put}{like}| before I {do}| because {who} {did}| so that I can {do}|"
    ", {other} wants to know|, because I have to {do}|, if I may ask|"
    ", if I may trouble you once more|, as {who} {did}| while {who} {did}|, I would be grateful|"
    ", that would be {like}|, finally|, once more|, to {do}|, before it is {put}{like}|"
    ", otherwise {who} will {do}|, I need to {do}|, since {who} {did}| - I have to {do}|"
    " - {who} {did}{when}|, if possible|, or is it {put}{like}"
)
_STOCK = {
    "who": WHO, "whom": WHOM, "other": OTHERS, "did": DID, "do": DO, "noun": NOUN, "like": LIKE,
    "feel": FEEL, "when": WHEN, "put": PUT,
}  # fmt: skip
_SLOT = re.compile(r"\{(" + "|".join(_STOCK) + r")\}")


def _filled(rng: random.Random, text: str, any_word: Callable[[], str]) -> str:
    while found := _SLOT.search(text):
        name = found[1]
        # A made-up word among them: nothing is a name only because nobody knows it.
        other = name == "noun" and rng.random() < 0.15
        word = any_word() if other else rng.choice(_STOCK[name])
        text = text[: found.start()] + word + text[found.end() :]
    return text


def sentence(rng: random.Random, any_word: Callable[[], str]) -> str:
    """Return a whole sentence, with its mark and mostly with its capital."""
    text = _filled(rng, rng.choice(SENTENCE), any_word)
    if rng.random() < 0.75:
        text = text[0].upper() + text[1:]
    return text + rng.choice((".", ".", ".", ".", "!", ",", " -", "..."))


def around(rng: random.Random, text: str, any_word: Callable[[], str]) -> str:
    """Add something before the question, behind it, or both."""
    roll = rng.random()
    if roll < 0.3 or (roll < 0.45 and text.endswith("}")):  # behind a slot it would be its part
        text = _filled(rng, rng.choice(BEFORE), any_word) + text
    elif roll < 0.45:
        text += _filled(rng, rng.choice(AFTER), any_word)
    if roll < 0.1 or roll > 0.4:
        if rng.random() < 0.6:
            text = text[0].upper() + text[1:] if not text.startswith("{") else text
        text = f"{sentence(rng, any_word)} {text}"
        if rng.random() < 0.2:
            text = f"{sentence(rng, any_word)} {text}"
    return text


FRAMES = _ways(
    "let us return to {f}|let's go back to {f}|now {f}|coming back to {f}|about {f}|as for {f}|"
    "concerning {f}|regarding {f}|I have {f} open|I am looking at {f}|I am reading {f}|take {f}|"
    "then there is {f}|there is also {f}|I was told to look at {f}|please open {f}|look at {f}|"
    "have a look at {f}|here is {f}|we also have {f}|my next file is {f}|I turn to {f}|on to {f}|"
    "next up {f}|switching to {f}|moving on to {f}|let us jump to {f}|over to {f}|"
    "one thing on {f}|a question about {f}|speaking of {f}|you know {f}|I found {f}|"
    "I got {f} from {whom}|{who} sent me {f}|{who} showed me {f}|we talked about {f}|"
    "I opened {f}|this is {f}|see {f}|let me come to {f}|then {f}|back to {f}|turning to {f}|"
    "with {f} in mind|given {f}|in {f} now|I have trouble with {f}|I have doubts about {f}|"
    "{who} edited {f}{when}|I do not trust {f}"
)
_PLACE = re.compile(
    r" (in|of|from|inside|inside of|within|out of) (?:the file )?\{f\}(?=$|,|\?| and )"
)


def fronted(rng: random.Random, text: str, any_word: Callable[[], str]) -> str:
    """Put the question's file first: `back to {f}: what is {k} in it`."""
    found = _PLACE.search(text)
    if text.count("{f}") != 1 or not found:
        return text
    there = {"of": (" of it", " of that", " of this file"), "from": (" from it", " from there")}
    behind = there.get(found[1], (" in it", " there", " in that file", " in this one", " inside"))
    behind = "" if rng.random() < 0.45 else rng.choice(behind)
    frame = _filled(rng, rng.choice(FRAMES), any_word)
    mark = rng.choice((": ", ": ", ". ", ", ", " - ", "; ", " and ", " ... "))
    text = text[: found.start()] + behind + text[found.end() :]
    return frame + mark + (text[0].upper() + text[1:] if mark == ". " else text)
