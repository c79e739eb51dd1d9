// SPDX-License-Identifier: Apache-2.0
#include "fabric/dc_guest.h"

#if __has_include(<infiniband/mlx5dv.h>)

#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/text.h"
#include "fabric/token.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

constexpr std::uint64_t default_key = 0xffeeddcc;  // what cuObject's servers take unless they are told another
constexpr std::size_t gid_entries_max = 1024;      // of one card
constexpr std::uint8_t hop_limit = 64;
constexpr std::uint8_t receiver_not_ready_timer = 12;  // 0.64 ms; nothing is received, so it is never waited

struct Library {
    decltype(&::ibv_get_device_list) get_device_list = nullptr;
    decltype(&::ibv_free_device_list) free_device_list = nullptr;
    decltype(&::mlx5dv_is_supported) is_supported = nullptr;
    decltype(&::ibv_open_device) open_device = nullptr;
    decltype(&::ibv_close_device) close_device = nullptr;
    decltype(&::ibv_query_port) query_port = nullptr;
    decltype(&::_ibv_query_gid_table) query_gid_table = nullptr;
    decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
    decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
    decltype(&::ibv_create_cq) create_cq = nullptr;
    decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
    decltype(&::ibv_create_srq) create_srq = nullptr;
    decltype(&::ibv_destroy_srq) destroy_srq = nullptr;
    decltype(&::mlx5dv_create_qp) create_qp = nullptr;
    decltype(&::ibv_modify_qp) modify_qp = nullptr;
    decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
    decltype(&::ibv_reg_mr_iova2) reg_mr = nullptr;
    decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
    std::string trouble;  // empty: all are there
};

Library load() {
    Library library;
    void* const verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void* const card = verbs == nullptr ? nullptr : dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
    if (card == nullptr) {
        library.trouble = std::string(verbs == nullptr ? "libibverbs can't be loaded (package libibverbs1): "
                                                       : "libmlx5 can't be loaded (package ibverbs-providers): ") +
                          dlerror();
        return library;
    }
    const auto find = [&](void* handle, auto& function, const char* name) {
        void* const symbol = dlsym(handle, name);
        if (symbol == nullptr) library.trouble = std::string("libibverbs and libmlx5 are too old: no ") + name;
        std::memcpy(&function, &symbol, sizeof symbol);
    };
    find(verbs, library.get_device_list, "ibv_get_device_list");
    find(verbs, library.free_device_list, "ibv_free_device_list");
    find(verbs, library.open_device, "ibv_open_device");
    find(verbs, library.close_device, "ibv_close_device");
    find(verbs, library.query_port, "ibv_query_port");
    find(verbs, library.query_gid_table, "_ibv_query_gid_table");
    find(verbs, library.alloc_pd, "ibv_alloc_pd");
    find(verbs, library.dealloc_pd, "ibv_dealloc_pd");
    find(verbs, library.create_cq, "ibv_create_cq");
    find(verbs, library.destroy_cq, "ibv_destroy_cq");
    find(verbs, library.create_srq, "ibv_create_srq");
    find(verbs, library.destroy_srq, "ibv_destroy_srq");
    find(verbs, library.modify_qp, "ibv_modify_qp");
    find(verbs, library.destroy_qp, "ibv_destroy_qp");
    find(verbs, library.reg_mr, "ibv_reg_mr_iova2");
    find(verbs, library.dereg_mr, "ibv_dereg_mr");
    find(card, library.is_supported, "mlx5dv_is_supported");
    find(card, library.create_qp, "mlx5dv_create_qp");
    return library;
}

const Library& library() {
    static const auto loaded = load();
    return loaded;
}

Error trouble(const char* call, int errno_value) {
    auto error = error_from_errno(errno_value, std::string("a ConnectX, ") + call);
    error.code = errno_value == ENOMEM || errno_value == EAGAIN ? ErrorCode::resource : ErrorCode::unavailable;
    return error;
}

