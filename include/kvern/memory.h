// SPDX-License-Identifier: Apache-2.0
// Region and Lease: memory that is mapped and registered once, and the move-only parts of it that transfers use.
//
// Thread-safe: any thread may lease, return and quarantine. Does no I/O, and does not know who registers it (io_uring,
// a fabric, CUDA): those hold the Region and read its base, size and readiness.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvern/result.h"

namespace kvern {

class Region;

// A part of one Region: 4 KiB aligned, returned to its region when destroyed. Move-only. Keeps the region alive.
// Not thread-safe itself; the bytes belong to whoever holds the lease.
class Lease {
  public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();

    explicit operator bool() const { return region_ != nullptr; }
    std::byte* data() const { return data_; }
    std::size_t size_bytes() const { return size_bytes_; }  // as rounded up to 4 KiB
    Region* region() const { return region_.get(); }
    void release();

  private:
    friend class Region;
    Lease(std::shared_ptr<Region> region, std::byte* data, std::size_t size_bytes)
        : region_(std::move(region)), data_(data), size_bytes_(size_bytes) {}
    std::shared_ptr<Region> region_;
    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
};

enum class HugePages : std::uint8_t { off, attempt, require };
Result<HugePages> parse_hugepages(std::string_view text);  // "off" | "try" | "require"

struct RegionOptions {
    std::string name = "staging";  // in messages and as the memfd's name
    std::size_t size_bytes = 0;    // rounded up to 4 KiB (2 MiB with huge pages)
    HugePages hugepages = HugePages::off;
    bool touch_in_background = true;  // else first use of each page pays for it
};

struct RegionStats {
    std::size_t size_bytes = 0;
    std::size_t leased_bytes = 0;       // in the hands of callers
    std::size_t quarantined_bytes = 0;  // held back, see quarantine()
    std::size_t largest_free_bytes = 0;
    std::string pages;  // what was got: "4 KiB", "2 MiB (hugetlb)", "transparent huge pages asked for"
};

// Host memory in a sealed memfd (SHRINK | GROW | SEAL), so that a server on the same host can be handed the descriptor.
class Region : public std::enable_shared_from_this<Region> {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;

    static Result<std::shared_ptr<Region>> create(const RegionOptions& options);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    // The lowest free part that fits (so that memory already touched is used first), or nothing if none fits now.
    // O(log n) in the number of free parts; never blocks.
    std::optional<Lease> try_lease(std::size_t size_bytes);

    // Holds a lease back whose transfer ended without a definite answer: its bytes may still be written by someone
    // else. It is free again when end_quarantine(id) is called with that answer, or at `until`.
    std::uint64_t quarantine(Lease lease, TimePoint until = TimePoint::max());
    void end_quarantine(std::uint64_t id);
    void release_expired(TimePoint now);
    // False while more than limits::quarantine_fraction_max is held back: no new loads then.
    bool accepts_loads() const;

    std::byte* base() const;
    std::size_t size_bytes() const;
    int memfd() const;
    // True once the background touch is over: only then may the whole region be registered (registering untouched
    // memory faults in every page at once).
    bool touched() const;
    // Blocks until touched(), until it is clear that nothing (more) will be touched, or until the timeout; returns
    // touched().
    bool wait_touched(std::chrono::milliseconds timeout) const;
    RegionStats stats() const;

  private:
    friend class Lease;
    struct Impl;
    explicit Region(std::unique_ptr<Impl> impl);
    void give_back(std::byte* data, std::size_t size_bytes) noexcept;
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvern
