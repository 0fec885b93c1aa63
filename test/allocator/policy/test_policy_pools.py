"""Private pools: which memory a request gets and when it is released, by hand from the rules."""

from __future__ import annotations

from game import MIB, Game


def test_private_pool_keeps_its_memory_until_it_is_destroyed():
    game = Game()
    game.play_all("pool_create 1 0 0", "pool_begin 1")
    mine = game.alloc(1, 512)
    game.play_all("pool_end 1", "free 1", "empty", "pool_empty 1")
    assert game.current("reserved_bytes") == 2 * MIB
    assert game.alloc(2, 512)[0] != mine[0]
    assert game.snapshot()[0].split()[5] == "1"
    game.play_all("pool_destroy 1", "pool_empty 1")
    assert game.current("reserved_bytes") == 2 * MIB
    assert game.figure("num_device_free") == 1
    assert game.play("pool_begin 1").startswith("error")


def test_pools_with_use_on_oom_are_tried_before_anything_is_given_back():
    game = Game(64 * MIB)
    game.play_all("pool_create 1 1 0", "pool_begin 1")
    game.alloc(1, 30 * MIB)
    game.play_all("pool_end 1", "free 1")
    game.alloc(2, 30 * MIB, 1)
    game.play("free 2")
    assert game.alloc(3, 20 * MIB)[1] == 20 * MIB
    assert game.figure("num_alloc_retries") == 0
    assert game.current("reserved_bytes") == 60 * MIB
    assert game.oom(50 * MIB) == [50 * MIB, 34 * MIB, -1, 30 * MIB, 10 * MIB, 0]


def test_pool_without_splitting_hands_out_whole_blocks():
    game = Game()
    game.play_all("pool_create 1 0 1", "pool_begin 1")
    assert game.alloc(1, 512)[1] == 2 * MIB
    assert game.alloc(2, 3 * MIB)[1] == 20 * MIB


def test_begun_pool_does_not_stop_a_give_back():
    game = Game(40 * MIB)
    game.alloc(1, 30 * MIB)
    game.play_all("free 1", "pool_create 1 0 0", "pool_begin 1")
    assert game.alloc(2, 30 * MIB)[1] == 30 * MIB
    assert game.figure("num_alloc_retries") == 1
    assert game.current("segment") == 1
    game.play("empty")
    assert game.figure("num_sync_all_streams") == 2


def test_events_are_looked_at_while_a_pool_is_begun():
    game = Game()
    game.alloc(1, 512)
    game.play_all("record 1 1", "free 1", "pool_create 1 0 0", "pool_begin 1")
    game.alloc(2, 512)
    assert game.current("active") == 1
    assert game.states() == [f"{2 * MIB}:free", "512:allocated", f"{2 * MIB - 512}:free"]


def test_events_are_made_at_once_while_a_pool_is_begun():
    game = Game()
    game.alloc(1, 512)
    game.play_all("record 1 1", "pool_create 1 0 0", "pool_begin 1", "free 1", "hold 1")
    game.alloc(2, 512)
    assert game.current("active") == 1


def test_destroyed_pool_is_emptied_while_another_is_begun():
    game = Game()
    game.play_all("pool_create 1 0 0", "pool_begin 1")
    game.alloc(1, 512)
    game.play_all("pool_end 1", "free 1", "pool_destroy 1", "pool_create 2 0 0", "pool_begin 2")
    assert game.play("pool_empty 1") == "ok"
    assert game.current("reserved_bytes") == 0
    assert game.figure("num_sync_all_streams") == 1


def pool_with(game: Game, number: int, use_on_oom: bool, size: int) -> int:
    """Return the address of the only block, a free one, of a new pool."""
    game.play_all(f"pool_create {number} {int(use_on_oom)} 0", f"pool_begin {number}")
    address, _ = game.alloc(1000 + number, size)
    game.play_all(f"pool_end {number}", f"free {1000 + number}")
    return address


def test_pools_with_use_on_oom_are_tried_in_the_order_of_hashed_numbers():
    game = Game(120 * MIB)
    addresses = {pool_with(game, n, True, 10 * MIB): n for n in range(1, 13)}
    tried = [addresses[game.alloc(number, 10 * MIB)[0]] for number in range(1, 13)]
    assert tried == [5, 10, 2, 7, 12, 4, 9, 1, 6, 11, 3, 8]
    assert game.figure("num_alloc_retries") == 0


def test_pools_with_use_on_oom_are_tried_before_oversize_blocks_are_given_back():
    game = Game(96 * MIB, "max_split_size_mb:20")
    address = pool_with(game, 1, True, 40 * MIB)
    game.alloc(1, 50 * MIB)
    game.play("free 1")
    assert game.alloc(2, 26 * MIB) == (address, 40 * MIB)
    assert game.current("reserved_bytes") == 90 * MIB


def test_pool_with_use_on_oom_is_for_requests_of_the_default_pool_and_of_its_stream():
    game = Game(64 * MIB)
    pool_with(game, 1, True, 40 * MIB)
    game.oom(30 * MIB, 1)
    game.play_all("pool_create 2 0 0", "pool_begin 2")
    game.oom(30 * MIB)
    game.play_all("pool_end 2", "pool_destroy 1")
    game.play("pool_create 3 1 0")
    assert game.alloc(1, 30 * MIB)[1] == 30 * MIB
    assert game.segments != ""


def test_sentence_counts_free_blocks_of_private_pools_as_allocated():
    game = Game(64 * MIB)
    pool_with(game, 1, False, 12 * MIB)
    game.alloc(1, 4 * MIB)
    assert game.oom(60 * MIB) == [60 * MIB, 32 * MIB, -1, 16 * MIB, 12 * MIB, 16 * MIB]


def test_emptying_a_pool_waits_for_the_events_of_its_own_blocks():
    game = Game()
    game.alloc(1, 512)
    game.play_all("pool_create 1 0 0", "pool_begin 1")
    game.alloc(2, 512)
    game.play_all("pool_end 1", "record 1 1", "record 2 1", "hold 1", "free 1", "free 2")
    game.play_all("pool_destroy 1", "pool_empty 1")
    assert game.states() == ["512:awaiting", f"{2 * MIB - 512}:free"]


def test_pool_that_was_emptied_is_gone():
    game = Game()
    game.play_all("pool_create 1 0 0", "pool_destroy 1", "pool_empty 1", "pool_empty 1")
    assert game.figure("num_sync_all_streams") == 1