template <auto Release>
struct Releaser {
    template <class T>
    void operator()(T* one) const {
        (library().*Release)(one);
    }
};
template <class T, auto Release>
using Owned = std::unique_ptr<T, Releaser<Release>>;
using Context = Owned<ibv_context, &Library::close_device>;
using Domain = Owned<ibv_pd, &Library::dealloc_pd>;
using Queue = Owned<ibv_cq, &Library::destroy_cq>;
using Receives = Owned<ibv_srq, &Library::destroy_srq>;
using Target = Owned<ibv_qp, &Library::destroy_qp>;
using Registration = Owned<ibv_mr, &Library::dereg_mr>;

// ----------------------------------------------------------------------------------------------- which card and port

using Gid = std::array<std::uint8_t, 16>;

// An IPv4 address is a GID as IPv6 writes it, ::ffff:192.0.2.17.
std::optional<Gid> gid_of(const std::string& address) {
    Gid gid{};
    if (inet_pton(AF_INET6, address.c_str(), gid.data()) == 1) return gid;
    gid[10] = gid[11] = 0xff;
    if (inet_pton(AF_INET, address.c_str(), gid.data() + 12) == 1) return gid;
    return std::nullopt;
}

Gid bytes_of(const ibv_gid& gid) {
    Gid bytes;
    std::copy(std::begin(gid.raw), std::end(gid.raw), bytes.begin());
    return bytes;
}

// How gladly an address is used that nobody asked for: what can be routed before what is known on one link only.
unsigned liking(const Gid& gid) {
    constexpr Gid mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::equal(mapped.begin(), mapped.begin() + 12, gid.begin())) return 3;
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? 1 : 2;
}

struct Place {
    Context context;
    ibv_port_attr port{};
    ibv_gid_entry gid{};
    bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }
};

// The port's state; nothing: it is not active.
std::optional<ibv_port_attr> active_port(ibv_context* context, std::uint32_t number) {
    ibv_port_attr port{};
    // The old form of the call fills the beginning, which is all that is read here.
    auto* const beginning = reinterpret_cast<_compat_ibv_port_attr*>(&port);
    const int code = library().query_port(context, static_cast<std::uint8_t>(number), beginning);
    if (code != 0 || port.state != IBV_PORT_ACTIVE) return std::nullopt;
    return port;
}

// Of one card: the address that is wanted, or the best of its first active port.
bool choose(Place& place, const std::optional<Gid>& wanted) {
    std::vector<ibv_gid_entry> entries(gid_entries_max);
    const auto count =
        library().query_gid_table(place.context.get(), entries.data(), entries.size(), 0, sizeof entries.front());
    entries.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    unsigned best = 0;
    for (const auto& entry : entries) {
        if (best > 0 && entry.port_num != place.gid.port_num) continue;
        const auto port = active_port(place.context.get(), entry.port_num);
        if (!port) continue;
        const bool ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;
        if (entry.gid_type != (ethernet ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB)) continue;
        const auto gid = bytes_of(entry.gid);
        if (wanted && gid != *wanted) continue;
        const auto liked = ethernet ? liking(gid) : 1;
        if (liked <= best) continue;
        best = liked;
        place.port = *port;
        place.gid = entry;
    }
    return best > 0;
}

Result<Place> find_place(const std::string& address) {
    const auto wanted = gid_of(address);
    if (!wanted && !address.empty()) {
        return fail(ErrorCode::invalid_argument, "'" + address + "' is no IP address: it is to be that of a ConnectX");
    }
    int count = 0;
    ibv_device** const listed = library().get_device_list(&count);
    const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> devices(
        listed, [](ibv_device** all) { library().free_device_list(all); });
    unsigned cards = 0;
    for (int i = 0; listed != nullptr && i < count; ++i) {
        if (!library().is_supported(listed[i])) continue;
        ++cards;
        Place place;
        place.context.reset(library().open_device(listed[i]));
        if (place.context && choose(place, wanted)) return place;
    }
    if (cards == 0) return fail(ErrorCode::not_supported, "no ConnectX here");
    return fail(ErrorCode::not_supported,
                "no ConnectX here has an active port" +
                    (wanted ? " with the address " + address + " (KVERN_FABRIC_ADDRESS)" : std::string()));
}

