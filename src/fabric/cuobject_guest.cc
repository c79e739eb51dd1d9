// SPDX-License-Identifier: Apache-2.0
#include "fabric/cuobject_guest.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/text.h"
#include "fabric/token.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

constexpr const char* default_library = "libcuobjclient.so.1";

// Its class takes 72 bytes in versions 1.0 to 1.3. Room for a later one costs nothing.
constexpr std::size_t object_bytes = 4096;
constexpr std::size_t object_alignment = 64;

constexpr int success = 0;            // CU_OBJ_SUCCESS
constexpr int protocol_dc_v1 = 1001;  // CUOBJ_PROTO_RDMA_DC_V1
constexpr int operation_get = 0;      // CUOBJ_GET: the server writes into our memory
constexpr int operation_put = 1;      // CUOBJ_PUT: it reads from there

// What it would call in its own GET and PUT.
struct Operations {
    ssize_t (*get)(const void* handle, char* memory, std::size_t size, off_t offset, const void* rdma_info);
    ssize_t (*put)(const void* handle, const char* memory, std::size_t size, off_t offset, const void* rdma_info);
};
ssize_t no_get(const void*, char*, std::size_t, off_t, const void*) {
    return -1;
}
ssize_t no_put(const void*, const char*, std::size_t, off_t, const void*) {
    return -1;
}
Operations no_operations{no_get, no_put};  // some versions keep the address

// The members of its class cuObjClient. It is C++, and its header is not at hand where this is built: so they are found
// by the names that compilers give them, and told their object by hand.
struct Functions {
    void (*construct)(void* self, Operations* operations, int protocol) = nullptr;
    bool (*is_connected)(void* self) = nullptr;
    int (*get_descriptor)(void* self, void* begin, std::size_t size) = nullptr;
    int (*put_descriptor)(void* self, void* begin) = nullptr;
    int (*get_token)(void* self, void* begin, std::size_t size, std::size_t offset, int operation,
                     char** text) = nullptr;
    int (*put_token)(void* self, char* text) = nullptr;
};

std::string library_name() {
    const char* const given = std::getenv("KVERN_CUOBJECT_LIBRARY");
    return given != nullptr && *given != '\0' ? given : default_library;
}

Result<Functions> load(const std::string& name) {
    // At once, not lazily: an older libcufile that is in the process already lacks what the library calls, and then
    // this fails and not the process.
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        return fail(
            ErrorCode::not_supported,
            "cuObject's library can't be loaded (it comes with CUDA 13.1.1 and newer): " + std::string(dlerror()));
    }
    Functions functions;
    std::string missing;
    const auto find = [&](auto& function, const char* symbol, const char* shown) {
        void* const found = dlsym(handle, symbol);
        if (found == nullptr && missing.empty()) missing = shown;
        std::memcpy(&function, &found, sizeof found);
    };
    find(functions.construct, "_ZN11cuObjClientC1ER10CUObjIOOps15cuObjProto_enum", "cuObjClient");
    find(functions.is_connected, "_ZN11cuObjClient11isConnectedEv", "isConnected");
    find(functions.get_descriptor, "_ZN11cuObjClient21cuMemObjGetDescriptorEPvm", "cuMemObjGetDescriptor");
    find(functions.put_descriptor, "_ZN11cuObjClient21cuMemObjPutDescriptorEPv", "cuMemObjPutDescriptor");
    find(functions.get_token, "_ZN11cuObjClient20cuMemObjGetRDMATokenEPvmm16cuObjOpType_enumPPc",
         "cuMemObjGetRDMAToken");
    find(functions.put_token, "_ZN11cuObjClient20cuMemObjPutRDMATokenEPc", "cuMemObjPutRDMAToken");
    if (missing.empty()) return functions;
    return fail(ErrorCode::not_supported, name + " has no " + missing + " as version 1 of cuObject's client has it");
}

// No exception of the library may go further.
template <class Call>
auto guarded(Call call, decltype(call()) otherwise) noexcept {
    try {
        return call();
    } catch (...) {
        return otherwise;
    }
}

// A bare descriptor of exactly these bytes: anything else would name memory of somebody else, or be refused.
bool names(const std::string& text, const std::byte* begin, std::uint64_t size_bytes) {
    const auto token = parse_token(text);
    return token && token->kind == TokenKind::descriptor && token->descriptor == text &&
           token->base == reinterpret_cast<std::uintptr_t>(begin) && token->size_bytes == size_bytes;
}

}  // namespace

// The library's client, which finds its registrations by address: so they are counted here, where guests that follow
// one another share them.
struct CuObjectGuest::Client {
    std::string name;
    Functions functions;
    alignas(object_alignment) std::array<std::byte, object_bytes> object{};
    std::mutex mutex;                                 // one call at a time
    std::map<const std::byte*, unsigned> registered;  // under mutex: by how many

