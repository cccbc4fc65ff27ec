"""Word lists and patterns by language, with which questions are classified.

A language that is missing in a row costs some precision there, and nothing else. Words of scripts
without spaces (zh, ja, ko) count anywhere, those of others as they are bounded in each row.
"""

from __future__ import annotations

import re

_DENSE = ("zh", "ja", "ko")


def _spaced(languages: dict[str, str]) -> str:
    return "|".join(words for language, words in languages.items() if language not in _DENSE)


def _pattern(before: str, languages: dict[str, str], after: str) -> re.Pattern[str]:
    """Compile words of all languages to a pattern; bounds apply in scripts with spaces."""
    dense = [words for language, words in languages.items() if language in _DENSE]
    return re.compile("|".join([f"{before}(?:{_spaced(languages)}){after}", *dense]), re.IGNORECASE)


def _whole(**languages: str) -> re.Pattern[str]:
    return _pattern(r"\b", languages, r"\b")


def _anywhere(**languages: str) -> re.Pattern[str]:
    return _pattern("", languages, "")


def _set(**languages: str) -> frozenset[str]:
    return frozenset(" ".join(languages.values()).split())


# --- what a question is about

FAULT = _whole(
    en=r"error|err|fatal|crit\w*|emerg\w*|alert|panic|exception|traceback|fail\w*|denied|refused|"
    r"killed|abort\w*|time[ds]?[ -]?out|severe|segfault",
    de=r"fehler\w*|schwerwiegend\w*|abbruch",
    es=r"fallo\w*|fallido\w*",
    fr=r"erreur\w*|échec\w*",
    ru=r"ошибк\w*",
    zh="错误|失败|异常|致命",
    ja="エラー|失敗",
    ko="오류|실패",
)
"""Matches the mark of a failure in a line."""
FAULTS = _set(
    en="err fatal crit emerg alert panic exception traceback fail denied refused killed abort "
    "timeout time-out timed severe segfault",
    de="fehler schwerwiegend abbruch",
    es="fallo fallido",
    fr="echec",
    ru="ошибк",
    zh="错误 失败 异常 致命",
    ja="エラー 失敗",
    ko="오류 실패",
)
"""Folded texts, one of which is in every line that `FAULT` matches: a fast prefilter."""
ASKS_FAULT = _anywhere(
    en=r"error|fail|fault|wrong|crash|problem|broke|stop|went down|fatal|exception|\bwhy\b",
    de="fehler|schief|abgest|kaputt|warum",
    es="fall[óoa]|problema|sali[óo] mal|por qué",
    fr="erreur|panne|pourquoi",
    zh="为什么|错|失败|问题|故障",
    ja="エラー|失敗",
    ko="오류",
)
"""Matches a question about a failure."""
COUNTS = _anywhere(
    en=r"how (?:many|often|much)|number of|count|\bmost\b|\btotal|adds? up|\bsum\b|average|"
    r"\bmean\b",
    de="wie ?viele?|wie oft|wie hoch|anzahl|am häufigsten|meisten|summe|durchschnitt|insgesamt",
    es="cu[áa]nt[ao]s?|m[áa]s frecuente|suma|promedio",
    fr="combien",
    zh="总|平均|多少|几[个次条]|最多",
)
"""Matches a question for a figure that has to be computed."""
WHICH_FILE = _anywhere(
    en=r"\b(?:which|what)\s+(?:\w+\s+){0,3}(?:file|script|page|document|config)\b|^\W*where\b",
    de=r"\bwelche[rmns]?\s+datei\b|^\W*wo\b",
    es=r"\bqu[ée]\s+(?:archivo|fichero)\b|^\W*d[óo]nde\b",
    zh="哪个文件|在哪",
)
"""Matches a question for a file rather than a figure."""
ASKS = _pattern(
    r"[?？¿]|^\W*",
    dict(
        en="who|whose|what|which|when|where|why|how|is|are|was|were|does|do|did|has|have|show|"
        "list|tell|explain",
        de=r"wer|wem|welche\w*|wann|wo|warum|wie|ist|sind|gibt|zeig\w*|nenn\w*",
        es=r"qu[ée]|cu[áa]l\w*|qui[ée]n\w*|d[óo]nde|c[óo]mo|cu[áa]nd?[ot]\w*|muestra|dime",
        zh="什么|哪|谁|吗|多少|怎么",
    ),
    r"\b",
)
"""Matches a text that is a question."""
ENDS = _whole(
    en="last|latest|newest|most recent|final",
    de=r"letzte\w*|neueste\w*",
    es="[úu]ltim[oa]s?",
    fr="derni[eè]re?s?",
    zh="最后|最新|最近",
    ja="最後",
    ko="마지막",
)
"""Matches a question for the last of something."""

