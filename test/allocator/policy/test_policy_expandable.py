"""Expandable segments: what is mapped and unmapped, computed by hand from the rules."""

from __future__ import annotations

from game import MIB, Game


def test_expandable_range_grows_by_whole_pages():
    game = Game(settings="expandable_segments:True")
    first = game.alloc(1, 12 * MIB)
    assert game.segments == f"r{first[0]}:{1160 * MIB}"
    assert first[1] == 12 * MIB
    assert game.current("reserved_bytes") == 20 * MIB
    assert game.current("segment") == game.current("inactive_split") == 0
    assert game.alloc(2, 30 * MIB) == (first[0] + 12 * MIB, 30 * MIB)
    assert game.segments == ""
    assert game.current("reserved_bytes") == 60 * MIB
    assert game.figure("num_device_alloc") == 2
    assert game.snapshot()[0].split()[1:6] == [str(60 * MIB), "0", "large", "1", "0"]
    assert game.alloc(3, 512)[1] == 512
    assert game.current("reserved_bytes", "small") == 2 * MIB


def test_expandable_gives_back_the_pages_inside_free_blocks():
    game = Game(settings="expandable_segments:True")
    game.alloc(1, 30 * MIB)
    game.alloc(2, 50 * MIB)
    game.alloc(3, 20 * MIB)
    game.play_all("free 2", "empty")
    assert game.current("reserved_bytes") == 60 * MIB
    assert game.figure("num_device_free") == 1
    sizes = [segment.split()[1] for segment in game.snapshot()]
    assert sizes == [str(40 * MIB), str(20 * MIB)]
    address = int(game.snapshot()[0].split()[0])
    assert game.alloc(4, 15 * MIB) == (address + 30 * MIB, 15 * MIB)
    assert game.current("reserved_bytes") == 80 * MIB
    game.play_all("free 1", "free 3", "free 4", "empty")
    assert game.snapshot() == []
    assert game.session.allocator.expandable.segments == []


def test_expandable_blocks_are_passed_over_once_it_is_off():
    game = Game(settings="expandable_segments:True")
    game.alloc(1, 12 * MIB)
    game.play_all("free 1", "settings expandable_segments:False")
    game.alloc(2, 12 * MIB)
    assert game.segments.endswith(f":{12 * MIB}")
    game.play_all("free 2", "settings expandable_segments:True")
    assert game.alloc(3, 4 * MIB)[1] == 4 * MIB
    assert [s.split()[4] for s in game.snapshot() if "allocated" in s] == ["0"]


def test_expandable_prefers_a_closed_block_to_one_that_can_grow():
    game = Game(settings="expandable_segments:True")
    game.alloc(1, 4 * MIB)
    closed = game.alloc(2, 8 * MIB)
    game.alloc(3, 5 * MIB)
    game.play("free 2")
    assert game.alloc(4, 2.5 * MIB) == (closed[0], 2.5 * MIB)


def test_expandable_takes_the_lowest_of_equal_closed_blocks():
    game = Game(settings="expandable_segments:True")
    first = game.alloc(1, 2 * MIB)
    for number in (2, 3, 4):
        game.alloc(number, 2 * MIB)
    game.play_all("free 1", "free 3")
    assert game.alloc(5, 2 * MIB) == first


def test_expandable_maps_only_the_gap_between_free_blocks():
    game = Game(settings="expandable_segments:True")
    first = game.alloc(1, 30 * MIB)
    game.alloc(2, 50 * MIB)
    game.alloc(3, 20 * MIB)
    game.play_all("free 2", "empty", "free 3")
    assert game.current("reserved_bytes") == 60 * MIB
    assert game.alloc(4, 70 * MIB) == (first[0] + 30 * MIB, 70 * MIB)
    assert game.current("reserved_bytes") == 100 * MIB


def test_expandable_mapping_that_fails_keeps_its_range():
    game = Game(64 * MIB, "expandable_segments:True")
    assert game.oom(100 * MIB) == [100 * MIB, 64 * MIB, -1, 0, 0, 0]
    assert game.segments.endswith(f":{80 * MIB}")
    game.alloc(1, 60 * MIB)
    assert game.segments == ""
    assert game.oom(2 * MIB)[:2] == [20 * MIB, 4 * MIB]
    assert game.figure("num_alloc_retries") == 2


def test_expandable_give_back_ends_held_work():
    game = Game(settings="expandable_segments:True")
    game.alloc(1, 12 * MIB)
    game.play_all("free 1", "hold 1", "empty")
    assert game.session.allocator.device.holds == {}


def test_expandable_limit_counts_the_segment_and_not_the_pages():
    game = Game(100 * MIB, "expandable_segments:True")
    game.play("fraction 0.3")
    game.alloc(1, 15 * MIB)
    assert game.oom(6 * MIB)[0] == 20 * MIB
    assert game.alloc(2, 10 * MIB)[1] == 10 * MIB
    assert game.current("reserved_bytes") == 40 * MIB


def test_expandable_range_is_nine_eighths_of_the_capacity_in_whole_pages():
    game = Game(100 * MIB, "expandable_segments:True,large_segment_size_mb:16")
    game.alloc(1, 512)
    assert game.segments.endswith(f":{114 * MIB}")
    game.alloc(2, 4 * MIB)
    assert game.segments.endswith(f":{128 * MIB}")


def test_expandable_pool_without_splitting_holds_whole_pages():
    game = Game(settings="expandable_segments:True")
    game.play_all("pool_create 1 0 1", "pool_begin 1")
    first = game.alloc(1, 12 * MIB)
    assert first[1] == 20 * MIB
    game.alloc(2, 12 * MIB)
    game.play_all("free 1", "free 2")
    assert game.alloc(3, 2 * MIB) == (first[0], 40 * MIB)


def test_expandable_mapping_is_rejected_by_the_segment_size():
    game = Game(64 * MIB, "expandable_segments:True,throw_on_cudamalloc_oom:True")
    game.alloc(1, 40 * MIB)
    assert game.play(f"alloc 2 {26 * MIB} 0") == "error rejected"
    game.play("free 1")
    assert game.play(f"alloc 3 {50 * MIB} 0") == "error rejected"  # 20 MiB of pages would be enough


def test_ordinary_blocks_are_split_by_the_rule_of_expandable_ones_while_it_is_on():
    game = Game()
    game.alloc(1, 12 * MIB)
    game.play_all("free 1", "settings expandable_segments:True")
    assert game.alloc(2, 11.5 * MIB)[1] == 11.5 * MIB


def test_free_block_is_extended_into_the_unmapped_space_behind_it():
    game = Game(settings="expandable_segments:True")
    first = game.alloc(1, 12 * MIB)
    game.play("free 1")
    assert game.alloc(2, 30 * MIB) == first[:1] + (30 * MIB,)
    assert game.current("reserved_bytes") == 40 * MIB
