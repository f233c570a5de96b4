"""Comparison of two BPE merge orders: by token score, and by a list of merges.

For SentencePiece vocabularies, the engine joins by scores, ``tokenizers`` by merges. The two agree if every pair that
the engine may join is a merge, and if all merges that make the same token are adjacent in the list: then a score is as
good as a rank. Runs of one character, such as spaces, are a common exception: vocabularies often list their merges
among those of other runs, which is harmless if the result is the same for runs of any length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate

from pyggml._core.checks import shown

Merge = tuple[str, str]

_MAX_WORK = 10**9  # a hundred times that of the largest known vocabulary
_MAX_RUN = 100  # the longest run tokens have about thirty characters; a longer run is split into these


def differences(
    texts: Collection[str], normal: Collection[str], ranks: Mapping[Merge, int] | None = None
) -> Iterator[str]:
    """Yield the first difference between the two, if any.

    Args:
        texts: the texts of all tokens.
        normal: the texts of normal tokens, which may be joined without a list of merges.
        ranks: merge -> rank, from 0; None: every pair that makes a normal token is a merge, ordered by scores.
    """
    if sum(len(text) ** 2 for text in texts) > _MAX_WORK:
        yield "its tokens are too long to check how they are joined"
        return
    by_token: defaultdict[str, list[int]] = defaultdict(list)
    for left, right in _joins(texts):
        rank = 0 if ranks is None else ranks.get((left, right))
        if rank is None or (ranks is None and left + right not in normal):
            yield f"the engine would join {shown(left)} and {shown(right)}"
            return
        by_token[left + right].append(rank)
    if ranks is not None:
        yield from _rank_differences(by_token, ranks)


def _joins(texts: Collection[str]) -> Iterator[Merge]:
    """All pairs that the engine may join: characters, and results of earlier joins."""
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
            yield f"the merges that make {shown(text)} are of different ranks"
            return
        runs.add(text[0])
    for character in sorted(runs):
        if not _runs_agree(character, by_token, ranks):
            yield f"the merges that make runs of {shown(character)} are of different ranks"
            return


def _runs_agree(character: str, by_token: Mapping[str, list[int]], ranks: Mapping[Merge, int]) -> bool:
    of_run = {merge: rank for merge, rank in ranks.items() if {*merge[0], *merge[1]} == {character}}
    by_merge, by_score = {}, {}
    for (left, right), rank in of_run.items():
        if left + right in by_token:
            by_merge[len(left), len(right)] = rank
            by_score[len(left), len(right)] = min(by_token[left + right])
    return all(_merged_lengths(n, by_merge.get) == _merged_lengths(n, by_score.get) for n in range(2, _MAX_RUN + 1))


def _merged_lengths(n_characters: int, rank_of: Callable[[tuple[int, int]], int | None]) -> list[int]:
    """The lengths of the tokens that a run of one character is split into."""
    lengths = [1] * n_characters
    while True:
        pairs = zip(lengths, lengths[1:], range(n_characters), strict=False)
        ranked = [(rank, at) for left, right, at in pairs if (rank := rank_of((left, right))) is not None]
        if not ranked:
            return lengths
        _, at = min(ranked)
        lengths[at : at + 2] = [lengths[at] + lengths[at + 1]]
