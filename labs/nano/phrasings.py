"""Phrasings of questions, by family; those in `unseen` are never trained on.

Slots: {f} a file, {k} a key, {n} a line number, {d} a folder, {w} what is searched for, {x} any
word at all: verbs and things that the model does not know must not lead it astray.
"""

from __future__ import annotations

import re

from . import composed, follow, greetings, unseen
from .asked import SUBJECTS, asked, with_asked
from .beyond import BEYOND_MADE
from .composed import mixed
from .composed import ways as _ways
from .settings import HEADINGS

ERROR = _ways(
    "what's the error in {f}|what is the error in {f}|what error is in {f}|which error is in {f}|"
    "what errors are in {f}|what's wrong in {f}|what is wrong in {f}|what went wrong in {f}|"
    "find the error in {f}|show me the error in {f}|show the error in {f}|"
    "give me the error in {f}|tell me the error in {f}|tell me what went wrong in {f}|"
    "what does the error in {f} say|what's the error message in {f}|"
    "what is the error message in {f}|which error does {f} show|which error does {f} contain|"
    "what error does {f} report|is there an error in {f}|are there any errors in {f}|"
    "any errors in {f}|did anything go wrong in {f}|what failed in {f}|"
    "what failed according to {f}|why did it fail, see {f}|look for the error in {f}|"
    "look at {f} and tell me the error|open {f} and find the error|"
    "read {f} and tell me what went wrong|check {f} for errors|check {f} for an error|"
    "{f}: what is the error|what's the problem in {f}|what is the problem in {f}|"
    "what's the first error in {f}|error in {f}|the error in {f}|{f} error|what crashed in {f}|"
    "what is the error that {f} logs|what does {f} say went wrong|what error is logged in {f}|"
    "which error was logged in {f}|what's the failure in {f}|"
    "in {f}, what is the error|what is the reason for the failure in {f}|"
    "why did it fail? See {f}|why did the build fail? Look at {f}|what broke in {f}|"
    "what is the cause of the failure in {f}|what's broken in {f}|I need the error from {f}|"
    "get the error from {f}|report the error in {f}|which error can you see in {f}|"
    "what's the error inside {f}|what happened in {f}, any error|find out what went wrong in {f}|"
    "what error do you find in {f}|look into {f}: what's the error|does {f} contain an error|"
    "what error did {f} log|why did it fail according to {f}|can you see what failed in {f}|"
    "please look at {f}, something is wrong|what's causing the crash in {f}|"
    "what is the failure reported in {f}|{f} has an error, which one|our {x} is down, see {f}|"
    "the {x} failed, look at {f}|my {x} does not start, check {f}|"
    "I ran the {x} and got {f}, what's wrong|something is wrong with the {x}, the log is {f}|"
    "the {x} crashed, what does {f} say|why did the {x} stop, see {f}|why does {f} fail|"
    "what stopped the {x} in {f}|what caused the {x} to fail in {f}|analyse {f}|analyze {f}|"
    "investigate {f}|troubleshoot {f}|what's wrong with {f}|what happened in {f}|{f} failed, why|"
    "is {f} clean|is {f} ok|is everything fine in {f}|any problems in {f}|does {f} have errors|"
    "does {f} have any errors|has anything failed in {f}|have there been errors in {f}|"
    "what exception is in {f}|which exception was thrown in {f}|what does {f} complain about|"
    "what's the issue in {f}|what is the trouble in {f}|why is {f} so full of trouble|"
    "find the failure in {f}|look for problems in {f}|could you find the error in {f}|"
    "would you look at {f} for errors|give me the reason for the crash in {f}|"
    "what does the log {f} report as error|what error shows up in {f}|what error appears in {f}|"
    "what error occurred in {f}|which error occurred in {f}|what errors did {f} record|"
    "{x} the error in {f}|{x} {f} for errors|what error {x} in {f}|which error did {f} {x}|"
    "what {x} error is in {f}|{f} contains an error, what is it|"
    "there is an error in {f}, what is it|I see a problem in {f}, what is it|"
    "I need to know what failed in {f}|let me know the error in {f}|which test failed in {f}|"
    "which tests failed in {f}|what test failed in {f}|which step failed in {f}|"
    "anything bad in {f}|anything unusual in {f}|anything suspicious in {f}|something odd in {f}|"
    "my {x} is missing, please look into {f}|look into {f}|please look into {f}|errors in {f}|"
    "what's the matter in {f}|why does the {x} not start, see {f}|what does {f} complain about|"
    "what is {f} saying went wrong|the {x} is gone, see {f}|did the {x} fail, see {f}|"
    "what was the problem in {f}|what was the error in {f}|what kills the {x} in {f}"
)
KEY = _ways(
    "what is {k} in {f}|what's {k} in {f}|what is the {k} in {f}|what's the {k} in {f}|"
    "what is the value of {k} in {f}|what's the value of {k} in {f}|value of {k} in {f}|"
    "which value does {k} have in {f}|what value does {k} have in {f}|what is {k} set to in {f}|"
    "what's {k} set to in {f}|which {k} is set in {f}|which {k} does {f} set|"
    "which {k} does {f} use|what {k} does {f} use|what does {f} set {k} to|how is {k} set in {f}|"
    "find {k} in {f}|find the value of {k} in {f}|look up {k} in {f}|tell me {k} from {f}|"
    "tell me the value of {k} in {f}|tell me the {k} in {f}|show me {k} in {f}|"
    "show me the value of {k} in {f}|give me {k} from {f}|give me the {k} in {f}|"
    "get {k} from {f}|read {k} from {f}|in {f}, what is {k}|in {f}, what is the value of {k}|"
    "{f}: what is {k}|{k} in {f}|the {k} in {f}|what is the setting {k} in {f}|"
    "what is the {k} setting in {f}|what's the {k} value in {f}|according to {f}, what is {k}|"
    "check {k} in {f}|open {f} and tell me {k}|read {f} and tell me the value of {k}|"
    "what does {f} say about {k}|what has {f} for {k}|I need the {k} from {f}|"
    "which value is set for {k} in {f}|what's the current value of {k} in {f}|"
    "what value is {k} given in {f}|look in {f} for the value of {k}|"
    "could {f} tell us what {k} is|what is {k} according to {f}|find out {k} from {f}|"
    "what is {k} in {f} set to|how big is {k} in {f}|how long is {k} in {f}|"
    "how many {k} are configured in {f}|how many {k} are set in {f}|how many {k} does {f} set|"
    "what {k} do we have in {f}|what {k} does {f} have|"
    "which {k} is in {f}|what's our {k} in {f}|what {k} is used in {f}|"
    "which {k} is configured in {f}|what's the configured {k} in {f}|can you look up {k} in {f}|"
    "can you tell me {k} in {f}|could you check {k} in {f}|{k} value in {f}|{k} setting in {f}|"
    "show {k} of {f}|print {k} from {f}|{f} {k}|what do we use for {k} in {f}|"
    "what do we use as {k} in {f}|what was {k} set to in {f}|does {f} set {k}|"
    "does {f} define {k}|is there a {k} in {f}|is {k} defined in {f}|"
    "where in {f} is {k} and what is it|I want to know {k} in {f}|let me know {k} from {f}|"
    "fetch {k} from {f}|extract {k} from {f}|{x} {k} from {f}|{x} the {k} in {f}|"
    "which {k} is the {x} using in {f}|what {k} does the {x} use in {f}|"
    "what {k} does the {x} have in {f}|what is the {k} of the {x} in {f}|"
    "the {x} needs {k}, what is it in {f}|what is the current {k} in {f}|"
    "what's the actual {k} in {f}|in {f}, what's the {k}|from {f}, tell me {k}|"
    "in {f}, which {k} is set|what's {k}? It is in {f}|what's the {k}? See {f}|"
    "I forgot {k}, it is in {f}|what {k} have we chosen in {f}|what {k} was chosen in {f}|"
    "what number is {k} in {f}"
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
    "what is on line number {n} of {f}|what is the content of line {n} of {f}|"
    "what can be read on line {n} of {f}|let me see line {n} of {f}|"
    "what do we have on line {n} of {f}|what's written in line {n} of {f}|find line {n} of {f}|"
    "what's the text of line {n} in {f}|what does {f} have on line {n}|{f}:{n}|"
    "can I see line {n} of {f}|could you show me line {n} of {f}|what stands at line {n} of {f}|"
    "what's there on line {n} of {f}|go to line {n} of {f}|I need line {n} of {f}|"
    "line {n} of {f}, please|show {f} line {n}|show me {f} at line {n}|{x} line {n} of {f}|"
    "what do you see on line {n} of {f}|there is an error at line {n} of {f}, what does it say|"
    "the {x} fails at line {n} of {f}, show it|can you read line {n} of {f} to me|"
    "what text is in {f} at line {n}|how does line {n} of {f} read|display line {n} of {f}|"
    "what does line {n} say in {f}|tell me about line {n} of {f}|quote line {n} of {f}"
)
LIST_HERE = _ways(
    "which files are here|what files are here|what files are there|which files are there|"
    "list the files|list all files|show me the files|show the files|what is in this folder|"
    "what's in this folder|what's here|what is here|which files are in this folder|"
    "what files are in this folder|which files does this folder hold|list this folder|"
    "list the files in this folder|what does this folder contain|what's in the folder|"
    "what is in the current folder|which files are in the current directory|ls|dir|list files|"
    "what files do you see|which files can you see|what files do I have here|"
    "give me the list of files|tell me which files are here|what's in this directory|"
    "show me what is in this folder|which files can you read|list everything here|"
    "what files does this folder hold|can you list what's here|which files are in this directory|"
    "what do you see in this folder|name the files here|what files do we have|"
    "what do we have here|what do you have|what have you got|show me everything|"
    "what is available here|which files are available|list|show the folder|show me the folder|"
    "what does the folder contain|what's inside|what is inside this folder|"
    "what files can I look at|are there any files here|is there anything here|"
    "which documents are here|what can I read here|list the contents of this folder|"
    "list the current folder|list the directory|list the content|what's in the current directory|"
    "what is in the working directory|files|which files exist here|can you list the files|"
    "could you show me the files|please list all the files|see what is here|"
    "I want to see the files|what's lying around here|have a look at this folder|"
    "what kind of files are here|which logs are here|what logs do I have|tell me what is in here"
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
    "which files are in the {d} directory|list the directory {d}|list all files in {d}|"
    "name the files in {d}|which files can be found in {d}|what do we have in {d}|"
    "what's in the {d} directory|give me the files in {d}|what files does {d} contain|"
    "what files do we have in {d}|what have we got in {d}|are there any files in {d}|"
    "what lies in {d}|what is available in {d}|which files are available in {d}|"
    "see what is in {d}|can you list {d}|could you show me {d}|please list all the files in {d}|"
    "have a look at {d}|I want to see what's in {d}|look at the folder {d}|look at {d}|"
    "what's the content of {d}|what are the contents of {d}|list the contents of {d}|"
    "show the contents of {d}|open {d}|which documents are in {d}|what can I read in {d}|"
    "{d}: which files|files in {d}|files of {d}|the files in {d}|{x} the files in {d}|"
    "{x} the folder {d}|what did the {x} leave in {d}|does {d} have any files|"
    "what do you see in {d}|what kind of files are in {d}|tell me what is in {d}|"
    "what was stored in {d}|which logs are in {d}|show me everything in {d}"
)
SEARCH = _ways(
    "which file mentions {w}|which files mention {w}|what file mentions {w}|"
    "what files mention {w}|which file contains {w}|which files contain {w}|"
    "what file contains {w}|which file has {w}|which file has {w} in it|where is {w} mentioned|"
    "where is {w}|where does {w} appear|where does {w} occur|where do I find {w}|"
    "where can I find {w}|in which file is {w}|in which file does {w} occur|"
    "in which files does {w} appear|which file talks about {w}|which file says {w}|"
    "find the file that mentions {w}|find the file with {w}|find {w}|search for {w}|search {w}|"
    "search the files for {w}|look for {w}|find files that contain {w}|does any file mention {w}|"
    "is there a file that mentions {w}|does any file contain {w}|do any files mention {w}|"
    "which of the files mentions {w}|which of the files contains {w}|"
    "tell me which file mentions {w}|show me the file that mentions {w}|grep {w}|grep for {w}|"
    "who mentions {w}|is {w} mentioned anywhere|does {w} occur anywhere|which file speaks of {w}|"
    "in what file can I find {w}|in which file is {w} mentioned|find the file containing {w}|"
    "which files have {w} in them|where in the files is {w}|is there any file with {w}|"
    "where is {w} defined|where's {w} defined|where is {w} declared|where is {w} set|"
    "where is {w} used|where do we use {w}|where do we mention {w}|where do we define {w}|"
    "where is {w} implemented|who calls {w}|which file defines {w}|which file uses {w}|"
    "what uses {w}|what mentions {w}|where is {w} coming from|where does {w} come from|"
    "find all uses of {w}|find references to {w}|find every {w}|find all {w}|"
    "find occurrences of {w}|list the files with {w}|list files with {w}|files with {w}|"
    "files that mention {w}|files containing {w}|{w} in which file|{w}: where|is {w} in any file|"
    "is there any {w}|is there something about {w}|do we have {w} somewhere|"
    "do we have anything about {w}|can you find {w}|could you search for {w}|please find {w}|"
    "can you tell me where {w} is|I need the file with {w}|I need to find {w}|I want to find {w}|"
    "I am looking for {w}|I lost {w}, where is it|show me where {w} is|show me all {w}|"
    "show files with {w}|what file is {w} in|which file is {w} in|what file has {w}|"
    "in what file is {w}|in what files does {w} occur|have you seen {w}|did anyone mention {w}|"
    "did someone write {w}|{x} {w} in the files|which file {x} {w}|which file {x}s {w}|"
    "which files {x} {w}|which file {x}s about {w}|which file {x} of {w}|what {x}s {w}|"
    "where {x} {w}|which text {x}s {w}|which of the files {x} {w}|where do the {x}s mention {w}|"
    "what is written about {w}|what's known about {w}|is anything known about {w}|"
    "where can {w} be found|where may I find {w}|everything about {w}|anything on {w}|"
    "anything about {w}|which logs mention {w}|which log mentions {w}|in which log is {w}"
)
SEARCH_IN = _ways(
    "which file in {d} mentions {w}|which files in {d} mention {w}|search {d} for {w}|"
    "where in {d} is {w}|find {w} in the {d} folder|which file in {d} contains {w}|"
    "which file in the folder {d} mentions {w}|look for {w} in the folder {d}|"
    "does any file in {d} mention {w}|what file under {d} contains {w}|"
    "which file under {d} mentions {w}|what files in {d} contain {w}|"
    "search the {d} folder for {w}|what files in {d} mention {w}|find {w} in {d}|"
    "search for {w} in {d}|look for {w} in {d}|grep {w} in {d}|grep {w} {d}|grep for {w} in {d}|"
    "where is {w} in {d}|where's {w} in {d}|which file in {d} has {w}|"
    "which files in {d} have {w}|which file in {d} uses {w}|which files in {d} use {w}|"
    "in {d}, where is {w}|in {d}, which file mentions {w}|in {d}, find {w}|"
    "is {w} mentioned in {d}|is {w} in {d}|is there a {w} in {d}|does {d} mention {w}|"
    "does {d} contain {w}|does anything in {d} mention {w}|is there anything about {w} in {d}|"
    "anything about {w} in {d}|search the folder {d} for {w}|which documents in {d} mention {w}|"
    "which files inside {d} mention {w}|check {d} for {w}|scan {d} for {w}|"
    "go through {d} and find {w}|can you find {w} in {d}|could you search {d} for {w}|"
    "where in {d} does {w} occur|where in {d} do we use {w}|which file in {d} {x}s {w}|"
    "which files in {d} {x} {w}|{x} {d} for {w}|{x} {w} in {d}|show me {w} in {d}|"
    "list the files in {d} that mention {w}|find the file in {d} that mentions {w}|"
    "tell me which file in {d} mentions {w}|where in the folder {d} is {w}|"
    "who in {d} mentions {w}"
)
BOTH = _ways(
    "which file mentions {w}, and what is its error|"
    "which file mentions {w} and what is its error|which file mentions {w}, and what's its error|"
    "which file contains {w} and what is its error|"
    "which file mentions {w}, and what is the error in it|"
    "which log mentions {w}, and what failed|what is the error in the file that mentions {w}|"
    "what's the error in the file with {w}|find the file that mentions {w} and tell me its error|"
    "what went wrong in the log that contains {w}|which log has {w}, and what is its error|"
    "which file speaks of {w}, and what is its error|"
    "what's the error inside the log that speaks of {w}|"
    "find the file containing {w} and tell me what went wrong in it|"
    "which log holds {w}, and what's the error inside|"
    "where does {w} occur, and what is the error in that file|"
    "what error do you find in the log which contains {w}|"
    "which file mentions {w}, and what went wrong there|which file has {w} and what failed in it|"
    "search for {w} and tell me the error in that file|find {w} and tell me the error there|"
    "look for {w} and show me what went wrong in that file|"
    "grep {w} and give me the error in the file|"
    "where is {w} mentioned, and what is the error there|where is {w}, and what failed there|"
    "there is a file that mentions {w}, what is its error|"
    "some log mentions {w}, what failed in it|some file has {w} in it, tell me its error|"
    "one log says {w}, why did it fail|the log with {w}: what's the error|"
    "the file that mentions {w}: what went wrong|"
    "in the file that mentions {w}, what is the error|in the log with {w}, what failed|"
    "why did the run with {w} fail|what's wrong in the file which has {w}|"
    "what is the problem in the log about {w}|what failed in the log that mentions {w}|"
    "I need the error of the file that mentions {w}|I saw {w} in a log, what is the error in it|"
    "{w} is in some log, what's its error|which log {x}s {w}, and what is its error|"
    "which file {x} {w} and what went wrong there|which file {x}s of {w}, and what's the error|"
    "find the log that {x}s {w} and tell me its error|"
    "who mentions {w}, and what is the error there|which log is about {w}, and what failed|"
    "what error is in the log that {x}s {w}|what is the error in the file that {x}s {w}|"
    "{x} the file with {w} and show me its error"
)
ANY_KEY = _ways(
    "what is {k}|what's {k}|what is the {k}|what's the {k}|which {k} is used|which {k} is set|"
    "which {k} does the server use|what {k} does the server use|which {k} does the app use|"
    "what {k} does the app use|what is {k} set to|what's {k} set to|what is the {k} set to|"
    "what's the value of {k}|what is the value of {k}|value of {k}|the value of {k}|{k} value|"
    "what is {k} configured as|what {k} do we use|which {k} do we use|what {k} is used|"
    "which {k} is configured|what {k} is configured|what's our {k}|what is our {k}|tell me {k}|"
    "tell me the {k}|give me the {k}|find the value of {k}|look up the value of {k}|"
    "how is {k} set|how high is the {k}|how big is the {k}|how long is the {k}|"
    "which {k} does the {x} use|what {k} does the {x} use|what {k} does the {x} have|"
    "what {k} does the {x} listen on|what {k} does it use|which {k} does it use|"
    "what is the current {k}|what's the current {k}|what is the configured {k}|"
    "what is the {k} setting|what's the setting of {k}|what is the {k} in the config|"
    "what's the {k} in the configuration|which {k} is in the config|what value does {k} have|"
    "which value does {k} have|what do we use for {k}|what did we configure for {k}|"
    "show me the {k} setting|I need the {k} setting|I need the value of {k}|"
    "which {k} do we use for {x}|what {k} is used for {x}|which {k} is for the {x}|"
    "what {k} is the {x} on|what {k} do I use|which {k} has the {x}|"
    "the {x} needs the {k}, what is it|what is {k} equal to"
)
ANY_ERROR = _ways(
    "what went wrong|what's the error|what is the error|why did it fail|why did the build fail|"
    "what failed|are there any errors|any errors|show me the errors|find the error|what broke|"
    "what's broken|is anything broken|why did it crash|what crashed|did anything fail|"
    "why does it not work|why is it not working|why doesn't it work|what's wrong|what is wrong|"
    "what happened|find errors|search for errors|is there an error|check the logs for errors|"
    "look for errors|what's the problem|what is the problem|which error occurred|"
    "why did the {x} fail|why did my {x} crash|what error did the {x} give|show the error|"
    "what happened to the {x}|why is the {x} down|why is {x} failing|did anything go wrong|"
    "what's wrong with the {x}|why did the {x} stop|why does the {x} not start|"
    "why doesn't the {x} work|why did the deployment fail|why did the last run fail|"
    "why did the test fail|why did the job fail|which errors are there|which errors do we have|"
    "what errors are in the logs|what's the error in the logs|what do the logs say went wrong|"
    "are there errors in the logs|give me the error|tell me the error|tell me what went wrong|"
    "tell me what failed|find out what went wrong|find out why it failed|why did we fail|"
    "the {x} crashed, why|the {x} failed, what was the error|something failed, what was it|"
    "my {x} is broken, what happened|is there a problem|do you see any problem|"
    "what is the reason for the failure|what caused the crash|what caused the failure|"
    "what made the {x} fail|look for the error|can you find the error|did the {x} crash|"
    "did the build fail|did the {x} fail|what is failing|what's failing|has anything failed"
)
PLURAL = _ways(
    "find {w}s|find all {w}s|are there any {w}s|list the {w}s|list all {w}s|where are the {w}s|"
    "which files have {w}s|any {w}s|any {w}s left|show me the {w}s|search for {w}s|"
    "which files contain {w}s|do we have {w}s|do we have any {w}s|where are {w}s|grep for {w}s|"
    "look for {w}s|find the {w}s in the files|are there {w}s in the code|which {w}s are left|"
    "in which files are {w}s|find open {w}s|show {w}s|{w}s|do you see any {w}s|find the {w}s"
)
# Half of all questions are asked in one of the ways of `asked.txt`; of the others half as people
# ask most, half in one of a few thousand ways that are put together from parts.
ERROR = with_asked(mixed(ERROR, composed.ERROR, unseen.ERROR), "ERROR", unseen.ERROR)
KEY = with_asked(mixed(KEY, composed.KEY, unseen.KEY), "KEY", unseen.KEY)
LINE = with_asked(mixed(LINE, composed.LINE, unseen.LINE), "LINE", unseen.LINE)
LIST = with_asked(mixed(LIST, composed.LIST, unseen.LIST), "LIST", unseen.LIST)
LIST_HERE = with_asked(
    mixed(LIST_HERE, composed.LIST_HERE, unseen.LIST_HERE), "LIST_HERE", unseen.LIST_HERE
)
SEARCH = with_asked(mixed(SEARCH, composed.SEARCH, unseen.SEARCH), "SEARCH", unseen.SEARCH)
SEARCH_IN = mixed(SEARCH_IN, composed.SEARCH_IN, unseen.SEARCH_IN)
BOTH = mixed(BOTH, composed.BOTH, unseen.BOTH)
ANY_KEY = with_asked(mixed(ANY_KEY, composed.ANY_KEY, unseen.ANY_KEY), "ANY_KEY", unseen.ANY_KEY)
ANY_ERROR = with_asked(
    mixed(ANY_ERROR, composed.ANY_ERROR, unseen.ANY_ERROR), "ANY_ERROR", unseen.ANY_ERROR
)