# --- what a task changes

ACTS = _whole(
    en=r"set|change|add(?! up)|append|insert|put|remove|delete|drop|rename|move|create|replace|fix|"
    r"update|turn|switch|instead of|rather than|enable|disable|mark|increase|decrease|raise|lower|"
    r"bump|edit|should|must|(?:write|save|make)\b.*\.\w{2,4}",
    de=r"schreibe?\b.*\.\w{2,4}|setze?|[äa]ndere?|f[üu]ge?|l[öo]sch\w*|entfern\w*|statt|benenne?|"
    r"verschieb\w*|erstell\w*|ersetz\w*|korrigier\w*|aktualisier\w*|schalte?|markier\w*|soll\w*",
    es=r"escribe\b.*\.\w{2,4}|cambi\w*|pon|a[ñn]ad\w*|agreg\w*|borr\w*|elimin\w*|renombr\w*|mueve|"
    r"crea|reemplaz\w*|corrig\w*|actualiz\w*|marca|activ\w*|desactiv\w*",
    zh="[改设删移换]|添加|新建|创建|更新",
)
"""Matches an explicit request for a change; a request for a summary is none."""
REMOVES = _whole(
    en=r"delete|remove|drop|discard|get rid|(?:don['’]?t|not|longer) need\w*",
    de=r"l[öo]sch\w*|entfern\w*|wirf|weg",
    es=r"borr\w*|elimin\w*|quit\w*",
    fr=r"supprim\w*|enl[eè]v\w*",
    ru=r"\w*удал\w*",
    zh="[删移]",
)
"""Matches a request to delete something."""
MOVES = _whole(
    en="rename|move",
    de=r"benenne?|umbenenn\w*|verschieb\w*",
    es=r"renombr\w*|mueve|mover",
    fr=r"renomm\w*|d[ée]plac\w*",
    ru=r"\w*переимен\w*|\w*перемест\w*",
    zh="[改移]|重命名",
)
"""Matches a request to move or rename something."""
_A_LINE = "lines?|zeilen?|l[ií]neas?|lignes?|righ[ae]|linhas?|строк[аи]"
_COMMENT = "comments?|kommentare?|comentarios?|commentaires?"
PART_OF_FILE = re.compile(rf"\b(?:{_A_LINE}|{_COMMENT})\b|行|注释", re.IGNORECASE)
"""Matches a request about part of a file, such as a line or a comment."""
DID = {
    "en": "wrote|written|saved|created|deleted|removed|updated|changed|renamed|moved|edited|added"
    "|replaced|modified|appended|fixed",
    "de": "geschrieben|gespeichert|erstellt|angelegt|gelöscht|entfernt|geändert|aktualisiert"
    "|umbenannt|verschoben|hinzugefügt|ersetzt",
    "es": "escrito|guardado|creado|eliminado|borrado|actualizado|cambiado|modificado|añadido"
    "|renombrado|movido",
    "zh": "写入|保存|创建|删除|更新|修改|添加|重命名|替换",
}
"""Participles, by language, with which an answer reports a change of a file."""

# --- lines by their number

LINE = re.compile(
    rf"(?:\b(?:{_A_LINE})\s+(?:no\.?\s*|nr\.?\s*|number\s+|nummer\s+|número\s+)?|第\s*|\.\w{{1,8}}:)"
    r"(\d{1,9})(?:\s*(?:-|–|to|bis|a|and|und|y|到)\s*(?:第\s*)?(\d{1,9}))?"
    r"(?!\s*(?:章|节|个|次|天|年|月|日|名))|\b(\d{1,9})(?:st|nd|rd|th)\s+line\b",
    re.IGNORECASE,
)
"""Matches a line number, or a range of lines."""
FIRST_LINE = re.compile(
    rf"\b(?:first|erste[nr]?|primera?|premi[eè]re?)\s+(?:{_A_LINE})\b|第一行", re.IGNORECASE
)
LAST_LINE = re.compile(
    rf"\b(?:last|letzte[nr]?|[úu]ltima|derni[eè]re)\s+(?:{_A_LINE})\b|最后一行", re.IGNORECASE
)

# --- what is counted

