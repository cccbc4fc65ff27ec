"""Names as a byte trie: what may be written is a beginning of a name, and every name may be."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.runtime.conversation.name_trie import NameTrie, TokenIndex
from triplepoint.runtime.tokens.tokenizer import Tokenizer

PIECES = [*(bytes((n,)) for n in b'ab"\\/}'), b"ab", b'a"', b'b"}', b'"}', b'/a"a', b'\\"', b"aab"]


class Small:
    """A vocabulary of a few tokens, the first of which is a control token."""

    control_ids = frozenset((0,))
    n_vocab = len(PIECES) + 1

    def token_bytes(self, token: int) -> bytes:
        """See `Tokenizer`."""
        return PIECES[token - 1] if token else b"ab"


NAMES = st.sets(
    st.text("ab/", min_size=1, max_size=5).map(str.encode)
    | st.sampled_from([b'a\\"b', b'\\"', b"a\\\\"]),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(NAMES)
def test_a_token_may_come_if_a_name_goes_on_with_it(names: set[bytes]) -> None:
    """At each node: those, and no others; against a search of all tokens."""
    whole = {name + b'"' for name in names}
    trie = NameTrie(TokenIndex(Small()), whole)  # type: ignore[arg-type]
    nodes = {name[:n] for name in whole for n in range(len(name))}
    for node in nodes:
        expected = {
            n + 1
            for n, piece in enumerate(PIECES)
            for name in whole
            if name.startswith(node)
            and (name.startswith(node + piece) or (node + piece).startswith(name))
        }
        assert set(trie.tokens(node).tolist()) == expected


def test_every_name_can_be_spelled_and_nothing_else(tokenizer: Tokenizer) -> None:
    """However it is cut; all texts of three tokens are tried, and each name is cut in each way."""
    names = [b'app"', b'a.log"', b'app.log"', "é".encode() + b'"']
    trie = NameTrie(TokenIndex(tokenizer), names)
    for name in names:
        for cuts in product((0, 1), repeat=len(name) - 1):
            ends = [n + 1 for n, cut in enumerate(cuts) if cut] + [len(name)]
            begin = 0
            for end in ends:
                token = TokenIndex(tokenizer).ids.get(name[begin:end])
                if token is None:
                    break
                assert token in trie.tokens(name[:begin])
                begin = end

    def spelled(node: bytes, left: int) -> None:
        for token in trie.tokens(node).tolist():
            after = node + tokenizer.token_bytes(token)
            assert any(name.startswith(after) or after.startswith(name) for name in names)
            if left and not any(after.startswith(name) for name in names):
                spelled(after, left - 1)

    spelled(b"", 3)


def test_what_is_below_an_open_name_is_free(tokenizer: Tokenizer) -> None:
    """It ends with its slash; behind it the trie says nothing."""
    trie = NameTrie(TokenIndex(tokenizer), [b"lib/", b'lib"'])
    slash, quote = (tokenizer.encode(text)[0] for text in '/"')
    tokens = set(trie.tokens(b"lib").tolist())
    assert {slash, quote} <= tokens
    assert all(tokenizer.token_bytes(n)[:1] in b'/"' for n in tokens)
    assert trie.ends(b"lib/")
    assert not trie.ends(b"lib")


@pytest.mark.parametrize(
    ("names", "node"),
    [(["app.log"], ""), (["logs/a", "logs/b"], ""), (["app.log", "appendix"], "a"), (["x"], "x")],
)
def test_forced_tokens_are_the_tokenizers_own(
    tokenizer: Tokenizer, names: list[str], node: str
) -> None:
    """Each is what the tokenizer makes of every name that is left, whatever follows."""
    trie = NameTrie(TokenIndex(tokenizer), [f'{name}"'.encode() for name in names])
    forced = trie.forced(tokenizer, node.encode(), ': "')
    for name, behind in product(names, ("}", ", ", '"}', "\n")):
        ids = tokenizer.encode(f': "{name}"{behind}')
        at = [len(tokenizer.decode(ids[:n])) for n in range(len(ids))]
        begin = 3 + len(node)
        if forced:
            assert ids[at.index(begin) :][: len(forced)] == forced
    assert len(names) > 1 or node or forced
    assert '"' not in tokenizer.decode(forced) or node