ABILITY, WHO = greetings.ABILITY, greetings.WHO
GREETING = mixed(greetings.GREETING, composed.GREETING, unseen.GREETING)
THANKS = with_asked(
    mixed(greetings.THANKS, composed.THANKS, unseen.THANKS), "THANKS", unseen.THANKS
)
BYE = mixed(greetings.BYE, composed.BYE, unseen.BYE)
OTHER = mixed(greetings.OTHER, composed.OTHER, unseen.OTHER)

WHERE = with_asked(follow.WHERE, "WHERE", unseen.WHERE)
# "The port of the replica" names a heading, "the port of nginx" only what everybody has: in such
# ways what a question is about is never any word, which would be searched for.
_OF = re.compile(r"\b(of|for) (the |our |my )?\{[sx]\}|\{[sx]\}'s")
_TOLD = [told for told in SUBJECTS if told.split(" ")[-1] not in HEADINGS]


def _known(listed: list[str]) -> list[str]:
    kept = [way for way in listed if not _OF.search(way) or "{x}" not in way]
    return [
        way.replace("{s}", _TOLD[at % len(_TOLD)]) if _OF.search(way) else way
        for at, way in enumerate(kept)
    ]


KEY, ANY_KEY = _known(KEY), _known(ANY_KEY)
_EITHER = set(KEY) & {way.replace("{w}", "{k}") for way in WHERE}
"""`find {k} in {f}`: its value if that is a file of settings and the word stands bare, else on
which line it is."""
KEY_ALONE = [way for way in KEY if way not in _EITHER]
WHERE_ALONE = [way for way in WHERE if way.replace("{w}", "{k}") not in _EITHER]
LAST = with_asked(follow.LAST, "LAST", unseen.LAST)
OPEN = with_asked(follow.OPEN, "OPEN", unseen.OPEN)
TWO_KEYS, TWO_ERRORS = follow.TWO_KEYS, follow.TWO_ERRORS
AND_KEY = with_asked(follow.KEY, "AND_KEY", unseen.AND_KEY)
AND_FILE = with_asked(follow.FILE, "AND_FILE", unseen.AND_FILE)
AND_LINE = with_asked(follow.LINE, "AND_LINE", unseen.AND_LINE)
AND_AFTER = with_asked(follow.AFTER, "AND_AFTER", unseen.AND_AFTER)
AND_BEFORE = with_asked(follow.BEFORE, "AND_BEFORE", unseen.AND_BEFORE)
ITS_ERROR = with_asked(follow.ERROR, "ITS_ERROR", unseen.ITS_ERROR)
WHICH_LINE = with_asked(follow.WHICH_LINE, "WHICH_LINE", unseen.WHICH_LINE)
WHOLE = with_asked(follow.WHOLE, "WHOLE", unseen.WHOLE)
MORE = with_asked(follow.MORE, "MORE", unseen.MORE)
AND_WORD = with_asked(follow.WORD, "AND_WORD", unseen.AND_WORD)
SETS = with_asked(follow.SETS, "SETS", unseen.SETS)
TO_WHAT = with_asked(follow.TO_WHAT, "TO_WHAT", unseen.TO_WHAT)
AND_FOLDER = with_asked(follow.FOLDER, "AND_FOLDER", unseen.AND_FOLDER)
GO_BEYOND = with_asked(follow.BEYOND, "GO_BEYOND", unseen.GO_BEYOND)
AND_FIRST, AND_LAST = asked("AND_FIRST"), asked("AND_LAST")
AND_WHERE, AND_THERE = asked("AND_WHERE"), asked("AND_THERE")
NTH, WHICH_FILE = asked("NTH"), asked("WHICH_FILE")
BEYOND_KINDS = tuple(
    sorted(set(kind) - set(unseen.BEYOND))
    for kind in (*follow.BEYOND_ALONE, OTHER, *BEYOND_MADE, *[asked("BEYOND")] * 8)
)
"""Each kind is asked as often as the others, however many its phrasings are."""
BEYOND = [way for kind in BEYOND_KINDS for way in kind]
_BOTH_WAYS = "find|search|show|give|tell|look|list|open|check|scan|print|read|get|see|cat|grep|what"
ACTING = {way.partition(" ")[0].lower() for way in BEYOND} - set(_BOTH_WAYS.split("|"))
"""First words of what is beyond it: `delete line 3` is not `show line 3`."""

