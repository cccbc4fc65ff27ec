"""The embedded demonstration model: its weights (`nano.gguf`), and what they were made with.

`solve.py` says what it is to do, `corpus.py` writes conversations, `train.py` trains on them,
`evaluate.py` and `suite.py` judge it; `MODEL_CARD.md` has the results.
"""
