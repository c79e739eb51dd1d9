// SPDX-License-Identifier: Apache-2.0
#include "fabric/ofi_mover.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "fabric/networks.h"
#include "fabric/ofi_endpoint.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

// While a peer is being connected nothing wakes the thread for certain.
constexpr std::chrono::milliseconds connect_slice{2};
// After an error the library still has events of the old connection to work through; removing its peer before that has
// been seen to crash (libfabric 1.17, verbs).
constexpr std::chrono::milliseconds renew_pause{200};
constexpr auto stopping_text = "is not waited for: the server stops";
constexpr auto lost_text = "the network endpoint is lost: the server must be started anew";

// One transfer with what is left of it.
struct Moving {
    Transfer transfer;
    TimePoint until;
    std::size_t pieces = 0;  // not yet ended
    bool begun = false;      // some of it was under way
    std::optional<std::string> error;
};

struct Piece {
    std::shared_ptr<Moving> of;
    std::uint64_t offset = 0;  // into the transfer
    std::uint64_t size_bytes = 0;
    bool alone = false;  // while it was under way, so that a failure is its own
};

struct Peer {
    std::string name;
    OfiEndpoint::Peer id = 0;
    bool inserted = false;
    bool connected = false;                  // something has got there since it was inserted
    std::optional<TimePoint> refused_since;  // operations, while it is not connected
    bool broken = false;                     // to be inserted anew when nothing is under way
    TimePoint broken_since{};
    bool is_cut = false;      // its operations come back, or everything must be begun anew
    bool suspicious = false;  // one piece at a time, until it is known whose fault it was
    std::deque<Piece> waiting;
    std::set<Piece*> posted;
    std::uint64_t used = 0;  // a count that grows

    bool idle() const { return waiting.empty() && posted.empty(); }
};

}  // namespace

struct OfiMover::Impl {
    Impl(std::unique_ptr<OfiEndpoint> opened, std::shared_ptr<Region> region, const Clock& by)
        : memory(std::move(region)),
          endpoint(std::move(opened)),
          provider(endpoint->provider()),
          clock(by),
          wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

    const std::shared_ptr<Region> memory;
    std::unique_ptr<OfiEndpoint> endpoint;  // null: it could not be opened again, and everything is unavailable
    const std::string_view provider;
    const Clock& clock;
    const Fd wake;
    std::mutex mutex;
    std::vector<Transfer> inbox;  // under mutex
    bool stopping = false;        // under mutex
    std::atomic<std::size_t> peer_count{0};
    std::atomic<std::uint64_t> cuts{0};
    std::thread thread;

    // The thread's own.
    std::map<std::string, std::unique_ptr<Peer>> peers;
    std::map<Piece*, std::pair<std::unique_ptr<Piece>, Peer*>> under_way;
    std::uint64_t uses = 0;

    void run();
    bool collect();
    void admit(Transfer transfer);
    Peer& peer_of(const std::string& name);
    void drop_idle_peers();
    bool post_all();
    bool post_some(Peer& peer);
    void post_one(Peer& peer, std::unique_ptr<Piece> piece, int code);
    bool take();
    void ended(const OfiEndpoint::Done& done);
    void renew(Peer& peer);
    void blame(Peer& peer, Piece piece, std::string error);
    void finish(Piece piece, std::optional<std::string> error);
    void expire();
    void expire_waiting(Peer& peer, TimePoint now);
    void cut(Peer& peer);
    void begin_anew();
    void lose_endpoint(const std::string& why);
    void end_all();
    void sleep_until_woken();
    std::chrono::milliseconds slice() const;
};

// ----------------------------------------------------------------------------------------------------------- transfers

bool OfiMover::Impl::collect() {
    std::vector<Transfer> came;
    {
        const std::lock_guard lock(mutex);
        came.swap(inbox);
        if (stopping) {
            for (auto& one : came) one.done(fail(ErrorCode::unavailable, stopping_text));
            return false;
        }
    }
    for (auto& one : came) admit(std::move(one));
    return true;
}

