"""The training and evaluation of the embedded model; its weights are in `runtime/nano`.

`solve.py` says what it is to do, `corpus.py` writes conversations, `train.py` trains on them,
`evaluate.py` and `suite.py` judge it; `runtime/nano/MODEL_CARD.md` has the results.
"""
