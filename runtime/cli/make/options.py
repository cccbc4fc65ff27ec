"""The options of ``triplepoint make``."""

from __future__ import annotations

from ..load_engine import MODEL, EngineOptions
from ..option_groups import OptionGroup, argument, option

FOLDER = {"metavar": "FOLDER", "help": "folder with config.json and safetensors"}
PASS = EngineOptions.only("threads", "target", "kv")


class ConversionOptions(OptionGroup):
    """The file that is read, the one that is written, and how."""

    source: str = argument("IN")
    """GGUF file to read"""
    target: str = argument("OUT")
    """GGUF file to write"""
    force: bool = option()
    """overwrite OUT if it exists"""
    threads: int | None = option("-t")
    """number of threads (default: the physical cores)"""


class TypeOption(OptionGroup):
    """The type of what is written."""

    type: str = option(
        type=str.lower, choices=("auto", "f32", "f16", "bf16", "q8_0"), default="auto"
    )
    """type of the matrices (default: auto, the checkpoint's own)"""


class QuantizeOptions(ConversionOptions):
    """Also the quantization, and the importance matrix."""

    type: str = argument("TYPE")
    """quantization, such as Q4_K_M or Q8_0; a wrong one lists all"""
    imatrix: str | None = option("FILE")
    """importance matrix from `triplepoint make imatrix` or llama.cpp"""


class TextOptions(OptionGroup):
    """A model, and a text that it reads in chunks."""

    model: str = argument("MODEL", MODEL)
    file: str = argument("FILE")
    """text file in UTF-8"""
    chunk: int = option("-c", default=512)
    """tokens per chunk"""
    chunks: int | None = option()
    """maximum number of chunks (default: all)"""


class ImatrixOptions(TextOptions):
    """Also the output file."""

    output: str = option("-o", "OUT", default="imatrix.gguf")
    """file to write"""


class PerplexityOptions(TextOptions):
    """Also a base to compare with."""

    kl_base: str | None = option("BASE")
    """also measure the KL divergence from this model"""


OPTIONS = {
    "convert": (ConversionOptions.but(source=FOLDER), TypeOption),
    "quantize": (QuantizeOptions,),
    "imatrix": (ImatrixOptions, PASS, ConversionOptions.only("force")),
    "perplexity": (PerplexityOptions, PASS),
}
