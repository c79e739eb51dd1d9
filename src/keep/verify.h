// SPDX-License-Identifier: Apache-2.0
// Verifying: reads objects and proves that a load of them would succeed: header, key, every checksum.
//
// One thread. Several objects are read at a time, in pieces, in one region of memory, however many there are. An object
// that is removed or replaced while it is read is none of its business.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keep/catalogue.h"
#include "kvern/memory.h"

namespace kvern {

struct VerifyPlan {
    double fraction = 1;            // of the objects, chosen by chance ...
    std::uint64_t objects_max = 0;  // ... or this many of them; 0: no such limit
    std::uint64_t seed = 0;         // of the choice
    bool remove = false;            // removes what is bad, if it is still the version that was read
};

struct Finding {
    std::string key;
    std::string why;
    bool removed = false;
};

struct VerifyProgress {
    std::uint64_t objects = 0, bytes = 0;          // done
    std::uint64_t objects_all = 0, bytes_all = 0;  // chosen
};

struct VerifyReport {
    VerifyProgress done;
    std::uint64_t bad = 0, removed = 0;  // objects and identity files; bad ones that were removed
    std::uint64_t changed = 0;           // objects that were removed or replaced while they were read
    std::uint64_t newer = 0;             // objects of another version of the format: nothing is known of them
    std::uint64_t nameless_namespaces =
        0;  // without identity.json: their objects can be used, but nobody can say whose
    bool interrupted = false;
};

struct VerifyHooks {
    std::function<void(const Finding&)> found;
    std::function<void(const VerifyProgress&)> progress;
};

// Memory for verify(), which must outlive the client that it is called with.
Result<std::shared_ptr<Region>> verify_memory();

// Errors: the store fails with something else than one object.
Result<VerifyReport> verify(Client& client, Region& memory, const Catalogue& catalogue, const VerifyPlan& plan,
                            const VerifyHooks& hooks);

}  // namespace kvern
