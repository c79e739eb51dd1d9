// SPDX-License-Identifier: Apache-2.0
#include "engine/peer_reads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace kvern {
namespace {

// How long an offer waits for a load that has not come here yet; also the reader keeps it no longer.
constexpr auto offer_lives = 2 * limits::peer_read_wait;
constexpr std::chrono::milliseconds send_again_after{5};
constexpr std::size_t datagram_bytes_max = 16 << 10;

enum class Kind : std::uint8_t { offer, decline, release };

// One message; several may stand in one datagram. Both ends are one version of Kvern on one host.
struct Wire {
    Kind kind;
    std::uint8_t hash_bytes;
    std::uint16_t reserved;
    std::uint32_t from, group;
    std::int32_t pid, memfd;
    std::uint64_t staging_bytes, offset, size_bytes;
    Digest name_space;
    char hash[limits::hash_bytes_max];
};

// An abstract name: it goes with its socket. Cut by a digest, since a name has 107 bytes.
sockaddr_un address_of(std::string_view set, std::uint32_t replica, socklen_t& size) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const Digest digest = sha256(set);
    std::string name = "kvern-";
    for (const std::uint8_t byte : digest) name += fmt::format("{:02x}", byte);
    name += fmt::format("-{}", replica);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

}  // namespace

Result<std::unique_ptr<PeerReads>> PeerReads::open(std::string_view set, std::uint32_t replica, std::uint32_t replicas,
                                                   std::shared_ptr<Region> staging) {
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) return fail(ErrorCode::io, fmt::format("no Unix socket: {}", std::strerror(errno)));
    socklen_t size = 0;
    const sockaddr_un address = address_of(set, replica, size);
    if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
        const int error = errno;
        ::close(socket);
        return fail(ErrorCode::io, fmt::format("a Unix socket could not be named: {}", std::strerror(error)));
    }
    return std::unique_ptr<PeerReads>(new PeerReads(set, replica, replicas, std::move(staging), socket));
}

PeerReads::~PeerReads() {
    for (const Peer& peer : peers_)
        if (!peer.staging.empty()) ::munmap(const_cast<std::byte*>(peer.staging.data()), peer.staging.size());
    ::close(socket_);
}

void PeerReads::look_for_peers() {
    if (std::exchange(looked_, true)) return;
    for (std::uint32_t replica = 0; replica < replicas_; ++replica) {
        socklen_t size = 0;
        const sockaddr_un address = address_of(set_, replica, size);
        const auto* to = reinterpret_cast<const sockaddr*>(&address);
        if (replica == replica_) {
            here_.push_back(replica);
        } else if (::sendto(socket_, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL, to, size) == 0 || errno == EAGAIN) {
            here_.push_back(replica);
            peers_.push_back({replica, {}, {}});
        }
    }
}

bool PeerReads::read_elsewhere(const ObjectId& id) {
    look_for_peers();
    return here_[id.hash.tag() % here_.size()] != replica_;
}

PeerReads::Peer* PeerReads::peer(std::uint32_t replica) {
    const auto found =
        std::find_if(peers_.begin(), peers_.end(), [&](const Peer& known) { return known.replica == replica; });
    return found == peers_.end() ? nullptr : &*found;
}

void PeerReads::offer(const Digest& name_space, const ObjectId& id, std::shared_ptr<Lease> lease, TimePoint until) {
    look_for_peers();
    if (peers_.empty()) return;
    Wire wire{};
    wire.kind = lease ? Kind::offer : Kind::decline;
    wire.from = replica_;
    wire.group = id.group;
    wire.name_space = name_space;
    wire.hash_bytes = static_cast<std::uint8_t>(id.hash.bytes().size());
    std::memcpy(wire.hash, id.hash.bytes().data(), wire.hash_bytes);
    if (lease) {
        wire.pid = ::getpid();
        wire.memfd = staging_->memfd();
        wire.staging_bytes = staging_->size_bytes();
        wire.offset = static_cast<std::uint64_t>(lease->data() - staging_->base());
        wire.size_bytes = lease->size_bytes();
        kept_[{name_space, id}] = {std::move(lease), peers_.size(),
                                   std::min(until, std::chrono::steady_clock::now() + offer_lives)};
    }
    for (Peer& peer : peers_) peer.outbox.append(reinterpret_cast<const char*>(&wire), sizeof wire);
}

const PeerReads::Offer* PeerReads::find(const Digest& name_space, const ObjectId& id) const {
    const auto found = got_.find({name_space, id});
    return found == got_.end() ? nullptr : &found->second.offer;
}

