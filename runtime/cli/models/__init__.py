"""``triplepoint models``: search, list, pull and remove models, and set the default."""

from ..arguments import commands_of

COMMANDS = {
    "search": "list well-known models: whether they fit here, and their predicted speed. The "
    "best is the largest model of the last year that fits, calls tools, and is predicted to "
    "write at least 8 tokens per second",
    "pull": "download a model from the Hugging Face Hub",
    "ls": "list the models in the cache",
    "show": "show a model's architecture, weights and memory, and whether it runs here",
    "use": "set the default model",
    "rm": "remove models from the cache",
}

add_options = commands_of("models", COMMANDS, default="search")