    bool construct() {
        return guarded([this] { return functions.construct(object.data(), &no_operations, protocol_dc_v1), true; },
                       false);
    }
    bool is_connected() {
        const std::lock_guard lock(mutex);
        return guarded([this] { return functions.is_connected(object.data()); }, false);
    }
    Result<void> enter(std::byte* begin, std::size_t size_bytes) {
        const std::lock_guard lock(mutex);
        if (const auto found = registered.find(begin); found != registered.end()) {
            ++found->second;
            return {};
        }
        const auto code =
            guarded([&] { return functions.get_descriptor(object.data(), begin, size_bytes); }, success + 1);
        if (code == success) {
            registered[begin] = 1;
            count_registration();
            return {};
        }
        return fail(
            ErrorCode::unavailable,
            name + " does not register " + format_size(size_bytes) +
                " of memory (it gives no reason; rdma_dev_addr_list in the file that CUFILE_ENV_PATH_JSON names "
                "must have this host's address, and the process may lock so much memory)");
    }
    void leave(const std::byte* begin) {
        const std::lock_guard lock(mutex);
        if (--registered[begin] > 0) return;
        registered.erase(begin);
        guarded([&] { return functions.put_descriptor(object.data(), const_cast<std::byte*>(begin)); }, success);
    }
    // Null: the library has none.
    char* mint(const Window& window, std::uint64_t offset, std::uint64_t size_bytes, int operation) {
        const std::lock_guard lock(mutex);
        char* text = nullptr;
        // Its base and an offset: a pointer between is unknown to the library.
        auto* const base = const_cast<std::byte*>(window.begin);
        const auto code =
            guarded([&] { return functions.get_token(object.data(), base, size_bytes, offset, operation, &text); },
                    success + 1);
        return code == success ? text : nullptr;
    }
    void give_back(char* text) {
        const std::lock_guard lock(mutex);
        guarded([&] { return functions.put_token(object.data(), text); }, success);
    }
};

// Made once and never destroyed: two of its destructors at a time are known to corrupt memory, and at the end of a
// process nobody can tell which others run. So one that is not connected is asked again, not made anew.
Result<CuObjectGuest::Client*> CuObjectGuest::connected_client() {
    static auto& clients = *new std::map<std::string, std::unique_ptr<Client>>;
    const auto name = library_name();
    auto& client = clients[name];
    if (!client) {
        auto functions = load(name);
        if (!functions) return tl::unexpected(functions.error());
        auto made = std::make_unique<Client>();
        made->name = name;
        made->functions = *functions;
        if (!made->construct())
            return fail(ErrorCode::unavailable, name + " can't make a client: it threw an exception");
        client = std::move(made);
    }
    if (client->is_connected()) return client.get();
    return fail(ErrorCode::unavailable,
                name +
                    " is not connected: it finds no RDMA device of this host that it may use (rdma_dev_addr_list in "
                    "the file that CUFILE_ENV_PATH_JSON names)");
}

Result<std::shared_ptr<CuObjectGuest>> CuObjectGuest::shared() {
    static std::mutex mutex;
    static std::weak_ptr<CuObjectGuest> known;
    const std::lock_guard lock(mutex);
    if (auto guest = known.lock()) return guest;
    const auto client = connected_client();
    if (!client) return tl::unexpected(client.error());
    const std::shared_ptr<CuObjectGuest> guest(new CuObjectGuest(**client));
    known = guest;
    return guest;
}

CuObjectGuest::~CuObjectGuest() {
    for (const auto& known : known_) {
        for (const auto& window : known.windows) client_.leave(window.begin);
    }
}

Result<std::vector<Guest::Window>> CuObjectGuest::hand_over(const std::shared_ptr<Region>& region) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const Known& one) { return one.region == region; });
    if (found != known_.end()) return found->windows;
    Known known{region, {}};
    const std::uint64_t size = region->size_bytes();
    for (std::uint64_t offset = 0; offset < size; offset += limits::registration_bytes_max) {
        auto* const begin = region->base() + offset;
        const auto part = std::min<std::uint64_t>(size - offset, limits::registration_bytes_max);
        if (const auto entered = client_.enter(begin, part); !entered) {
            for (const auto& window : known.windows) client_.leave(window.begin);
            return tl::unexpected(entered.error());
        }
        known.windows.push_back({begin, part, {}});  // the library knows it by its address
    }
    known_.push_back(known);
    return known.windows;
}

Result<Guest::Minted> CuObjectGuest::token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes,
                                           Direction direction) {
    const auto operation = direction == Direction::into ? operation_get : operation_put;
    char* const text = client_.mint(window, offset, size_bytes, operation);
    if (text == nullptr) return fail(ErrorCode::unavailable, client_.name + " gives no token (and no reason)");
    // The guest, too: a token without its registration is nothing.
    const std::shared_ptr<char> kept(text, [self = shared_from_this()](char* one) { self->client_.give_back(one); });
    Minted minted{text, kept};
    if (names(minted.text, window.begin + offset, size_bytes)) return minted;
    return fail(ErrorCode::internal,
                client_.name + " gives a token that is not the descriptor of the memory asked for");
}

}  // namespace kvern::fabric
