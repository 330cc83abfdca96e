"""Exchange schedules: buckets, slices and transfers, without processes and without torch."""

import subprocess
import sys

import pytest

from augpipe.trainer.exchange import ALIGN, Bucket, Piece, butterfly, cut, fill_buckets, lazy, pieces_within
from augpipe.trainer.exchange.schedule import LAG


def test_parameters_fill_buckets_from_the_last_to_the_first() -> None:
    buckets = fill_buckets([100, 50, 30], [0, 0, 0], {0: 128})
    assert [[(p.parameter, p.start, p.stop, p.offset) for p in bucket.pieces] for bucket in buckets] == [
        [(2, 0, 30, 0), (1, 0, 50, 30)],  # 48 elements of room are left, less than ALIGN: parameter 0 is not cut
        [(0, 0, 100, 0)],
    ]
    assert [bucket.start for bucket in buckets] == [0, 80]


def test_a_large_parameter_is_cut() -> None:
    buckets = fill_buckets([1000], [0], {0: 256})
    assert [(b.start, b.pieces[0].start, b.pieces[0].stop) for b in buckets] == [
        (0, 0, 256),
        (256, 256, 512),
        (512, 512, 768),
        (768, 768, 1000),
    ]


def test_kinds_do_not_mix_and_buckets_come_as_backward_completes_them() -> None:
    buckets = fill_buckets([10, 70, 10, 70], [1, 0, 1, 0], {0: 64, 1: 64})
    assert all(len({[1, 0, 1, 0][p.parameter] for p in bucket.pieces} | {bucket.kind}) == 1 for bucket in buckets)
    last_ready = [min(p.parameter for p in bucket.pieces) for bucket in buckets]
    assert last_ready == sorted(last_ready, reverse=True)


def test_cuts_fall_on_aligned_elements_of_a_parameter() -> None:
    bucket = Bucket(
        kind=0,
        start=0,
        pieces=(
            Piece(parameter=1, start=0, stop=37, offset=0),
            Piece(parameter=0, start=0, stop=963, offset=37),
        ),
    )
    assert cut(bucket, 2) == (0, 37 + 448, 1000)  # 500 is element 463 of the parameter; 448 is 7 * ALIGN
    assert 448 % ALIGN == 0


def test_more_ranks_than_elements_leave_some_with_nothing() -> None:
    bucket = Bucket(kind=0, start=0, pieces=(Piece(parameter=0, start=0, stop=3, offset=0),))
    cuts = cut(bucket, 8)
    assert cuts[0] == 0
    assert cuts[-1] == 3
    assert sorted(cuts) == list(cuts)
    assert pieces_within(bucket, 1, 1) == []
    assert len(str(butterfly((bucket,), 8)).splitlines()) == 1 + 2 * 7  # nothing is said of empty slices


def test_the_schedule_can_be_read() -> None:
    buckets = fill_buckets([256], [0], {0: 256})
    assert str(butterfly(buckets, 2)).splitlines() == [
        "butterfly: 2 ranks, 1 bucket of 256 values in all; owners send back gradients, waited for by the step",
        "reduce  bucket   0  0 -> 1  [128, 256)",
        "reduce  bucket   0  1 -> 0  [0, 128)",
        "gather  bucket   0  0 -> 1  [0, 128)",
        "gather  bucket   0  1 -> 0  [128, 256)",
    ]
    assert "owners send back weights, waited for where a parameter is next used" in str(lazy(buckets, 2))


def test_lazy_sends_the_first_layers_first() -> None:
    buckets = fill_buckets([64, 64, 64], [0] * 3, {0: 64})
    exchange = lazy(buckets, 2)
    assert exchange.buckets[exchange.after_update[0].bucket].pieces[0].parameter == 0
    assert exchange.buckets[exchange.during_backward[0].bucket].pieces[0].parameter == 2
    assert [str(one) for one in exchange.collectives] == [
        *("reduce bucket 0", "reduce bucket 1", "reduce bucket 2"),
        "agree",
        *("gather bucket 2", "gather bucket 1", "gather bucket 0"),
    ]


@pytest.mark.parametrize("num", [1, 2, 3, 4, 7])
def test_the_butterfly_gathers_behind_later_reductions(num: int) -> None:
    """Each bucket is gathered once, after its own reduction and LAG more, as far as there are as many."""
    exchange = butterfly(fill_buckets([64] * num, [0] * num, {0: 64}), 2)
    assert exchange.during_backward == exchange.collectives and exchange.after_update == ()
    order = [str(one) for one in exchange.collectives]
    assert len(set(order)) == len(order) == 2 * num
    for bucket in range(num):
        last = min(bucket + LAG, num - 1)
        gathered = order.index(f"gather bucket {bucket}")
        assert order.index(f"reduce bucket {last}") < gathered
        assert last == num - 1 or gathered < order.index(f"reduce bucket {last + 1}")


def test_schedules_need_no_torch() -> None:
    code = "import sys, augpipe.trainer.exchange; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
