// SPDX-License-Identifier: Apache-2.0
#include "fabric/probe.h"

#include "fabric/cuobject_guest.h"
#include "fabric/dc_guest.h"
#include "fabric/local_guest.h"
#include "fabric/networks.h"
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

std::vector<ProviderFacts> probe_providers(const std::string& address) {
    std::vector<ProviderFacts> all{probe_local()};
    for (const auto provider : ofi_providers) all.push_back(probe_ofi(provider, address));
    all.push_back(probe_guest("cuobject", CuObjectGuest::shared(), "libcuobjclient is loaded and connected"));
    all.push_back(probe_guest("dc", DcGuest::open(address), "a ConnectX is here; not run on hardware yet"));
    all.push_back({"http", true, "bodies of HTTP, which need nothing"});
    return all;
}

}  // namespace kvern::fabric
