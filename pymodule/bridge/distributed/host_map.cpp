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

// What a rank shows the others: a segment of its memory, and its host's name if it has been given
// one.
struct Proof {
  openreg_comm_id id;
  std::string host;
};

Bytes pack(const Proof &proof) {
  Bytes bytes(proof.id.bytes, proof.id.bytes + sizeof proof.id.bytes);
  bytes.insert(bytes.end(), proof.host.begin(), proof.host.end());
  return bytes;
}

Proof unpack(const Bytes &bytes) {
  Proof proof{};
  TORCH_CHECK_WITH(DistBackendError, bytes.size() >= sizeof proof.id.bytes,
                   "openreg: the store of the group has ", bytes.size(),
                   " bytes where a rank shows where it is");
  std::memcpy(proof.id.bytes, bytes.data(), sizeof proof.id.bytes);
  proof.host.assign(bytes.begin() + sizeof proof.id.bytes, bytes.end());
  return proof;
}

// A segment that is there while this lives.
class Shown {
public:
  explicit Shown(int size) { check(openreg_comm_id_create(size, &id_)); }
  ~Shown() { openreg_comm_id_drop(&id_); }
  Shown(const Shown &) = delete;
  Shown &operator=(const Shown &) = delete;

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

std::string missing_of(const StorePtr &store, const std::vector<std::string> &keys) {
  std::string missing;
  for (size_t rank = 0; rank < keys.size(); ++rank) {
    if (!store->check({keys[rank]})) {
      missing.append(missing.empty() ? "" : ", ").append(std::to_string(rank));
    }
  }
  return missing;
}

// What all ranks set, in their order.
std::vector<Bytes> get_all(const StorePtr &store, const std::vector<std::string> &keys,
                           std::chrono::milliseconds timeout) {
  try {
    store->wait(keys, timeout);
  } catch (const c10::Error &) {
    const auto missing = missing_of(store, keys);
    if (missing.empty()) {
      throw;
    }
    TORCH_CHECK_WITH(DistBackendError, false, "openreg: of ", keys.size(),
                     " ranks these did not join "
                     "the group within ",
                     timeout.count() / 1000.0, " s: ", missing);
  }
  return store->multiGet(keys);
}

// The first rank that is on the same host.
int first_neighbour(const std::vector<Bytes> &shown, int rank) {
  const auto own = unpack(shown[static_cast<size_t>(rank)]);
  for (int other = 0; other < rank; ++other) {
    const auto proof = unpack(shown[static_cast<size_t>(other)]);
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

Bytes text(const std::string &words) {
  return {words.begin(), words.end()};
}

} // namespace

int HostMap::width() const {
  const auto narrowest = std::ranges::min_element(ranks, {}, &std::vector<int>::size);
  return static_cast<int>(narrowest->size());
}

bool HostMap::is_even() const {
  return std::ranges::all_of(ranks,
                             [&](const auto &each) { return each.size() == ranks[0].size(); });
}

HostMap find_hosts(const StorePtr &store, int rank, int size, std::chrono::milliseconds timeout) {
  const Shown own(1); // until all have looked
  const auto shown = keys_of("shown", size), first = keys_of("first", size);
  store->set(shown[static_cast<size_t>(rank)], pack({own.id(), host_name()}));
  const int neighbour = first_neighbour(get_all(store, shown, timeout), rank);
  store->set(first[static_cast<size_t>(rank)], text(std::to_string(neighbour)));
  return make_map(get_all(store, first, timeout), rank);
}

openreg_comm_id share_id(const StorePtr &store, const HostMap &map,
                         std::chrono::milliseconds timeout) {
  const auto key = key_of("segment", map.host);
  openreg_comm_id id{};
  if (map.index == 0) {
    check(openreg_comm_id_create(static_cast<int>(map.neighbours().size()), &id));
    store->set(key, pack({id, ""}));
    return id;
  }
  store->wait({key}, timeout);
  return unpack(store->get(key)).id;
}

void forget_hosts(const StorePtr &store, const HostMap &map) {
  store->deleteKey(key_of("shown", map.rank));
  store->deleteKey(key_of("first", map.rank));
  if (map.index == 0) {
    store->deleteKey(key_of("segment", map.host));
  }
}

} // namespace openreg