HIGHEST = _whole(
    en=r"most|highest|largest|biggest|longest|oldest|hottest|heaviest|max\w*|top|best|ever",
    de=r"meisten|h[öo]chste\w*|gr[öo][ßs]te\w*|am h[äa]ufigsten",
    es=r"m[áa]s|mayor|m[áa]xim\w*",
    fr="plus",
    zh="最",
)
LOWEST = _whole(
    en=r"least|lowest|smallest|shortest|youngest|coldest|lightest|min\w*|fewest|cheapest",
    de=r"wenigsten|niedrigste\w*|kleinste\w*",
    es=r"menos|menor|m[íi]nim\w*",
    fr="moins",
    zh="最[少小低]",
)
OFTEN = _whole(
    en="how (?:often|many times)",
    de="wie oft",
    es="cu[áa]ntas veces",
    fr="combien de fois",
    zh="[几少]次",
)
_HOW = {
    "en": r"how many|number of|count(?: of)?(?: all)?(?: the)?",
    "de": r"wie ?viele|(?:an)?zahl der",
    "es": r"cu[áa]nt[ao]s|n[úu]mero de",
    "fr": "combien de",
}
HOW_MANY = _whole(**_HOW, zh="多少个?|几[个条]")
FILES = re.compile(
    rf"\b(?:{_spaced(_HOW)})\s+(?:(?P<kind>\.?\w+)[ -])?"
    r"(?:files|dateien|archivos|ficheros|fichiers)\b(?:\s+(?:de\s+)?(?P<after>\.?\w+))?|"
    r"多少个?\s*(?P<zh>\.?[A-Za-z]\w*)?\s*(?:的)?文件(?!夹)",
    re.IGNORECASE,
)
"""Matches a question for the number of files, with their kind."""
LINES = _set(
    en="entries entry line lines row rows total",
    de="eintrage zeile zeilen",
    es="entradas fila filas linea lineas",
    fr="ligne lignes",
)
"""Folded words for the lines of a file."""

# --- folded words

COMMON = _set(
    en="""
    a about after again all also an and any are as at be been before by can could currently did do
    does each every exactly file files folder for from get give had has have here how i if in into
    is it its itself just least less line lines list many me more most much my name need needed
    needs no not now of on one only or our out per please really s say says set show so some t tell
    than that the their them then there these they this to two up us use used uses was we were what
    when where which who whose why will with would you your
    """,
    de="""
    aber als am auch auf aus bei bin bis brauch brauche da das dass datei dem den der derzeit des
    die dies doch du ein eine einem einen einer er es fur gibt hat hier ich ihr im ist jetzt kann
    mehr meisten mit nach nicht noch nur oder sich sie sind steht uber um und uns unser von vor war
    welche welchem welchen welcher welches wann wer wie wieviel wieviele wird wo zeile zu zum zur
    """,
    es="""
    ahora al aqui archivo como con cual cuales cuando cuanta cuantas cuanto cuantos de del donde el
    ella en esta este la las le linea lo los mas menos mi nos o para por porque que quien se ser si
    solo son su sus tambien tiene un una y
    """,
    fr="""
    au aux avec ce ces cette combien dans du elle est et il je les mais ne ou par pas pour quand
    quel quelle qui quoi sa sont sur une vous
    """,
)
"""Folded words that are common in questions and weigh little."""
COMMON_DENSE = frozenset("的是了在有和吗呢么什哪谁几多少个这那请我你们其の는이를")
"""Common characters of questions in scripts without spaces, which weigh little."""
POINTS = _set(
    en="also else he her his it its other same she that then there they them those too",
    de="andere auch davon dazu deren dessen dort er es sie",
    fr="autre aussi cela ella",
    es="ello ellos esa ese eso otra otro tambien",
)
"""Words that refer to earlier messages. A short question without them is judged by its length."""
CONTINUES = _pattern(
    r"^\W*",
    dict(
        en="and|what about|how about",
        de="und|was ist mit",
        es="y",
        fr="et",
        zh=r"^\W*(?:那|它|还有|而)",
    ),
    "",
)
"""Matches the beginning of a question that continues an earlier one."""
SMALL = _set(
    en="""
    afternoon all are bye cheers cool day doing done evening everything fine for good goodbye great
    hello help hey hi how i much morning nice night no ok okay perfect please s so sorry thank
    thanks that there thx today very welcome well yes you your
    """,
    de="""
    abend danke dank dir es geht gruss guten hallo ihnen moin morgen servus tag tschuss vielen wie
    """,
    es="adios buenas buenos como dias estas gracias hola muchas noches que tal tardes",
    fr="beaucoup bonjour bonsoir merci salut",
    it="buongiorno ciao grazie",
    pt="obrigado ola",
    ru="привет спасибо",
    zh="你好 您好 谢谢 再见 早上好",
    ja="こんにちは ありかとう",  # folded: without the marks of が
    ko="안녕하세요 감사합니다",
)
"""Folded words of greetings and thanks."""
HERE = _set(
    en="""
    code config file files folder here log logs mine my our project repo settings these this us we
    """,
    de="""
    datei diese dieser dieses diesem einstellungen hier unser unsere unserem unseren wir
    """,
    es="aqui archivo carpeta configuracion esta este nuestra nuestro",
    fr="fichier ici notre",
)
"""Folded words that suggest that a question is about this folder."""
