// SPDX-License-Identifier: Apache-2.0
#include "fabric/probe.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "fabric/cuobject_guest.h"
#include "fabric/dc_guest.h"
#include "fabric/local_guest.h"
#include "fabric/ofi_endpoint.h"
#include "kvern/memory.h"

namespace kvern::fabric {
namespace {

ProviderFacts probe_local() {
    RegionOptions options;
    options.size_bytes = 4096;
    const auto region = Region::create(options);
    if (!region) return {"local", false, "memory that can be handed over can't be made: " + region.error().message};
    return {"local", true, "for servers of this host (" + local_host_id() + ")"};
}

ProviderFacts probe_ofi(std::string_view provider, const std::string& address) {
    const std::string name(provider);
    const auto endpoint = OfiEndpoint::open(name, address);
    if (!endpoint) return {name, false, endpoint.error().message};
    return {name, true,
            "libfabric " + ofi_version().value_or("?") + ", reached at " + endpoint_text((*endpoint)->name())};
}

template <class Opened>
ProviderFacts probe_guest(const char* name, const Opened& guest, const char* found) {
    if (!guest) return {name, false, guest.error().message};
    return {name, true, found};
}

}  // namespace

std::string endpoint_text(const std::string& name) {
    sockaddr_storage address{};
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    std::memcpy(&address, name.data(), std::min(name.size(), sizeof address));
    const auto size = static_cast<socklen_t>(std::min(name.size(), sizeof address));
    if (getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return to_hex(std::string_view(name));
    }
    const bool v6 = address.ss_family == AF_INET6;
    return (v6 ? "[" : "") + std::string(host.data()) + (v6 ? "]:" : ":") + port.data();
}

std::vector<ProviderFacts> probe_providers(const std::string& address) {
    std::vector<ProviderFacts> all{probe_local()};
    for (const auto provider : ofi_providers) all.push_back(probe_ofi(provider, address));
    all.push_back(probe_guest("cuobject", CuObjectGuest::shared(), "libcuobjclient is loaded and connected"));
    all.push_back(probe_guest("dc", DcGuest::open(address), "a ConnectX is here; not run on hardware yet"));
    all.push_back({"http", true, "bodies of HTTP, which need nothing"});
    return all;
}

}  // namespace kvern::fabric
