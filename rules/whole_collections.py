"""What calls that go through a whole collection are called in findings, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.probes.documents.code_places import CollectionWork


@dataclass(frozen=True, slots=True)
class CollectionAdvice:
    """`does` follows the call's name in a title; `fix` and `change` are the parts of a fix. `left_worst`: share of the call's time that the
    fix leaves at worst, where it was measured.
    """

    does: str
    fix: str
    change: str
    left_worst: float | None = None


ADVICE: Mapping[CollectionWork, CollectionAdvice] = {
    "permutes": CollectionAdvice(
        "permutes a whole collection",
        "draw the few indices alone, or permute once per epoch",
        "random.sample(range(n), k), numpy.random.default_rng().choice(n, k, replace=False), or torch.randint(n, (k,))",
    ),
    "copies": CollectionAdvice(
        "copies a whole collection",
        "keep the items in a list that is changed where they change",
        "a list takes items by index: random.sample(items, k); a dictionary's keys have to be copied first. For the least of many: "
        "heapq.nsmallest(k, items)",
    ),
    "excludes": CollectionAdvice(
        "copies a whole collection without some of its items",
        "draw from all items, and draw again what is to be left out",
        "item = random.choice(items)  # a list, made once; while item in excluded: item = random.choice(items). Where few are left: "
        "group all items once, by_label[label].append(index), and draw from the group",
    ),
    "grows": CollectionAdvice(
        "copies everything so far in order to add to it",
        "append to a list, and join once, after the loop",
        "parts.append(new)  # in the loop; afterwards torch.cat(parts), numpy.concatenate(parts) or pandas.concat(parts)",
    ),
    "shifts": CollectionAdvice(
        "moves all items of a list",
        "use collections.deque, which is as fast at both ends",
        "items = collections.deque(...); items.popleft(); items.appendleft(new)",
    ),
    "walks": CollectionAdvice(
        "walks through a deque to each item that it takes by index",
        "keep the items in a list, which takes any item at once",
        "a ring in a list: items[added % size] = new; added += 1. Then random.sample(items, k)",
    ),
    "converts": CollectionAdvice(
        "converts the items of a list one by one",
        "join the arrays first, or keep the numbers in one array from the start",
        "torch.from_numpy(numpy.stack(arrays)), without tolist(), or torch.from_numpy(numpy.array(numbers)); an array of all items takes a "
        "batch by index: items[indices]",
        0.32,  # nine of ten of 24 shapes of arrays and of 24 of nested lists left less, 16 to 256 items: 0.07 and 0.22 in the median
    ),
    "weighs": CollectionAdvice(
        "goes through the weights of a whole collection",
        "add the weights up once, and draw by these sums, many at a time",
        "sums = numpy.cumsum(weights) / weights.sum(), once; numpy.searchsorted(sums, rng.random(k)), or random.choices(items, "
        "cum_weights=sums, k=k). Weights that change between draws: a sum tree",
    ),
    "scans": CollectionAdvice(
        "is read from its start",
        "note once where each line begins, and seek there",
        "offsets.append(file.tell()) before each file.readline(), once; then file.seek(offsets[index]); file.readline(). Lines that fit "
        "into memory are read once; workers open the file for themselves",
    ),
    "slices": CollectionAdvice(
        "is sliced row by row",
        "take these rows at once, by a slice",
        "series[start : start + size], with a step if they lie apart: series[start : stop : step]; no copy is made",
        0.14,  # at most, of 17 shapes of tensors and of arrays: 8 to 256 rows of 4 bytes to 128 KiB; 0.02 and 0.006 in the median
    ),
    "gathers": CollectionAdvice(
        "is gathered row by row",
        "take these rows at once, by their indices",
        "table.index_select(0, torch.tensor(indices)), or array.take(indices, axis=0). torch's table[indices] is slower for long rows",
        # Nine of ten of 23 shapes of tensors left less, 8 to 256 rows of 4 bytes to 128 KiB: 0.29 in the median, 0.99 at most.
        # Of the same shapes of arrays nine of ten left 0.89 or less beside np.array, 0.78 beside np.stack.
        0.84,
    ),
    "searches": CollectionAdvice(
        "searches a whole collection",
        "search a set, or a dictionary from item to position, that is kept beside it",
        "seen = set(items); position = {item: n for n, item in enumerate(items)}",
    ),
}
