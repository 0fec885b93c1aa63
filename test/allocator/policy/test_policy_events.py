"""Blocks that other streams use: when they are free again, computed by hand from the rules."""

from __future__ import annotations

from game import MIB, Game


def test_recorded_block_waits_for_the_next_request_though_its_stream_is_idle():
    game = Game()
    game.alloc(1, 512)
    game.alloc(2, 512)
    game.play_all("record 1 0", "record 2 1", "free 1", "free 2")
    assert game.states() == ["512:free", "512:awaiting", f"{2 * MIB - 1024}:free"]
    assert game.current("allocation") == 0
    assert game.current("active") == 1
    game.alloc(3, 0)
    assert game.current("active") == 1
    game.alloc(3, 512, 5)
    assert game.current("active") == 1
    assert game.current("active_bytes") == 512
    assert f"{2 * MIB}:free" in game.states()


def test_event_that_is_not_done_keeps_those_behind_it():
    game = Game()
    for number in (1, 2, 3):
        game.alloc(number, 512)
    game.play_all("record 1 1", "record 2 2", "hold 1", "free 1", "free 2", "go 1", "hold 1")
    game.play_all("record 3 1", "free 3")
    game.alloc(4, 2 * MIB)
    assert game.current("active", "small") == 1
    game.play("go 1")
    assert game.current("active", "small") == 1
    game.alloc(5, 2 * MIB)
    assert game.current("active", "small") == 0


def test_giving_back_a_segment_ends_held_work():
    game = Game()
    game.alloc(1, 12 * MIB)
    game.alloc(2, 512)
    game.play_all("free 1", "hold 1", "record 2 1", "free 2")
    assert game.play("empty") == "ok"
    assert game.current("reserved_bytes") == 0
    assert game.figure("num_sync_all_streams") == 1
    assert game.figure("num_device_free") == 2
    assert game.session.allocator.device.holds == {}


def test_events_are_looked_at_in_the_order_of_streams():
    game = Game()
    for number in (1, 2, 3):
        game.alloc(number, 512)
    game.play_all("record 2 1", "record 3 2", "free 3", "free 2")
    game.alloc(4, 2 * MIB)
    assert game.values("inactive_split.small") == [1, 2, 2, 1]


def test_giving_back_a_segment_ends_held_work_without_events():
    game = Game()
    game.alloc(1, 12 * MIB)
    game.play_all("free 1", "hold 1")
    game.play("empty")
    assert game.session.allocator.device.holds == {}


def test_waiting_for_an_event_ends_the_held_work_of_its_stream():
    game = Game()
    game.alloc(1, 512)
    game.alloc(2, 512)
    game.play_all("record 1 1", "hold 1", "hold 2", "free 1", "empty")
    assert list(game.session.allocator.device.holds) == [2]
    assert game.current("active") == 1
