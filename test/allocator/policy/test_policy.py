"""The model, compared with numbers computed by hand from the rules of the allocator."""

from __future__ import annotations

from game import MIB, Game


def test_known_reserved_bytes():
    game = Game()
    reserved = []
    for number, size in enumerate((4, 2 * MIB, 12 * MIB, 11 * MIB), 1):
        game.alloc(number, size)
        reserved.append(game.current("reserved_bytes") // MIB)
    assert reserved == [2, 22, 22, 34]
    assert game.alloc(5, 0) == (0, 0)
    assert game.current("allocation") == 4
    assert game.current("allocated_bytes") == 512 + 2 * MIB + 12 * MIB + 12 * MIB
    assert game.current("requested_bytes") == 4 + 2 * MIB + 12 * MIB + 11 * MIB


def test_pool_and_segment_size_follow_the_rounded_size():
    for size, segment in (
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (21 * MIB, 22 * MIB),
    ):
        game = Game()
        game.alloc(1, size)
        assert game.current("reserved_bytes") == segment
        assert game.current("segment", "small") == (segment == 2 * MIB)


def test_roundup_moves_a_request_to_the_large_pool():
    game = Game(settings="roundup_power2_divisions:2")
    assert game.alloc(1, 700 * 1024)[1] == 768 * 1024
    assert game.alloc(2, 800 * 1024)[1] == MIB
    assert game.alloc(3, MIB + 1)[1] == 1.5 * MIB
    assert game.alloc(4, 1024)[1] == 1024
    assert game.alloc(5, 1025)[1] == 1536
    game = Game(settings="roundup_power2_divisions:[1:4,64:2,>:8]")
    assert game.alloc(1, 9 * 1024)[1] == 10 * 1024
    assert game.alloc(2, 65 * MIB)[1] == 96 * MIB
    assert game.alloc(3, 2 * MIB + 1)[1] == 2 * MIB + 512
    assert game.alloc(4, 129 * MIB)[1] == 144 * MIB


def test_best_fit_takes_the_smallest_then_the_lowest_of_a_segment():
    game = Game()
    blocks = [game.alloc(number, 2048) for number in range(1, 7)]
    game.play_all("free 1", "free 3", "free 5")
    assert game.alloc(7, 2048, 1)[0] not in {address for address, _ in blocks}
    assert game.alloc(8, 1024) == (blocks[0][0], 1024)
    assert game.alloc(9, 2048) == blocks[2]


def test_large_remainder_is_split_off_only_above_one_mebibyte():
    game = Game()
    assert game.alloc(1, 11 * MIB)[1] == 12 * MIB
    assert game.alloc(2, 11 * MIB - 512)[1] == 11 * MIB - 512
    assert game.values("inactive_split.all") == [1, 1, 1, 0]


def test_neighbours_merge_and_count_one_net_change():
    game = Game()
    for number in (1, 2, 3):
        game.alloc(number, 2 * MIB)
    assert game.values("inactive_split_bytes.large") == [14 * MIB, 18 * MIB, 18 * MIB, 4 * MIB]
    game.play("free 1")
    game.play("free 3")
    assert game.values("inactive_split.large") == [2, 2, 2, 0]
    assert game.values("inactive_split_bytes.large") == [18 * MIB, 18 * MIB, 22 * MIB, 4 * MIB]
    game.play("free 2")
    assert game.values("inactive_split.large") == [0, 2, 2, 2]
    assert game.values("inactive_split_bytes.large") == [0, 18 * MIB, 22 * MIB, 22 * MIB]
    assert game.states() == [f"{20 * MIB}:free"]


def test_out_of_memory_gives_back_and_retries_once():
    game = Game(64 * MIB)
    game.alloc(1, 40 * MIB)
    game.alloc(2, 12 * MIB, 1)
    game.play("free 2")
    assert game.alloc(3, 24 * MIB)[1] == 24 * MIB
    assert game.figure("num_alloc_retries") == 1
    assert game.figure("num_ooms") == 0
    assert game.figure("num_sync_all_streams") == 1
    assert game.oom(2 * MIB) == [20 * MIB, 0, -1, 64 * MIB, 0, 0]
    assert game.figure("num_alloc_retries") == 2
    assert game.figure("num_ooms") == 1


def test_limit_counts_the_segment_and_may_be_reached():
    game = Game(100 * MIB)
    game.play("fraction 0.42")
    assert game.alloc(1, 2 * MIB)[1] == 2 * MIB
    assert game.alloc(2, 22 * MIB)[1] == 22 * MIB
    assert game.oom(19 * MIB)[0] == 20 * MIB
    assert game.oom(1)[:3] == [2 * MIB, 58 * MIB, 42 * MIB]
    game.play("fraction 1.0")
    assert game.alloc(3, 1)[1] == 512
    assert game.play("fraction 1.5").startswith("error")


def test_max_split_size_keeps_large_blocks_whole():
    game = Game(settings="max_split_size_mb:40")
    big = game.alloc(1, 50 * MIB)
    assert game.values("oversize_allocations") == [1, 1, 1, 0]
    assert game.values("oversize_segments") == [1, 1, 1, 0]
    assert game.figure("max_split_size") == 40 * MIB
    game.play("free 1")
    assert game.alloc(2, 30 * MIB)[0] != big[0]
    assert game.alloc(3, 41 * MIB) == big
    game.play("free 3")
    game.alloc(4, 70 * MIB)
    game.play("free 4")
    assert game.alloc(5, 50 * MIB) == big
    assert game.alloc(6, 50 * MIB)[0] not in (0, big[0])
    assert game.alloc(7, 50.5 * MIB)[1] == 70 * MIB


def test_oversize_blocks_are_given_back_before_the_retry():
    game = Game(200 * MIB, "max_split_size_mb:40")
    for number in (1, 2, 3):
        game.alloc(number, 50 * MIB)
    game.alloc(4, 50 * MIB, 1)
    game.play_all("free 1", "free 2", "free 4")
    assert game.alloc(5, 90 * MIB)[1] == 90 * MIB
    assert game.figure("num_alloc_retries") == 0
    assert game.figure("num_device_free") == 2
    assert game.values("oversize_segments") == [3, 4, 5, 2]
    assert game.alloc(6, 60 * MIB)[1] == 60 * MIB
    assert game.figure("num_device_free") == 3
    assert game.figure("num_alloc_retries") == 1


def aged_blocks(threshold: float) -> Game:
    """Create blocks of 32 MiB of ages 2, 1 and 0, and a used segment of 20; limit 180 MiB."""
    game = Game(200 * MIB, f"garbage_collection_threshold:{threshold}")
    game.play("fraction 0.9")
    for number in (1, 2, 3):
        game.alloc(number, 32 * MIB)
    for number in (1, 2, 3):
        game.alloc(number + 3, 2 * MIB)
        game.play(f"free {number}")
    return game


def test_garbage_collection_does_not_stop_at_its_target_within_a_round():
    game = aged_blocks(0.5)
    game.alloc(7, 40 * MIB)
    assert game.figure("num_device_free") == 2
    assert game.current("reserved_bytes") == (20 + 32 + 40) * MIB


def test_garbage_collection_goes_on_until_its_target():
    game = aged_blocks(0.1)
    game.alloc(7, 40 * MIB)
    assert game.figure("num_device_free") == 3
    assert game.figure("num_sync_all_streams") == 0


def test_small_request_collects_large_blocks():
    game = aged_blocks(0.5)
    game.alloc(7, 512)
    assert game.figure("num_device_free") == 2


def test_garbage_collection_needs_a_limit():
    game = aged_blocks(0.5)
    game.play("fraction 1.0")
    game.alloc(7, 40 * MIB)
    assert game.figure("num_device_free") == 0


def test_resets():
    game = Game()
    game.alloc(1, 4 * MIB)
    game.alloc(2, 4 * MIB)
    game.play_all("free 2", "reset_peak")
    assert game.values("allocated_bytes.all") == [4 * MIB, 4 * MIB, 8 * MIB, 4 * MIB]
    game.play("reset_accumulated")
    assert game.values("allocated_bytes.all") == [4 * MIB, 4 * MIB, 0, 0]
    assert game.figure("num_device_alloc") == 0


def test_small_remainder_is_split_off_from_512_bytes_on():
    game = Game()
    game.alloc(1, 1536)
    game.alloc(2, 512)
    game.play("free 1")
    assert game.alloc(3, 1024)[1] == 1024
    assert game.alloc(4, 512)[1] == 512
    assert game.states() == [
        "1024:allocated",
        "512:allocated",
        "512:allocated",
        f"{2 * MIB - 2048}:free",
    ]


def test_max_split_size_itself_is_oversize():
    game = Game(settings="max_split_size_mb:40")
    game.alloc(1, 50 * MIB)
    game.play("free 1")
    assert game.alloc(2, 40 * MIB)[1] == 50 * MIB
    forty = game.alloc(3, 40 * MIB)
    assert forty[1] == 40 * MIB
    game.play("free 3")
    assert game.alloc(4, 30 * MIB)[0] != forty[0]


def test_only_oversize_blocks_are_given_back_before_the_retry():
    game = Game(100 * MIB, "max_split_size_mb:40")
    game.alloc(1, 50 * MIB)
    game.alloc(2, 30 * MIB)
    game.play_all("free 1", "free 2")
    assert game.alloc(3, 80 * MIB)[1] == 80 * MIB
    assert game.figure("num_alloc_retries") == 1


def test_of_equal_free_blocks_that_of_the_older_segment_is_taken():
    game = Game(200 * MIB)
    low = game.alloc(1, 12 * MIB)
    high = game.alloc(2, 12 * MIB)
    game.play_all("free 1", "empty")
    assert game.alloc(3, 12 * MIB) == low  # a younger segment at the older one's address
    game.play_all("free 2", "free 3")
    assert game.alloc(4, 12 * MIB) == high


def test_limit_is_rounded_to_the_nearest_byte():
    game = Game(64 * MIB)
    for fraction, allowed in (("0.7", 46976205), ("0.3", 20132659), ("0.9", 60397978)):
        game.play(f"fraction {fraction}")
        assert game.oom(60 * MIB)[2] == allowed
    game.play("fraction 0.4999999999")
    assert game.alloc(1, 32 * MIB)[1] == 32 * MIB
    game = Game(2 * MIB)
    for fraction, allowed in ((0.5, 1), (2.5, 3)):
        game.play(f"fraction {fraction / (2 * MIB)}")
        assert game.oom(4)[2] == allowed


def test_max_non_split_rounding_is_a_large_segment():
    game = Game(96 * MIB, "large_segment_size_mb:12,max_split_size_mb:14")
    game.alloc(1, 44 * MIB)
    game.play("free 1")
    assert game.alloc(2, 26 * MIB)[1] == 26 * MIB
    game.play("free 2")
    assert game.alloc(3, 33 * MIB)[1] == 44 * MIB


def test_max_split_statistic_is_that_of_the_start():
    game = Game(64 * MIB)
    game.play("settings max_split_size_mb:25")
    assert game.figure("max_split_size") == -1
    game.alloc(1, 30 * MIB)
    assert game.values("oversize_allocations") == [1, 1, 1, 0]


def test_fraction_key_at_run_time_sets_no_limit():
    game = Game(64 * MIB)
    game.play("settings per_process_memory_fraction:0.5")
    assert game.alloc(1, 40 * MIB)[1] == 40 * MIB
    game = Game(64 * MIB, "per_process_memory_fraction:0.5")
    assert game.oom(40 * MIB)[2] == 32 * MIB


def test_throw_on_cudamalloc_oom_rejects_before_anything_is_tried():
    game = Game(64 * MIB, "throw_on_cudamalloc_oom:True")
    block = game.alloc(1, 40 * MIB)
    game.play("free 1")
    assert game.play(f"alloc 2 {60 * MIB} 0") == "error rejected"
    assert game.current("reserved_bytes") == 40 * MIB
    assert game.figure("num_ooms") == game.figure("num_alloc_retries") == 0
    assert game.alloc(3, 24 * MIB) == (block[0], 24 * MIB)
    assert game.alloc(4, 24 * MIB, 1)[1] == 24 * MIB


def test_throw_on_cudamalloc_oom_goes_by_its_key():
    game = Game(64 * MIB)
    game.play("settings throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.312499993")
    assert game.play(f"alloc 1 {4 * MIB} 0") == "error rejected"  # 20 MiB less half a byte
    game.play("settings per_process_memory_fraction:0.3125")
    assert game.alloc(2, 4 * MIB)[1] == 4 * MIB
    game.play("fraction 0.25")
    assert game.oom(20 * MIB)[2] == 16 * MIB  # the current limit refuses first
    game.play("fraction 1.0")
    assert game.play(f"alloc 3 {20 * MIB} 0") == "error rejected"
    game.play("settings throw_on_cudamalloc_oom:False")
    assert game.alloc(4, 20 * MIB)[1] == 20 * MIB


def test_rejection_comes_before_pools_with_use_on_oom():
    game = Game(64 * MIB, "throw_on_cudamalloc_oom:True")
    game.play_all("pool_create 1 1 0", "pool_begin 1")
    game.alloc(1, 40 * MIB)
    game.play_all("pool_end 1", "free 1")
    assert game.play(f"alloc 2 {38 * MIB} 0") == "error rejected"


def test_refused_settings_are_partly_in_force():
    game = Game()
    assert game.play("settings expandable_segments:True,no_such_key:1").startswith("error")
    game.alloc(1, 4 * MIB)
    assert game.segments.startswith("r")


def test_garbage_collection_is_due_beyond_its_threshold():
    game = Game(200 * MIB, "garbage_collection_threshold:0.5")
    game.play("fraction 0.5")
    game.alloc(1, 50 * MIB)
    game.play("free 1")
    game.alloc(2, 512)
    assert game.figure("num_device_free") == 0
    game.alloc(3, 512, 1)
    assert game.figure("num_device_free") == 1
