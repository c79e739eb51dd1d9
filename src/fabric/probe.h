// SPDX-License-Identifier: Apache-2.0
// What this host has for one-sided transfers, for `kvern probe`: each provider with the reason why it can or can't be
// used.
//
// Main thread. Opens each for a moment, which may take a second and 100 MB; nothing is connected to.
#pragma once

#include <string>
#include <vector>

namespace kvern::fabric {

struct ProviderFacts {
    std::string name;  // as in rdma= and --fabric-providers
    bool usable = false;
    std::string reason;  // a sentence: what was found, or what is missing and what would change that
};

// `address`: of this host, in the network of the transfers; empty: any.
std::vector<ProviderFacts> probe_providers(const std::string& address);

}  // namespace kvern::fabric