void OfiMover::Impl::admit(Transfer transfer) {
    if (!endpoint) return transfer.done(fail(ErrorCode::unavailable, lost_text));
    auto& peer = peer_of(transfer.token.endpoint);
    auto moving = std::make_shared<Moving>();
    moving->until = clock.now() + limits::fabric_transfer_wait;
    moving->transfer = std::move(transfer);
    const auto size = moving->transfer.size_bytes;
    const auto most = std::min<std::uint64_t>(limits::fabric_piece_bytes, endpoint->message_bytes_max());
    for (std::uint64_t offset = 0; offset < size; offset += most) {
        Piece piece;
        piece.of = moving;
        piece.offset = offset;
        piece.size_bytes = std::min(most, size - offset);
        peer.waiting.push_back(std::move(piece));
        ++moving->pieces;
    }
}

void OfiMover::Impl::finish(Piece piece, std::optional<std::string> error) {
    auto& of = *piece.of;
    if (error && !of.error) of.error = std::move(error);
    if (--of.pieces > 0) return;
    if (of.error) {
        of.transfer.done(fail(of.begun ? ErrorCode::io : ErrorCode::unavailable, "the memory's owner " + *of.error));
    } else {
        of.transfer.done({});
    }
}

// --------------------------------------------------------------------------------------------------------------- peers

Peer& OfiMover::Impl::peer_of(const std::string& name) {
    auto& place = peers[name];
    if (!place) {
        place = std::make_unique<Peer>();
        place->name = name;
        place->used = ++uses;
        drop_idle_peers();
    }
    place->used = ++uses;
    return *place;
}

void OfiMover::Impl::drop_idle_peers() {
    while (peers.size() > limits::fabric_peers_max) {
        auto oldest = peers.end();
        for (auto one = peers.begin(); one != peers.end(); ++one) {
            const bool older = oldest == peers.end() || one->second->used < oldest->second->used;
            if (one->second->idle() && one->second->used != uses && older) oldest = one;
        }
        if (oldest == peers.end()) return;
        if (oldest->second->inserted) endpoint->remove(oldest->second->id);
        peers.erase(oldest);
    }
}

// After an error every operation on the connection fails; a new one is made by the next.
void OfiMover::Impl::renew(Peer& peer) {
    if (peer.inserted) endpoint->remove(peer.id);
    peer.inserted = peer.connected = peer.broken = peer.is_cut = false;
    peer.refused_since.reset();
}

// ---------------------------------------------------------------------------------------------------------- operations

bool OfiMover::Impl::post_all() {
    bool any = false;
    for (auto& [name, peer] : peers) any = post_some(*peer) || any;
    return any;
}

bool OfiMover::Impl::post_some(Peer& peer) {
    if (peer.broken) {
        if (!peer.posted.empty() || clock.now() - peer.broken_since < renew_pause) return false;
        renew(peer);
    }
    bool any = false;
    peer.suspicious = peer.suspicious && !peer.idle();
    const auto most = peer.suspicious ? 1 : limits::fabric_pieces_max;
    while (!peer.waiting.empty() && peer.posted.size() < most && !peer.broken) {
        auto& next = peer.waiting.front();
        if (next.of->error) {  // the rest of what has failed is not tried
            auto piece = std::move(next);
            peer.waiting.pop_front();
            finish(std::move(piece), std::nullopt);
            continue;
        }
        if (!peer.inserted) {
            const auto id = endpoint->insert(peer.name);
            if (!id) {
                auto piece = std::move(next);
                peer.waiting.pop_front();
                finish(std::move(piece), "has no address: " + id.error().message);
                continue;
            }
            peer.id = *id;
            peer.inserted = true;
        }
        const auto& transfer = next.of->transfer;
        auto piece = std::make_unique<Piece>(next);
        const int code =
            endpoint->post(transfer.direction, peer.id, {transfer.memory + next.offset, next.size_bytes},
                           transfer.token.base + transfer.offset + next.offset, transfer.token.key, piece.get());
        if (code == EAGAIN) {
            if (!peer.refused_since) peer.refused_since = clock.now();
            break;
        }
        peer.waiting.pop_front();
        post_one(peer, std::move(piece), code);
        any = true;
    }
    return any;
}

