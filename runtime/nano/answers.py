"""The forms of nano's answers, as its file has them: what `solve` and `smalltalk` say.

The runtime holds its answers to them, and what they quote to what was asked and returned
(`conversation/answer_forms.py`): nano cannot show a word that stands nowhere.
"""

from __future__ import annotations

import json

from .smalltalk import ABILITIES, GOODBYE, HELLO, NAME, WELCOME
from .solve import CANNOT

_FIXED = (CANNOT, HELLO, WELCOME, ABILITIES, NAME, GOODBYE)

FORMS = rf"""
ANSWER: SAYS ("; " SAYS)* | QUOTE " is mentioned in " QUOTE ". " SAYS | FIXED
SAYS: ERROR | NONE | VALUE | LINE | FILE | FOLDER | MENTIONED
ERROR: "The " ("next ")? "error" (" in " QUOTE)? " is: " QUOTE | "I found no error."
NONE: "There is no " ("error" | "other error" | QUOTE | "line " NUMBER) " in " QUOTE "."
    | "There is no " ("file " | "folder ") QUOTE "."
VALUE: SETTING
LINE: "Line " NUMBER (" says: " QUOTE | " is empty.") | "It is on line " NUMBER " of " QUOTE "."
    | QUOTE " is on lines " NUMBER (", " NUMBER)* " of " QUOTE "."
FILE: QUOTE " is " ("empty." | "a file." | "a folder." | "a binary file; I can only read text.")
    | QUOTE " does not mention " QUOTE "." | QUOTE " is set in " QUOTE "."
    | "There are several: " QUOTE (", " QUOTE)*
FOLDER: "The folder is empty." | "The folder holds: " QUOTE (", " QUOTE)*
MENTIONED: QUOTE " is mentioned in " FOUND ", and maybe in more files"?
    | "No file mentions " QUOTE "."
FIXED: {" | ".join(json.dumps(text) for text in _FIXED)}
""".strip()
