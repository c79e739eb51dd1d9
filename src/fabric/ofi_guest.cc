// SPDX-License-Identifier: Apache-2.0
#include "fabric/ofi_guest.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/log.h"
#include "base/thread.h"
#include "fabric/token.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

constexpr std::chrono::milliseconds for_ever{-1};

bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 0) > 0;
}

}  // namespace

Result<std::shared_ptr<OfiGuest>> OfiGuest::shared(const std::string& provider, const std::string& address) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<OfiGuest>> guests;
    static std::vector<std::shared_ptr<OfiGuest>> kept;  // a second verbs endpoint in a process can crash (1.17)
    const std::lock_guard lock(mutex);
    auto& known = guests[provider + "@" + address];
    if (auto guest = known.lock()) return guest;
    auto endpoint = OfiEndpoint::open(provider, address);
    if (!endpoint) return tl::unexpected(endpoint.error());
    const std::shared_ptr<OfiGuest> guest(new OfiGuest(std::move(*endpoint)));
    known = guest;
    if (provider == ofi_providers.front()) kept.push_back(guest);
    return guest;
}

OfiGuest::OfiGuest(std::unique_ptr<OfiEndpoint> endpoint)
    : stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      endpoint_(std::move(endpoint)),
      thread_(start_thread("kvern-ofi", [this] { run(); })) {}

OfiGuest::~OfiGuest() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
}

void OfiGuest::run() {
    std::array<OfiEndpoint::Done, 16> done;
    while (!readable(stop_.get())) {
        if (endpoint_->take(done) == 0) endpoint_->wait(stop_.get(), for_ever);
    }
}

Result<std::vector<Guest::Window>> OfiGuest::hand_over(const std::shared_ptr<Region>& region) {
    const std::lock_guard lock(mutex_);
    auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.region == region; });
    if (found == known_.end()) {
        const auto registered = endpoint_->add_memory(region->base(), region->size_bytes(), true);
        if (!registered) return tl::unexpected(registered.error());
        known_.push_back({region, *registered});
        found = known_.end() - 1;
    }
    const auto place = std::to_string(found - known_.begin());
    return std::vector<Window>{{region->base(), region->size_bytes(), place}};
}

Result<Guest::Minted> OfiGuest::token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes, Direction) {
    const std::lock_guard lock(mutex_);
    const auto& registered = known_[std::stoul(window.id)].registered;
    return Minted{
        ofi_token(endpoint_->provider(), endpoint_->name(), registered.key, registered.base + offset, size_bytes),
        nullptr};
}

}  // namespace kvern::fabric
