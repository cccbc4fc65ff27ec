"""Grids of IQ3_XXS and IQ3_S: an index of 8 or 9 bits selects four magnitudes.

A grid has 256 or 512 of the 4,096 ways in which each of four weights has one of eight magnitudes.
Read as a number whose digits to base 8 are these, the least first, its entries ascend: here is how
far each lies above the one before it.
"""

from __future__ import annotations

from itertools import accumulate

from ..simd import Kernel, Ptr, Value, i32

_GAPS = {
    "iq3_xxs": (
        ")**-*,)*/1A*,*-*/,+*/340**-/*/*,2.6,.)*3K;<-34*,.;8[?<,*=68*-*/*-**3)@*//*W*-*//J.*61583"
        ",KP,:;4u6H*/*-*,+1G**+*//C,)0*/.)*5)5</,T,I6@<2Cm*3?D/*/*=5-.*613*C*-5=87:e7;..4CG:=P=<3"
        "6*4,u<7)8.9FGM3I6=u+*6Z??0.8?G6H0QE3,K0?wT6Z8*6EHFML.nIMYP6Z**):8T2RC->56=I8G*:l"
    ),
    "iq3_s": (
        ")))+*)))***),.-*+***-*/++)))*,),++,*,/5,-.),*)+++,+,.+***5+0.,+*/*+.,*5*,+3,*+..+.72*4*,"
        "-.,*7-3+*697/**4*,-5,<))*,)***)*/+*6*+1.)*+*,-/+./*6.*2+*),..+2+2/++)+..),-9.3*-*5*/,*,="
        "/+./*7O,+5*C*-*/4,9.0)***)***+*,)*/**+*5)+*+*.+,++,+./@++2*-/*2,2+,*+,1*-*/.63.1+/+,A+/-"
        "15)350*-2D,<,5*3-B/***+/**-*+*2.0**/-*582,*2.2*4A/,-*,)1*,.60.-,/9.,5/*3-225;;H*5*3K,..,"
        "++//82-**/.-..,<*--,2-7+.4-*-*/,K*:3)A4*2IA9<@-33.A.,.6,++4.-**-/1H.12-.5?-)75-4..+424L4"
        ";*_H*6_**4*=88/E>:.3-.04-7]676+A<=CQ*],+1*4*4.8/37*D+,.+/9A@+6>,.-@R8H?O"
    ),
}  # fmt: skip


def entries(fmt: str) -> list[tuple[int, ...]]:
    """Return the grid of `fmt`: for each entry the magnitudes, 0 to 7, of four weights."""
    numbers = accumulate((ord(gap) - ord("(") for gap in _GAPS[fmt]), initial=-1)
    return [tuple(n >> (3 * i) & 7 for i in range(4)) for n in numbers if n >= 0]


def words(k: Kernel, fmt: str) -> Ptr:
    """Return the grid as constants of the kernel: int32 of four bytes, one for each weight."""
    values = [sum(m << (8 * i) for i, m in enumerate(entry)) for entry in entries(fmt)]
    return constants(k, f"grid_{fmt}", values)


def constants(k: Kernel, name: str, values: list[int]) -> Ptr:
    """Return int32 `values` as constants of the kernel, added once for any number of requests."""
    table = k.module.globals.get(name) or k.module.table(name, len(values), i32, values)
    return Ptr(k, table, i32)


def nibbles(fmt: str, grid: Ptr, block: Ptr) -> list[list[Value]]:
    """Unpack a file block to indices into `codebook.TABLES`: [activation block][K-group] int32.

    A byte of a word is the magnitude of a weight, with 8 for its sign.
    """

    def byte(at: int) -> Value:
        return block.at(at).load().to(i32, signed=False)

    out = []
    for sub in range(8):
        if fmt == "iq3_xxs":
            word = block.at(66 + 4 * sub).cast(i32).load()
            # Of eight signs the last is what makes their number even.
            sevens = [(word >> (7 * n)) & 0x7F for n in range(4)]
            signs = [seven | (parity(seven) << 7) for seven in sevens]
        else:
            signs = [byte(74 + 4 * sub + n) for n in range(4)]
        groups = []
        for g in range(8):
            index = byte(2 + 8 * sub + g)
            if fmt == "iq3_s":
                index = index | (((byte(66 + sub) >> g) & 1) << 8)
            four = (signs[g // 2] >> (4 * (g % 2))) & 15
            # Four copies, seven bits apart: bit i lands on bit 0 of byte i.
            groups.append(grid.load(index) | (((four * 0x00204081) & 0x01010101) << 3))
        out.append(groups)
    return out


def parity(value: Value) -> Value:
    """Return whether the number of set bits of an int32 below 2^8 is odd."""
    value = value ^ (value >> 4)
    value = value ^ (value >> 2)
    return (value ^ (value >> 1)) & 1


def scales(fmt: str, block: Ptr) -> list[Value]:
    """Return the 8 scales of a block of the file, odd numbers from 1 to 31."""
    if fmt == "iq3_xxs":
        fours = [(block.at(66 + 4 * n).cast(i32).load() >> 28) & 15 for n in range(8)]
    else:
        packed = [block.at(106 + n).load().to(i32, signed=False) for n in range(4)]
        fours = [(packed[n // 2] >> (4 * (n % 2))) & 15 for n in range(8)]
    return [four * 2 + 1 for four in fours]
