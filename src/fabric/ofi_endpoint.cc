// SPDX-License-Identifier: Apache-2.0
#include "fabric/ofi_endpoint.h"

#if __has_include(<rdma/fabric.h>)

#include <dlfcn.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

constexpr auto api_version = FI_VERSION(1, 17);
constexpr std::size_t queue_entries = 1024;
constexpr std::size_t taken_at_once = 16;

// The few functions that are not inline in its headers.
struct Library {
    decltype(&::fi_getinfo) getinfo = nullptr;
    decltype(&::fi_freeinfo) freeinfo = nullptr;
    decltype(&::fi_dupinfo) dupinfo = nullptr;
    decltype(&::fi_fabric) fabric = nullptr;
    decltype(&::fi_strerror) strerror = nullptr;
    decltype(&::fi_version) version = nullptr;
    std::string trouble;  // empty: all are there
};

Library load() {
    Library library;
    // It reads these once. A connection to a peer that broke is renewed only with the first; the second is what sizes
    // its queues, which small devices refuse by default.
    setenv("FI_AV_REMOVE_CLEANUP", "1", 0);
    setenv("FI_UNIVERSE_SIZE", "64", 0);
    // Libraries below it would print a trace at signals that are for others to handle.
    setenv("IPATH_NO_BACKTRACE", "1", 0);
    setenv("HFI_NO_BACKTRACE", "1", 0);
    void* const handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        library.trouble = std::string("libfabric can't be loaded (package libfabric1): ") + dlerror();
        return library;
    }
    const auto find = [&](auto& function, const char* name) {
        void* const symbol = dlsym(handle, name);
        if (symbol == nullptr) library.trouble = std::string("libfabric has no ") + name;
        std::memcpy(&function, &symbol, sizeof symbol);
    };
    find(library.getinfo, "fi_getinfo");
    find(library.freeinfo, "fi_freeinfo");
    find(library.dupinfo, "fi_dupinfo");
    find(library.fabric, "fi_fabric");
    find(library.strerror, "fi_strerror");
    find(library.version, "fi_version");
    return library;
}

const Library& library() {
    static const auto loaded = load();
    return loaded;
}

Error trouble(std::string_view provider, std::string_view what, long code) {
    const int value = static_cast<int>(code < 0 ? -code : code);
    return {ErrorCode::unavailable,
            "libfabric " + std::string(provider) + ", " + std::string(what) + ": " + library().strerror(value)};
}

struct Close {
    template <class Fid>
    void operator()(Fid* one) const {
        fi_close(&one->fid);
    }
};
template <class Fid>
using Owned = std::unique_ptr<Fid, Close>;
struct FreeInfo {
    void operator()(fi_info* info) const { library().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

Result<Info> find_info(std::string_view provider, const std::string& address) {
    if (!library().trouble.empty()) return fail(ErrorCode::not_supported, library().trouble);
    const Info hints(library().dupinfo(nullptr));
    hints->caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider.data());
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    fi_info* found = nullptr;
    const auto* const node = address.empty() ? nullptr : address.c_str();
    const int code =
        library().getinfo(api_version, node, nullptr, node != nullptr ? FI_SOURCE : 0, hints.get(), &found);
    if (code == -FI_ENODATA) {
        return fail(ErrorCode::not_supported, "no device here has libfabric's " + std::string(provider) +
                                                  (address.empty() ? "" : " at " + address));
    }
    if (code != 0) return tl::unexpected(trouble(provider, "fi_getinfo", code));
    return Info(found);
}

std::uint64_t random_key() {
    std::uint64_t key = 0;
    if (getrandom(&key, sizeof key, 0) != sizeof key) std::abort();
    return key;
}

struct Memory {
    const std::byte* begin = nullptr;
    std::uint64_t size_bytes = 0;
    Owned<fid_mr> registration;
};

}  // namespace

struct OfiEndpoint::Impl {
    std::string_view provider;
    Info info;
    Owned<fid_fabric> fabric;
    Owned<fid_domain> domain;
    std::mutex memory_mutex;
    std::vector<Memory> memory;  // under memory_mutex
    Owned<fid_av> peers;
    Owned<fid_cq> queue;
    Owned<fid_ep> endpoint;  // closed before what it is bound to
    int fd = -1;             // the queue's own
    std::string name;

    Result<void> open_endpoint();
    void* descriptor_of(const std::byte* begin, std::size_t size_bytes);
};

namespace {

// Opens one of libfabric's objects with one of its calls.
template <class Fid, class Call>
Result<void> open_one(Owned<Fid>& into, std::string_view provider, std::string_view what, Call call) {
    Fid* opened = nullptr;
    if (const long code = call(&opened); code != 0) return tl::unexpected(trouble(provider, what, code));
    into.reset(opened);
    return {};
}

}  // namespace