// --------------------------------------------------------------------------------------------------------- the target

// KVERN_DC_KEY, in hex.
Result<std::uint64_t> dc_key() {
    const char* const given = std::getenv("KVERN_DC_KEY");
    if (given == nullptr || *given == '\0') return default_key;
    std::string_view text(given);
    if (text.starts_with("0x")) text.remove_prefix(2);
    std::uint64_t key = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), key, 16);
    if (error == std::errc{} && rest == text.data() + text.size()) return key;
    // Not repeated: it is a secret.
    return fail(ErrorCode::invalid_argument, "KVERN_DC_KEY is no number in hex of at most 64 bits");
}

Result<void> to_init(ibv_qp* target, const Place& place) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = static_cast<std::uint8_t>(place.gid.port_num);
    wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    const int which = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (const int code = library().modify_qp(target, &wanted, which); code != 0) {
        return tl::unexpected(trouble("ibv_modify_qp to INIT", code));
    }
    return {};
}

Result<void> to_ready(ibv_qp* target, const Place& place) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = place.port.active_mtu;
    wanted.min_rnr_timer = receiver_not_ready_timer;
    wanted.ah_attr.port_num = static_cast<std::uint8_t>(place.gid.port_num);
    wanted.ah_attr.is_global = place.ethernet() ? 1 : 0;
    wanted.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(place.gid.gid_index);
    wanted.ah_attr.grh.hop_limit = hop_limit;
    const int which = IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER;
    if (const int code = library().modify_qp(target, &wanted, which); code != 0) {
        return tl::unexpected(trouble("ibv_modify_qp to RTR", code));
    }
    return {};
}

}  // namespace

struct DcGuest::Impl {
    Place place;
    Domain domain;
    Queue queue;        // of a target that receives nothing: it must have them
    Receives receives;  // the same
    Target target;

    struct Known {
        std::shared_ptr<Region> region;  // kept mapped as long as others can reach it
        std::vector<Registration> registrations;
        std::vector<Window> windows;
    };
    std::mutex mutex;
    std::vector<Known> known;                // under mutex
    std::vector<std::uint32_t> remote_keys;  // under mutex: by a window's id

    Result<void> open_target(std::uint64_t key);
    Result<Registration> add_memory(std::byte* begin, std::uint64_t size_bytes);
};

Result<void> DcGuest::Impl::open_target(std::uint64_t key) {
    auto* const context = place.context.get();
    domain.reset(library().alloc_pd(context));
    if (!domain) return tl::unexpected(trouble("ibv_alloc_pd", errno));
    queue.reset(library().create_cq(context, 1, nullptr, nullptr, 0));
    if (!queue) return tl::unexpected(trouble("ibv_create_cq", errno));
    ibv_srq_init_attr one{};
    one.attr.max_wr = one.attr.max_sge = 1;
    receives.reset(library().create_srq(domain.get(), &one));
    if (!receives) return tl::unexpected(trouble("ibv_create_srq", errno));
    ibv_qp_init_attr_ex wanted{};
    wanted.qp_type = IBV_QPT_DRIVER;
    wanted.send_cq = wanted.recv_cq = queue.get();
    wanted.srq = receives.get();
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    wanted.pd = domain.get();
    mlx5dv_qp_init_attr kind{};
    kind.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    kind.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    kind.dc_init_attr.dct_access_key = key;
    target.reset(library().create_qp(context, &wanted, &kind));
    if (!target) return tl::unexpected(trouble("mlx5dv_create_qp (it must be a ConnectX-5 or newer)", errno));
    auto done = to_init(target.get(), place);
    return done ? to_ready(target.get(), place) : done;
}