SWITCH = _ways(
    "is {k} on in {f}|is {k} off in {f}|is {k} enabled in {f}|is the {k} on in {f}|"
    "is {k} switched on in {f}|is {k} turned on in {f}|is {k} turned off in {f}|"
    "is {k} disabled in {f}|is {k} active in {f}|is {k} on or off in {f}|is {k} on, see {f}|"
    "is {k} enabled? {f}|is {k} on? it's in {f}|does {f} enable {k}|does {f} turn on {k}|"
    "does {f} have {k} on|does {f} switch {k} on|do we have {k} turned on in {f}|"
    "in {f}, is {k} on|in {f}, is {k} enabled|{f}: is {k} on|{f}: is {k} enabled|"
    "{k} on or off in {f}|{k} enabled in {f}|have we enabled {k} in {f}|"
    "did we switch on {k} in {f}|is {k} set to on in {f}|according to {f}, is {k} on|"
    "check whether {k} is on in {f}|tell me if {k} is enabled in {f}|"
    "look in {f} whether {k} is on|I want to know if {k} is switched on in {f}"
) + asked("SWITCH")  # fmt: skip
"""Whether what a heading names is on."""
AROUND = _ways(
    "{a} in {f}|{a}? see {f}|{f}: {a}|in {f}, {a}|{a}, according to {f}|{a} ({f})|{a}? {f}|"
    "according to {f}, {a}|{a}? look in {f}|{a}, {f}|per {f}, {a}|{a}? it's in {f}|"
    "can you check in {f} {a}|please look in {f}: {a}"
)
"""Where a whole question {a} is about a file."""
