#include "distributed/host_map.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/status.h"

namespace openreg {

namespace {

using Bytes = std::vector<uint8_t>;

// What a rank publishes: a control segment that only ranks of its host can open, and the value of
// OPENREG_HOST.
struct HostProof {
  openreg_comm_id id;
  std::string host;
};

Bytes pack(const HostProof &proof) {
  Bytes bytes(proof.id.bytes, proof.id.bytes + sizeof proof.id.bytes);
  bytes.insert(bytes.end(), proof.host.begin(), proof.host.end());
  return bytes;
}

HostProof unpack(const Bytes &bytes, int rank) {
  HostProof proof{};
  TORCH_CHECK_WITH(DistBackendError, bytes.size() >= sizeof proof.id.bytes,
                   "openreg: rendezvous data from rank ", rank, " is malformed (", bytes.size(),
                   " bytes); do all ranks run the same openreg version?");
  std::memcpy(proof.id.bytes, bytes.data(), sizeof proof.id.bytes);
  proof.host.assign(bytes.begin() + sizeof proof.id.bytes, bytes.end());
  return proof;
}

// A control segment that exists as long as this object.
class PublishedSegment {
public:
  explicit PublishedSegment(int size) { check(openreg_comm_id_create(size, &id_)); }
  ~PublishedSegment() { openreg_comm_id_drop(&id_); }
  PublishedSegment(const PublishedSegment &) = delete;
  PublishedSegment &operator=(const PublishedSegment &) = delete;

  const openreg_comm_id &id() const { return id_; }

private:
  openreg_comm_id id_{};
};

std::string host_name() {
  const char *const name = std::getenv("OPENREG_HOST");
  return name == nullptr ? "" : name;
}

std::string key_of(const char *what, int number) {
  return std::string(what).append("/").append(std::to_string(number));
}

std::vector<std::string> keys_of(const char *what, int size) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    keys.push_back(key_of(what, rank));
  }
  return keys;
}

std::string list_missing(const StorePtr &store, const std::vector<std::string> &keys) {
  std::string missing;
  for (size_t rank = 0; rank < keys.size(); ++rank) {
    if (!store->check({keys[rank]})) {
      missing.append(missing.empty() ? "" : ", ").append(std::to_string(rank));
    }
  }
  return missing;
}

// The values that all ranks set, by rank.
std::vector<Bytes> get_all(const StorePtr &store, const std::vector<std::string> &keys,
                           std::chrono::milliseconds timeout) {
  try {
    store->wait(keys, timeout);
  } catch (const c10::Error &) {
    const auto missing = list_missing(store, keys);
    if (missing.empty()) {
      throw;
    }
    const char *const noun = missing.find(',') == std::string::npos ? "rank " : "ranks ";
    TORCH_CHECK_WITH(DistBackendError, false, "openreg: ", noun, missing, " of ", keys.size(),
                     " did not join the group within ", timeout.count() / 1000.0, " s");
  }
  return store->multiGet(keys);
}

// The lowest rank that is on the same host as `rank`.
int first_rank_on_host(const std::vector<Bytes> &shown, int rank) {
  const auto own = unpack(shown[static_cast<size_t>(rank)], rank);
  for (int other = 0; other < rank; ++other) {
    const auto proof = unpack(shown[static_cast<size_t>(other)], other);
    if (proof.host == own.host && openreg_comm_id_is_reachable(&proof.id)) {
      return other;
    }
  }
  return rank;
}

HostMap make_map(const std::vector<Bytes> &firsts, int rank) {
  HostMap map;
  std::vector<int> host_of_first(firsts.size(), -1);
  for (size_t each = 0; each < firsts.size(); ++each) {
    const auto first = std::stoul(std::string(firsts[each].begin(), firsts[each].end()));
    TORCH_CHECK_WITH(
        DistBackendError, first <= each && (first == each || host_of_first[first] >= 0),
        "openreg: ranks ", first, " and ", each, " disagree on whether they are on one host");
    if (first == each) {
      host_of_first[first] = map.host_count();
      map.ranks.emplace_back();
    }
    const int host = host_of_first[first];
    auto &ranks = map.ranks[static_cast<size_t>(host)];
    map.host_of.push_back(host);
    map.index_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(each));
  }
  map.rank = rank;
  map.host = map.host_of[static_cast<size_t>(rank)];
  map.index = map.index_of[static_cast<size_t>(rank)];
  return map;
}

Bytes bytes_of(const std::string &text) {
  return {text.begin(), text.end()};
}

} // namespace

int HostMap::min_ranks_per_host() const {
  const auto narrowest = std::ranges::min_element(ranks, {}, &std::vector<int>::size);
  return static_cast<int>(narrowest->size());
}

bool HostMap::is_even() const {
  return std::ranges::all_of(ranks,
                             [&](const auto &each) { return each.size() == ranks[0].size(); });
}

HostMap map_hosts(const StorePtr &store, int rank, int size, std::chrono::milliseconds timeout) {
  const PublishedSegment own(1); // must exist until all ranks have tried to open it
  const auto shown = keys_of("shown", size), first = keys_of("first", size);
  store->set(shown[static_cast<size_t>(rank)], pack({own.id(), host_name()}));
  const int lowest = first_rank_on_host(get_all(store, shown, timeout), rank);
  store->set(first[static_cast<size_t>(rank)], bytes_of(std::to_string(lowest)));
  return make_map(get_all(store, first, timeout), rank);
}

openreg_comm_id share_comm_id(const StorePtr &store, const HostMap &map,
                              std::chrono::milliseconds timeout) {
  const auto key = key_of("segment", map.host);
  openreg_comm_id id{};
  if (map.index == 0) {
    check(openreg_comm_id_create(static_cast<int>(map.local_ranks().size()), &id));
    store->set(key, pack({id, ""}));
    return id;
  }
  store->wait({key}, timeout);
  return unpack(store->get(key), map.local_ranks()[0]).id;
}

void delete_host_keys(const StorePtr &store, const HostMap &map) {
  store->deleteKey(key_of("shown", map.rank));
  store->deleteKey(key_of("first", map.rank));
  if (map.index == 0) {
    store->deleteKey(key_of("segment", map.host));
  }
}

} // namespace openreg
