"""Grids of IQ2 and IQ1: an index in the file selects eight digits, 0 to 2.

A digit is a magnitude in IQ2 and one of -1, 0, 1 in IQ1. A grid has 256 to 2,048 of the 6,561 ways
to choose eight. Read as a number to base 3, the least digit first, its entries ascend: here is for
each number a bit that says whether it is one. In IQ2 all are even, and only those have bits.

With one more bit, a sign in IQ2 and in IQ1 on which side of the digit the weight lies, a weight is
one of six values of a table (`codebook.py`).
"""

from __future__ import annotations

import base64

import numpy as np

from ..simd import Kernel, Ptr, Value, i16, i32
from . import grids

PAIRED = ("iq2_xs", "iq2_s", "iq1_m")  # scales for the halves of an activation block
EIGHTS = ("iq2_xxs", "iq1_s", *PAIRED)

_CHOSEN = {
    "iq2_xxs": (
        "fA*xAAf`Y7AP5Es03ZNNm<3^iEC>WJ1i%0RfB<QNW&i>p00IC2AOrva0ANA{2vQ(HfCvEq03iSXK!Sn*0sue&Kmd"
        "S1000006CeNx00jU501yBG2mk;k00A)o06+u)01N;C005W(fdBvq00IaA000002!J2}03ZMW0000001yBGz@$kOC"
        "P07yAPRs8fCvGA1OWg91Rw+e000310000cKmh;%0sufE0000200N{803ZPn00IC20RR912mk;802lxP0000W0003"
        "1AS3`F0000800002000002@n7QfB*mp004jhKmY&*00000U;qFh00000000000RR9100000000000GI#*fB+x}0s"
        "sI20ssI2U<w2X03ZM$06+i&2oL~(0000000961000mG0000IBme*qfB*mp000010006A0RR9101yBG0000000000"
        "KmY&`0000000000AOJuB0ssL3001BW00000AOHXW00000000000000000IC20ssI2000000000"
    ),
    "iq2_xs": (
        "|KGoP8~)FmGy&d(DG&ktn|EOXya^K`0GL1nfB^VYCP9EW0Rn&o5Fh~nK;hrKi4)*Wm;k}R1qcuTz?-l^0)Pn+004"
        "j>00961Gav{c00jU50ssI22mk>8gb5HJOn?Lg00a;KAOM<x0RR99073vj5D)+W0F)sB0R#d706-7`K>z?6z`yxZC"
        "cv980Sbs27ytl(w_ySV0TUzu00<F)1ONagKoJ1|LI4Q}00;m8006v66CePX0s{a52mk~C05~B6gaDBM0DuGlKmb4"
        "hA_#~800BT400000000Pp2@pgOzyJUM000040ssMl00000AV2{CKmY&$000C401yBGAOHXWAOJuF0C*E8zyN#!LI"
        "MB~AOL^?X$}Mk2p|9u000Oe0003%0s;^QAOZjY0000203<>aAP^7$0R#X60000WfB*^rNdN!<KmY&+000310000W"
        "000625C8xG1ONm8upt5f0097i1OR9O1ONd700;np0000000000fB*sr3jhE}0ssIo001xm0099"
    ),
    "iq2_s": (
        "|KGoVQ~%BTHfP?%FHlAN`~T<L{BQr}P51(B!UT9<|4k7%FWQ6%5Jp1)fZ*S~f7j;!`!{dEmMH@!!29-Z-h_YiCQN"
        "`fVFCnz-{MUe0B^zs1Rx|pAOHZ~*Etde&WST&0z}Xf00a6qZ^8s<6DCjqFaZJr08j=@00?jb002M$f&d^G!2kPyr"
        "p^2FZ{CD?(k2Xm|L@<t3IFCzoB(ga1PDO(&6^+r-h>Gd2uy$g006vy|K<(&H*dlOXcH!20Pt_#gbDB_On?Aj0tEm"
        "7;7yna0l)+Z002Nh000P}d($RJfHz?R1OyTw5C9Nu!UPBaCO`xP0s;U400c|`00a;OfB*mh00062fOuQxMH#Sf-h"
        "c^M2TT9};9tB66W~pl01?0h3;+N?8886=hyf6Q00002FbEL)<V~0WWxzxL046{H0D#_v2@nWOfB*nc1ONmC0GL1l"
        "000aCPyhe`00008P(@Av01^NMAOJvu1^^n+1PA~SNI(Dp000000ssIA2mk;O000Oe02mekKmY*"
    ),
    "iq1": (
        "RV5UKpaMcs2t_fdh9HWf8VD*N6opU}f*?diB^3pr0)ilj7yt-@paUwPh`Xu^kg5v+A^-}ijDnyDKv4)qA&7ub6hc"
        "u5iZBS6pa_5}2t^?jg&;^mRR~1^EW)55iY5RmB&e#Q2;#2@2q-83paMcDswg0+fFKH+2)VkbAj+<ZqOPhseCz7Ey"
        "Mhk5BD%`c4w3>Q03sl$in<Dd0tf&qO5mb9A|NZG0D(Y(s){HGA^{YIP!)n82}L1Pg`fxmBd9tcgn}ScLQx2!APAL"
        "E6ap#;xTu1FphyBB2!f($q5>$ZDhP!j2!b#OML+;WAryt6076j!MFA;-0E&Vt2%#_(1yB@%C<sL%6onuH0wAg?03"
        "Z^vimoWAx}mD5Z~%e|2m&Y~0)zm907!tK>aZ%R!XS&fBI??wi;HfklCUbOa*K*Y3@RW<gg_{YDhR3|$jqW5qOY2u"
        "=%@k!0stzghyWmfpo^lSD7v74f-(xazPP&n>!P45q6mr#DC(jBp)vvt`lRaK?<=S-jlO>C`uBgo=6$-}Y5OPtzb5"
        "(;>EVhZ5URcogsKR#s0)Iw|GFgUgMb8LENJqm3ZyFl0xAdy;;Iq=0)i?ErXb0JiI9RQ0HOelfD-_M2nYadimIx+0"
        ";ax-pvnS(YnLw2vgr_l5H70TC>7DA1ON(x0E&Vj2mzrWf~q;XA~J-a34j;?ilSlyffPhh07W6Jf>0DfQ3$FaD5{4"
        "F5-JEqAru9m2trW^MFAiJpg^J`0Ehqxq6lh=Zn&zdfB+y0g5t;`AqYfJ6hcu6iXat*P!xs=2&yV7fB*_YQ3ypLr~"
        "ptDLQx3fAc%qr7=kJYs-miju!{l;DykqTf`F<DC<rJ3sfYq1puP(zxCn~6OR}#2x}^B7svuG*Xttm*=70(UC<r2I"
        "Vt^nD0;;Mjs_LStprQx}5Fnt6A^?I807W4bg`f&RQ3ypLsRjT_ssae501ypC6oM!SMIjUg00@GDtnwfL0062AC<?"
        "kD>Y@Swf=CG{=@bAFOGQxtMFFS+P!vK@2#6#Ih$sp`2mnO^6a}CHKv4)q0R"
    ),
}


