"""The templates of nano's answers, as in its file, used by `solve` and `smalltalk`.

The runtime holds its answers to them (`conversation/answer_forms.py`): nano cannot show a word that
stands nowhere, nor that a file is missing or a list whole which is not. It may take the wrong line.
"""

from __future__ import annotations

import json

from .smalltalk import ABILITIES, GOODBYE, HELLO, NAME, WELCOME
from .solve import CANNOT

_FIXED = (CANNOT, HELLO, WELCOME, ABILITIES, NAME, GOODBYE)

FORMS = rf"""
ANSWER: SAYS ("; " SAYS)* | MENTIONED ". " SAYS | FIXED
SAYS: ERROR | NONE | SETTING | LINE | FILE | FOLDER | MENTIONED
%claim ERROR "The error is: {{end}}"
%claim ERROR "The next error is: {{end}}"
%claim ERROR "The error in {{file}} is: {{end}}"
%claim NONE "I found no error." ""
%claim NONE "There is no error in {{path}}." ""
%claim NONE "There is no other error in {{path}}."
%claim NONE "There is no other error in {{file}}."
%claim NONE "There is no {{QUOTE}} in {{path}}." "No matches found."
%claim NONE "There is no line {{start}} in {{path}}." "error: {{path}} has "
%claim NONE "There is no file {{path}}." "error: no such "
%claim NONE "There is no folder {{path}}." "error: no such "
%claim LINE "Line {{number}} says: {{text}}"
%claim LINE "Line {{blank}} is empty."
%claim LINE "It is on line {{number}} of {{file}}."
%claim LINE "{{pattern}} is on lines {{lines}} of {{file}}."
%claim FILE "{{path}} is empty." "(empty file)"
%claim FILE "{{path}} is a file." "error: not a folder"
%claim FILE "{{path}} is a folder." "error: not a file"
%claim FILE "{{path}} is a binary file; I can only read text." "error: binary file"
%claim FILE "{{path}} does not mention {{QUOTE}}." "No matches found."
%claim FILE "{{pattern}} is set in {{file}}."
%claim FILE "There are several: {{places}}"
%claim FOLDER "The folder is empty." "(empty folder)"
%claim FOLDER "The folder holds: {{entries}}"
%claim MENTIONED "{{pattern}} is mentioned in {{files}}"
%claim MENTIONED "No file mentions {{QUOTE}}." "No matches found."
FIXED: {" | ".join(json.dumps(text) for text in _FIXED)}
""".strip()
