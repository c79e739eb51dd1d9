// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>

#include "base/log.h"
#include "base/text.h"
#include "kvern/limits.h"
#include "kvern/memory.h"
#include "memory/free_parts.h"
#include "memory/toucher.h"

namespace kvern {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

std::size_t round_up(std::size_t size_bytes, std::size_t unit) {
    return (size_bytes + unit - 1) / unit * unit;
}

std::string called(const RegionOptions& options) {
    return "region '" + options.name + "'";
}

Result<void> check_size(const RegionOptions& options) {
    if (options.size_bytes == 0) {
        return fail(ErrorCode::invalid_argument, called(options) + ": the size is 0: give it at least 4 KiB");
    }
    struct sysinfo info {};
    if (sysinfo(&info) != 0) return {};
    const auto total = static_cast<std::uint64_t>(info.totalram) * info.mem_unit;
    if (options.size_bytes > total) {
        return fail(ErrorCode::resource, called(options) + ": " + format_size(options.size_bytes) +
                                             " is more than this host's memory of " + format_size(total) +
                                             ": choose a smaller size");
    }
    return {};
}

std::string first_line(const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// The chosen word of "always within_size advise [never] deny force".
std::string chosen_word(const std::string& line) {
    const auto open = line.find('[');
    const auto close = line.find(']');
    if (open == std::string::npos || close == std::string::npos) return "unknown";
    return line.substr(open + 1, close - open - 1);
}

// What asking for transparent huge pages has achieved. madvise() says 0 even where shared memory never gets them, so
// the kernel's setting decides what is reported.
std::string ask_for_huge_pages(std::byte* base, std::size_t size_bytes) {
    if (madvise(base, size_bytes, MADV_HUGEPAGE) != 0) return "4 KiB (this kernel has no transparent huge pages)";
    const auto word = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
    if (word == "never" || word == "deny" || word == "unknown") {
        return "4 KiB (transparent huge pages are off for shared memory: shmem_enabled is '" + word + "')";
    }
    return "transparent huge pages asked for";
}

std::string no_huge_pages(const RegionOptions& options, std::size_t size_bytes, int error) {
    const auto free_pages = first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    return error_from_errno(error, called(options) + ": " + std::to_string(size_bytes / huge_page_bytes) +
                                       " huge pages of 2 MiB are required, " +
                                       (free_pages.empty() ? "none" : free_pages) + " are free")
               .message +
           ": raise vm.nr_hugepages, or use hugepages=try";
}

}  // namespace

Result<HugePages> parse_hugepages(std::string_view text) {
    static constexpr std::array<std::string_view, 3> words{"off", "try", "require"};
    if (text == words[0]) return HugePages::off;
    if (text == words[1]) return HugePages::attempt;
    if (text == words[2]) return HugePages::require;
    return fail(ErrorCode::invalid_argument,
                "unknown value '" + std::string(text) + "' for hugepages" + suggestion(text, words));
}

struct Region::Impl {
    struct Held {
        std::byte* data = nullptr;
        std::size_t size_bytes = 0;
        TimePoint until;
    };

    Impl(std::string region_name, std::byte* mapping, std::size_t bytes, int fd)
        : name(std::move(region_name)), base(mapping), size_bytes(bytes), memfd(fd), parts(bytes) {}
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    ~Impl() {
        toucher.reset();
        close(memfd);
        std::erase_if(held, [](const auto& entry) { return entry.second.until <= std::chrono::steady_clock::now(); });
        if (held.empty()) {
            munmap(base, size_bytes);
        } else {
            // Someone may still write there: the addresses must not be given to another mapping of this process.
            log(LogLevel::warning, "memory",
                "region '" + name + "' ends with " + format_size(quarantined_bytes) +
                    " in quarantine: its addresses stay reserved until the process ends");
        }
    }

    void free_held(const Held& entry) {
        parts.give_back(static_cast<std::size_t>(entry.data - base), entry.size_bytes);
        quarantined_bytes -= entry.size_bytes;
    }

    const std::string name;
    std::byte* const base;
    const std::size_t size_bytes;
    const int memfd;
    std::string pages = "4 KiB";
    std::unique_ptr<Toucher> toucher;  // none: touched on use