void PeerReads::release(const Digest& name_space, const ObjectId& id) {
    const auto found = got_.find({name_space, id});
    if (found == got_.end()) return;
    Peer* from = peer(found->second.from);
    if (from != nullptr && !found->second.offer.object.empty()) {
        Wire wire{};
        wire.kind = Kind::release;
        wire.from = replica_;
        wire.group = id.group;
        wire.name_space = name_space;
        wire.hash_bytes = static_cast<std::uint8_t>(id.hash.bytes().size());
        std::memcpy(wire.hash, id.hash.bytes().data(), wire.hash_bytes);
        from->outbox.append(reinterpret_cast<const char*>(&wire), sizeof wire);
    }
    got_.erase(found);
}

void PeerReads::move_on(TimePoint now) {
    receive(now);
    std::erase_if(kept_, [&](const auto& entry) { return entry.second.until <= now; });
    std::vector<Key> late;
    for (const auto& [key, got] : got_)
        if (got.until <= now) late.push_back(key);
    for (const Key& key : late) release(key.name_space, key.id);
    for (Peer& peer : peers_) send(peer);
}

void PeerReads::send(Peer& peer) {
    constexpr std::size_t whole_messages = datagram_bytes_max / sizeof(Wire) * sizeof(Wire);
    if (peer.outbox.empty()) return;
    socklen_t size = 0;
    const sockaddr_un address = address_of(set_, peer.replica, size);
    std::string_view rest = peer.outbox;
    while (!rest.empty()) {
        const std::string_view part = rest.substr(0, whole_messages);
        const auto sent = ::sendto(socket_, part.data(), part.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                   reinterpret_cast<const sockaddr*>(&address), size);
        if (sent < 0 && errno == EAGAIN) break;  // its queue is full (ten datagrams, by default): a little later
        rest.remove_prefix(part.size());         // a rank that has gone misses nothing
    }
    peer.outbox.erase(0, peer.outbox.size() - rest.size());
}

void PeerReads::receive(TimePoint now) {
    char datagram[datagram_bytes_max];
    for (;;) {
        const auto got = ::recv(socket_, datagram, sizeof datagram, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return;
        if (got == 0) continue;  // somebody looks who is here
        look_for_peers();
        std::string_view rest(datagram, static_cast<std::size_t>(got));
        for (; rest.size() >= sizeof(Wire); rest.remove_prefix(sizeof(Wire))) take(rest.substr(0, sizeof(Wire)), now);
    }
}

void PeerReads::take(std::string_view message, TimePoint now) {
    Wire wire;
    std::memcpy(&wire, message.data(), sizeof wire);
    Peer* from = peer(wire.from);
    const std::string_view hash(wire.hash, std::min<std::size_t>(wire.hash_bytes, sizeof wire.hash));
    if (from == nullptr || !ChunkHash::valid(hash)) return;
    const Key key{wire.name_space, {ChunkHash(hash), wire.group}};
    if (wire.kind == Kind::release) {
        const auto kept = kept_.find(key);
        if (kept != kept_.end() && --kept->second.releases == 0) kept_.erase(kept);
        return;
    }
    Got got;
    got.offer.id = key.id;
    got.from = wire.from;
    got.until = now + offer_lives;
    const bool usable = wire.kind == Kind::offer && map_staging(*from, wire.pid, wire.memfd, wire.staging_bytes) &&
                        wire.size_bytes <= from->staging.size() &&
                        wire.offset <= from->staging.size() - wire.size_bytes;
    if (usable) got.offer.object = from->staging.subspan(wire.offset, wire.size_bytes);
    got_[key] = got;
}

bool PeerReads::map_staging(Peer& peer, std::int32_t pid, std::int32_t memfd, std::uint64_t size_bytes) {
    if (!peer.staging.empty()) return peer.staging.size() == size_bytes;
    const int fd = ::open(fmt::format("/proc/{}/fd/{}", pid, memfd).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    struct stat status {};
    void* at = MAP_FAILED;
    if (::fstat(fd, &status) == 0 && static_cast<std::uint64_t>(status.st_size) == size_bytes)
        at = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED) return false;
    peer.staging = {static_cast<const std::byte*>(at), size_bytes};
    return true;
}

PeerReads::TimePoint PeerReads::next_deadline() const {
    TimePoint next = TimePoint::max();
    for (const auto& [key, kept] : kept_) next = std::min(next, kept.until);
    for (const auto& [key, got] : got_) next = std::min(next, got.until);
    for (const Peer& peer : peers_)
        if (!peer.outbox.empty()) next = std::min(next, std::chrono::steady_clock::now() + send_again_after);
    return next;
}

}  // namespace kvern