Result<void> OfiEndpoint::Impl::open_endpoint() {
    fi_av_attr table{};
    table.type = FI_AV_TABLE;
    fi_cq_attr entries{};
    entries.format = FI_CQ_FORMAT_CONTEXT;
    entries.size = queue_entries;
    entries.wait_obj = FI_WAIT_FD;
    auto opened = open_one(peers, provider, "fi_av_open",
                           [&](fid_av** one) { return fi_av_open(domain.get(), &table, one, nullptr); });
    if (!opened) return opened;
    opened = open_one(queue, provider, "fi_cq_open",
                      [&](fid_cq** one) { return fi_cq_open(domain.get(), &entries, one, nullptr); });
    if (!opened) return opened;
    opened = open_one(endpoint, provider, "fi_endpoint",
                      [&](fid_ep** one) { return fi_endpoint(domain.get(), info.get(), one, nullptr); });
    if (!opened) return opened;
    const auto done = [&](std::string_view what, long code) -> Result<void> {
        if (code != 0) return tl::unexpected(trouble(provider, what, code));
        return {};
    };
    opened = done("FI_GETWAIT", fi_control(&queue->fid, FI_GETWAIT, &fd));
    if (opened) opened = done("fi_ep_bind", fi_ep_bind(endpoint.get(), &peers->fid, 0));
    if (opened) opened = done("fi_ep_bind", fi_ep_bind(endpoint.get(), &queue->fid, FI_TRANSMIT | FI_RECV));
    if (opened) opened = done("fi_enable", fi_enable(endpoint.get()));
    if (!opened) return opened;
    name.assign(limits::fabric_endpoint_bytes_max, '\0');
    std::size_t size = name.size();
    opened = done("fi_getname", fi_getname(&endpoint->fid, name.data(), &size));
    name.resize(size);
    return opened;
}

void* OfiEndpoint::Impl::descriptor_of(const std::byte* begin, std::size_t size_bytes) {
    const std::lock_guard lock(memory_mutex);
    for (const auto& one : memory) {
        if (begin >= one.begin && begin + size_bytes <= one.begin + one.size_bytes) {
            return fi_mr_desc(one.registration.get());
        }
    }
    return nullptr;
}

OfiEndpoint::OfiEndpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OfiEndpoint::~OfiEndpoint() = default;

Result<std::unique_ptr<OfiEndpoint>> OfiEndpoint::open(const std::string& provider, const std::string& address) {
    const auto* const known = std::find(ofi_providers.begin(), ofi_providers.end(), provider);
    if (known == ofi_providers.end()) {
        return fail(ErrorCode::not_supported, "libfabric's provider '" + provider + "' is not used here");
    }
    auto info = find_info(*known, address);
    if (!info) return tl::unexpected(info.error());
    auto impl = std::make_unique<Impl>();
    impl->provider = *known;
    impl->info = std::move(*info);
    auto opened = open_one(impl->fabric, *known, "fi_fabric",
                           [&](fid_fabric** one) { return library().fabric(impl->info->fabric_attr, one, nullptr); });
    if (!opened) return tl::unexpected(opened.error());
    opened = open_one(impl->domain, *known, "fi_domain",
                      [&](fid_domain** one) { return fi_domain(impl->fabric.get(), impl->info.get(), one, nullptr); });
    if (!opened) return tl::unexpected(opened.error());
    opened = impl->open_endpoint();
    if (!opened) {
        auto error = opened.error();
        if (!address.empty()) error.message += " (at " + address + ")";
        return tl::unexpected(std::move(error));
    }
    return std::unique_ptr<OfiEndpoint>(new OfiEndpoint(std::move(impl)));
}

std::string_view OfiEndpoint::provider() const {
    return impl_->provider;
}
const std::string& OfiEndpoint::name() const {
    return impl_->name;
}
std::size_t OfiEndpoint::message_bytes_max() const {
    return impl_->info->ep_attr->max_msg_size;
}

