"""Whether joining whatever makes a token of the best score is the same as following a list of merges.

The engine cuts text for SentencePiece vocabularies by scores, ``tokenizers`` by merges. The two agree when every two
symbols that the engine can come to join are a merge, and when the merges that make a token stand together in the list:
a score is then as good as a rank. Runs of one character, such as spaces, are an exception that vocabularies make: what
makes them is often listed in another order, among other runs, which is harmless if it comes out the same for runs of
any length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate

Merge = tuple[str, str]

_MAX_WORK = 10**9  # a hundred times that of the largest vocabulary known
_MAX_RUN = 100  # the longest tokens of runs have about thirty characters; beyond, a text's run is cut into these


def differences(
    texts: Collection[str], normal: Collection[str], ranks: Mapping[Merge, int] | None = None
) -> Iterator[str]:
    """Where they do not agree; only the first place is told.

    Args:
        texts: of all tokens.
        normal: those that may be joined where there is no list of merges.
        ranks: of each merge, from 0; None: all that make a normal token are merges, by their scores.
    """
    if sum(len(text) ** 2 for text in texts) > _MAX_WORK:
        yield "its tokens are too long to look at what joins to what"
        return
    by_token: defaultdict[str, list[int]] = defaultdict(list)
    for left, right in _joins(texts):
        rank = 0 if ranks is None else ranks.get((left, right))
        if rank is None or (ranks is None and left + right not in normal):
            yield f"the engine would join {left!r} and {right!r}"
            return
        by_token[left + right].append(rank)
    if ranks is not None:
        yield from _rank_differences(by_token, ranks)


def _joins(texts: Collection[str]) -> Iterator[Merge]:
    """All two symbols that the engine can come to join: characters, and what it joined before."""
    reachable = {character for text in texts for character in text}
    for text in sorted(texts, key=len):
        is_reachable = False
        for n in range(1, len(text)):
            left, right = text[:n], text[n:]
            if left in reachable and right in reachable:
                is_reachable = True
                yield left, right
        if is_reachable:
            reachable.add(text)


def _rank_differences(by_token: Mapping[str, list[int]], ranks: Mapping[Merge, int]) -> Iterator[str]:
    token_of = {rank: text for text, those in by_token.items() for rank in those}
    place_of = {rank: place for place, rank in enumerate(sorted(token_of))}
    n_mixed = [0, *accumulate(len({*token_of[rank]}) > 1 for rank in place_of)]
    runs: set[str] = set()
    for text, those in by_token.items():
        first, last = place_of[min(those)], place_of[max(those)]
        if last - first + 1 == len(those):
            continue
        if n_mixed[first] < n_mixed[last + 1]:
            yield f"the merges that make {text!r} are of different ranks"
            return
        runs.add(text[0])
    for character in sorted(runs):
        if not _runs_agree(character, by_token, ranks):
            yield f"the merges that make runs of {character!r} are of different ranks"
            return


def _runs_agree(character: str, by_token: Mapping[str, list[int]], ranks: Mapping[Merge, int]) -> bool:
    of_run = {merge: rank for merge, rank in ranks.items() if {*merge[0], *merge[1]} == {character}}
    by_merge, by_score = {}, {}
    for (left, right), rank in of_run.items():
        if left + right in by_token:
            by_merge[len(left), len(right)] = rank
            by_score[len(left), len(right)] = min(by_token[left + right])
    return all(_joined(n, by_merge.get) == _joined(n, by_score.get) for n in range(2, _MAX_RUN + 1))


def _joined(n_characters: int, rank_of: Callable[[tuple[int, int]], int | None]) -> list[int]:
    """The lengths of the pieces that a run of a character ends up in."""
    lengths = [1] * n_characters
    while True:
        pairs = zip(lengths, lengths[1:], range(n_characters), strict=False)
        ranked = [(rank, at) for left, right, at in pairs if (rank := rank_of((left, right))) is not None]
        if not ranked:
            return lengths
        _, at = min(ranked)
        lengths[at : at + 2] = [lengths[at] + lengths[at + 1]]
