"""The index of where tokens stood before: what it finds, and that it forgets."""

from __future__ import annotations

import random

from triplepoint.runtime.engine.drafting.ngram_index import LONG, PLACES, WIDTH, Match, NgramIndex


def _common(tokens: list[int], at: int) -> int:
    """How many tokens before `at` are those at the end, counted one by one."""
    same = 0
    while same < min(at, LONG) and tokens[at - 1 - same] == tokens[-1 - same]:
        same += 1
    return same


def test_the_longest_place_is_found() -> None:
    """Of few places the one with most in common is found, the latest of equal ones."""
    chance = random.Random(1)
    found = 0
    for _ in range(300):
        tokens = [chance.randrange(3) for _ in range(chance.randrange(60))]
        match = NgramIndex(tokens).find()
        fits = [at for at in range(WIDTH, len(tokens)) if _common(tokens, at) >= WIDTH]
        if not fits:
            assert match is None
            continue
        found += 1
        assert match is not None
        assert match.same == _common(tokens, match.at)
        best = max(fits[-PLACES:], key=lambda at: (min(_common(tokens, at), 8), at))
        assert min(match.same, 8) == min(_common(tokens, best), 8)
    assert found > 100


def test_it_grows_and_shrinks_with_the_tokens() -> None:
    """After any growing and truncating it finds what an index of the same tokens finds anew."""
    chance = random.Random(2)
    tokens: list[int] = []
    lookup = NgramIndex(tokens)
    for _ in range(400):
        if chance.random() < 0.3:
            n = chance.randrange(len(tokens) + 1)
            lookup.truncate(n)
            del tokens[n:]
        else:
            tokens += [chance.randrange(4) for _ in range(chance.randrange(12))]
        match, fresh = lookup.find(), NgramIndex(list(tokens)).find()
        if match != fresh:  # it may go on where it was before, which is as good
            assert match is not None
            assert match.same == min(LONG, _common(tokens, match.at))


def test_what_followed_is_the_draft() -> None:
    """The tokens that followed; a repetition that reaches the end goes on."""
    tokens = [1, 2, 3, 4, 5, 6, 9, 1, 2, 3]
    lookup = NgramIndex(tokens)
    match = lookup.find()
    assert match is not None
    assert match == Match(3, 3)
    assert lookup.draft(match, 3) == [4, 5, 6]
    tokens[:] = [7, 8, 7, 8, 7, 8]
    again = NgramIndex(tokens)
    match = again.find()
    assert match is not None
    assert again.draft(match, 5) == [7, 8, 7, 8, 7]


def test_a_place_is_followed() -> None:
    """While what followed there follows here, the place is kept whatever else there is."""
    text = list(range(100, 140))
    tokens = [*text, 1, *text[:4]]
    lookup = NgramIndex(tokens)
    for n in range(4, 38):
        match = lookup.find()
        assert match is not None
        assert lookup.draft(match, 1) == [text[n]]
        assert match.same == min(n, LONG)
        tokens.append(text[n])


def test_results_of_tools_go_first() -> None:
    """Of places with much in common those in a tool's result are taken, though others are later."""
    line = list(range(50, 62))
    tokens = [*line, 1, 2, *line, 3, 4, *line]
    lookup = NgramIndex(tokens)
    match = lookup.find()
    assert match is not None
    assert lookup.draft(match, 1) == [3]
    lookup.prefer([(0, 13)])
    match = lookup.find()
    assert match is not None
    assert lookup.draft(match, 1) == [1]


def test_nothing_to_find() -> None:
    """Short and fresh texts have no place."""
    for tokens in ([], [1], [1, 2, 3], list(range(50))):
        assert NgramIndex(tokens).find() is None