    mutable std::mutex mutex;  // guards all below
    FreeParts parts;
    std::size_t leased_bytes = 0;
    std::size_t quarantined_bytes = 0;
    std::map<std::uint64_t, Held> held;
    std::uint64_t next_id = 1;
};

Region::Region(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Region::~Region() = default;

Result<std::shared_ptr<Region>> Region::create(const RegionOptions& options) {
    if (auto checked = check_size(options); !checked) return tl::unexpected(checked.error());
    const bool huge = options.hugepages == HugePages::require;
    const auto size_bytes = round_up(
        options.size_bytes, huge || options.hugepages == HugePages::attempt ? huge_page_bytes : limits::page_bytes);
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
    const int fd = memfd_create(options.name.substr(0, 200).c_str(), flags);
    const auto failed = [&](int error, const char* step) -> tl::unexpected<Error> {
        if (fd >= 0) close(fd);
        if (huge) return fail(ErrorCode::resource, no_huge_pages(options, size_bytes, error));
        return tl::unexpected(
            error_from_errno(error, called(options) + " of " + format_size(size_bytes) + ": " + step + " failed"));
    };
    if (fd < 0) return failed(errno, "memfd_create");
    if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) return failed(errno, "ftruncate");
    // A peer that is handed the descriptor can trust the size: nobody can cut the file below its mapping.
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed(errno, "sealing");
    void* mapping = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapping == MAP_FAILED) return failed(errno, "mmap");
    auto* base = static_cast<std::byte*>(mapping);
    madvise(base, size_bytes, MADV_DONTDUMP);  // prompts don't belong into core dumps; fine if refused

    auto impl = std::make_unique<Impl>(options.name, base, size_bytes, fd);
    if (huge) impl->pages = "2 MiB (hugetlb)";
    if (options.hugepages == HugePages::attempt) impl->pages = ask_for_huge_pages(base, size_bytes);
    if (options.touch_in_background) {
        impl->toucher = std::make_unique<Toucher>(options.name, base, size_bytes, fd);
    }
    return std::shared_ptr<Region>(new Region(std::move(impl)));
}

std::optional<Lease> Region::try_lease(std::size_t size_bytes) {
    if (size_bytes == 0 || size_bytes > impl_->size_bytes) return std::nullopt;
    const auto rounded = round_up(size_bytes, limits::page_bytes);
    const std::lock_guard lock(impl_->mutex);
    const auto offset = impl_->parts.take(rounded);
    if (!offset) return std::nullopt;
    impl_->leased_bytes += rounded;
    return Lease(shared_from_this(), impl_->base + *offset, rounded);
}

void Region::give_back(std::byte* data, std::size_t size_bytes) noexcept {
    const std::lock_guard lock(impl_->mutex);
    impl_->parts.give_back(static_cast<std::size_t>(data - impl_->base), size_bytes);
    impl_->leased_bytes -= size_bytes;
}

std::uint64_t Region::quarantine(Lease lease, TimePoint until) {
    if (!lease) return 0;
    // The region must not hold a reference to itself, so only the bytes are kept, not the lease.
    const auto owner = std::move(lease.region_);
    auto& impl = *owner->impl_;
    const std::lock_guard lock(impl.mutex);
    impl.leased_bytes -= lease.size_bytes_;
    impl.quarantined_bytes += lease.size_bytes_;
    const auto id = impl.next_id++;
    impl.held.emplace(id, Impl::Held{lease.data_, lease.size_bytes_, until});
    return id;
}

void Region::end_quarantine(std::uint64_t id) {
    const std::lock_guard lock(impl_->mutex);
    const auto entry = impl_->held.find(id);
    if (entry == impl_->held.end()) return;
    impl_->free_held(entry->second);
    impl_->held.erase(entry);
}

void Region::release_expired(TimePoint now) {
    const std::lock_guard lock(impl_->mutex);
    std::erase_if(impl_->held, [&](const auto& entry) {
        if (entry.second.until > now) return false;
        impl_->free_held(entry.second);
        return true;
    });
}

bool Region::accepts_loads() const {
    const std::lock_guard lock(impl_->mutex);
    return static_cast<double>(impl_->quarantined_bytes) <=
           limits::quarantine_fraction_max * static_cast<double>(impl_->size_bytes);
}

std::byte* Region::base() const {
    return impl_->base;
}
std::size_t Region::size_bytes() const {
    return impl_->size_bytes;
}
int Region::memfd() const {
    return impl_->memfd;
}
bool Region::touched() const {
    return impl_->toucher != nullptr && impl_->toucher->touched();
}

bool Region::wait_touched(std::chrono::milliseconds timeout) const {
    return impl_->toucher != nullptr && impl_->toucher->wait(timeout);
}

RegionStats Region::stats() const {
    const std::lock_guard lock(impl_->mutex);
    RegionStats stats;
    stats.size_bytes = impl_->size_bytes;
    stats.leased_bytes = impl_->leased_bytes;
    stats.quarantined_bytes = impl_->quarantined_bytes;
    stats.largest_free_bytes = impl_->parts.largest_bytes();
    stats.pages = impl_->pages;
    return stats;
}

Lease::Lease(Lease&& other) noexcept
    : region_(std::move(other.region_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    release();
    region_ = std::move(other.region_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    return *this;
}

Lease::~Lease() {
    release();
}

void Lease::release() {
    if (!region_) return;
    region_->give_back(data_, size_bytes_);
    region_.reset();
    data_ = nullptr;
    size_bytes_ = 0;
}

}  // namespace kvern