void OfiMover::Impl::post_one(Peer& peer, std::unique_ptr<Piece> piece, int code) {
    piece->alone = peer.suspicious;
    if (code != 0) return blame(peer, std::move(*piece), error_from_errno(code, "refuses").message);
    piece->of->begun = true;
    auto* const context = piece.get();
    peer.posted.insert(context);
    under_way.emplace(context, std::make_pair(std::move(piece), &peer));
}

bool OfiMover::Impl::take() {
    std::array<OfiEndpoint::Done, 16> done;
    const auto count = endpoint->take(done);
    for (std::size_t i = 0; i < count; ++i) ended(done[i]);
    return count > 0;
}

void OfiMover::Impl::ended(const OfiEndpoint::Done& done) {
    const auto found = under_way.find(static_cast<Piece*>(done.context));
    if (found == under_way.end()) return;  // of an endpoint that was closed
    auto [piece, peer] = std::move(found->second);
    under_way.erase(found);
    peer->posted.erase(piece.get());
    if (done.error == 0) {
        peer->connected = true;
        peer->refused_since.reset();
        finish(std::move(*piece), std::nullopt);
        return;
    }
    auto error = error_from_errno(done.error, "refuses or is gone").message;
    if (!done.reason.empty()) error += " (" + done.reason + ")";
    blame(*peer, std::move(*piece), std::move(error));
}

// The first failure breaks the connection under all of its operations, and which one was at fault is not told: they are
// done again one at a time, and who fails alone has failed.
void OfiMover::Impl::blame(Peer& peer, Piece piece, std::string error) {
    peer.broken = peer.suspicious = true;
    peer.broken_since = clock.now();
    if (piece.alone || clock.now() > piece.of->until) return finish(std::move(piece), std::move(error));
    peer.waiting.push_back(std::move(piece));
}

// ----------------------------------------------------------------------------------------------------------- deadlines

void OfiMover::Impl::expire() {
    const auto now = clock.now();
    bool stuck = false;
    for (auto& [name, peer] : peers) {
        if (!peer->waiting.empty()) expire_waiting(*peer, now);
        const bool late = std::any_of(peer->posted.begin(), peer->posted.end(),
                                      [now](const Piece* piece) { return now > piece->of->until; });
        if (late && !peer->is_cut) cut(*peer);
        const auto gone = [now](const Piece* piece) { return now > piece->of->until + limits::fabric_cut_wait; };
        stuck = stuck || std::any_of(peer->posted.begin(), peer->posted.end(), gone);
    }
    if (stuck) begin_anew();
}

void OfiMover::Impl::expire_waiting(Peer& peer, TimePoint now) {
    const bool unreached =
        !peer.connected && peer.refused_since && now - *peer.refused_since > limits::fabric_connect_wait;
    if (unreached) {
        peer.broken = true;
        log(LogLevel::warning, "fabric", "the memory of a client at " + endpoint_text(peer.name) + " can't be reached");
    }
    for (auto one = peer.waiting.begin(); one != peer.waiting.end();) {
        if (!unreached && now <= one->of->until) {
            ++one;
            continue;
        }
        auto piece = std::move(*one);
        one = peer.waiting.erase(one);
        finish(std::move(piece), unreached ? "can't be reached" : "was too slow");
    }
}

// The library has what is stuck, and may read or write it until it gives it back, which it does when its connection
// ends.
void OfiMover::Impl::cut(Peer& peer) {
    log(LogLevel::warning, "fabric",
        "the memory of a client at " + endpoint_text(peer.name) + " did not answer in time: its connection is cut");
    cuts.fetch_add(1);
    peer.is_cut = peer.broken = true;
    (void)endpoint->cut(peer.name);
}

// Where a connection can't be cut, the end of the endpoint is what makes that memory ours again. What others had under
// way is done again.
void OfiMover::Impl::begin_anew() {
    log(LogLevel::warning, "fabric", "a client's memory did not answer: all connections are made anew");
    const auto opened = endpoint->reopen();
    for (auto& [name, peer] : peers) {
        peer->posted.clear();
        peer->inserted = peer->connected = peer->broken = peer->is_cut = false;
        peer->refused_since.reset();
    }
    const auto now = clock.now();
    for (auto& [context, place] : std::exchange(under_way, {})) {
        auto& [piece, peer] = place;
        if (now > piece->of->until) {
            finish(std::move(*piece), "did not answer in time");
        } else {
            peer->waiting.push_back(std::move(*piece));
        }
    }
    if (!opened) lose_endpoint(opened.error().message);
}

