// SPDX-License-Identifier: Apache-2.0
// Reads shared by the ranks of one host: where ranks hold the same bytes, one of them reads an object into its staging
// and the others take it from there.
//
// Every rank gets the same loads, so who reads an object follows from its hash. The reader *offers* the object when it
// lies in its staging (a memfd that the others map) and keeps it there until they have *released* it, or until a
// deadline. Nothing depends on it: an offer that does not come, comes too late or does not have its checksums only
// means that the rank reads for itself. So messages are never waited for (datagrams of a Unix socket).
//
// Belongs to the loader's thread. Ranks find each other by the engine's id, on one host and in one PID namespace only.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/step.h"
#include "kvern/memory.h"

namespace kvern {

class PeerReads {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;

    // `set`: names the ranks that hold the same, the same text in each of them; `replica`: this rank's number among
    // `replicas`. Errors say what the system did not allow; sharing is then left out.
    static Result<std::unique_ptr<PeerReads>> open(std::string_view set, std::uint32_t replica, std::uint32_t replicas,
                                                   std::shared_ptr<Region> staging);
    ~PeerReads();

    // Readable when a message has come.
    int fd() const { return socket_; }

    // True if another rank of this host reads this object. Looks for the others at its first call.
    bool read_elsewhere(const ObjectId& id);
    // For what this rank reads: its bytes lie in `lease` now, or won't come (an empty lease). Sent by send().
    void offer(const Digest& name_space, const ObjectId& id, std::shared_ptr<Lease> lease, TimePoint until);

    struct Offer {
        ObjectId id;
        std::span<const std::byte> object;  // the whole lease; empty: read it yourself
    };
    // The offer of an object that read_elsewhere() named, if it has come. It stays until released.
    const Offer* find(const Digest& name_space, const ObjectId& id) const;
    void release(const Digest& name_space, const ObjectId& id);
    // Takes what has come; sends what is waiting to be sent; forgets what nobody asked for or released in time.
    void move_on(TimePoint now);
    // When move_on() has something to forget; TimePoint::max() if nothing.
    TimePoint next_deadline() const;

  private:
    struct Key {
        Digest name_space;
        ObjectId id;
        bool operator==(const Key&) const = default;
    };
    struct KeyHasher {
        std::size_t operator()(const Key& key) const { return ObjectIdHasher()(key.id); }
    };
    struct Kept {
        std::shared_ptr<Lease> lease;
        std::size_t releases = 0;  // still to come
        TimePoint until;
    };
    struct Got {
        Offer offer;
        std::uint32_t from = 0;
        TimePoint until;
    };
    struct Peer {
        std::uint32_t replica = 0;
        std::span<const std::byte> staging;  // mapped when its first offer comes
        std::string outbox;
    };

    PeerReads(std::string_view set, std::uint32_t replica, std::uint32_t replicas, std::shared_ptr<Region> staging,
              int socket)
        : set_(set), replica_(replica), replicas_(replicas), staging_(std::move(staging)), socket_(socket) {}
    void look_for_peers();
    void receive(TimePoint now);
    void take(std::string_view message, TimePoint now);
    bool map_staging(Peer& peer, std::int32_t pid, std::int32_t memfd, std::uint64_t size_bytes);
    void send(Peer& peer);
    Peer* peer(std::uint32_t replica);

    const std::string set_;
    const std::uint32_t replica_, replicas_;
    const std::shared_ptr<Region> staging_;
    const int socket_;
    bool looked_ = false;
    std::vector<std::uint32_t> here_;  // all replicas on this host, this one among them, ascending
    std::vector<Peer> peers_;          // the others of them
    std::unordered_map<Key, Kept, KeyHasher> kept_;
    std::unordered_map<Key, Got, KeyHasher> got_;
};

}  // namespace kvern
