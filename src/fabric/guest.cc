// SPDX-License-Identifier: Apache-2.0
#include "fabric/guest.h"

#include <atomic>

namespace kvern::fabric {
namespace {

std::atomic<std::uint64_t> counted{0};

}  // namespace

std::uint64_t registrations() {
    return counted.load(std::memory_order_relaxed);
}

void count_registration() {
    counted.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace kvern::fabric