void OfiMover::Impl::lose_endpoint(const std::string& why) {
    log(LogLevel::error, "fabric",
        why + ": no transfers by " + std::string(provider) + " until the server is restarted");
    for (auto& [name, peer] : peers) {
        for (auto& piece : peer->waiting) finish(std::move(piece), lost_text);
    }
    peers.clear();
    endpoint.reset();
}

void OfiMover::Impl::end_all() {
    if (!endpoint) return;
    for (auto& [name, peer] : peers) {
        for (auto& piece : std::exchange(peer->waiting, {})) finish(std::move(piece), stopping_text);
        for (auto* const piece : peer->posted) piece->of->until = TimePoint::min();  // not again
        if (!peer->posted.empty()) cut(*peer);
    }
    const auto until = std::chrono::steady_clock::now() + limits::fabric_cut_wait;
    while (!under_way.empty() && std::chrono::steady_clock::now() < until) {
        if (!take()) endpoint->wait(wake.get(), connect_slice);
    }
    if (under_way.empty()) return;
    if (provider == ofi_providers.front()) {
        (void)endpoint->reopen();
    } else {  // it can't be closed, and goes on as long as the process does
        (void)endpoint.release();
        (void)new std::shared_ptr<Region>(memory);
    }
    for (auto& [context, place] : std::exchange(under_way, {})) finish(std::move(*place.first), stopping_text);
}

void OfiMover::Impl::sleep_until_woken() {
    pollfd one{wake.get(), POLLIN, 0};
    poll(&one, 1, -1);
    eventfd_t count = 0;
    eventfd_read(wake.get(), &count);
}

// How long the thread may sleep.
std::chrono::milliseconds OfiMover::Impl::slice() const {
    const bool waits =
        std::any_of(peers.begin(), peers.end(), [](const auto& one) { return !one.second->waiting.empty(); });
    if (waits) return connect_slice;
    return under_way.empty() ? std::chrono::milliseconds{-1} : std::chrono::milliseconds{100};
}

void OfiMover::Impl::run() {
    while (collect()) {
        if (!endpoint) {
            sleep_until_woken();
            continue;
        }
        const bool posted = post_all();
        const bool took = take();
        expire();
        peer_count.store(peers.size());
        if (posted || took || !endpoint) continue;
        endpoint->wait(wake.get(), slice());
        eventfd_t count = 0;
        eventfd_read(wake.get(), &count);
    }
    end_all();
}

// -------------------------------------------------------------------------------------------------------------- public

OfiMover::OfiMover(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<OfiMover>> OfiMover::open(const std::string& provider, const std::string& address,
                                                 std::shared_ptr<Region> memory, const Clock& clock) {
    auto endpoint = OfiEndpoint::open(provider, address);
    if (!endpoint) return tl::unexpected(endpoint.error());
    const auto added = (*endpoint)->add_memory(memory->base(), memory->size_bytes(), false);
    if (!added) return tl::unexpected(added.error());
    auto impl = std::make_unique<Impl>(std::move(*endpoint), std::move(memory), clock);
    auto* const mover = impl.get();
    impl->thread = start_thread("kvern-mover", [mover] { mover->run(); });
    return std::unique_ptr<OfiMover>(new OfiMover(std::move(impl)));
}

OfiMover::~OfiMover() {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->stopping = true;
    }
    eventfd_write(impl_->wake.get(), 1);
    impl_->thread.join();
}

std::string_view OfiMover::provider() const {
    return impl_->provider;
}

void OfiMover::move(Transfer transfer) {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->inbox.push_back(std::move(transfer));
    }
    eventfd_write(impl_->wake.get(), 1);
}

OfiMoverStats OfiMover::stats() const {
    return {impl_->peer_count.load(), impl_->cuts.load()};
}

}  // namespace kvern::fabric