def entries(fmt: str) -> np.ndarray:
    """Return the grid of `fmt`: uint8 [entries, 8], digits."""
    name = "iq1" if fmt.startswith("iq1") else fmt
    bits = np.unpackbits(
        np.frombuffer(base64.b85decode(_CHOSEN[name]), np.uint8), bitorder="little"
    )
    numbers = np.flatnonzero(bits) * (1 if name == "iq1" else 2)
    return (numbers[:, None] // 3 ** np.arange(8) % 3).astype(np.uint8)


def words(k: Kernel, fmt: str) -> Ptr:
    """Return the grid as constants of the kernel: two int32 of four bytes for each entry."""
    return grids.constants(k, f"grid_{fmt}", entries(fmt).view("<i4").reshape(-1).tolist())


def half_float(fmt: str, block: Ptr) -> Value:
    """Return the bits of a block's fp16 scale: int16."""
    if fmt != "iq1_m":
        return block.cast(i16).load()
    tops = [_word(block, 48 + 2 * n) & 0xF000 for n in range(4)]
    return ((tops[0] >> 12) | (tops[1] >> 8) | (tops[2] >> 4) | tops[3]).to(i16)


def indices(fmt: str, grid: Ptr, block: Ptr) -> list[list[Value]]:
    """Unpack a file block to indices into `codebook.TABLES`: [activation block][K-group] int32.

    A byte of a word is the digit of a weight, with 4 for its sign.
    """
    out = []
    for sub in range(8):
        groups = []
        for index, signs in zip(*_eights(fmt, block, sub), strict=True):
            for half in range(2):
                four = (signs >> (4 * half)) & 15
                # Four copies, seven bits apart: bit i lands on bit 0 of byte i.
                spread = ((four * 0x00204081) & 0x01010101) << 2
                groups.append(grid.load(index * 2 + half) | spread)
        out.append(groups)
    return out


def _eights(fmt: str, block: Ptr, sub: int) -> tuple[list[Value], list[Value]]:
    """Return, for each eight weights of an activation block, the grid index and 8 sign bits."""
    if fmt == "iq2_xxs":
        word = block.at(6 + 8 * sub).cast(i32).load()
        sevens = [(word >> (7 * n)) & 0x7F for n in range(4)]
        return [_byte(block, 2 + 8 * sub + n) for n in range(4)], [_even(s) for s in sevens]
    if fmt == "iq2_xs":
        both = [_word(block, 2 + 8 * sub + 2 * n) for n in range(4)]
        return [b & 511 for b in both], [_even(b >> 9) for b in both]
    low = [_byte(block, (0 if fmt == "iq1_m" else 2) + 4 * sub + n) for n in range(4)]
    if fmt == "iq2_s":
        tops = [(_byte(block, 66 + sub) >> (2 * n)) & 3 for n in range(4)]
        signs = [_byte(block, 34 + 4 * sub + n) for n in range(4)]
    elif fmt == "iq1_s":
        high = _word(block, 34 + 2 * sub)
        tops, signs = [(high >> (3 * n)) & 7 for n in range(4)], [(high >> 15) * 255] * 4
    else:
        fours = [_byte(block, 32 + 2 * sub + n // 2) >> (4 * (n % 2)) for n in range(4)]
        tops, signs = [four & 7 for four in fours], [((four >> 3) & 1) * 255 for four in fours]
    return [a | (b << 8) for a, b in zip(low, tops, strict=True)], signs


def scales(fmt: str, block: Ptr) -> list[Value]:
    """Return s for each activation block, or s | s' << 4 for its halves; a weight has 2 s + 1."""
    if fmt == "iq2_xxs":
        return [(block.at(6 + 8 * n).cast(i32).load() >> 28) & 15 for n in range(8)]
    if fmt == "iq1_s":
        return [(_word(block, 34 + 2 * n) >> 12) & 7 for n in range(8)]
    if fmt == "iq1_m":
        both = [_word(block, 48 + n // 2 * 2) >> (6 * (n % 2)) for n in range(8)]
        return [(b & 7) | ((b & 56) << 1) for b in both]
    return [_byte(block, (66 if fmt == "iq2_xs" else 74) + n) for n in range(8)]


def halves(fmt: str, packed: Value) -> list[Value]:
    """Unpack an int32 of `scales` to factors 2 s + 1: one per activation block, or per half."""
    low = ((packed & 15) << 1) | 1
    return [low, ((packed >> 4) << 1) | 1] if fmt in PAIRED else [low]


def _byte(block: Ptr, at: int) -> Value:
    return block.at(at).load().to(i32, signed=False)


def _word(block: Ptr, at: int) -> Value:
    return block.at(at).cast(i16).load().to(i32, signed=False)


def _even(seven: Value) -> Value:
    """Complete seven signs to eight: the last makes their number even."""
    return seven | (grids.parity(seven) << 7)


def half_float_reference(fmt: str, data: np.ndarray) -> np.ndarray:
    """Return the fp16 scale bits: data uint8 [blocks, file bytes] -> uint16 [blocks]."""
    if fmt != "iq1_m":
        return _words(data[:, :2])[:, 0]
    tops = _words(data[:, 48:]) >> 12 << np.array([0, 4, 8, 12], np.uint16)
    return np.bitwise_or.reduce(tops, axis=1)


def reference(fmt: str, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unpack uint8 [blocks, file bytes] -> `scales` uint8 [blocks, 8], indices [blocks, 256]."""
    start = 0 if fmt == "iq1_m" else 2
    low = data[:, start : start + 32].astype(np.uint16)
    if fmt == "iq2_xxs":
        pairs = np.ascontiguousarray(data[:, 2:]).view("<u4").reshape(-1, 8, 2)
        index = np.ascontiguousarray(pairs[..., 0]).view(np.uint8)
        sevens = pairs[..., 1:] >> np.array([0, 7, 14, 21], np.uint32) & 127
        packed, signs = pairs[..., 1] >> 28, _all_signs(sevens)
    elif fmt == "iq2_xs":
        both = _words(data[:, 2:66])
        index, packed, signs = both & 511, data[:, 66:], _all_signs(both >> 9)
    elif fmt == "iq2_s":
        tops = data[:, 66:74, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
        index, packed, signs = low | tops.reshape(-1, 32).astype(np.uint16) << 8, data[:, 74:], None
        signs = np.unpackbits(data[:, 34:66], axis=1, bitorder="little")
    elif fmt == "iq1_s":
        high = _words(data[:, 34:])
        tops = high[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7
        index, packed = low | tops.reshape(-1, 32) << 8, high >> 12 & 7
        signs = np.repeat(high >> 15, 32, axis=1)
    else:
        fours = np.stack([data[:, 32:48] & 15, data[:, 32:48] >> 4], axis=2).reshape(-1, 32)
        index, signs = low | (fours & 7).astype(np.uint16) << 8, np.repeat(fours >> 3, 8, axis=1)
        threes = _words(data[:, 48:])[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7
        packed = threes.reshape(-1, 8, 2) @ np.array([1, 16], np.uint16)
    digits = entries(fmt)[index.reshape(len(data), 32)].reshape(-1, 256)
    return packed.astype(np.uint8), digits | (signs.reshape(-1, 256) << 2).astype(np.uint8)


def _words(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data).view("<u2")


def _all_signs(sevens: np.ndarray) -> np.ndarray:
    """Complete numbers of seven bits, any shape -> the eight sign bits of each: [..., 8]."""
    bits = sevens[..., None] >> np.arange(7, dtype=sevens.dtype) & 1
    return np.concatenate([bits, bits.sum(-1, keepdims=True) & 1], axis=-1)