Result<OfiEndpoint::Registered> OfiEndpoint::add_memory(std::byte* begin, std::uint64_t size_bytes, bool reachable) {
    const std::uint64_t access = reachable ? FI_REMOTE_READ | FI_REMOTE_WRITE : FI_READ | FI_WRITE;
    Memory memory{begin, size_bytes, {}};
    const auto opened = open_one(memory.registration, impl_->provider, "fi_mr_reg", [&](fid_mr** one) {
        return fi_mr_reg(impl_->domain.get(), begin, size_bytes, access, 0, random_key(), 0, one, nullptr);
    });
    if (!opened) return tl::unexpected(opened.error());
    const bool by_address = (impl_->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    const Registered registered{fi_mr_key(memory.registration.get()),
                                by_address ? reinterpret_cast<std::uintptr_t>(begin) : 0};
    count_registration();
    const std::lock_guard lock(impl_->memory_mutex);
    impl_->memory.push_back(std::move(memory));
    return registered;
}

Result<OfiEndpoint::Peer> OfiEndpoint::insert(const std::string& name) {
    fi_addr_t peer = FI_ADDR_UNSPEC;
    const int count = fi_av_insert(impl_->peers.get(), name.data(), 1, &peer, 0, nullptr);
    if (count == 1) return peer;
    return tl::unexpected(trouble(impl_->provider, "fi_av_insert", count < 0 ? count : -FI_EINVAL));
}

void OfiEndpoint::remove(Peer peer) {
    fi_av_remove(impl_->peers.get(), &peer, 1, 0);
}

int OfiEndpoint::post(Direction direction, Peer peer, std::span<std::byte> local, std::uint64_t remote,
                      std::uint64_t key, void* context) {
    iovec part{local.data(), local.size()};
    void* descriptor = impl_->descriptor_of(local.data(), local.size());
    const fi_rma_iov there{remote, local.size(), key};
    const fi_msg_rma message{&part, &descriptor, 1, peer, &there, 1, context, 0};
    // A write counts only once it is in the peer's memory.
    const auto code = direction == Direction::into
                          ? fi_writemsg(impl_->endpoint.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                          : fi_readmsg(impl_->endpoint.get(), &message, FI_COMPLETION);
    return static_cast<int>(-code);
}

std::size_t OfiEndpoint::take(std::span<Done> into) {
    std::array<fi_cq_entry, taken_at_once> entries{};
    auto* const queue = impl_->queue.get();
    const auto count = fi_cq_read(queue, entries.data(), std::min(entries.size(), into.size()));
    if (count == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        if (fi_cq_readerr(queue, &error, 0) != 1) return 0;
        const auto* const reason = fi_cq_strerror(queue, error.prov_errno, error.err_data, nullptr, 0);
        into.front() = {error.op_context, std::abs(error.err), reason != nullptr ? reason : ""};
        return 1;
    }
    if (count <= 0) return 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) into[i] = {entries[i].op_context, 0, {}};
    return static_cast<std::size_t>(count);
}

void OfiEndpoint::wait(int wake_fd, std::chrono::milliseconds limit) {
    auto* queue = &impl_->queue->fid;
    if (fi_trywait(impl_->fabric.get(), &queue, 1) != 0) return;  // there is something already
    std::array<pollfd, 2> fds{pollfd{impl_->fd, POLLIN, 0}, pollfd{wake_fd, POLLIN, 0}};
    poll(fds.data(), fds.size(), static_cast<int>(limit.count()));
}

bool OfiEndpoint::cut(const std::string& name) {
    if (impl_->provider != "tcp;ofi_rxm") return false;
    // The library tells nobody its sockets: they are those whose other end has that name.
    std::error_code ended;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ended)) {
        const int fd = std::atoi(entry.path().filename().c_str());
        std::array<char, limits::fabric_endpoint_bytes_max> other{};
        socklen_t size = other.size();
        if (getpeername(fd, reinterpret_cast<sockaddr*>(other.data()), &size) != 0) continue;
        if (std::string_view(other.data(), std::min<std::size_t>(size, other.size())) == name) shutdown(fd, SHUT_RDWR);
    }
    return true;
}

Result<void> OfiEndpoint::reopen() {
    impl_->endpoint.reset();
    impl_->queue.reset();
    impl_->peers.reset();
    return impl_->open_endpoint();
}

Result<std::string> ofi_version() {
    if (!library().trouble.empty()) return fail(ErrorCode::not_supported, library().trouble);
    const auto version = library().version();
    return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

}  // namespace kvern::fabric

#else

#include <cstdlib>

// Nothing else can be called where nothing can be opened.
namespace kvern::fabric {

struct OfiEndpoint::Impl {};

Result<std::unique_ptr<OfiEndpoint>> OfiEndpoint::open(const std::string&, const std::string&) {
    return tl::unexpected(ofi_version().error());
}
OfiEndpoint::~OfiEndpoint() = default;
std::string_view OfiEndpoint::provider() const {
    std::abort();
}
const std::string& OfiEndpoint::name() const {
    std::abort();
}
std::size_t OfiEndpoint::message_bytes_max() const {
    std::abort();
}
Result<OfiEndpoint::Registered> OfiEndpoint::add_memory(std::byte*, std::uint64_t, bool) {
    std::abort();
}
Result<OfiEndpoint::Peer> OfiEndpoint::insert(const std::string&) {
    std::abort();
}
void OfiEndpoint::remove(Peer) {
    std::abort();
}
int OfiEndpoint::post(Direction, Peer, std::span<std::byte>, std::uint64_t, std::uint64_t, void*) {
    std::abort();
}
std::size_t OfiEndpoint::take(std::span<Done>) {
    std::abort();
}
void OfiEndpoint::wait(int, std::chrono::milliseconds) {
    std::abort();
}
bool OfiEndpoint::cut(const std::string&) {
    std::abort();
}
Result<void> OfiEndpoint::reopen() {
    std::abort();
}
Result<std::string> ofi_version() {
    return fail(ErrorCode::not_supported, "this program was built without libfabric's headers (libfabric-dev)");
}

}  // namespace kvern::fabric

#endif