Result<Registration> DcGuest::Impl::add_memory(std::byte* begin, std::uint64_t size_bytes) {
    // Relaxed: a card that may not reorder its writes over the bus stalls its link when several are written to. The
    // bytes are looked at after the server's answer only, and verified then.
    const unsigned access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
    Registration registration(
        library().reg_mr(domain.get(), begin, size_bytes, reinterpret_cast<std::uintptr_t>(begin), access));
    if (registration) {
        count_registration();
        return registration;
    }
    return tl::unexpected(
        trouble(("ibv_reg_mr of " + format_size(size_bytes) + " (does ulimit -l allow it?)").c_str(), errno));
}

DcGuest::DcGuest(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DcGuest::~DcGuest() = default;

Result<std::shared_ptr<DcGuest>> DcGuest::open(const std::string& address) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<DcGuest>> guests;
    const std::lock_guard lock(mutex);
    if (auto guest = guests[address].lock()) return guest;
    if (!library().trouble.empty()) return fail(ErrorCode::not_supported, library().trouble);
    const auto key = dc_key();
    if (!key) return tl::unexpected(key.error());
    auto place = find_place(address);
    if (!place) return tl::unexpected(place.error());
    auto impl = std::make_unique<Impl>();
    impl->place = std::move(*place);
    if (auto opened = impl->open_target(*key); !opened) return tl::unexpected(opened.error());
    const std::shared_ptr<DcGuest> guest(new DcGuest(std::move(impl)));
    guests[address] = guest;
    return guest;
}

Result<std::vector<Guest::Window>> DcGuest::hand_over(const std::shared_ptr<Region>& region) {
    const std::lock_guard lock(impl_->mutex);
    auto& all = impl_->known;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.region == region; });
    if (found != all.end()) return found->windows;
    Impl::Known known{region, {}, {}};
    const std::uint64_t size = region->size_bytes();
    for (std::uint64_t offset = 0; offset < size; offset += limits::registration_bytes_max) {
        auto* const begin = region->base() + offset;
        const auto part = std::min<std::uint64_t>(size - offset, limits::registration_bytes_max);
        auto registration = impl_->add_memory(begin, part);
        if (!registration) return tl::unexpected(registration.error());
        const auto place = impl_->remote_keys.size() + known.windows.size();
        known.windows.push_back({begin, part, std::to_string(place)});
        known.registrations.push_back(std::move(*registration));
    }
    for (const auto& one : known.registrations) impl_->remote_keys.push_back(one->rkey);
    all.push_back(std::move(known));
    return all.back().windows;
}

Result<Guest::Minted> DcGuest::token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes, Direction) {
    Descriptor descriptor;
    descriptor.address = reinterpret_cast<std::uintptr_t>(window.begin) + offset;
    descriptor.size_bytes = static_cast<std::uint32_t>(size_bytes);  // a window is smaller than 4 GiB
    descriptor.lid = impl_->place.port.lid;
    descriptor.dct_number = impl_->target->qp_num;
    if (impl_->place.ethernet()) descriptor.gid = bytes_of(impl_->place.gid.gid);
    const std::lock_guard lock(impl_->mutex);
    descriptor.rkey = impl_->remote_keys[std::stoul(window.id)];
    return Minted{descriptor_text(descriptor), nullptr};
}

}  // namespace kvern::fabric

#else

#include <cstdlib>

// Nothing else can be called where nothing can be opened.
namespace kvern::fabric {

struct DcGuest::Impl {};

Result<std::shared_ptr<DcGuest>> DcGuest::open(const std::string&) {
    return fail(ErrorCode::not_supported, "this program was built without mlx5's headers (libibverbs-dev)");
}
DcGuest::~DcGuest() = default;
Result<std::vector<Guest::Window>> DcGuest::hand_over(const std::shared_ptr<Region>&) {
    std::abort();
}
Result<Guest::Minted> DcGuest::token(const Window&, std::uint64_t, std::uint64_t, Direction) {
    std::abort();
}

}  // namespace kvern::fabric

#endif
