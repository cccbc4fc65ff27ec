"""``triplepoint make``: convert, quantize and score model files."""

from ..arguments import commands_of

COMMANDS = {
    "convert": "convert a Hugging Face checkpoint to a GGUF file",
    "quantize": "quantize a GGUF file to smaller types",
    "imatrix": "compute an importance matrix of a model's weights from a text",
    "perplexity": "measure how well a model predicts a text: perplexity and KL divergence",
}

add_options = commands_of("make", COMMANDS)
